//! Peers that break the protocol, and peers that demand more than the limits allow.

use std::time::{Duration, Instant};

use sallyport_model::{LinkReport, LinkStatus};
use sallyport_wire::{
    Attach, Carrier, DownReason, Event, FrameHeader, FrameType, GoAway, Hello, Links, Open, Refusal, ResetCode,
    Session, SessionConfig, StreamId, Violation, Welcome,
};

use crate::link::{attach, hello, open, tunnel};

/// A frame with this payload.
fn frame(kind: FrameType, payload: &[u8]) -> Vec<u8> {
    let mut frame = FrameHeader { kind, len: payload.len() as u32 }.encode().to_vec();
    frame.extend_from_slice(payload);
    frame
}

/// A frame of a stream on a control connection.
fn on_stream(kind: FrameType, id: u32, payload: &[u8]) -> Vec<u8> {
    frame(kind, &[&id.to_be_bytes(), payload].concat())
}

fn open_frame(id: u32, open: &Open) -> Vec<u8> {
    let mut leg_frame = Vec::new();
    open.encode(&mut leg_frame);
    on_stream(FrameType::Open, id, &leg_frame[4..])
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn welcome() -> Welcome {
    Welcome {
        version: 1,
        session: [1; 16],
        leg_secret: [2; 32],
        keepalive_ms: 10_000,
        missed_limit: 3,
        stream_window: 4_096,
        max_streams: 4,
        edge: None,
        region: None,
        edges: Vec::new(),
        leave: false,
        link_reports: false,
    }
}

fn small() -> SessionConfig {
    SessionConfig { stream_window_bytes: 4_096, max_streams: 4, ..SessionConfig::default() }
}

/// The edge's end after HELLO, with one tunnel attached.
fn edge() -> (Session, Instant) {
    let now = Instant::now();
    let mut edge = Session::edge(small(), [1; 16], [2; 32], now);
    edge.handle_input(&encoded(|out| hello().encode(out)), now).unwrap();
    edge.handle_input(&encoded(|out| attach().encode(out)), now).unwrap();
    edge.accept_attach(tunnel(), String::new());
    drain(&mut edge, now);
    (edge, now)
}

/// The connector's end after WELCOME, with one tunnel attached.
fn connector() -> (Session, Instant) {
    let now = Instant::now();
    let mut connector = Session::connector(hello(), SessionConfig::default(), now);
    connector.attach(attach());
    connector.handle_input(&encoded(|out| welcome().encode(out)), now).unwrap();
    let attached = sallyport_wire::Attached { tunnel: tunnel(), url: String::new(), datagrams: false };
    connector.handle_input(&encoded(|out| attached.encode(out)), now).unwrap();
    drain(&mut connector, now);
    (connector, now)
}

fn drain(session: &mut Session, now: Instant) -> Vec<u8> {
    let mut out = Vec::new();
    session.poll_transmit(&mut out, usize::MAX, now);
    while session.poll_event().is_some() {}
    out
}

/// The types of all frames.
fn kinds(mut frames: &[u8]) -> Vec<FrameType> {
    let mut kinds = Vec::new();
    while let Some((header, rest)) = frames.split_first_chunk() {
        let header = FrameHeader::decode(*header, Carrier::Control).unwrap();
        kinds.push(header.kind);
        frames = &rest[header.len as usize..];
    }
    kinds
}

/// The input is a violation, which ends the session.
#[track_caller]
fn violates(mut session: Session, now: Instant, input: &[u8], sentence: &str) {
    let violation = session.handle_input(input, now).expect_err(sentence);
    assert_eq!(violation.to_string(), sentence);
    assert!(session.is_closing());
    assert_eq!(session.poll_timeout(), None);
    session.handle_input(input, now).unwrap();
    session.handle_timeout(now + Duration::from_secs(1_000));
    assert!(session.open(open("")).is_err());
    session.attach(attach());
    session.reset(StreamId(1), ResetCode::Internal);
    let kinds = kinds(&drain(&mut session, now));
    let is_refused = kinds.last() == Some(&FrameType::Refused);
    assert!(
        is_refused || sentence.contains("WELCOME") || sentence.contains("edge") || sentence.contains("opened stream")
    );
    assert!(!kinds.contains(&FrameType::Data));
}

fn links() -> Vec<LinkReport> {
    let report = LinkReport {
        name: "eth0".to_owned(),
        local: Some([192, 0, 2, 1].into()),
        status: LinkStatus::Up,
        rtt_us: Some(20_000),
        loss_permille: None,
        bytes_sent: 1_000,
        bytes_received: 2_000,
        path_mtu_bytes: Some(1_500),
        header_bytes: Some(52),
        is_metered: true,
        is_standby: false,
    };
    vec![report]
}

#[test]
fn links_are_reported_to_edges_that_want_reports_alone() {
    let (mut of_old_edge, now) = connector();
    of_old_edge.report_links(links());
    assert!(!kinds(&drain(&mut of_old_edge, now)).contains(&FrameType::Links));

    let mut edge = Session::edge(small(), [1; 16], [2; 32], now);
    let mut connector = Session::connector(hello(), small(), now);
    connector.report_links(links());
    edge.handle_input(&drain(&mut connector, now), now).unwrap();
    connector.handle_input(&drain(&mut edge, now), now).unwrap();
    connector.report_links(links());
    edge.handle_input(&drain(&mut connector, now), now).unwrap();
    let events: Vec<_> = std::iter::from_fn(|| edge.poll_event()).collect();
    assert_eq!(events, [Event::Links(links())], "the report before the greeting was not sent");

    let from_edge = encoded(|out| Links { links: links() }.encode(out));
    violates(connector, now, &from_edge, "the edge sent LINKS, which only the other side may send");
    let unreadable = frame(FrameType::Links, b"[]");
    let violation = edge.handle_input(&unreadable, now).unwrap_err().to_string();
    assert!(violation.starts_with("the peer sent LINKS that cannot be read: "), "{violation}");
}

#[test]
fn frames_before_the_greeting_and_greetings_again() {
    let now = Instant::now();
    let fresh = || Session::edge(small(), [1; 16], [2; 32], now);
    violates(fresh(), now, &frame(FrameType::Ping, &[0; 8]), "the peer sent PING before HELLO");
    violates(fresh(), now, &encoded(|out| attach().encode(out)), "the peer sent ATTACH before HELLO");
    let (edge, now) = edge();
    violates(edge, now, &encoded(|out| hello().encode(out)), "the peer sent HELLO for the second time");
    let unwelcome = Session::connector(hello(), small(), now);
    violates(unwelcome, now, &frame(FrameType::Legs, &[0, 1]), "the peer sent LEGS before WELCOME");
    let (connector, now) = connector();
    violates(connector, now, &encoded(|out| welcome().encode(out)), "the peer sent WELCOME for the second time");
    let fresh = Session::connector(Hello { versions: vec![1, 5], ..hello() }, small(), now);
    let version = "the edge chose version 3 of the tunnel protocol, which was not offered";
    violates(fresh, now, &encoded(|out| Welcome { version: 3, ..welcome() }.encode(out)), version);
    for wrong in [
        Welcome { keepalive_ms: 0, ..welcome() },
        Welcome { keepalive_ms: u64::MAX, ..welcome() },
        Welcome { missed_limit: 0, ..welcome() },
        Welcome { stream_window: 0, ..welcome() },
        Welcome { stream_window: u32::MAX, ..welcome() },
        Welcome { max_streams: u32::MAX, ..welcome() },
    ] {
        let fresh = Session::connector(hello(), small(), now);
        let sentence = "the peer sent WELCOME that cannot be read: a value in it is beyond all bounds";
        violates(fresh, now, &encoded(|out| wrong.encode(out)), sentence);
    }
}

#[test]
fn frames_of_the_wrong_side_kind_or_length() {
    let wrong = |input: &[u8], sentence: &str| {
        let (edge, now) = edge();
        violates(edge, now, input, sentence);
    };
    wrong(&open_frame(1, &open("")), "the connector sent OPEN, which only the other side may send");
    wrong(&frame(FrameType::Legs, &[0, 1]), "the connector sent LEGS, which only the other side may send");
    wrong(&frame(FrameType::Join, &[0; 48]), "the peer sent JOIN, which does not belong on this kind of connection");
    wrong(&[0x7f, 0, 0, 0], "the peer sent a frame of the unknown type 0x7f");
    wrong(b"GET / HTTP/1.1\r\n\r\n", "the peer sent a frame of the unknown type 0x47");
    wrong(
        &FrameHeader { kind: FrameType::Data, len: 16_389 }.encode(),
        "the peer sent DATA with a payload of 16389 bytes instead of 5 to 16388",
    );
    wrong(&on_stream(FrameType::Data, 1, b""), "the peer sent DATA with a payload of 4 bytes instead of 5 to 16388");
    wrong(&frame(FrameType::Ping, &[0; 7]), "the peer sent PING with a payload of 7 bytes instead of 8 to 8");
    wrong(&on_stream(FrameType::Fin, 1, b""), "the peer sent FIN for stream 1, which was never opened");
    let (connector, now) = connector();
    let sentence = "the edge sent ATTACH, which only the other side may send";
    violates(connector, now, &encoded(|out| attach().encode(out)), sentence);
}

#[test]
fn streams_that_the_connector_ends_twice_or_answers_wrongly() {
    let opened = |inputs: &[Vec<u8>], sentence: &str| {
        let (mut edge, now) = edge();
        edge.open(open("")).unwrap();
        let (last, before) = inputs.split_last().unwrap();
        for input in before {
            edge.handle_input(input, now).unwrap();
        }
        violates(edge, now, last, sentence);
    };
    let f = |kind, payload: &[u8]| on_stream(kind, 1, payload);
    let (took, fin) = (f(FrameType::Opened, b""), f(FrameType::Fin, b""));
    opened(&[f(FrameType::Data, b"x")], "the peer sent DATA before OPENED");
    opened(std::slice::from_ref(&fin), "the peer sent FIN before OPENED");
    opened(&[took.clone(), took.clone()], "the peer sent OPENED for the second time on a stream");
    opened(&[took.clone(), f(FrameType::Failed, &[1])], "the peer sent FAILED after OPENED");
    opened(&[took.clone(), fin.clone(), fin.clone()], "the peer sent FIN after the end of its direction");
    opened(&[took.clone(), fin, f(FrameType::Data, b"x")], "the peer sent DATA after the end of its direction");
    let too_much = "the peer sent 4097 bytes on stream 1, whose window had room for 4096";
    opened(&[took.clone(), f(FrameType::Data, &[0; 4_097])], too_much);
    let all = f(FrameType::Data, &[0; 4_096]);
    opened(&[took, all, f(FrameType::Data, b"x")], "the peer sent 1 bytes on stream 1, whose window had room for 0");
    opened(&[f(FrameType::Window, &[0; 4])], "the peer sent WINDOW that cannot be read: the window grants nothing");
    let beyond = "the peer granted more than 1073741824 bytes on stream 1";
    opened(&[f(FrameType::Window, &[0x3f, 0xff, 0xff, 0xff])], beyond);
}

#[test]
fn streams_that_the_edge_opens_wrongly() {
    let (mut connector, now) = connector();
    for id in [1, 2, 7, 9] {
        connector.handle_input(&open_frame(id, &open("")), now).unwrap();
    }
    let sentence = "the peer opened stream 10 while 4 streams were running, the most that a session may have";
    violates(connector, now, &open_frame(10, &open("")), sentence);
    for (first, second) in [(1, 1), (5, 4), (5, 0)] {
        let (mut connector, now) = self::connector();
        connector.handle_input(&open_frame(first, &open("")), now).unwrap();
        let sentence = format!("the peer opened stream {second} after stream {first}; ids only rise");
        violates(connector, now, &open_frame(second, &open("")), &sentence);
    }
}

#[test]
fn what_crosses_the_end_of_a_stream_is_ignored() {
    let (mut edge, now) = edge();
    let id = edge.open(open("")).unwrap();
    edge.reset(id, ResetCode::Cancelled);
    edge.handle_input(&on_stream(FrameType::Reset, 1, &[0; 5]), now).unwrap();
    assert!(edge.is_drained());
    for late in [
        on_stream(FrameType::Window, 1, &[0, 0, 1, 0]),
        on_stream(FrameType::Reset, 1, &[0; 5]),
        on_stream(FrameType::Data, 1, &[1; 5_000]),
        on_stream(FrameType::Fin, 1, b""),
    ] {
        edge.handle_input(&late, now).unwrap();
    }
    while let Some(event) = edge.poll_event() {
        assert_eq!(event, Event::StreamClosed(id));
    }
    assert_eq!(edge.buffered_bytes(), drain(&mut edge, now).len());
}

#[test]
fn floods_end_the_session_rather_than_fill_the_memory() {
    let flood = |mut session: Session, now: Instant, input: &dyn Fn(u32) -> Vec<u8>| {
        for n in 1..2_000_000 {
            if let Err(violation) = session.handle_input(&input(n), now) {
                return violation.to_string();
            }
            assert!(session.buffered_bytes() < 4 * 1024 * 1024);
            if session.is_closing() {
                return std::iter::from_fn(|| session.poll_event()).last().map(|last| format!("{last:?}")).unwrap();
            }
        }
        panic!("the flood goes on");
    };
    let (session, now) = edge();
    let pings = flood(session, now, &|_| frame(FrameType::Ping, &[0; 8]));
    assert_eq!(pings, "the peer sent more than 64 PING frames without reading the answers");
    let (session, now) = connector();
    let other = Open { tunnel: sallyport_model::TunnelId::from_bytes([9; 16]), ..open("") };
    let opens = flood(session, now, &|n| open_frame(n, &other));
    assert_eq!(opens, format!("{:?}", Event::Down(DownReason::Stuck)));
    let (session, now) = connector();
    let legs = flood(session, now, &|_| frame(FrameType::Legs, &[1, 1]));
    assert!(legs.starts_with("the peer sent more than ") && legs.contains("LEGS"), "{legs}");
    let (session, now) = edge();
    let bye = GoAway { code: "x".to_owned(), message: "y".repeat(900) };
    let farewells = flood_with_polling(session, now, &encoded(|out| bye.encode(out)));
    assert_eq!(farewells, 10_000);
    let (session, now) = edge();
    let many = flood(session, now, &|n| {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&n.to_be_bytes());
        encoded(|out| Attach { tunnel: sallyport_model::TunnelId::from_bytes(id), ..attach() }.encode(out))
    });
    assert_eq!(many, format!("{:?}", Event::Down(DownReason::Stuck)));
}

#[test]
fn a_connector_without_a_credential_gets_few_guesses() {
    let now = Instant::now();
    let mut edge = Session::edge(small(), [1; 16], [2; 32], now);
    edge.handle_input(&encoded(|out| hello().encode(out)), now).unwrap();
    let guess = encoded(|out| attach().encode(out));
    let mut judged = 0;
    let down = loop {
        // Many at once, of the same tunnel.
        edge.handle_input(&guess.repeat(5), now).unwrap();
        let mut down = None;
        while let Some(event) = edge.poll_event() {
            match event {
                Event::AttachRequested(attach) if down.is_none() => {
                    judged += 1;
                    assert!(judged < 100, "the guessing goes on");
                    edge.refuse_attach(attach.tunnel, Refusal::new("bad-credential", "no", false));
                }
                Event::Down(reason) => down = Some(reason),
                _ => {}
            }
        }
        if let Some(down) = down {
            break down;
        }
    };
    assert_eq!(down, DownReason::TooManyRefused);
    let sent = drain(&mut edge, now);
    let refused = sent.windows(16).any(|bytes| bytes == b"nothing-attached");
    assert!(refused, "the connector receives the reason");

    let (mut edge, now) = self::edge();
    for _ in 0..100 {
        edge.handle_input(&encoded(|out| attach().encode(out)), now).unwrap();
        edge.refuse_attach(tunnel(), Refusal::new("bad-credential", "no", false));
    }
    assert!(!edge.is_closing(), "a session with a tunnel has proven a credential");
}

/// A peer that repeats its messages does no harm to a driver that keeps up.
fn flood_with_polling(mut session: Session, now: Instant, input: &[u8]) -> usize {
    let mut seen = 0;
    for _ in 0..10_000 {
        session.handle_input(input, now).unwrap();
        seen += usize::from(session.poll_event().is_some());
    }
    seen
}

#[test]
fn a_frame_that_never_ends_is_kept_within_bounds() {
    let (mut edge, now) = edge();
    let header = FrameHeader { kind: FrameType::Attach, len: 16_384 };
    assert!(FrameHeader::decode(header.encode(), Carrier::Control).is_ok());
    edge.handle_input(&header.encode(), now).unwrap();
    let mut result = Ok(());
    for _ in 0..20_000 {
        assert!(edge.buffered_bytes() <= 16_388);
        result = edge.handle_input(b" ", now);
        if result.is_err() {
            break;
        }
    }
    assert!(matches!(result, Err(Violation::BadMessage { kind: FrameType::Attach, .. })));
}

#[test]
fn a_violation_is_reported_to_the_connector() {
    let (mut edge, now) = edge();
    let (mut connector, _) = connector();
    assert!(edge.handle_input(&[0xff; 9], now).is_err());
    connector.handle_input(&drain(&mut edge, now), now).unwrap();
    let Some(Event::Refused(refusal)) = connector.poll_event() else { panic!("no refusal") };
    assert_eq!(refusal.to_string(), "the peer sent a frame of the unknown type 0xff (protocol)");
}
