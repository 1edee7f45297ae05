//! A peer that has the keys and is hostile, and strangers that have none.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sallyport_multipath::{Association, Config, PathId, PathSettings, Refused, Side};

use crate::{
    packet_fuzz::{Forger, victim},
    simulator::{EDGE, Link, Stream, World, ms},
};

const PING: &[u8] = &[1];

fn data(sequence: u64, offset: u16, is_last: bool, bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u16).to_be_bytes();
    [&[2], &sequence.to_be_bytes()[..], &offset.to_be_bytes(), &[is_last.into()], &length, bytes].concat()
}

fn ack(path: u16, last: u64, length: u64, delay_micros: u32) -> Vec<u8> {
    let (last, length) = (&last.to_be_bytes()[2..], &length.to_be_bytes()[3..]);
    [&[3], &path.to_be_bytes()[..], &delay_micros.to_be_bytes(), &[1], last, length].concat()
}

fn removed(path: u16) -> Vec<u8> {
    [&[4], &path.to_be_bytes()[..], &[0, 0, 0, 9, 100, 0b1100]].concat()
}

fn edge(now: Instant) -> (Association, Forger) {
    (victim(Side::Edge, Config::default(), now), Forger::new(Side::Edge))
}

#[test]
fn a_packet_with_one_wrong_frame_counts_for_nothing() {
    let now = Instant::now();
    let (mut edge, forger) = edge(now);
    let good = data(0, 0, true, b"good");
    edge.handle(&mut forger.seal(0, 0, &data(5, 10, true, b"end")), now).unwrap();
    let wrong: [(&str, Vec<u8>); 7] = [
        ("an acknowledgement of what was never sent", ack(0, 7, 7, 0)),
        ("a part beyond the end", data(5, 20, false, b"more")),
        ("another end", data(5, 0, true, b"x")),
        ("a datagram far ahead", data(1 << 40, 0, true, b"x")),
        ("parts that contradict each other", [data(6, 0, true, b"six"), data(6, 3, false, b"x")].concat()),
        ("datagrams in no order", [data(8, 0, true, b"8"), data(7, 0, true, b"7")].concat()),
        ("a frame that does not exist", vec![99]),
    ];
    for (what, frames) in wrong {
        for packet in [[good.clone(), frames.clone()].concat(), [frames.clone(), good.clone()].concat()] {
            let before = edge.counts();
            assert_eq!(edge.handle(&mut forger.seal(0, 1, &packet), now), Err(Refused::Malformed), "{what}");
            assert_eq!(edge.receive(), None, "{what}: a frame was taken");
            assert_eq!(edge.counts().refused_malformed, before.refused_malformed + 1);
        }
        assert_eq!(edge.handle(&mut forger.seal(1, 0, &frames), now), Err(Refused::Malformed), "{what}, by a new path");
        assert_eq!(edge.paths().collect::<Vec<_>>(), [PathId(0)], "{what}: the path was opened");
    }
    edge.handle(&mut forger.seal(0, 1, &good), now).unwrap();
    assert_eq!(edge.receive(), Some(Bytes::from_static(b"good")));
}

#[test]
fn a_packet_has_a_bound_of_acknowledgements() {
    let now = Instant::now();
    let (mut edge, forger) = edge(now);
    edge.handle(&mut forger.seal(0, 0, PING), now).unwrap();
    while edge.poll_transmit(now).is_some() {}
    let ack = ack(0, 0, 0, 0);
    assert!(edge.handle(&mut forger.seal(0, 1, &ack.repeat(16)), now).is_ok());
    assert_eq!(edge.handle(&mut forger.seal(0, 2, &ack.repeat(17)), now), Err(Refused::Malformed));
}

#[test]
fn a_datagram_waits_no_longer_than_the_bound_although_earlier_ones_come_late() {
    let now = Instant::now();
    let (mut edge, forger) = edge(now);
    for (number, sequence) in [9, 8, 7, 6].into_iter().enumerate() {
        let at = now + ms(100) * number as u32;
        edge.handle(&mut forger.seal(0, number as u64, &data(sequence, 0, true, &[sequence as u8])), at).unwrap();
    }
    edge.handle_timeout(now + ms(499));
    assert_eq!(edge.receive(), None);
    edge.handle_timeout(now + Config::default().reorder_wait);
    let received: Vec<u8> = std::iter::from_fn(|| edge.receive()).map(|datagram| datagram[0]).collect();
    assert_eq!(received, [6, 7, 8, 9]);
    assert_eq!(edge.counts().given_up, 6);
}

#[test]
fn datagrams_that_wait_have_a_bound_in_bytes() {
    let now = Instant::now();
    let config = Config { reorder_bytes: 100_000, ..Config::default() };
    let (mut edge, forger) = (victim(Side::Edge, config, now), Forger::new(Side::Edge));
    // Parts of one byte cost far more than a byte.
    for number in 0..5_000 {
        edge.handle(&mut forger.seal(0, number, &data(number + 1, 1, false, b"x")), now).unwrap();
    }
    assert!(edge.counts().given_up >= 4_000, "{:?}", edge.counts());
}

#[test]
fn a_peer_that_opens_and_ends_all_paths_opens_none_again() {
    let now = Instant::now();
    let (mut edge, forger) = edge(now);
    edge.handle(&mut forger.seal(9_000, 0, PING), now).unwrap();
    for path in 0..8_000 {
        edge.handle(&mut forger.seal(9_000, u64::from(path) + 1, &removed(path)), now).unwrap();
    }
    for path in [0, 1, 4_000, 7_999] {
        assert_eq!(edge.handle(&mut forger.seal(path, 0, PING), now), Err(Refused::NoPath));
    }
    assert!(edge.handle(&mut forger.seal(8_000, 0, PING), now).is_ok());
    for path in 10_000..10_014 {
        assert!(edge.handle(&mut forger.seal(path, 0, PING), now).is_ok());
    }
    assert_eq!(edge.handle(&mut forger.seal(10_014, 0, PING), now), Err(Refused::NoPath), "17 paths");
}

/// A peer acknowledges what it never got, ever faster: the window grows, and what is in flight has a bound.
#[test]
fn acknowledgements_of_what_never_came_do_not_take_all_memory() {
    const MAX_IN_FLIGHT_BYTES: u64 = 64 << 20;
    const ROUND_TRIP_MILLIS: usize = 90;
    let mut now = Instant::now();
    let (mut connector, forger) = (victim(Side::Connector, Config::default(), now), Forger::new(Side::Connector));
    let path = connector.add_path(PathSettings::default(), now).unwrap();
    // Packets sent until each millisecond.
    let mut sent: Vec<u64> = vec![0];
    while sent.len() < 3_000 {
        now += ms(1);
        if let Some(&packets) =
            sent.len().checked_sub(ROUND_TRIP_MILLIS).and_then(|at| sent.get(at)).filter(|&&n| n > 0)
        {
            let frames = ack(0, packets - 1, packets - 1, 0);
            connector.handle(&mut forger.seal(0, sent.len() as u64, &frames), now).unwrap();
        }
        if connector.poll_timeout().is_some_and(|at| at <= now) {
            connector.handle_timeout(now);
        }
        while connector.send(Bytes::from_static(&[0; 60_000]), now).is_ok() {}
        let packets = std::iter::from_fn(|| connector.poll_transmit(now)).count() as u64;
        sent.push(sent[sent.len() - 1] + packets);
        let in_flight = connector.path_stats(path).unwrap().in_flight;
        assert!(in_flight <= MAX_IN_FLIGHT_BYTES + 1_500, "{in_flight}");
        if in_flight >= MAX_IN_FLIGHT_BYTES {
            return;
        }
    }
    panic!("the bound was never reached: {:?}", connector.path_stats(path));
}

#[test]
fn an_address_gets_at_most_three_times_what_came_from_it_until_it_has_answered() {
    // The connector says that it is at an address where nobody answers; the edge has much to send.
    let now = Instant::now();
    let (mut edge, forger) = edge(now);
    let mut packet = forger.seal(0, 0, PING);
    let mut allowed = 3 * packet.len();
    edge.handle(&mut packet, now).unwrap();
    edge.validate(PathId(0), [9; 8], packet.len(), now);
    let (mut sent, mut challenges) = (0, 0);
    for millis in 0..20_000 {
        let now = now + ms(millis);
        if edge.poll_timeout().is_some_and(|at| at <= now) {
            edge.handle_timeout(now);
        }
        // A full queue refuses.
        let _ = edge.send(Bytes::from_static(&[0; 1_000]), now);
        while let Some(transmit) = edge.poll_transmit(now) {
            sent += transmit.bytes.len();
            challenges += 1;
        }
        if millis % 1_000 == 999 {
            // The connector acknowledges all that it may have got, and answers what it does not know.
            let number = millis / 1_000 + 1;
            let frames = [ack(0, challenges - 1, challenges - 1, 0), vec![7; 9]].concat();
            let mut packet = forger.seal(0, number, &frames);
            allowed += 3 * packet.len();
            edge.handle(&mut packet, now).unwrap();
        }
        assert!(sent <= allowed, "{sent} bytes for {allowed}");
    }
    assert!(!edge.is_validated(PathId(0)) && challenges > 0);
    let now = now + Duration::from_secs(30);
    edge.handle(&mut forger.seal(0, 99, &[7, 9, 9, 9, 9, 9, 9, 9, 9]), now).unwrap();
    assert!(edge.is_validated(PathId(0)));
    assert!(std::iter::from_fn(|| edge.poll_transmit(now)).any(|transmit| transmit.bytes.len() > 1_000));
}

#[test]
fn a_thief_that_repeats_packets_from_its_own_address_turns_no_stream_to_itself() {
    let mut world = World::new(Config::default(), &[Link::new(20.0, 5), Link::new(20.0, 10)]);
    let mut stream = Stream::new(1_000, Some(8e6));
    world.run(ms(1_000), &mut stream);
    // The thief is nearer than the link, and then nobody is at its address.
    world.link(0).address = Some(66);
    world.run(ms(15), &mut stream);
    world.link(0).address = None;
    world.run(ms(1_000), &mut stream);
    let (to, from) = world.traffic[&66];
    assert!(from > 0 && to <= 3 * from, "{to} bytes for {from}");
    assert!(world.ends[EDGE].is_validated(PathId(0)), "the path is back at its address");
}
