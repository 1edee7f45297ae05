//! The session as a whole: greeting, attaching, keepalive, going away.

use std::time::{Duration, Instant};

use sallyport_model::{
    FlowRecord, HealthFailure, HealthFailureCode, HealthRecord, OriginHealth, RequestRecord, SocketType, TunnelId,
};
use sallyport_wire::{
    DownReason, Event, Hello, OpenError, Refusal, ResetCode, Session, SessionConfig, StreamError, TimeoutReason,
};

use crate::link::{LinkConfig, Pair, Plan, attach, hello, open, tunnel};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Moves everything that either end wants to send, at once.
fn exchange(edge: &mut Session, connector: &mut Session, now: Instant) {
    loop {
        let (mut there, mut back) = (Vec::new(), Vec::new());
        edge.poll_transmit(&mut there, usize::MAX, now);
        connector.poll_transmit(&mut back, usize::MAX, now);
        if there.is_empty() && back.is_empty() {
            return;
        }
        connector.handle_input(&there, now).unwrap();
        edge.handle_input(&back, now).unwrap();
    }
}

fn events(session: &mut Session) -> Vec<Event> {
    std::iter::from_fn(|| session.poll_event()).collect()
}

#[test]
fn greeting_attaching_and_the_round_trip() {
    let mut pair = Pair::attached(LinkConfig { delay: Duration::from_millis(30), ..LinkConfig::default() });
    assert!(pair.edge.has(|event| matches!(event, Event::HelloReceived(hello) if hello.agent == "sallyport/0.1.0")));
    assert!(pair.connector.has(|event| matches!(event, Event::Welcome(welcome) if welcome.session == [1; 16])));
    assert!(
        pair.connector.has(
            |event| matches!(event, Event::Attached { url, .. } if url == "https://wandering-shape-7752.localhost")
        )
    );
    pair.run_for(secs(1));
    for host in [&pair.edge, &pair.connector] {
        let rtt = host.session.smoothed_rtt().unwrap();
        assert!((60..=62).contains(&rtt.as_millis()), "{rtt:?}");
    }
}

#[test]
fn the_connector_keeps_the_shorter_of_both_keepalives() {
    let start = Instant::now();
    for (own, edges, kept) in [(2, 10, 2), (10, 2, 2), (10, 10, 10)] {
        let config = |seconds| SessionConfig { keepalive: secs(seconds), ..SessionConfig::default() };
        let mut edge = Session::edge(config(edges), [1; 16], [2; 32], start);
        let mut connector = Session::connector(hello(), config(own), start);
        exchange(&mut edge, &mut connector, start);
        connector.attach(attach());
        exchange(&mut edge, &mut connector, start);
        edge.accept_attach(tunnel(), "https://wandering-shape-7752.localhost".to_owned());
        exchange(&mut edge, &mut connector, start);
        let (due, reason) = connector.poll_timeout().unwrap();
        assert_eq!((due - start, reason), (secs(kept), TimeoutReason::Keepalive), "{own} and {edges}");
    }
}

#[test]
fn an_idle_session_stays_up_for_hours_with_a_ping_now_and_then() {
    let mut pair = Pair::attached(LinkConfig::default());
    pair.record = true;
    pair.run_for(secs(3 * 3_600));
    assert!(!pair.edge.session.is_closing() && !pair.connector.session.is_closing());
    let bytes: usize = pair.recorded().0.iter().map(Vec::len).sum();
    assert!((1_000..100_000).contains(&bytes), "{bytes} bytes in three hours");
}

#[test]
fn a_peer_that_is_gone_is_noticed_by_both_ends() {
    for (to_edge, to_connector) in [(true, true), (true, false), (false, true)] {
        let mut pair = Pair::attached(LinkConfig::default());
        let id = pair.open("respond 100000000", Plan::send(0));
        pair.run_for(secs(1));
        pair.cut(to_edge, to_connector);
        let cut_at = pair.now;
        let down = Event::Down(DownReason::DeadPeer { missed: 3 });
        let deaf: Vec<bool> = vec![to_edge, to_connector];
        pair.run_for(secs(39));
        assert!(!pair.edge.events.contains(&down) && !pair.connector.events.contains(&down));
        pair.run_for(secs(3));
        assert_eq!(vec![pair.edge.events.contains(&down), pair.connector.events.contains(&down)], deaf);
        if to_edge {
            assert!(pair.user(id).end_at.unwrap().duration_since(cut_at) >= secs(39));
            assert!(pair.user(id).end.clone().unwrap().is_err());
        }
    }
}

#[test]
fn a_peer_that_does_not_answer_is_probed_at_once_and_dead_within_seconds() {
    let mut pair = Pair::attached(LinkConfig { delay: Duration::from_millis(200), ..LinkConfig::default() });
    let down = Event::Down(DownReason::DeadPeer { missed: 3 });
    pair.run_for(secs(5));
    // A session that answers loses nothing, however often the keepalive probes it.
    for _ in 0..100 {
        pair.edge.session.check_liveness(pair.now);
        pair.run_for(Duration::from_millis(100));
        assert!(!pair.edge.session.is_unresponsive());
    }
    let (due, _) = pair.edge.session.poll_timeout().unwrap();
    assert!(due > pair.now + secs(5), "a peer that answered is not probed again at once");
    pair.run_for(secs(2));
    pair.cut(true, true);
    pair.edge.session.check_liveness(pair.now);
    pair.run_for(Duration::from_millis(900));
    pair.edge.session.check_liveness(pair.now);
    assert!(!pair.edge.session.is_unresponsive());
    pair.run_for(Duration::from_millis(200));
    assert!(pair.edge.session.is_unresponsive(), "it was probed a second ago");
    pair.run_for(Duration::from_millis(1_800));
    assert!(!pair.edge.events.contains(&down));
    pair.run_for(Duration::from_millis(200));
    assert!(pair.edge.events.contains(&down), "three seconds after the first probe");
    assert!(!pair.connector.session.is_closing(), "no stream waited for the edge");
}

#[test]
fn received_bytes_end_the_check_and_recent_bytes_save_the_probe() {
    let now = Instant::now();
    let mut edge = Session::edge(SessionConfig::default(), [1; 16], [2; 32], now);
    let mut connector = Session::connector(hello(), SessionConfig::default(), now);
    edge.check_liveness(now + secs(1));
    assert!(!edge.wants_transmit(), "before the greeting there is no probe");
    exchange(&mut edge, &mut connector, now);
    connector.attach(attach());
    exchange(&mut edge, &mut connector, now);
    edge.accept_attach(tunnel(), "https://wandering-shape-7752.localhost".to_owned());
    exchange(&mut edge, &mut connector, now);
    edge.check_liveness(now + Duration::from_millis(400));
    assert!(!edge.wants_transmit(), "input arrived just now");
    edge.check_liveness(now + secs(1));
    assert!(edge.wants_transmit());
    assert_eq!(edge.poll_timeout(), Some((now + secs(2), TimeoutReason::Keepalive)));
    edge.handle_timeout(now + secs(2));
    assert!(edge.is_unresponsive());
    exchange(&mut edge, &mut connector, now + secs(2));
    assert!(!edge.is_unresponsive());
    assert_eq!(edge.poll_timeout(), Some((now + secs(12), TimeoutReason::Keepalive)));
}

#[test]
fn time_that_stands_still_or_leaps_does_no_harm() {
    let mut pair = Pair::attached(LinkConfig::default());
    for _ in 0..1_000 {
        pair.edge.session.handle_timeout(pair.now);
    }
    assert!(!pair.edge.session.is_closing());
    // The machine slept for a year. The peer may still run, so the session sends a PING first.
    let year = secs(365 * 86_400);
    pair.now += year;
    pair.edge.session.handle_timeout(pair.now);
    pair.connector.session.handle_timeout(pair.now);
    assert!(!pair.edge.session.is_closing() && !pair.connector.session.is_closing());
    let id = pair.open("respond 1000", Plan::send(10));
    pair.run_until_end(id, secs(5));
    // The clock goes back: no timer is due, and nothing breaks.
    let past = pair.start;
    pair.edge.session.handle_timeout(past);
    pair.edge.session.handle_input(&[], past).unwrap();
    let mut out = Vec::new();
    pair.edge.session.poll_transmit(&mut out, 1, past);
    assert!(!pair.edge.session.is_closing());
    assert!(pair.edge.session.smoothed_rtt().unwrap() <= secs(60));
}

#[test]
fn a_session_that_attaches_nothing_is_closed() {
    let now = Instant::now();
    let mut edge = Session::edge(SessionConfig::default(), [1; 16], [2; 32], now);
    let mut connector = Session::connector(hello(), SessionConfig::default(), now);
    exchange(&mut edge, &mut connector, now);
    assert_eq!(edge.poll_timeout(), Some((now + secs(10), TimeoutReason::AttachDeadline)));
    edge.handle_timeout(now + secs(9));
    exchange(&mut edge, &mut connector, now + secs(9));
    edge.handle_timeout(now + secs(10));
    assert_eq!(events(&mut edge).last(), Some(&Event::Down(DownReason::NothingAttached)));
    exchange(&mut edge, &mut connector, now + secs(10));
    let Some(Event::Refused(refusal)) = events(&mut connector).pop() else { panic!("no refusal") };
    assert_eq!((refusal.code.as_str(), refusal.retry), ("nothing-attached", true));
    assert!(edge.is_closing() && connector.is_closing());
}

#[test]
fn a_connector_that_is_not_welcomed_gives_up() {
    let now = Instant::now();
    let mut connector = Session::connector(hello(), SessionConfig::default(), now);
    assert_eq!(connector.poll_timeout(), Some((now + secs(10), TimeoutReason::WelcomeDeadline)));
    connector.handle_timeout(now + secs(10));
    assert_eq!(events(&mut connector), [Event::Down(DownReason::NotWelcomed)]);
    assert_eq!(connector.poll_timeout(), None);
}

#[test]
fn a_version_that_the_edge_does_not_know_is_refused() {
    let now = Instant::now();
    let mut edge = Session::edge(SessionConfig::default(), [1; 16], [2; 32], now);
    let mut connector = Session::connector(Hello { versions: vec![7, 9], ..hello() }, SessionConfig::default(), now);
    exchange(&mut edge, &mut connector, now);
    assert_eq!(events(&mut edge), [Event::Down(DownReason::Version)]);
    let Some(Event::Refused(refusal)) = connector.poll_event() else { panic!("no refusal") };
    assert_eq!((refusal.code.as_str(), refusal.retry), ("version", false));
    assert!(refusal.to_string().contains("version 1 of the tunnel protocol only"), "{refusal}");
}

#[test]
fn a_tunnel_is_refused_attached_and_detached_from_either_end() {
    let now = Instant::now();
    let mut edge = Session::edge(SessionConfig::default(), [1; 16], [2; 32], now);
    let mut connector = Session::connector(hello(), SessionConfig::default(), now);
    let other = TunnelId::from_bytes([8; 16]);
    connector.attach(attach());
    connector.attach(sallyport_wire::Attach { tunnel: other, ..attach() });
    exchange(&mut edge, &mut connector, now);
    let asked: Vec<TunnelId> = events(&mut edge)
        .into_iter()
        .filter_map(|event| if let Event::AttachRequested(attach) = event { Some(attach.tunnel) } else { None })
        .collect();
    assert_eq!(asked, [tunnel(), other]);
    assert_eq!(edge.open(open("")), Err(OpenError::NotAttached));
    let refusal = Refusal::new("unknown-tunnel", "there is no such tunnel", false);
    edge.refuse_attach(other, refusal.clone());
    edge.accept_attach(tunnel(), "https://x.localhost".to_owned());
    exchange(&mut edge, &mut connector, now);
    let reported = events(&mut connector);
    assert!(reported.contains(&Event::NotAttached { tunnel: other, refusal }), "{reported:?}");
    assert!(reported.contains(&Event::Attached {
        tunnel: tunnel(),
        url: "https://x.localhost".to_owned(),
        datagrams: false
    }));
    assert_eq!(edge.poll_timeout().unwrap().1, TimeoutReason::Keepalive);

    edge.detach(tunnel(), "replaced", "the tunnel was attached elsewhere");
    assert_eq!(edge.open(open("")), Err(OpenError::NotAttached));
    exchange(&mut edge, &mut connector, now);
    assert!(matches!(&events(&mut connector)[..], [Event::Detached { code, .. }] if code == "replaced"));

    connector.attach(attach());
    exchange(&mut edge, &mut connector, now);
    edge.accept_attach(tunnel(), String::new());
    exchange(&mut edge, &mut connector, now);
    events(&mut edge);
    connector.detach(tunnel(), "shutting-down", "the connector stops");
    // The DETACH message crosses the OPEN of a new stream, which the connector refuses without an event for the user.
    let id = edge.open(open("respond 1")).unwrap();
    exchange(&mut edge, &mut connector, now);
    let reported = events(&mut edge);
    assert!(reported.iter().any(|event| matches!(event, Event::Detached { code, .. } if code == "shutting-down")));
    assert!(reported.iter().any(|event| matches!(event, Event::StreamFailed(failed, failure)
        if *failed == id && failure.reason == sallyport_wire::FailureReason::Draining)));
    edge.reset(id, ResetCode::Cancelled);
    assert!(edge.is_drained() && connector.is_drained());
}

#[test]
fn an_attachment_taken_back_before_the_answer_does_not_come_to_be() {
    let now = Instant::now();
    let mut edge = Session::edge(SessionConfig::default(), [1; 16], [2; 32], now);
    let mut connector = Session::connector(hello(), SessionConfig::default(), now);
    exchange(&mut edge, &mut connector, now);
    connector.attach(attach());
    connector.detach(tunnel(), "shutting-down", "never mind");
    exchange(&mut edge, &mut connector, now);
    assert!(matches!(&events(&mut edge)[1..], [Event::AttachRequested(_), Event::Detached { .. }]));
    edge.accept_attach(tunnel(), String::new());
    exchange(&mut edge, &mut connector, now);
    assert_eq!(edge.open(open("")), Err(OpenError::NotAttached));
    assert!(!events(&mut connector).iter().any(|event| matches!(event, Event::Attached { .. })));
}

#[test]
fn after_going_away_running_streams_finish_and_no_new_ones_begin() {
    let mut pair = Pair::attached(LinkConfig { rate_bytes_per_s: 1_000_000, ..LinkConfig::default() });
    let id = pair.open("respond 500000", Plan::send(10));
    pair.run_for(Duration::from_millis(50));
    pair.edge.session.go_away("shutting-down", "the edge restarts");
    pair.edge.session.go_away("shutting-down", "the edge restarts");
    assert_eq!(pair.edge.session.open(open("")), Err(OpenError::GoingAway));
    assert!(pair.edge.session.is_closing() && !pair.edge.session.is_drained());
    pair.run_until_end(id, secs(5));
    assert_eq!(pair.user(id).received, 500_000);
    pair.run_for(secs(1));
    assert!(pair.edge.session.is_drained() && pair.connector.session.is_drained());
    let farewells = pair.connector.events.iter().filter(|event| matches!(event, Event::GoAway { .. })).count();
    assert_eq!(farewells, 1);
}

#[test]
fn a_refused_session_is_over_for_both() {
    let mut pair = Pair::attached(LinkConfig::default());
    let id = pair.open("respond 100000000", Plan::send(0));
    pair.run_for(Duration::from_millis(50));
    pair.edge.session.refuse(Refusal::new("busy", "too many sessions", true));
    pair.run_for(secs(1));
    assert!(pair.connector.has(|event| matches!(event, Event::Refused(refusal) if refusal.code == "busy")));
    assert!(pair.connector.session.is_closing() && pair.edge.session.is_closing());
    assert_eq!(pair.edge.session.open(open("")), Err(OpenError::NotUp));
    assert_eq!(pair.connector.session.write(id, b"x"), Err(StreamError::Down));
}

#[test]
fn legs_are_asked_for_and_requests_logged_where_there_is_room() {
    let mut pair = Pair::attached(LinkConfig::default());
    pair.edge.session.ask_for_legs(12);
    pair.edge.session.ask_for_legs(0);
    let record = RequestRecord {
        at_ms: 1_700_000_000_000,
        request_id: "r-1".to_owned(),
        method: "GET".to_owned(),
        target: "/".repeat(1_000),
        version: "HTTP/2.0".to_owned(),
        status: 200,
        bytes_in: 0,
        bytes_out: 12,
        duration_us: 900,
        client: "203.0.113.9:50000".parse().unwrap(),
        tunnel: None,
        omitted_before: 0,
        identity: None,
        rule: None,
        refused: None,
    };
    let mut sent = 0;
    while pair.edge.session.send_request_log(&record) {
        sent += 1;
        assert!(sent < 100, "the log's queue has a bound");
    }
    assert!(sent > 10);
    pair.run_for(secs(1));
    assert!(pair.connector.has(|event| *event == Event::LegsWanted(12)));
    let logged = pair.connector.events.iter().filter(|event| **event == Event::RequestLog(record.clone())).count();
    assert_eq!(logged, sent);
    let long = RequestRecord { target: "x".repeat(20_000), ..record.clone() };
    assert!(!pair.edge.session.send_request_log(&long));
    pair.edge.session.detach(tunnel(), "deleted", "the tunnel was deleted");
    assert!(!pair.edge.session.send_request_log(&record), "it is no longer requested");
}

#[test]
fn flows_are_logged_to_connectors_that_take_them() {
    let record = FlowRecord {
        at_ms: 1_700_000_000_000,
        flow_id: "f-1".to_owned(),
        transport: SocketType::Tcp,
        verdict: "complete".to_owned(),
        bytes_in: 1,
        bytes_out: 2,
        duration_us: 3,
        client: "203.0.113.9:50000".parse().unwrap(),
        tunnel: None,
        omitted_before: 4,
        identity: None,
        rule: None,
    };
    for (features, takes) in [(vec![sallyport_wire::message::feature::FLOW_LOG.to_owned()], true), (Vec::new(), false)]
    {
        let now = Instant::now();
        let mut connector = Session::connector(Hello { features, ..hello() }, SessionConfig::default(), now);
        connector.attach(attach());
        let mut edge = Session::edge(SessionConfig::default(), [1; 16], [2; 32], now);
        exchange(&mut edge, &mut connector, now);
        edge.accept_attach(tunnel(), "tcp://calm-bay-1000.localhost:20000".to_owned());
        exchange(&mut edge, &mut connector, now);
        assert_eq!(edge.send_flow_log(&record), takes);
        exchange(&mut edge, &mut connector, now);
        let reported =
            std::iter::from_fn(|| connector.poll_event()).any(|event| event == Event::FlowLog(record.clone()));
        assert_eq!(reported, takes);
    }
}

#[test]
fn health_records_are_sent_to_connectors_that_support_them() {
    let failure = HealthFailure::new(HealthFailureCode::Refused, "nothing listens at 127.0.0.1:8000", 1_700_000_000);
    let ill = HealthRecord { tunnel: tunnel(), health: OriginHealth::Unwell, failure: Some(failure) };
    let well = HealthRecord { tunnel: tunnel(), health: OriginHealth::Well, failure: None };
    for takes in [true, false] {
        let features = takes.then(|| sallyport_wire::message::feature::HEALTH_LOG.to_owned()).into_iter().collect();
        let now = Instant::now();
        let mut connector = Session::connector(Hello { features, ..hello() }, SessionConfig::default(), now);
        connector.attach(attach());
        let mut edge = Session::edge(SessionConfig::default(), [1; 16], [2; 32], now);
        exchange(&mut edge, &mut connector, now);
        edge.accept_attach(tunnel(), "https://calm-bay-1000.localhost".to_owned());
        exchange(&mut edge, &mut connector, now);
        assert_eq!([&ill, &well].map(|record| edge.send_health_log(record)), [takes; 2]);
        exchange(&mut edge, &mut connector, now);
        let reported = std::iter::from_fn(|| connector.poll_event());
        let reported: Vec<_> = reported.filter(|event| matches!(event, Event::HealthLog(_))).collect();
        let all = vec![Event::HealthLog(ill.clone()), Event::HealthLog(well.clone())];
        assert_eq!(reported, if takes { all } else { Vec::new() });
    }
}

#[test]
fn the_request_log_takes_its_turn_beside_bulk() {
    let mut pair = Pair::attached(LinkConfig { rate_bytes_per_s: 1_000_000, ..LinkConfig::default() });
    pair.open("respond 0", Plan::send(10_000_000));
    pair.run_for(secs(1));
    let record = RequestRecord {
        at_ms: 0,
        request_id: String::new(),
        method: "GET".to_owned(),
        target: "/".to_owned(),
        version: "HTTP/1.1".to_owned(),
        status: 404,
        bytes_in: 0,
        bytes_out: 0,
        duration_us: 1,
        client: "[2001:db8::1]:1".parse().unwrap(),
        tunnel: None,
        omitted_before: 0,
        identity: None,
        rule: None,
        refused: None,
    };
    assert!(pair.edge.session.send_request_log(&record));
    let logged = |pair: &Pair| pair.connector.has(|event| matches!(event, Event::RequestLog(_)));
    pair.run_until(Duration::from_millis(150), logged);
}
