//! Clients on the tunnel port that are no connectors, and limits.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use sallyport_tunnel::{EdgeTunnelsConfig, IncomingStream, OriginHandler, SessionConfig};
use sallyport_wire::{Attach, FrameHeader, FrameType, Hello, Join, Open, Refusal, Welcome, frame::HEADER_BYTES};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::lab::*;

fn carrier(edge: &Edge) -> DuplexStream {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let edge = edge.clone();
    tokio::spawn(async move { edge.tunnels.serve_carrier(far, peer()).await });
    near
}

async fn frame(io: &mut DuplexStream) -> (FrameType, Vec<u8>) {
    let mut header = [0; HEADER_BYTES];
    soon(io.read_exact(&mut header)).await.unwrap();
    let len = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
    let mut payload = vec![0; len];
    soon(io.read_exact(&mut payload)).await.unwrap();
    (FrameType::from_byte(header[0]).unwrap(), payload)
}

fn hello() -> Vec<u8> {
    let hello = Hello {
        versions: vec![1],
        agent: "raw/1".into(),
        connector: [3; 16],
        max_legs: 4,
        features: Vec::new(),
        host: None,
    };
    let mut frame = Vec::new();
    hello.encode(&mut frame);
    frame
}

/// A leg needs a grant; the granted resources live as long as the leg.
#[tokio::test]
async fn what_a_leg_was_given_lives_as_long_as_the_leg() {
    let edge = Edge::new();
    let mut control = carrier(&edge);
    let mut bytes = hello();
    attach(1, &mut bytes);
    control.write_all(&bytes).await.unwrap();
    let (_, payload) = frame(&mut control).await;
    let welcome = Welcome::decode(&payload).unwrap();
    edge.attached(tunnel(1)).await;
    let given = Arc::new(());
    let join = |leave: Result<Arc<()>, Refusal>| {
        let (mut near, far) = tokio::io::duplex(64 * 1024);
        let tunnels = edge.tunnels.clone();
        tokio::spawn(async move { tunnels.serve_carrier_with(far, peer(), move |_, _| leave).await });
        let mut bytes = Vec::new();
        Join { session: welcome.session, leg_secret: welcome.leg_secret }.encode(&mut bytes);
        async move {
            near.write_all(&bytes).await.unwrap();
            near
        }
    };
    let mut refused = join(Err(Refusal::new("busy", "no room", true))).await;
    let (kind, payload) = frame(&mut refused).await;
    assert_eq!((kind, Refusal::decode(&payload).unwrap().code.as_str()), (FrameType::Refused, "busy"));
    let leg = join(Ok(given.clone())).await;
    until("it joins", || edge.tunnels.stats().legs_idle == 1).await;
    assert_eq!(Arc::strong_count(&given), 2);
    drop((leg, control));
    until("it is gone", || Arc::strong_count(&given) == 1).await;
}

#[tokio::test]
async fn garbage_closes_its_own_connection_only() {
    let edge = Edge::new();
    let _connector = Connector::start(Arc::new(Pipes::to(&edge)), echo(), &[tunnel(1)]);
    let handle = edge.ready(tunnel(1)).await;
    let mut too_long = FrameHeader { kind: FrameType::Hello, len: 0 }.encode().to_vec();
    too_long[1] = 0xff;
    let ping = FrameHeader { kind: FrameType::Ping, len: 8 }.encode().to_vec();
    for garbage in
        [b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0; 100], vec![0xff; 100], too_long, ping, b"\x01\x00".to_vec()]
    {
        let mut io = carrier(&edge);
        io.write_all(&garbage).await.unwrap();
        io.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = soon(io.read_to_end(&mut answer)).await;
        assert!(answer.is_empty(), "{garbage:?} was answered with {answer:?}");
    }
    assert_eq!(soon(exchange(handle.open(open_for(tunnel(1))).unwrap(), b"still here")).await.unwrap(), b"still here");
    assert_eq!(edge.tunnels.stats().sessions, 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_closed_in_time() {
    let edge = Edge::new();
    let mut io = carrier(&edge);
    io.write_all(&hello()[..7]).await.unwrap();
    let since = tokio::time::Instant::now();
    assert_eq!(io.read(&mut [0; 1]).await.unwrap(), 0);
    assert!(since.elapsed() <= Duration::from_secs(11));
}

#[tokio::test]
async fn a_leg_needs_the_secret_of_a_session_that_attached_something() {
    let edge = Edge::new();
    let mut control = carrier(&edge);
    control.write_all(&hello()).await.unwrap();
    let (kind, payload) = frame(&mut control).await;
    assert_eq!(kind, FrameType::Welcome);
    let welcome = Welcome::decode(&payload).unwrap();
    let mut wrong_secret = welcome.leg_secret;
    wrong_secret[31] ^= 1;
    for (session, leg_secret, code) in [
        (welcome.session, wrong_secret, "protocol"),
        ([0; 16], welcome.leg_secret, "protocol"),
        (welcome.session, welcome.leg_secret, "nothing-attached"),
    ] {
        let mut leg = carrier(&edge);
        let mut join = Vec::new();
        Join { session, leg_secret }.encode(&mut join);
        leg.write_all(&join).await.unwrap();
        let (kind, payload) = frame(&mut leg).await;
        assert_eq!((kind, Refusal::decode(&payload).unwrap().code.as_str()), (FrameType::Refused, code));
        assert_eq!(soon(leg.read(&mut [0; 1])).await.unwrap(), 0, "and it is closed");
    }
    assert_eq!(edge.tunnels.stats().legs_idle, 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_attaches_nothing_is_closed() {
    let edge = Edge::new();
    let mut control = carrier(&edge);
    control.write_all(&hello()).await.unwrap();
    frame(&mut control).await;
    until("it is closed", || edge.tunnels.stats().sessions == 0).await;
}

#[tokio::test]
async fn guesses_at_credentials_are_few() {
    let edge = Edge::new();
    let mut control = carrier(&edge);
    let mut bytes = hello();
    for _ in 0..200 {
        Attach {
            tunnel: tunnel(1),
            credential: "a guess".into(),
            request_log: false,
            home: None,
            origin: None,
            spread: false,
        }
        .encode(&mut bytes);
    }
    control.write_all(&bytes).await.unwrap();
    let mut answer = Vec::new();
    soon(control.read_to_end(&mut answer)).await.unwrap();
    until("it is closed", || edge.tunnels.stats().sessions == 0).await;
    assert_eq!(edge.doorman.judged.load(Ordering::Relaxed), 16);
}

/// Captures the log from here on, at the default level, until the returned guard is dropped.
fn logged() -> (Arc<Mutex<Vec<u8>>>, impl Sized) {
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let log = Arc::<Mutex<Vec<u8>>>::default();
    let sink = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_ansi(false)
        .with_writer(move || Sink(sink.clone()))
        .finish();
    // With one subscriber in the process, tracing asks only the first thread at a callsite whether the line is wanted
    // (`Rebuilder::JustOne`). A subscriber of another test would refuse for all. With two, tracing asks both.
    let second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    (log, (tracing::subscriber::set_default(subscriber), second))
}

#[tokio::test]
async fn refused_sessions_leave_few_lines_in_the_log() {
    const SESSIONS: usize = 400;
    let edge = Edge::new();
    let refused = async || {
        let mut control = carrier(&edge);
        let mut bytes = hello();
        for number in 1..=3 {
            let credential = "a guess".into();
            Attach { tunnel: tunnel(number), credential, request_log: false, home: None, origin: None, spread: false }
                .encode(&mut bytes);
        }
        control.write_all(&bytes).await.unwrap();
        for _ in 0..3 {
            while frame(&mut control).await.0 != FrameType::NotAttached {}
        }
    };
    let (log, _here) = logged();
    let began = std::time::Instant::now();
    refused().await;
    until("it is over", || edge.tunnels.stats().sessions == 0).await;
    let lines = || String::from_utf8(log.lock().unwrap().clone()).unwrap().lines().count();
    assert_eq!(lines(), 1, "one line for a session that was refused three times");
    for _ in 1..SESSIONS {
        refused().await;
    }
    let most = 201 + began.elapsed().as_secs_f64() as usize * 50 + 50;
    assert!(lines() <= most, "{} lines, at most {most}", lines());
    // The next logged refusal reports the count of refusals omitted since the one before. Every refusal is logged or
    // counted.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let logged = lines();
    refused().await;
    assert_eq!(lines(), logged + 1);
    let text = String::from_utf8(log.lock().unwrap().clone()).unwrap();
    let left_out = text.split("left_out=").skip(1).map(|rest| rest.split_whitespace().next().unwrap());
    let left_out: usize = left_out.map(|number| number.parse::<usize>().unwrap()).sum();
    assert_eq!(logged + 1 + left_out, SESSIONS + 1, "{text}");
}

fn attach(number: u8, bytes: &mut Vec<u8>) {
    Attach {
        tunnel: tunnel(number),
        credential: CREDENTIAL.into(),
        request_log: false,
        home: None,
        origin: None,
        spread: false,
    }
    .encode(bytes);
}

#[tokio::test]
async fn a_session_attaches_each_tunnel_once_and_not_again_and_again() {
    let edge = Edge::new();
    let mut control = carrier(&edge);
    control.write_all(&hello()).await.unwrap();
    assert_eq!(frame(&mut control).await.0, FrameType::Welcome);
    for number in 0..FIRST_UDP {
        let mut bytes = Vec::new();
        attach(number, &mut bytes);
        control.write_all(&bytes).await.unwrap();
        while frame(&mut control).await.0 != FrameType::Attached {}
    }
    let mut bytes = Vec::new();
    for _ in 0..200 {
        attach(1, &mut bytes);
    }
    control.write_all(&bytes).await.unwrap();
    let refusal = loop {
        let (kind, payload) = frame(&mut control).await;
        if kind == FrameType::Refused {
            break Refusal::decode(&payload).unwrap();
        }
    };
    assert_eq!((refusal.code.as_str(), refusal.retry), ("protocol", true), "{refusal}");
    until("it is closed", || edge.tunnels.stats().sessions == 0).await;
    let judged = edge.doorman.judged.load(Ordering::Relaxed);
    assert!(judged <= usize::from(FIRST_UDP) + 20, "{judged}");
}

#[tokio::test]
async fn a_wrong_hello_is_reported() {
    let edge = Edge::new();
    let mut no_json = FrameHeader { kind: FrameType::Hello, len: 4 }.encode().to_vec();
    no_json.extend(b"null");
    let mut control = carrier(&edge);
    control.write_all(&no_json).await.unwrap();
    let (kind, payload) = frame(&mut control).await;
    assert_eq!(kind, FrameType::Refused);
    let refusal = Refusal::decode(&payload).unwrap();
    assert_eq!((refusal.code.as_str(), refusal.retry), ("protocol", false), "{refusal}");
    assert_eq!(soon(control.read_to_end(&mut Vec::new())).await.unwrap(), 0);
}

#[tokio::test]
async fn sessions_and_legs_are_bounded() {
    let config = EdgeTunnelsConfig { max_sessions: 1, max_legs_per_session: 3, ..EdgeTunnelsConfig::default() };
    let edge = Edge::with(config);
    let _first = Connector::start(Arc::new(Pipes::to(&edge)), echo(), &[tunnel(1)]);
    let handle = edge.attached(tunnel(1)).await;
    until("three legs join", || edge.tunnels.stats().legs_idle == 3).await;
    let streams: Vec<_> = (0..20).map(|_| handle.open(open_for(tunnel(1))).unwrap()).collect();
    assert_eq!(streams.iter().filter(|stream| stream.is_on_leg()).count(), 3);
    for stream in streams {
        assert_eq!(soon(exchange(stream, b"x")).await.unwrap(), b"x");
    }
    let stats = edge.tunnels.stats();
    assert_eq!(stats.legs_idle + stats.legs_busy, 3);

    let mut second = carrier(&edge);
    second.write_all(&hello()).await.unwrap();
    let refusal = loop {
        let (kind, payload) = frame(&mut second).await;
        if kind == FrameType::Refused {
            break Refusal::decode(&payload).unwrap();
        }
    };
    assert_eq!((refusal.code.as_str(), refusal.retry), ("busy", true));
    assert_eq!(edge.tunnels.stats().sessions, 1);
}

#[tokio::test]
async fn sessions_without_tunnels_lock_no_connector_out() {
    let edge = Edge::with(EdgeTunnelsConfig { max_sessions: 2, ..EdgeTunnelsConfig::default() });
    let mut silent = Vec::new();
    for _ in 0..300 {
        let mut control = carrier(&edge);
        control.write_all(&hello()).await.unwrap();
        assert_eq!(frame(&mut control).await.0, FrameType::Welcome);
        silent.push(control);
    }
    let connector = Connector::start(Arc::new(Pipes::to(&edge)), echo(), &[tunnel(1)]);
    let handle = edge.attached(tunnel(1)).await;
    assert!(edge.tunnels.stats().sessions < 300, "the oldest silent ones made room");
    assert_eq!(soon(exchange(handle.open(open_for(tunnel(1))).unwrap(), b"x")).await.unwrap(), b"x");
    let refusal = loop {
        let (kind, payload) = frame(&mut silent[0]).await;
        if kind == FrameType::Refused {
            break Refusal::decode(&payload).unwrap();
        }
    };
    assert_eq!((refusal.code.as_str(), refusal.retry), ("busy", true));
    drop((connector, silent));
}

#[tokio::test]
async fn streams_beyond_the_sessions_bound_are_refused_not_queued() {
    let session = SessionConfig { max_streams: 5, ..SessionConfig::default() };
    let edge = Edge::with(EdgeTunnelsConfig { session, ..EdgeTunnelsConfig::default() });
    let _connector = Connector::start_with(Arc::new(Pipes::to(&edge)), echo(), &[tunnel(1)], |config| {
        config.max_legs = 0;
    });
    let handle = edge.attached(tunnel(1)).await;
    let streams: Vec<_> = (0..5).map(|_| handle.open(open_for(tunnel(1))).unwrap()).collect();
    let error = handle.open(open_for(tunnel(1))).unwrap_err();
    assert!(error.to_string().contains("no room for another stream"), "{error}");
    assert_eq!(handle.active_streams(), 5, "what was refused does not count");
    for stream in streams {
        assert_eq!(soon(exchange(stream, b"x")).await.unwrap(), b"x");
    }
}

/// Sends this many bytes at once, then closes.
fn speaks(bytes: usize) -> Arc<dyn OriginHandler> {
    Arc::new(Origin(move |_open, stream: IncomingStream| async move {
        let Ok(mut stream) = stream.opened().await else { return };
        // A client that does not read blocks the origin here.
        let _ = stream.write_all(&vec![b'x'; bytes]).await;
        let _ = stream.shutdown().await;
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_that_takes_all_it_can_leaves_legs_and_streams_to_others() {
    const LEGS: usize = 64;
    const STREAMS: usize = 1_024;
    const ANSWER: usize = 1_000_000;
    let session = SessionConfig { max_streams: STREAMS as u32, ..SessionConfig::default() };
    let edge = Edge::with(EdgeTunnelsConfig { max_legs_per_session: LEGS, session, ..EdgeTunnelsConfig::default() });
    let _connector = Connector::start(Arc::new(Pipes::to(&edge)), speaks(ANSWER), &[tunnel(1)]);
    let handle = edge.ready(tunnel(1)).await;
    let of = |client: &str| Open { client: client.parse().unwrap(), ..open_for(tunnel(1)) };
    let greedy = || of("198.51.100.7:1");
    // The client opens one stream after the other, and reads none of them.
    let mut streams = Vec::new();
    let mut ask_until_refused = async || {
        loop {
            match handle.open(greedy()) {
                Ok(mut stream) => {
                    soon(stream.flush()).await.unwrap();
                    streams.push(stream);
                }
                Err(error) => return error,
            }
        }
    };
    let error = ask_until_refused().await;
    assert!(error.to_string().contains("no room for another stream"), "{error}");
    // The legs that the client made the edge request arrive, and other clients get some of them.
    until("all legs are there", || {
        let stats = edge.tunnels.stats();
        stats.legs_idle + stats.legs_busy == LEGS
    })
    .await;
    ask_until_refused().await;
    let on_legs = streams.iter().filter(|stream| stream.is_on_leg()).count();
    assert_eq!((on_legs, streams.len() - on_legs), (LEGS * 3 / 4, STREAMS * 3 / 4));

    let mut others = Vec::new();
    for number in 1..=8 {
        let other = of(&format!("198.51.100.{}:1", 100 + number));
        let mut on_leg = handle.open(other.clone()).unwrap();
        assert!(on_leg.is_on_leg(), "{number} others have legs");
        let mut shared = handle.open_shared(other).unwrap();
        for stream in [&mut on_leg, &mut shared] {
            soon(stream.flush()).await.unwrap();
            let mut answer = Vec::new();
            soon(stream.read_to_end(&mut answer)).await.unwrap();
            assert_eq!(answer.len(), ANSWER);
        }
        // The streams stay open, as busy ones do.
        others.push((on_leg, handle.open(of(&format!("198.51.100.{}:1", 100 + number))).unwrap()));
    }
    drop((streams, others));
    until("nothing is held any more", || handle.active_streams() == 0).await;
    assert!(handle.has_leg_for("198.51.100.7:1".parse().unwrap()));
}
