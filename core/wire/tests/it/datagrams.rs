//! Flows and datagrams: two ends against each other, and each end against invalid input.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use proptest::prelude::*;
use sallyport_model::TunnelId;
use sallyport_wire::{
    DatagramInput, DatagramLeg, FlowEnd, FlowId, FlowOpen, FlowOpenError, Refusal, Side, Violation,
    datagram::{DATAGRAM_COST_BYTES, MAX_DATAGRAM_AGE, MAX_FLOW_QUEUED_BYTES, MAX_QUEUED_BYTES},
    frame::MAX_DATAGRAM_BYTES,
};

fn open() -> FlowOpen {
    FlowOpen {
        tunnel: TunnelId::from_bytes([7; 16]),
        client: "203.0.113.9:50000".parse().unwrap(),
        destination: "[2001:db8::1]:53".parse().unwrap(),
        opened_at_us: 1_700_000_000_000_000,
    }
}

fn transmit(leg: &mut DatagramLeg, now: Instant) -> Vec<u8> {
    let mut out = Vec::new();
    leg.poll_transmit(&mut out, usize::MAX, now);
    out
}

/// A received item, with datagrams as owned bytes.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    Opened(u32, FlowOpen),
    Datagram(u32, Vec<u8>),
    Closed(u32, FlowEnd),
    Ignored,
    Refused(String),
}

/// Feeds all the bytes, which must be whole frames.
fn feed(leg: &mut DatagramLeg, bytes: &[u8]) -> Result<Vec<Came>, Violation> {
    let mut came = Vec::new();
    let mut rest = bytes;
    while let Some((len, input)) = leg.take_input(rest)? {
        rest = &rest[len..];
        came.push(match input {
            DatagramInput::Opened(id, open) => Came::Opened(id.0, open),
            DatagramInput::Datagram(id, data) => Came::Datagram(id.0, data.to_vec()),
            DatagramInput::Closed(id, end) => Came::Closed(id.0, end),
            DatagramInput::Ignored => Came::Ignored,
            DatagramInput::Refused(refusal) => Came::Refused(refusal.code),
        });
    }
    assert!(rest.is_empty(), "{} bytes are no whole frame", rest.len());
    Ok(came)
}

fn pair() -> (DatagramLeg, DatagramLeg, Instant) {
    (DatagramLeg::new(Side::Edge, 100), DatagramLeg::new(Side::Connector, 100), Instant::now())
}

#[test]
fn a_question_and_its_answer() {
    let (mut edge, mut connector, now) = pair();
    let id = edge.open(&open()).unwrap();
    assert!(edge.send(id, b"question", now) && edge.send(id, b"", now));
    let came = feed(&mut connector, &transmit(&mut edge, now)).unwrap();
    assert_eq!(came, [Came::Opened(1, open()), Came::Datagram(1, b"question".to_vec()), Came::Datagram(1, Vec::new())]);
    let long = vec![9; MAX_DATAGRAM_BYTES];
    assert!(connector.send(id, &long, now));
    assert!(!connector.send(id, &[9; MAX_DATAGRAM_BYTES + 1], now), "too long for UDP");
    let answer = transmit(&mut connector, now);
    assert_eq!(feed(&mut edge, &answer).unwrap(), [Came::Datagram(1, long)]);
    edge.close(id, FlowEnd::Idle);
    assert!(!edge.send(id, b"more", now));
    assert_eq!(feed(&mut connector, &transmit(&mut edge, now)).unwrap(), [Came::Closed(1, FlowEnd::Idle)]);
    assert_eq!(feed(&mut edge, &answer).unwrap(), [Came::Ignored], "it crossed the end");
    assert!(!connector.send(id, b"more", now) && !connector.wants_transmit() && !edge.wants_transmit());
    let (edge, connector) = (edge.stats(), connector.stats());
    assert_eq!((edge.flows, edge.sent, edge.received, edge.ignored), (0, 2, 1, 1));
    assert_eq!((connector.flows, connector.sent, connector.received), (0, 1, 2));
}

#[test]
fn crossing_ends_are_no_violation_and_losses_are_not_reported() {
    let (mut edge, mut connector, now) = pair();
    let id = edge.open(&open()).unwrap();
    feed(&mut connector, &transmit(&mut edge, now)).unwrap();
    edge.close(id, FlowEnd::Lost);
    connector.close(id, FlowEnd::Unreachable);
    let (to_connector, to_edge) = (transmit(&mut edge, now), transmit(&mut connector, now));
    assert_eq!(to_connector.last(), Some(&(FlowEnd::Done as u8)));
    assert_eq!(feed(&mut connector, &to_connector).unwrap(), [Came::Ignored]);
    assert_eq!(feed(&mut edge, &to_edge).unwrap(), [Came::Ignored]);
}

#[test]
fn what_waits_too_long_is_dropped_and_what_comes_after_it_is_not() {
    let (mut edge, mut connector, mut now) = pair();
    let id = edge.open(&open()).unwrap();
    assert!(edge.send(id, b"stale", now));
    now += MAX_DATAGRAM_AGE / 2;
    assert!(edge.send(id, b"fresh", now));
    now += MAX_DATAGRAM_AGE / 2 + Duration::from_millis(1);
    let came = feed(&mut connector, &transmit(&mut edge, now)).unwrap();
    assert_eq!(came[1..], [Came::Datagram(1, b"fresh".to_vec())]);
    assert_eq!((edge.stats().dropped_old, edge.stats().sent), (1, 1));
}

#[test]
fn a_flow_that_floods_loses_its_oldest_and_leaves_others_alone() {
    let (mut edge, _, now) = pair();
    let quiet = edge.open(&open()).unwrap();
    assert!(edge.send(quiet, b"quiet", now));
    let floods: Vec<FlowId> = (0..20).map(|_| edge.open(&open()).unwrap()).collect();
    let mut sent = 0_u64;
    for round in 0..3_000_u32 {
        for flood in &floods {
            let mut datagram = vec![0; 1_200];
            datagram[..4].copy_from_slice(&round.to_be_bytes());
            assert!(edge.send(*flood, &datagram, now), "the newest gets in");
            sent += 1;
        }
        assert!(edge.buffered_bytes() <= MAX_QUEUED_BYTES + 2_000);
    }
    assert!(edge.send(quiet, b"still quiet", now));
    let mut connector = DatagramLeg::new(Side::Connector, 100);
    let mut per_flow: HashMap<u32, Vec<Vec<u8>>> = HashMap::new();
    for came in feed(&mut connector, &transmit(&mut edge, now)).unwrap() {
        if let Came::Datagram(id, data) = came {
            per_flow.entry(id).or_default().push(data);
        }
    }
    assert_eq!(per_flow[&quiet.0], [b"quiet".to_vec(), b"still quiet".to_vec()], "it lost nothing");
    let arrived: usize = floods.iter().map(|flood| per_flow[&flood.0].len()).sum();
    assert_eq!(sent, arrived as u64 + edge.stats().dropped_full);
    let share = MAX_QUEUED_BYTES / (1_200 + DATAGRAM_COST_BYTES) / floods.len();
    for flood in &floods {
        let came = &per_flow[&flood.0];
        assert_eq!(came.last().unwrap()[..4], 2_999_u32.to_be_bytes(), "the newest came through");
        assert!(came.len() >= share / 3, "{} of a share of {share}", came.len());
    }
}

#[test]
fn one_flow_has_no_more_waiting_than_its_bound() {
    let (mut edge, mut connector, now) = pair();
    let id = edge.open(&open()).unwrap();
    for _ in 0..100 {
        assert!(edge.send(id, &[1; MAX_DATAGRAM_BYTES], now));
    }
    assert!(edge.buffered_bytes() <= MAX_FLOW_QUEUED_BYTES + 100);
    let came = feed(&mut connector, &transmit(&mut edge, now)).unwrap().len() as u64 - 1;
    assert_eq!(came + edge.stats().dropped_full, 100);
}

#[test]
fn flows_take_turns_and_pieces_are_of_about_the_size_asked_for() {
    let (mut edge, mut connector, now) = pair();
    let ids: Vec<FlowId> = (0..4).map(|_| edge.open(&open()).unwrap()).collect();
    for id in &ids {
        for _ in 0..100 {
            assert!(edge.send(*id, &[2; 1_000], now));
        }
    }
    let mut out = Vec::new();
    assert!(edge.poll_transmit(&mut out, 70_000, now) < 72_000);
    let mut counts = [0; 4];
    for came in feed(&mut connector, &out).unwrap() {
        if let Came::Datagram(id, _) = came {
            counts[id as usize - 1] += 1;
        }
    }
    assert!(counts.iter().all(|count| (15..=20).contains(count)), "{counts:?}");
}

#[test]
fn flows_are_bounded_at_either_end() {
    let now = Instant::now();
    let (mut edge, mut connector) = (DatagramLeg::new(Side::Edge, 3), DatagramLeg::new(Side::Connector, 2));
    let ids: Vec<FlowId> = (0..3).map(|_| edge.open(&open()).unwrap()).collect();
    assert_eq!(edge.open(&open()), Err(FlowOpenError::TooMany));
    assert_eq!(connector.open(&open()), Err(FlowOpenError::NotEdge));
    assert!(edge.send(ids[2], b"to a closed flow", now));
    let came = feed(&mut connector, &transmit(&mut edge, now)).unwrap();
    assert_eq!(came[2..], [Came::Ignored, Came::Ignored], "the third one and its datagram");
    assert_eq!(feed(&mut edge, &transmit(&mut connector, now)).unwrap(), [Came::Closed(3, FlowEnd::Busy)]);
    edge.close(ids[0], FlowEnd::Done);
    assert_eq!(edge.open(&open()), Ok(FlowId(4)), "ids are never used twice");
    let came = feed(&mut connector, &transmit(&mut edge, now)).unwrap();
    assert_eq!(came, [Came::Closed(1, FlowEnd::Done), Came::Opened(4, open())]);
}

#[test]
fn an_edge_that_opens_without_reading_is_cut_off() {
    let now = Instant::now();
    let mut edge = DatagramLeg::new(Side::Edge, 65_536);
    let mut connector = DatagramLeg::new(Side::Connector, 1);
    let mut outcome = Ok(Vec::new());
    for _ in 0..200_000 {
        let id = edge.open(&open()).unwrap();
        edge.close(id, FlowEnd::Done);
        if edge.buffered_bytes() > 500_000 {
            outcome = feed(&mut connector, &transmit(&mut edge, now));
            // Keeps the only place occupied.
            if outcome.is_err() {
                break;
            }
        }
    }
    // A flow that is opened and closed at once leaves nothing behind.
    assert!(outcome.is_ok() && connector.buffered_bytes() == 0);
    let keep = edge.open(&open()).unwrap();
    for _ in 0..200_000 {
        let id = edge.open(&open()).unwrap();
        edge.close(id, FlowEnd::Done);
        if edge.buffered_bytes() > 500_000 {
            outcome = feed(&mut connector, &transmit(&mut edge, now));
            if outcome.is_err() {
                break;
            }
        }
    }
    assert!(edge.is_open(keep));
    assert!(matches!(outcome, Err(Violation::TooManyUnanswered { .. })), "{outcome:?}");
}

#[test]
fn what_may_not_come_is_refused_with_a_sentence() {
    let open_frame = |edge: &mut DatagramLeg| {
        edge.open(&open()).unwrap();
        transmit(edge, Instant::now())
    };
    let mut edge = DatagramLeg::new(Side::Edge, 10);
    let frame = open_frame(&mut edge);
    let mut connector = DatagramLeg::new(Side::Connector, 10);
    feed(&mut connector, &frame).unwrap();
    let error = feed(&mut connector, &frame).unwrap_err();
    assert_eq!(error.to_string(), "the peer sent FLOW_OPEN with an id that is not new");
    let error = feed(&mut edge, &frame).unwrap_err();
    assert_eq!(error.to_string(), "the connector sent FLOW_OPEN, which only the other side may send");
    for (bytes, hint) in [
        (&[0x31, 0, 0, 5, 0, 0, 0, 2, 1][..], "for a flow that was never opened"),
        (&[0x31, 0, 0, 4, 0, 0, 0, 0], "for a flow that was never opened"),
        (&[0x31, 0, 0, 3, 0, 0, 0], "with a payload of 3 bytes"),
        (&[0x31, 1, 0, 0], "with a payload of 65536 bytes instead of 4 to 65511"),
        (&[0x32, 0, 0, 4, 0, 0, 0, 1], "with a payload of 4 bytes"),
        (&[0x13, 0, 0, 1, 1], "does not belong on this kind of connection"),
        (&[0x77, 0, 0, 0], "unknown type"),
    ] {
        let error = connector.take_input(bytes).unwrap_err().to_string();
        assert!(error.contains(hint), "{error}");
    }
    let mut refused = Vec::new();
    Refusal::new("protocol", "no such session", false).encode(&mut refused);
    assert_eq!(feed(&mut connector, &refused).unwrap(), [Came::Refused("protocol".to_owned())]);
}

#[test]
fn fields_that_a_later_version_appends_are_ignored() {
    let mut edge = DatagramLeg::new(Side::Edge, 10);
    edge.open(&open()).unwrap();
    let mut frame = transmit(&mut edge, Instant::now());
    frame.extend_from_slice(&[9; 100]);
    frame[3] += 100;
    let came = feed(&mut DatagramLeg::new(Side::Connector, 10), &frame).unwrap();
    assert_eq!(came, [Came::Opened(1, open())]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Accepted datagrams within the bounds arrive unchanged and in order in each flow, however the bytes are cut.
    #[test]
    fn datagrams_arrive_unchanged_and_in_order(
        sends in prop::collection::vec((0..5_usize, 0..3_000_usize), 1..200),
        piece in 1..5_000_usize,
        take in 1..40_000_usize,
    ) {
        let (mut edge, mut connector, now) = pair();
        let ids: Vec<FlowId> = (0..5).map(|_| edge.open(&open()).unwrap()).collect();
        let mut expected: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 5];
        for (number, (flow, len)) in sends.iter().enumerate() {
            let datagram = vec![number as u8; *len];
            prop_assert!(edge.send(ids[*flow], &datagram, now));
            expected[*flow].push(datagram);
        }
        let mut bytes = Vec::new();
        while edge.wants_transmit() {
            prop_assert!(edge.poll_transmit(&mut bytes, take, now) > 0);
        }
        let mut came: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 5];
        let mut buffer: Vec<u8> = Vec::new();
        for part in bytes.chunks(piece) {
            buffer.extend_from_slice(part);
            while let Some((len, input)) = connector.take_input(&buffer).unwrap() {
                if let DatagramInput::Datagram(id, data) = input {
                    came[id.0 as usize - 1].push(data.to_vec());
                }
                buffer.drain(..len);
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(came, expected);
    }
}
