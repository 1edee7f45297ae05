//! Streams multiplexed on a control connection: speed, turns, windows, ends, and losses.

use std::time::Duration;

use sallyport_wire::{Event, FailureReason, Read, ResetCode, SessionConfig, StreamError, StreamId};

use crate::link::{LinkConfig, Pair, Plan, open};

const MIB: u64 = 1024 * 1024;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_request_and_its_response_take_one_round_trip_and_leave_nothing_behind() {
    let mut pair = Pair::attached(LinkConfig { delay: ms(20), ..LinkConfig::default() });
    let id = pair.open("respond 5000", Plan::send(300));
    let took = pair.run_until_end(id, ms(500));
    assert!(took <= ms(42), "{took:?}");
    assert_eq!((pair.user(id).received, pair.origin(id).received), (5_000, 300));
    assert!(pair.edge.has(|event| *event == Event::StreamOpened(id)));
    pair.run_for(ms(100));
    assert!(pair.user(id).closed && pair.origin(id).closed);
    for host in [&pair.edge, &pair.connector] {
        assert!(host.session.is_drained());
        assert_eq!((host.session.stream_count(), host.session.buffered_bytes()), (0, 0));
    }
}

#[test]
fn bytes_arrive_whole_and_in_order_whatever_the_pieces() {
    for seed in 0..8 {
        let mut pair = Pair::attached(LinkConfig { pieces: true, seed, ..LinkConfig::default() });
        let ids: Vec<StreamId> =
            (0..5).map(|n| pair.open(&format!("respond {}", 70_001 * n), Plan::send(40_003 * (5 - n)))).collect();
        for (n, id) in (0..).zip(ids) {
            pair.run_until_end(id, Duration::from_secs(10));
            assert_eq!(pair.user(id).end, Some(Ok(())));
            assert_eq!(pair.user(id).received, 70_001 * n);
            pair.run_until(Duration::from_secs(10), |pair| pair.origin(id).end.is_some());
            assert_eq!(pair.origin(id).received, 40_003 * (5 - n));
        }
    }
}

#[test]
fn windows_grow_to_the_bandwidth_delay_product() {
    for (delay, rate, bytes) in [(25, 25_000_000, 96 * MIB), (50, 12_500_000, 64 * MIB), (1, 5_000_000, 16 * MIB)] {
        for download in [true, false] {
            let config = LinkConfig { delay: ms(delay), rate_bytes_per_s: rate, ..LinkConfig::default() };
            let mut pair = Pair::attached(config);
            let start = pair.now;
            let (down, up) = if download { (bytes, 0) } else { (0, bytes) };
            let id = pair.open(&format!("respond {down}"), Plan::send(up));
            let done = |pair: &Pair| pair.user(id).end.is_some() && pair.origin(id).end.is_some();
            pair.run_until(Duration::from_secs(60), |pair| pair.connector.users.contains_key(&id) && done(pair));
            assert_eq!((pair.user(id).received, pair.origin(id).received), (down, up));
            let reached = bytes as f64 / pair.now.duration_since(start).as_secs_f64();
            assert!(reached >= 0.8 * rate as f64, "{reached:.0} of {rate} bytes/s with {delay} ms each way");
        }
    }
}

#[test]
fn a_small_request_is_not_held_up_by_bulk() {
    // 1 MB/s. Without turns the ten bulk streams' queues alone, 256 KiB each, would take two and a half seconds.
    for (bulk, bound) in [(1, ms(150)), (10, ms(320))] {
        let config = LinkConfig { delay: ms(20), rate_bytes_per_s: 1_000_000, ..LinkConfig::default() };
        let mut pair = Pair::attached(config);
        let bulk: Vec<StreamId> = (0..bulk).map(|_| pair.open("respond 8000000", Plan::send(0))).collect();
        pair.run_for(Duration::from_secs(2));
        let small = pair.open("respond 2000", Plan::send(300));
        let took = pair.run_until_end(small, Duration::from_secs(10));
        assert!(took <= bound, "{took:?} beside {} bulk streams", bulk.len());
        let shares: Vec<u64> = bulk.iter().map(|id| pair.user(*id).received).collect();
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        assert!(*least > 0 && most - least <= 64 * 1024, "the bulk streams share evenly: {shares:?}");
    }
}

#[test]
fn a_stream_whose_reader_stopped_stalls_no_other_and_goes_on_later() {
    let mut pair = Pair::attached(LinkConfig::default());
    let stalled = pair.open("respond 3000000", Plan::unread(0));
    let other_way = pair.open("stall 10", Plan::send(3_000_000));
    pair.run_for(Duration::from_secs(2));
    assert!(
        pair.origin(stalled).sent <= 512 * 1024,
        "{} bytes for a reader that is not there",
        pair.origin(stalled).sent
    );
    assert!(pair.user(other_way).sent <= 512 * 1024);
    let buffered = pair.edge.session.buffered_bytes();
    assert!(buffered <= 600 * 1024, "{buffered} bytes held");
    let free = pair.open("respond 4000000", Plan::send(1_000_000));
    pair.run_until_end(free, Duration::from_secs(5));
    assert_eq!(pair.user(free).received, 4_000_000);
    pair.edge.start_reading(stalled);
    pair.connector.start_reading(other_way);
    pair.run_until_end(stalled, Duration::from_secs(5));
    pair.run_until(Duration::from_secs(5), |pair| pair.origin(other_way).end.is_some());
    assert_eq!((pair.user(stalled).received, pair.origin(other_way).received), (3_000_000, 3_000_000));
}

#[test]
fn windows_do_not_grow_beyond_the_session_budget() {
    let config = LinkConfig { delay: ms(50), rate_bytes_per_s: 1_000_000_000, ..LinkConfig::default() };
    let mut pair = Pair::attached(config);
    let ids: Vec<StreamId> = (0..12).map(|_| pair.open("respond 40000000", Plan::send(0))).collect();
    pair.run_for(ms(600));
    for id in &ids {
        // All readers stop reading: the session delivers no more than the windows allow.
        pair.edge.users.get_mut(id).unwrap().plan.reads = false;
    }
    pair.run_for(Duration::from_secs(2));
    let buffered = pair.edge.session.buffered_bytes() as u64;
    assert!(buffered <= 64 * MIB, "{buffered} bytes held");
    assert!(buffered >= 16 * MIB, "the windows grew: {buffered} bytes held");
}

#[test]
fn a_failure_reaches_the_user_and_what_it_sent_is_discarded() {
    let mut pair = Pair::attached(LinkConfig::default());
    let id = pair.open("fail", Plan::send(2_000_000));
    pair.run_until_end(id, ms(500));
    let Some(Err(StreamError::Failed(failure))) = pair.user(id).end.clone() else {
        panic!("{:?}", pair.user(id).end);
    };
    assert_eq!(
        (failure.reason, failure.to_string().as_str()),
        (FailureReason::Refused, "connection refused by 127.0.0.1:8080")
    );
    pair.run_for(ms(100));
    assert!(pair.edge.session.is_drained() && pair.connector.session.is_drained());
    assert!(!pair.edge.has(|event| matches!(event, Event::StreamOpened(_))));
}

#[test]
fn a_reset_stops_the_other_end_and_frees_what_it_held() {
    for from_edge in [true, false] {
        let mut pair = Pair::attached(LinkConfig { delay: ms(20), ..LinkConfig::default() });
        let id = pair.open("respond 50000000", Plan::send(50_000_000));
        pair.run_for(ms(200));
        let (here, there) =
            if from_edge { (&mut pair.edge, &mut pair.connector) } else { (&mut pair.connector, &mut pair.edge) };
        here.session.reset(id, ResetCode::Timeout);
        assert_eq!(here.session.write(id, b"x"), Err(StreamError::Closed));
        let now = pair.now;
        assert_eq!(here.session.read(id, &mut [0; 9], now), Err(StreamError::Closed));
        here.users.remove(&id);
        assert!(!there.users[&id].closed);
        pair.run_for(ms(100));
        let (here, there) =
            if from_edge { (&pair.edge, &mut pair.connector) } else { (&pair.connector, &mut pair.edge) };
        assert!(here.session.is_drained());
        assert!(there.has(|event| *event == Event::StreamReset(id, ResetCode::Timeout)));
        assert_eq!(there.users[&id].end, Some(Err(StreamError::Reset(ResetCode::Timeout))));
        assert_eq!(there.session.write(id, b"x"), Err(StreamError::Reset(ResetCode::Timeout)));
        assert_eq!(there.session.buffered_bytes(), 0);
        there.session.reset(id, ResetCode::Cancelled);
        assert!(there.session.is_drained());
        assert!(matches!(there.session.poll_event(), Some(Event::StreamClosed(closed)) if closed == id));
    }
}

#[test]
fn a_reset_after_finish_delivers_what_was_written_and_stops_the_other_direction() {
    let mut pair = Pair::attached(LinkConfig { delay: ms(20), rate_bytes_per_s: 1_000_000, ..LinkConfig::default() });
    let id = pair.open("respond 200000", Plan::send(50_000_000));
    pair.run_until(ms(500), |pair| pair.connector.users.get(&id).is_some_and(|origin| origin.sent == 200_000));
    // The origin has answered early and closed: no byte of the answer may be lost.
    pair.connector.session.reset(id, ResetCode::OriginReset);
    pair.connector.users.remove(&id);
    pair.run_until_end(id, Duration::from_secs(2));
    assert_eq!((pair.user(id).received, pair.user(id).end.clone()), (200_000, Some(Ok(()))));
    pair.run_until(Duration::from_secs(1), |pair| pair.connector.session.is_drained());
    assert_eq!(pair.edge.session.write(id, b"more"), Err(StreamError::Reset(ResetCode::OriginReset)));
}

#[test]
fn an_unanswered_stream_can_be_given_up_before_opened() {
    let mut pair = Pair::attached(LinkConfig::default());
    let id = pair.open("silent", Plan::send(1_000));
    pair.run_for(ms(100));
    assert!(pair.user(id).end.is_none());
    assert_eq!(pair.connector.session.write(id, b"early"), Err(StreamError::NotOpened));
    pair.edge.session.reset(id, ResetCode::Timeout);
    pair.run_for(ms(100));
    assert!(pair.edge.session.is_drained());
    // The connector's dial to the origin succeeded too late.
    pair.connector.session.opened(id);
    assert_eq!(pair.connector.session.write(id, b"late"), Err(StreamError::Reset(ResetCode::Timeout)));
    pair.connector.session.reset(id, ResetCode::Cancelled);
    pair.run_for(ms(100));
    assert!(pair.connector.session.is_drained());
}

#[test]
fn opened_and_reset_cross() {
    let mut pair = Pair::attached(LinkConfig::default());
    let id = pair.open("respond 1000", Plan::send(1_000));
    pair.act();
    pair.edge.session.reset(id, ResetCode::Cancelled);
    pair.run_for(ms(100));
    assert!(pair.edge.session.is_drained());
    assert!(!pair.edge.has(|event| matches!(event, Event::StreamOpened(_))), "there is no user to notify");
}

#[test]
fn as_many_streams_as_agreed_and_a_place_is_free_when_one_ends() {
    let session = SessionConfig { max_streams: 4, ..SessionConfig::default() };
    let mut pair = Pair::attached(LinkConfig { session, ..LinkConfig::default() });
    let mut ids: Vec<StreamId> = (0..4).map(|_| pair.open("respond 1000", Plan::send(10))).collect();
    assert!(
        pair.edge.session.open(open("respond 0")).unwrap_err().to_string().contains("reached its limit of streams")
    );
    for round in 0..50 {
        pair.run_until_end(ids[0], Duration::from_secs(1));
        pair.run_until(Duration::from_secs(1), |pair| pair.user(ids[0]).closed);
        ids.remove(0);
        ids.push(pair.open(&format!("respond {}", round * 997), Plan::send(10)));
    }
}

#[test]
fn a_connector_slow_to_let_go_of_its_streams_is_not_taken_for_a_fault_of_the_edge() {
    let session = SessionConfig { max_streams: 4, ..SessionConfig::default() };
    let mut pair = Pair::attached(LinkConfig { session, ..LinkConfig::default() });
    let mut refused = 0;
    for _ in 0..12 {
        let id = pair.open("silent", Plan::send(10));
        pair.run_for(ms(50));
        pair.edge.session.reset(id, ResetCode::Cancelled);
        pair.run_for(ms(50));
        refused += usize::from(pair.edge.has(|event| matches!(event, Event::StreamFailed(failed, _) if *failed == id)));
    }
    assert!(pair.connector.session.stream_count() <= 8);
    assert_eq!(refused, 4);
}

#[test]
fn a_loss_at_any_moment_ends_every_stream_with_an_error_or_whole() {
    let steps = {
        let mut pair = busy_pair();
        pair.act();
        let limit = pair.now + Duration::from_secs(3);
        let mut steps = 0;
        while pair.step(limit) {
            steps += 1;
        }
        steps
    };
    assert!(steps > 100, "{steps} steps");
    for lost_at in 0..steps {
        let mut pair = busy_pair();
        pair.act();
        let limit = pair.now + Duration::from_secs(3);
        for _ in 0..lost_at {
            pair.step(limit);
        }
        pair.lose_carrier();
        for host in [&mut pair.edge, &mut pair.connector] {
            let ids: Vec<StreamId> = host.users.keys().copied().collect();
            for id in ids {
                host.start_reading(id);
                host.drive(pair.now);
                let user = &host.users[&id];
                let whole = matches!(user.end, Some(Ok(())));
                assert!(user.end.is_some(), "stream {id} hangs after a loss at step {lost_at}: {user:?}");
                assert!(!whole || [0, 700, 90_000, 300_000].contains(&user.received), "{user:?}");
                host.session.reset(id, ResetCode::Cancelled);
            }
            assert!(host.session.is_drained());
            assert_eq!(host.session.poll_timeout(), None);
        }
    }
}

/// Streams of every kind, just opened.
fn busy_pair() -> Pair {
    let config = LinkConfig { pieces: true, rate_bytes_per_s: 10_000_000, ..LinkConfig::default() };
    let mut pair = Pair::attached(config);
    pair.open("respond 90000", Plan::send(700));
    pair.open("respond 0", Plan::send(300_000));
    pair.open("fail", Plan::send(700));
    pair.open("respond 90000", Plan::unread(700));
    pair.open("stall 700", Plan::send(300_000));
    pair
}

#[test]
fn what_had_come_to_its_end_before_the_loss_can_still_be_read() {
    let mut pair = Pair::attached(LinkConfig::default());
    let id = pair.open("respond 90000", Plan::unread(0));
    pair.run_for(ms(500));
    pair.lose_carrier();
    pair.edge.start_reading(id);
    pair.edge.drive(pair.now);
    assert_eq!((pair.user(id).received, pair.user(id).end.clone()), (90_000, Some(Ok(()))));
    assert!(pair.edge.session.is_drained());
}

#[test]
fn reading_into_nothing_and_writing_nothing_do_nothing() {
    let mut pair = Pair::attached(LinkConfig::default());
    let id = pair.open("respond 100", Plan::unread(0));
    pair.run_for(ms(100));
    let now = pair.now;
    assert_eq!(pair.edge.session.read(id, &mut [], now), Ok(Read::Bytes(0)));
    assert_eq!(pair.edge.session.write(id, b""), Err(StreamError::Finished));
    assert_eq!(pair.edge.session.write(StreamId(99), b"x"), Err(StreamError::Closed));
    assert_eq!(pair.edge.session.read(StreamId(0), &mut [0; 4], now), Err(StreamError::Closed));
}
