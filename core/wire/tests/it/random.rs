//! Arbitrary input and arbitrary calls.

use std::time::Duration;

use proptest::prelude::*;
use sallyport_wire::{Event, FrameType, OpenFailure, ResetCode, Session, SessionConfig, StreamError, StreamId};

use crate::{
    fuzz_bodies,
    link::{LinkConfig, Pair, Plan},
};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_and_decisions_keep_a_session_within_its_bounds(
        data in prop::collection::vec(any::<u8>(), 0..2_000)
    ) {
        fuzz_bodies::session_input(&data);
    }

    #[test]
    fn arbitrary_frames_keep_a_leg_consistent(data in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz_bodies::leg_input(&data);
    }

    #[test]
    fn arbitrary_input_and_use_keep_a_datagram_leg_within_its_bounds(
        data in prop::collection::vec(any::<u8>(), 0..600)
    ) {
        fuzz_bodies::datagram_input(&data);
    }

    #[test]
    fn well_formed_frames_in_any_order_keep_a_datagram_leg_within_its_bounds(
        side in 0..2_u8,
        steps in prop::collection::vec((0..9_u8, 1..14_u8, any::<u8>()), 1..120),
    ) {
        let mut data = vec![side];
        let frame = |data: &mut Vec<u8>, kind: FrameType, payload: &[u8]| {
            data.push(3 + payload.len() as u8);
            data.extend_from_slice(&[kind as u8, 0, 0, payload.len() as u8]);
            data.extend_from_slice(payload);
        };
        let (mut last, mut places) = (0_u8, 0);
        for (step, id, argument) in steps {
            // Mostly frames of open flows, so that the session continues.
            let id = if last == 0 { 1 } else { 1 + id % last };
            match step {
                0 if side == 1 && last < 120 => {
                    last += 1;
                    frame(&mut data, FrameType::FlowOpen, &[&[0, 0, 0, last][..], &[argument; 60]].concat());
                }
                // An edge's end without a free place opens no flow, and the id would be wrong from then on.
                0 if side == 0 && places < 8 => {
                    (last, places) = (last + 1, places + 1);
                    data.extend_from_slice(&[0xc2, 0]);
                }
                0..=3 if last == 0 => {}
                0 => data.extend_from_slice(&[0xc0, 0]),
                1 | 2 => frame(&mut data, FrameType::Datagram, &[0, 0, 0, id, argument]),
                3 => frame(&mut data, FrameType::FlowClose, &[0, 0, 0, id, argument % 6]),
                4 => data.extend_from_slice(&[0xc3, id]),
                5 => data.extend_from_slice(&[0xc4, id, argument % 90]),
                6 => data.extend_from_slice(&[0xc5, id, argument]),
                7 => data.extend_from_slice(&[0xc0, 0]),
                _ => data.extend_from_slice(&[0xc1, 0, argument]),
            }
        }
        fuzz_bodies::datagram_input(&data);
    }

    #[test]
    fn arbitrary_use_keeps_streams_intact_and_in_order(
        seed in any::<u64>(),
        window in prop::sample::select(vec![1_024_u32, 5_000, 65_536]),
        rate_bytes_per_s in prop::sample::select(vec![200_000_u64, 3_000_000, 100_000_000]),
        operations in prop::collection::vec((0..7_u8, 0..9_usize, 0..150_000_u64), 1..40),
    ) {
        let session = SessionConfig { stream_window_bytes: window, max_streams: 6, ..SessionConfig::default() };
        let config = LinkConfig { seed, rate_bytes_per_s, session, pieces: true, ..LinkConfig::default() };
        let mut pair = Pair::attached(config);
        let mut ids: Vec<StreamId> = Vec::new();
        let mut given_up: Vec<StreamId> = Vec::new();
        for (operation, which, amount) in operations {
            let id = ids.get(which).copied();
            match (operation, id) {
                (0..=2, _) if pair.edge.session.stream_count() < 6 => {
                    let server = ["respond", "stall", "respond"][usize::from(operation)];
                    let plan = if operation == 2 { Plan::unread(amount / 3) } else { Plan::send(amount / 2) };
                    ids.push(pair.open(&format!("{server} {amount}"), plan));
                }
                (3, Some(id)) if which % 2 == 0 => {
                    pair.edge.session.reset(id, ResetCode::Cancelled);
                    pair.edge.users.remove(&id);
                    given_up.push(id);
                    ids.retain(|other| *other != id);
                }
                (4, Some(id)) => pair.edge.start_reading(id),
                (5, Some(id)) => pair.connector.start_reading(id),
                _ => pair.run_for(Duration::from_millis(amount % 300)),
            }
            if pair.edge.session.stream_count() >= 6 {
                pair.run_for(Duration::from_millis(500));
            }
        }
        for id in &ids {
            pair.edge.start_reading(*id);
        }
        for _ in 0..40 {
            for id in ids.iter().chain(&given_up) {
                pair.connector.start_reading(*id);
            }
            pair.run_for(Duration::from_secs(1));
        }
        for id in ids {
            let is_busy = |failure: &OpenFailure| failure.message.contains("busy");
            if matches!(&pair.user(id).end, Some(Err(StreamError::Failed(failure))) if is_busy(failure)) {
                // Too many streams that their origins had not read to the end.
                continue;
            }
            let (user, origin) = (pair.user(id), pair.origin(id));
            prop_assert_eq!(&user.end, &Some(Ok(())), "stream {}", id);
            prop_assert_eq!(&origin.end, &Some(Ok(())), "stream {}", id);
            prop_assert_eq!((user.received, origin.received), (origin.sent, user.sent));
            prop_assert!(user.closed && origin.closed);
        }
        for id in given_up {
            pair.connector.session.reset(id, ResetCode::Cancelled);
        }
        prop_assert!(pair.edge.session.is_drained() && pair.connector.session.is_drained());
    }
}

/// The events of a session do not depend on how the input is cut.
#[test]
fn the_way_input_is_cut_makes_no_difference() {
    let mut pair = Pair::new(LinkConfig::default());
    pair.record = true;
    pair.run_for(Duration::from_millis(100));
    pair.open("respond 70000", Plan::send(40_000));
    pair.open("fail", Plan::send(10));
    pair.edge.session.ask_for_legs(5);
    pair.run_for(Duration::from_millis(900));
    let input: Vec<u8> = pair.recorded().1.concat();
    assert!(input.len() > 40_000);
    let report = |piece: usize| {
        let now = pair.start;
        let mut session = Session::connector(crate::link::hello(), SessionConfig::default(), now);
        session.attach(crate::link::attach());
        let (mut events, mut out) = (Vec::new(), Vec::new());
        for piece in input.chunks(piece) {
            session.handle_input(piece, now).unwrap();
            while let Some(event) = session.poll_event() {
                if let Event::StreamOpen(id, _) = &event {
                    session.opened(*id);
                }
                events.push(event);
            }
        }
        session.poll_transmit(&mut out, usize::MAX, now);
        (events, out, session.buffered_bytes())
    };
    let whole = report(usize::MAX);
    assert!(whole.0.len() > 5 && whole.2 > 30_000);
    for piece in [1, 2, 3, 7, 100, 5_000, 16_384] {
        assert_eq!(report(piece), whole, "in pieces of {piece}");
    }
}
