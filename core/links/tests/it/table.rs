//! The states of links.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use sallyport_links_model::{Link, LinkEventKind as Kind, LinkState, LinkTable, MAX_REMEMBERED, Properties};

const SILENCE: Duration = Duration::from_millis(200);

fn link(name: &str, properties: Properties) -> Link {
    let addresses = vec!["10.0.0.2".parse().unwrap()];
    Link { name: name.to_owned(), index: 2, device: name.to_owned(), addresses, mtu_bytes: 1_500, properties }
}

fn plain(name: &str) -> Link {
    link(name, Properties::default())
}

fn events(table: &mut LinkTable) -> Vec<(String, Kind)> {
    std::iter::from_fn(|| table.poll_event()).map(|event| (event.link, event.kind)).collect()
}

fn one(name: &str, kind: Kind) -> Vec<(String, Kind)> {
    vec![(name.to_owned(), kind)]
}

#[test]
fn a_link_comes_goes_and_comes_back() {
    let (mut table, now) = (LinkTable::new(SILENCE), Instant::now());
    table.update(vec![plain("eth0")], now);
    assert_eq!(events(&mut table), one("eth0", Kind::Added));
    table.update(vec![plain("eth0")], now);
    assert_eq!(events(&mut table), []);
    table.update(vec![], now);
    assert_eq!(events(&mut table), one("eth0", Kind::Down));
    assert_eq!(table.pick(|_| 0), None);
    table.update(vec![], now);
    assert_eq!(events(&mut table), []);
    table.update(vec![plain("eth0")], now);
    assert_eq!(events(&mut table), one("eth0", Kind::Back));
    assert_eq!(table.pick(|_| 0).unwrap().name, "eth0");
}

#[test]
fn a_swapped_address_or_a_new_device_of_the_name_moves_the_link() {
    let (mut table, now) = (LinkTable::new(SILENCE), Instant::now());
    table.update(vec![plain("eth0")], now);
    events(&mut table);
    let swapped = Link { addresses: vec!["10.0.0.3".parse().unwrap()], ..plain("eth0") };
    table.update(vec![swapped.clone()], now);
    assert_eq!(events(&mut table), one("eth0", Kind::Moved));
    table.update(vec![Link { index: 3, ..swapped.clone() }], now);
    assert_eq!(events(&mut table), one("eth0", Kind::Moved));
    // Another MTU breaks no socket.
    table.update(vec![Link { index: 3, mtu_bytes: 1_400, ..swapped }], now);
    assert_eq!(events(&mut table), []);
    assert_eq!(table.links().next().unwrap().0.mtu_bytes, 1_400);
}

#[test]
fn a_link_is_silent_only_while_it_owes_an_answer() {
    let (mut table, start) = (LinkTable::new(SILENCE), Instant::now());
    table.update(vec![plain("eth0"), plain("eth1")], start);
    events(&mut table);
    assert_eq!(table.poll_timeout(), None);
    table.handle_timeout(start + SILENCE * 100);
    assert_eq!(events(&mut table), []);

    table.record_sent("eth0", start);
    table.record_sent("eth0", start + SILENCE / 2);
    assert_eq!(table.poll_timeout(), Some(start + SILENCE));
    table.record_heard("eth0", start + SILENCE / 2);
    assert_eq!(table.poll_timeout(), None);

    table.record_sent("eth0", start + SILENCE);
    table.handle_timeout(start + SILENCE * 2 - Duration::from_nanos(1));
    assert_eq!(events(&mut table), []);
    table.handle_timeout(start + SILENCE * 2);
    assert_eq!(events(&mut table), one("eth0", Kind::Silent));
    assert_eq!(table.poll_timeout(), None);
    assert_eq!(table.pick(|name| usize::from(name == "eth1") * 1_000).unwrap().name, "eth1");

    table.record_heard("eth0", start + SILENCE * 3);
    assert_eq!(events(&mut table), one("eth0", Kind::Back));
    assert_eq!(table.links().next().unwrap().1, LinkState::Up);
}

#[test]
fn a_late_answer_does_not_raise_a_link_that_is_down() {
    let (mut table, now) = (LinkTable::new(SILENCE), Instant::now());
    table.update(vec![plain("eth0")], now);
    table.record_sent("eth0", now);
    table.update(vec![], now);
    events(&mut table);
    table.record_heard("eth0", now);
    table.record_sent("eth0", now);
    table.handle_timeout(now + SILENCE * 2);
    assert_eq!(events(&mut table), []);
    assert_eq!(table.links().next().unwrap().1, LinkState::Down);
}

#[test]
fn connections_are_shared_by_weight() {
    let (mut table, now) = (LinkTable::new(SILENCE), Instant::now());
    let heavy = link("eth1", Properties { weight: 3, ..Properties::default() });
    table.update(vec![plain("eth0"), heavy], now);
    let mut counts = BTreeMap::<String, usize>::new();
    for _ in 0..400 {
        let picked = table.pick(|name| counts.get(name).copied().unwrap_or(0)).unwrap().name.clone();
        *counts.entry(picked).or_default() += 1;
    }
    assert_eq!((counts["eth0"], counts["eth1"]), (100, 300));
}

#[test]
fn standby_and_metered_links_are_used_when_no_other_is_there() {
    let (mut table, now) = (LinkTable::new(SILENCE), Instant::now());
    let standby = link("wlan0", Properties { is_standby: true, ..Properties::default() });
    let metered = link("wwan0", Properties { is_metered: true, weight: 1_000, ..Properties::default() });
    let all = [metered, standby, plain("eth0")];
    for (there, expected) in [(3, "eth0"), (2, "wlan0"), (1, "wwan0")] {
        table.update(all[..there].to_vec(), now);
        assert_eq!(table.pick(|name| usize::from(name == expected) * 1_000).unwrap().name, expected);
    }
    // The last one stays in use although it is silent.
    table.record_sent("wwan0", now);
    table.handle_timeout(now + SILENCE);
    assert_eq!(table.pick(|_| 0).unwrap().name, "wwan0");
}

#[test]
fn links_that_are_down_are_forgotten_at_a_bound() {
    let (mut table, start) = (LinkTable::new(SILENCE), Instant::now());
    for number in 0..1_000_u32 {
        table.update(vec![plain(&format!("ppp{number}"))], start + SILENCE * number);
        assert!(table.links().count() <= MAX_REMEMBERED);
    }
    assert_eq!(table.pick(|_| 0).unwrap().name, "ppp999");
    assert!(table.links().any(|(link, ..)| link.name == "ppp998"));
    assert!(!table.links().any(|(link, ..)| link.name == "ppp0"));
}
