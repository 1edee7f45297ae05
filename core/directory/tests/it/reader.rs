//! Tests of the reader, message by message.

use std::time::{Duration, Instant};

use sallyport_directory::{
    Change, DirectoryWrite, EdgeCard, EdgeState, HEALTH_PACE, Holder, Lease, Reader, SILENCE, TERM, TunnelEntry,
};
use sallyport_model::{HealthFailure, HealthFailureCode, OriginHealth, TunnelPresence};

use crate::{begin, card, presence};

const EPOCH: u64 = 7;

fn write(holder: &mut Holder, now: Instant) -> (Vec<Lease>, Vec<TunnelEntry>) {
    let (mut leases, mut entries) = (Vec::new(), Vec::new());
    while let Some(write) = holder.poll_write(now) {
        match write {
            DirectoryWrite::Lease(lease) => leases.push(lease),
            DirectoryWrite::TunnelEntry(entry) => {
                holder.handle_written(entry.tunnel, entry.version);
                entries.push(entry);
            }
        }
    }
    (leases, entries)
}

fn changes(reader: &mut Reader) -> Vec<Change> {
    std::iter::from_fn(|| reader.poll_change()).collect()
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_tunnel_is_known_once_written_and_gone_when_its_lease_expires() {
    let now = begin();
    let (mut holder, mut reader) = (Holder::new(card(1), EPOCH, now), Reader::new(now));
    holder.handle_up(presence(1, 0));
    let (leases, entries) = write(&mut holder, now);
    reader.handle_lease(leases[0].clone(), true, now).unwrap();
    reader.handle_tunnel(entries[0].clone(), true, now).unwrap();
    reader.handle_tunnel(entries[0].clone(), true, now).unwrap();
    let edge = card(1).edge;
    assert_eq!(changes(&mut reader), [Change::EdgeCame(card(1)), Change::TunnelCame(edge, presence(1, 0))]);
    assert_eq!(reader.edges().next().unwrap().tunnels, 1);
    // Beats of another edge arrive, those of this edge do not.
    for second in 1..5 {
        reader.handle_delivery(now + s(second));
        reader.handle_timeout(now + s(second));
    }
    assert_eq!((changes(&mut reader), reader.poll_timeout(now + s(4))), (vec![], Some(now + TERM)));
    reader.handle_timeout(now + TERM);
    let gone = [Change::TunnelLeft(edge, presence(1, 0).tunnel), Change::EdgeLeft(edge)];
    assert_eq!(changes(&mut reader), gone);
    assert!(reader.edges().next().is_none() && reader.tunnels(edge).next().is_none());
    // An earlier message, repeated, restores nothing.
    reader.handle_lease(leases[0].clone(), true, now + s(6)).unwrap();
    reader.handle_tunnel(entries[0].clone(), true, now + s(6)).unwrap();
    assert_eq!(changes(&mut reader), []);
    // A further beat does.
    let (leases, _) = write(&mut holder, now + s(7));
    reader.handle_lease(leases[0].clone(), true, now + s(7)).unwrap();
    assert_eq!(changes(&mut reader).len(), 2);
}

#[test]
fn what_is_read_from_the_bucket_proves_nothing_before_a_further_beat() {
    let now = begin();
    let (mut holder, mut reader) = (Holder::new(card(1), EPOCH, now), Reader::new(now));
    holder.handle_up(presence(1, 0));
    let (leases, entries) = write(&mut holder, now);
    reader.handle_tunnel(entries[0].clone(), false, now).unwrap();
    reader.handle_lease(leases[0].clone(), false, now).unwrap();
    reader.handle_lease(leases[0].clone(), true, now).unwrap();
    assert_eq!(changes(&mut reader), [], "the edge may have died years ago");
    let (leases, _) = write(&mut holder, now + s(1));
    reader.handle_lease(leases[0].clone(), true, now + s(1)).unwrap();
    assert_eq!(changes(&mut reader).len(), 2);
}

#[test]
fn what_was_lost_is_asked_for_after_two_beats() {
    let now = begin();
    let (mut holder, mut reader) = (Holder::new(card(1), EPOCH, now), Reader::new(now));
    (1..=3).for_each(|number| holder.handle_up(presence(number, 0)));
    let (leases, entries) = write(&mut holder, now);
    for write in [&entries[0], &entries[2]] {
        reader.handle_tunnel(write.clone(), true, now).unwrap();
    }
    reader.handle_lease(leases[0].clone(), true, now).unwrap();
    assert_eq!(reader.poll_ask(), None, "it may be on its way");
    let (leases, _) = write(&mut holder, now + s(1));
    reader.handle_lease(leases[0].clone(), true, now + s(1)).unwrap();
    let ask = reader.poll_ask().expect("asked");
    assert_eq!((ask.edge, reader.poll_ask()), (card(1).edge, None));
    reader.handle_listing(ask, entries, now + s(1)).unwrap();
    assert_eq!(reader.edges().next().unwrap().tunnels, 3);
    let (leases, _) = write(&mut holder, now + s(2));
    reader.handle_lease(leases[0].clone(), true, now + s(2)).unwrap();
    assert_eq!(reader.poll_ask(), None);

    // A tunnel that is gone and that the bucket has dropped is removed too.
    holder.handle_down(presence(2, 0).tunnel);
    for second in [3, 4] {
        let (leases, _) = write(&mut holder, now + s(second));
        reader.handle_lease(leases[0].clone(), true, now + s(second)).unwrap();
    }
    changes(&mut reader);
    let ask = reader.poll_ask().expect("asked");
    let left = vec![held_of(&holder, 1, 1), held_of(&holder, 3, 3)];
    reader.handle_listing(ask, left, now + s(4)).unwrap();
    assert_eq!(changes(&mut reader), [Change::TunnelLeft(card(1).edge, presence(2, 0).tunnel)]);
}

fn held_of(_holder: &Holder, number: u8, version: u64) -> TunnelEntry {
    TunnelEntry {
        schema: 1,
        edge: card(1).edge,
        epoch: EPOCH,
        version,
        tunnel: presence(number, 0).tunnel,
        presence: Some(presence(number, 0)),
    }
}

#[test]
fn a_later_life_of_an_edge_has_the_tunnels_of_a_former_one_only_until_its_lease_says_otherwise() {
    let now = begin();
    let (mut former, mut reader) = (Holder::new(card(1), EPOCH, now), Reader::new(now));
    former.handle_up(presence(1, 0));
    let (old_leases, old_entries) = write(&mut former, now);
    reader.handle_lease(old_leases[0].clone(), true, now).unwrap();
    reader.handle_tunnel(old_entries[0].clone(), true, now).unwrap();
    changes(&mut reader);
    let mut later = Holder::new(card(1), EPOCH + 1, now);
    later.handle_up(presence(2, 0));
    let (leases, entries) = write(&mut later, now);
    reader.handle_tunnel(entries[0].clone(), true, now).unwrap();
    reader.handle_lease(leases[0].clone(), true, now).unwrap();
    let edge = card(1).edge;
    let wanted = [Change::TunnelCame(edge, presence(2, 0)), Change::TunnelLeft(edge, presence(1, 0).tunnel)];
    assert_eq!(changes(&mut reader), wanted);
    // Late messages of the former run.
    reader.handle_tunnel(old_entries[0].clone(), true, now).unwrap();
    reader.handle_lease(Lease { beat: 9, ..old_leases[0].clone() }, true, now).unwrap();
    assert_eq!(changes(&mut reader), []);
}

#[test]
fn a_process_that_takes_an_edge_over_hands_its_tunnels_on_without_a_gap() {
    let now = begin();
    let (mut former, mut reader) = (Holder::new(card(1), EPOCH, now), Reader::new(now));
    (1..=3).for_each(|number| former.handle_up(presence(number, 0)));
    let (leases, entries) = write(&mut former, now);
    reader.handle_lease(leases[0].clone(), true, now).unwrap();
    entries.into_iter().for_each(|entries| reader.handle_tunnel(entries, true, now).unwrap());
    changes(&mut reader);
    // Two of three tunnels have moved; their entries arrive after the lease, and one is lost at first.
    let mut later = Holder::new(card(1), EPOCH + 1, now);
    (1..=2).for_each(|number| later.handle_up(presence(number, 9)));
    let (leases, entries) = write(&mut later, now);
    reader.handle_lease(leases[0].clone(), true, now).unwrap();
    let edge = card(1).edge;
    assert_eq!((changes(&mut reader), reader.tunnels(edge).count()), (Vec::new(), 3));
    reader.handle_tunnel(entries[0].clone(), true, now).unwrap();
    assert_eq!(changes(&mut reader), [Change::TunnelCame(edge, presence(1, 9))]);
    let (leases, _) = write(&mut later, now + s(1));
    reader.handle_lease(leases[0].clone(), true, now + s(1)).unwrap();
    assert_eq!(reader.tunnels(edge).count(), 3, "one is missing still");
    reader.handle_tunnel(entries[1].clone(), true, now + s(1)).unwrap();
    let (leases, _) = write(&mut later, now + s(2));
    reader.handle_lease(leases[0].clone(), true, now + s(2)).unwrap();
    let gone = [Change::TunnelCame(edge, presence(2, 9)), Change::TunnelLeft(edge, presence(3, 0).tunnel)];
    assert_eq!((changes(&mut reader).as_slice(), reader.tunnels(edge).count()), (gone.as_slice(), 2));
    // Tunnels taken over from a former run expire if the new run sends nothing to compare.
    let mut last = Holder::new(card(1), EPOCH + 2, now);
    (4..=5).for_each(|number| last.handle_up(presence(number, 0)));
    for second in 0..=5 {
        let (leases, _) = write(&mut last, now + s(3 + second));
        leases.into_iter().for_each(|lease| reader.handle_lease(lease, true, now + s(3 + second)).unwrap());
        reader.handle_timeout(now + s(3 + second));
    }
    assert_eq!(reader.tunnels(edge).count(), 0);
}

#[test]
fn silence_is_the_loss_of_the_bus_and_not_the_end_of_all_edges() {
    let now = begin();
    let (mut holder, mut reader) = (Holder::new(card(1), EPOCH, now), Reader::new(now));
    let (leases, _) = write(&mut holder, now);
    reader.handle_lease(leases[0].clone(), true, now).unwrap();
    changes(&mut reader);
    let later = now + Duration::from_secs(3_600);
    assert_eq!((reader.stale_since(later), reader.poll_timeout(later)), (Some(now), None));
    reader.handle_timeout(later);
    assert_eq!((changes(&mut reader), reader.edges().count()), (vec![], 1));
    // The bus is back, this edge is not: it has one more term.
    reader.handle_delivery(later);
    assert_eq!((reader.stale_since(later + SILENCE), reader.poll_timeout(later)), (None, Some(later + TERM)));
    for second in 1..=5 {
        reader.handle_delivery(later + s(second));
        reader.handle_timeout(later + s(second));
    }
    assert_eq!(changes(&mut reader), [Change::EdgeLeft(card(1).edge)]);
}

#[test]
fn an_edge_that_is_emptied_says_so_at_once_and_keeps_its_tunnels() {
    let now = begin();
    let (mut holder, mut reader) = (Holder::new(card(1), EPOCH, now), Reader::new(now));
    holder.handle_up(presence(1, 0));
    let (leases, entries) = write(&mut holder, now);
    leases.into_iter().for_each(|lease| reader.handle_lease(lease, true, now).unwrap());
    entries.into_iter().for_each(|entries| reader.handle_tunnel(entries, true, now).unwrap());
    changes(&mut reader);
    let draining = EdgeCard { state: EdgeState::Draining, ..card(1) };
    holder.handle_card(draining.clone(), now);
    let (leases, entries) = write(&mut holder, now);
    assert!(leases.len() == 1 && entries.is_empty(), "one beat more, and nothing else: {leases:?} {entries:?}");
    reader.handle_lease(leases[0].clone(), true, now).unwrap();
    assert_eq!(changes(&mut reader), [Change::EdgeCame(draining.clone())]);
    assert_eq!(reader.tunnels(draining.edge).count(), 1);
    holder.handle_card(draining, now);
    assert!(write(&mut holder, now).0.is_empty(), "an entry is not written a second time before the next beat");
}

#[test]
fn an_edge_that_ends_in_order_is_gone_at_once() {
    let now = begin();
    let (mut holder, mut reader) = (Holder::new(card(1), EPOCH, now), Reader::new(now));
    let (leases, _) = write(&mut holder, now);
    reader.handle_lease(leases[0].clone(), true, now).unwrap();
    holder.handle_end(now);
    let (leases, entries) = write(&mut holder, now);
    assert!(leases[0].is_last && entries.is_empty() && write(&mut holder, now + s(9)).0.is_empty());
    reader.handle_lease(leases[0].clone(), true, now).unwrap();
    assert_eq!(reader.edges().count(), 0);
}

#[test]
fn what_goes_back_and_forth_is_written_once_in_a_while() {
    let now = begin();
    let mut holder = Holder::new(card(1), EPOCH, now);
    let finds = |health| TunnelPresence { health, ..presence(1, 0) };
    let healths = |entries: Vec<TunnelEntry>| {
        entries.into_iter().map(|entries| entries.presence.unwrap().health).collect::<Vec<_>>()
    };
    holder.handle_up(finds(OriginHealth::Well));
    assert_eq!(healths(write(&mut holder, now).1), [OriginHealth::Well]);
    // The first change at once, the next ones after a pause, with the state at that time.
    holder.handle_up(finds(OriginHealth::Unwell));
    assert_eq!(healths(write(&mut holder, now).1), [OriginHealth::Unwell]);
    holder.handle_up(finds(OriginHealth::Well));
    holder.handle_up(finds(OriginHealth::LeftOut));
    assert_eq!((write(&mut holder, now).1, holder.poll_timeout()), (vec![], now + HEALTH_PACE));
    assert_eq!(healths(write(&mut holder, now + HEALTH_PACE).1), [OriginHealth::LeftOut]);
    // A reverted change is not written at all.
    holder.handle_up(finds(OriginHealth::Well));
    holder.handle_up(finds(OriginHealth::LeftOut));
    assert_eq!((write(&mut holder, now + 9 * HEALTH_PACE).1, holder.unwritten()), (vec![], 0));
    // Other changes, and removals, do not wait.
    holder.handle_up(finds(OriginHealth::Well));
    assert_eq!(healths(write(&mut holder, now + 9 * HEALTH_PACE).1), [OriginHealth::Well]);
    holder.handle_up(finds(OriginHealth::Unwell));
    holder.handle_up(TunnelPresence { since: 1, ..finds(OriginHealth::Unwell) });
    assert_eq!(healths(write(&mut holder, now + 9 * HEALTH_PACE).1), [OriginHealth::Unwell]);
    holder.handle_up(TunnelPresence { since: 1, ..finds(OriginHealth::Well) });
    holder.handle_down(presence(1, 0).tunnel);
    let (_, entries) = write(&mut holder, now + 20 * HEALTH_PACE);
    assert_eq!(entries.iter().map(|entries| entries.presence.is_some()).collect::<Vec<_>>(), [false]);
    assert_eq!(holder.unwritten(), 0);
}

#[test]
fn why_an_origin_fails_is_written_as_its_health_is() {
    let now = begin();
    let mut holder = Holder::new(card(1), EPOCH, now);
    let finds = |why: Option<&str>| TunnelPresence {
        health: if why.is_some() { OriginHealth::Unwell } else { OriginHealth::Well },
        failure: why.map(|why| HealthFailure::new(HealthFailureCode::Status, why, 7)),
        ..presence(1, 0)
    };
    let whys = |entries: Vec<TunnelEntry>| {
        entries
            .into_iter()
            .map(|entries| entries.presence.unwrap().failure.map(|failure| failure.message))
            .collect::<Vec<_>>()
    };
    holder.handle_up(finds(None));
    assert_eq!(whys(write(&mut holder, now).1), [None]);
    holder.handle_up(finds(Some("status 500")));
    assert_eq!(whys(write(&mut holder, now).1), [Some("status 500".to_owned())]);
    for status in 0..50 {
        holder.handle_up(finds(Some(&format!("status {status}"))));
        assert_eq!(write(&mut holder, now).1, vec![], "not for each of them");
    }
    assert_eq!(whys(write(&mut holder, now + HEALTH_PACE).1), [Some("status 49".to_owned())]);
    holder.handle_up(finds(None));
    assert_eq!(whys(write(&mut holder, now + 2 * HEALTH_PACE).1), [None]);
}
