//! HTTP/2 limits: windows, numbers of streams, lengths of heads, and floods (RFC 9113 sections 5.1.2, 5.2, 10.5).

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use sallyport_model::OriginProtocol;
use sallyport_tunnel::{BoxFuture, IncomingStream, OriginHandler};
use sallyport_wire::Open;
use tokio::{net::TcpStream, sync::Semaphore};

use crate::{
    harness::*,
    raw_http2::{Outcome::*, *},
};

const MAX_CONCURRENT_STREAMS: u16 = 3;
/// The initial window of a connection (RFC 9113 section 6.9.2).
const FIRST_WINDOW: usize = 65_535;

/// A world with an origin that records its requests.
async fn scene() -> (World, TestSocket, TestOrigin, Connector) {
    let world = World::start().await;
    let mut socket = world.socket();
    let origin = TestOrigin::start().await;
    let connector = world.tunnel(&mut socket, origin.addr).await;
    (world, socket, origin, connector)
}

#[tokio::test]
async fn an_idle_connection_gets_pings_and_stays_usable() {
    let world = World::start_with(|config| config.ping_interval = Duration::from_secs(5)).await;
    let mut socket = world.socket();
    let origin = TestOrigin::start().await;
    let _connector = world.tunnel(&mut socket, origin.addr).await;
    let mut client = RawHttp2::open(&world, &socket).await;
    for stream in [1, 3] {
        let pings = client.pings;
        client.read_until("the edge sends a ping", |client| client.pings > pings || client.ended).await;
        client.get(stream, "/").await;
        assert_eq!(client.outcome(stream).await, Status(200));
    }
}

/// Gives the edge the time of two requests to exceed a window. Returns the bytes received on these streams together.
async fn still_got(client: &mut RawHttp2, probe: u32, streams: &[u32]) -> usize {
    for stream in [probe, probe + 2] {
        let head = client.head("HEAD", "/", &[]);
        client.send(HEADERS, END_HEADERS | END_STREAM, stream, &head).await;
        assert_eq!(client.outcome(stream).await, Status(200));
    }
    client.all_is_looked_at().await;
    streams.iter().map(|stream| client.got(*stream)).sum()
}

#[tokio::test]
async fn a_response_keeps_to_the_stream_and_connection_windows() {
    const LENGTH: usize = 300_000;
    let (world, socket, _origin, _connector) = scene().await;
    let mut client = RawHttp2::open_with(&world, &socket, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    let set = |window: u32| settings(&[(INITIAL_WINDOW_SIZE, window)]);
    client.get(1, &format!("/bytes/{LENGTH}")).await;
    client.read_until("the head is there", |client| client.received(1).heads == [Some(200)]).await;
    assert_eq!(still_got(&mut client, 101, &[1]).await, 0);
    client.grant(1, 1).await;
    client.read_until("a byte is there", |client| client.got(1) > 0).await;
    assert_eq!(still_got(&mut client, 201, &[1]).await, 1);
    client.grant(1, 1_000).await;
    client.read_until("more is there", |client| client.got(1) > 1_000).await;
    assert_eq!(still_got(&mut client, 301, &[1]).await, 1_001);
    // Section 6.9.2: a new initial window also changes the windows of open streams.
    client.send(SETTINGS, 0, 0, &set(500)).await;
    client.read_until("more is there", |client| client.got(1) > 1_500).await;
    assert_eq!(still_got(&mut client, 401, &[1]).await, 1_501);
    // A window may become negative: -400 here.
    client.send(SETTINGS, 0, 0, &set(100)).await;
    client.grant(1, 400).await;
    assert_eq!(still_got(&mut client, 501, &[1]).await, 1_501);
    client.grant(1, 7).await;
    client.read_until("more is there", |client| client.got(1) > 1_507).await;
    assert_eq!(still_got(&mut client, 601, &[1]).await, 1_508);
    // The connection window allows this much. A larger window allows the rest.
    client.send(SETTINGS, 0, 0, &set(1_000_000)).await;
    client.read_until("more is there", |client| client.got(1) == FIRST_WINDOW).await;
    assert_eq!(still_got(&mut client, 701, &[1]).await, FIRST_WINDOW);
    client.grant(0, 1_000_000).await;
    assert_eq!(client.outcome(1).await, Status(200));
    assert!(client.received(1).data == pattern(LENGTH), "bytes came wrong");
}

#[tokio::test]
async fn a_blocked_stream_does_not_block_others() {
    const LENGTH: usize = 300_000;
    let (world, socket, _origin, _connector) = scene().await;
    let mut client = RawHttp2::open_with(&world, &socket, &[(INITIAL_WINDOW_SIZE, 1_000)]).await;
    client.grant(0, 10_000_000).await;
    client.get(1, &format!("/bytes/{LENGTH}")).await;
    client.read_until("the window of the first stream is used up", |client| client.got(1) == 1_000).await;
    for stream in [3, 5] {
        client.get(stream, "/bytes/1000").await;
        assert_eq!(client.outcome(stream).await, Status(200));
        assert_eq!(client.got(stream), 1_000);
    }
    client.get(7, &format!("/bytes/{LENGTH}")).await;
    client.grant(7, 1_000_000).await;
    assert_eq!(client.outcome(7).await, Status(200));
    assert!(client.received(7).data == pattern(LENGTH), "bytes came wrong");
    assert_eq!(still_got(&mut client, 101, &[1]).await, 1_000);
    client.grant(1, 1_000_000).await;
    assert_eq!(client.outcome(1).await, Status(200));
    assert!(client.received(1).data == pattern(LENGTH), "bytes came wrong");
}

#[tokio::test]
async fn all_streams_together_keep_to_the_connection_window() {
    const LENGTH: usize = 100_000;
    let (world, socket, _origin, _connector) = scene().await;
    let mut client = RawHttp2::open_with(&world, &socket, &[(INITIAL_WINDOW_SIZE, 1_000_000)]).await;
    let streams = [1, 3, 5];
    let together = |client: &RawHttp2| streams.iter().map(|stream| client.got(*stream)).sum::<usize>();
    for stream in streams {
        client.get(stream, &format!("/bytes/{LENGTH}")).await;
    }
    client.read_until("the window is full", |client| together(client) == FIRST_WINDOW).await;
    assert_eq!(still_got(&mut client, 101, &streams).await, FIRST_WINDOW);
    client.grant(0, 10).await;
    client.read_until("more is there", |client| together(client) == FIRST_WINDOW + 10).await;
    assert_eq!(still_got(&mut client, 201, &streams).await, FIRST_WINDOW + 10);
    // Window that a cancelled stream did not use is left for the other streams.
    client.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()).await;
    let given_up = client.got(1);
    let rest = u32::try_from(given_up + 2 * LENGTH - FIRST_WINDOW - 10).unwrap();
    client.all_is_looked_at().await;
    assert_eq!(client.got(1), given_up, "nothing comes without a window");
    client.grant(0, rest).await;
    for stream in [3, 5] {
        assert_eq!(client.outcome(stream).await, Status(200));
        assert!(client.received(stream).data == pattern(LENGTH), "bytes came wrong on {stream}");
    }
    assert_eq!(client.received(1).reset, None, "the client ended it");
}

#[tokio::test]
async fn an_invalid_window_update_is_an_error() {
    let (world, socket, origin, _connector) = scene().await;
    let mut client = RawHttp2::open(&world, &socket).await;
    for (stream, more, code) in [(1, 0, PROTOCOL_ERROR), (3, 0x7fff_ffff, FLOW_CONTROL_ERROR)] {
        client.get(stream, "/held").await;
        client.grant(stream, more).await;
        // Section 6.9 makes both errors of the stream. Section 5.4.2 also permits errors of the connection.
        match client.outcome(stream).await {
            Reset(got) => assert_eq!(got, code, "{more} more"),
            Ended(got) => {
                assert_eq!(got, Some(code), "{more} more");
                client = RawHttp2::open(&world, &socket).await;
            }
            Status(status) => panic!("{status} for {more} more"),
        }
    }
    // The largest window.
    client.get(5, "/held").await;
    client.grant(5, 0x7fff_ffff - 65_535).await;
    client.grant(0, 0x7fff_ffff - 65_535).await;
    origin.gate.add_permits(3);
    assert_eq!(client.outcome(5).await, Status(200));
}

/// An origin handler that dials the origin after its gate opens. Until then it reads nothing of a body.
struct Gated(SocketAddr, Arc<Semaphore>);

impl OriginHandler for Gated {
    fn serve(&self, _open: Open, stream: IncomingStream) -> BoxFuture<'static, ()> {
        let (addr, gate) = (self.0, self.1.clone());
        Box::pin(async move {
            let _permit = gate.acquire().await;
            let mut origin = TcpStream::connect(addr).await.unwrap();
            if let Ok(mut stream) = stream.opened().await {
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut origin).await;
            }
        })
    }
}

/// A world with an origin that reads nothing before its gate opens.
async fn gated_scene() -> (World, TestSocket, TestOrigin, Arc<Semaphore>, Connector) {
    let world = World::start_with(|config| config.connect_timeout = Duration::from_secs(300)).await;
    let mut socket = world.socket();
    let (origin, gate) = (TestOrigin::start().await, Arc::new(Semaphore::new(0)));
    let tunnel = world.new_tunnel(&mut socket);
    let connector = world.connect_with(tunnel, Arc::new(Gated(origin.addr, gate.clone()))).await;
    (world, socket, origin, gate, connector)
}

/// Reads until the edge has announced the stream window and the connection window. Returns the stream window.
async fn windows(client: &mut RawHttp2) -> usize {
    client.read_until("there are windows", |client| !client.settings.is_empty() && client.granted > 0).await;
    client.settings[&INITIAL_WINDOW_SIZE] as usize
}

/// Sends this many bytes of content in frames of the maximum length.
async fn upload(client: &mut RawHttp2, stream: u32, bytes: usize) {
    let body = vec![b'x'; bytes];
    let frames: Vec<u8> = body.chunks(16_384).flat_map(|piece| frame(DATA, 0, stream, piece)).collect();
    client.write(&frames).await;
}

#[tokio::test]
async fn an_unread_upload_is_limited_by_its_window() {
    let (world, socket, origin, gate, _connector) = gated_scene().await;
    let mut client = RawHttp2::open(&world, &socket).await;
    let window = windows(&mut client).await;
    assert_eq!(window, 1024 * 1024);
    client.post(1, "/", &[]).await;
    upload(&mut client, 1, window).await;
    client.all_is_looked_at().await;
    assert_eq!((client.received(1).granted, client.became(1)), (0, None), "the origin has read no bytes");
    upload(&mut client, 1, 1).await;
    let outcome = client.outcome(1).await;
    assert!(matches!(outcome, Reset(FLOW_CONTROL_ERROR) | Ended(Some(FLOW_CONTROL_ERROR))), "{outcome:?}");

    let mut client = RawHttp2::open(&world, &socket).await;
    windows(&mut client).await;
    let (mut rest, granted) = (FIRST_WINDOW + client.granted, client.granted);
    assert_eq!(rest, 4 * 1024 * 1024);
    let mut stream = 1;
    while rest > 0 {
        client.post(stream, "/", &[]).await;
        upload(&mut client, stream, rest.min(window)).await;
        rest -= rest.min(window);
        stream += 2;
    }
    client.all_is_looked_at().await;
    assert_eq!(client.granted, granted, "the origin has read no bytes");
    client.post(stream, "/", &[]).await;
    upload(&mut client, stream, 1).await;
    assert_eq!(client.outcome(stream).await, Ended(Some(FLOW_CONTROL_ERROR)));

    // A client that keeps to its window goes on when the origin reads.
    let mut client = RawHttp2::open(&world, &socket).await;
    windows(&mut client).await;
    client.post(1, "/", &[]).await;
    upload(&mut client, 1, window).await;
    client.all_is_looked_at().await;
    gate.add_permits(1_000);
    client.read_until("more is granted", |client| client.received(1).granted > 0).await;
    client.send(DATA, END_STREAM, 1, b"the end").await;
    assert_eq!(client.outcome(1).await, Status(200));
    assert!(origin.seen().contains(&format!("POST / whole, {} bytes", window + 7)), "{:?}", origin.seen());
}

#[tokio::test]
async fn windows_are_replenished_for_all_received_bytes() {
    const LENGTH: usize = 6 * 1024 * 1024;
    const PIECE: usize = 4_096;
    let (world, socket, origin, _connector) = scene().await;
    let mut client = RawHttp2::open(&world, &socket).await;
    let window = windows(&mut client).await;
    let mut sent_before = 0;
    // The second round adds padding, which counts as well (section 6.9.1).
    for (stream, padding) in [(1, 0), (3, 255_u8)] {
        client.post(stream, "/", &[]).await;
        let body = match padding {
            0 => vec![b'x'; PIECE],
            _ => [&[padding], &[b'x'; PIECE][..], &vec![0; padding.into()]].concat(),
        };
        let one = frame(DATA, if padding > 0 { PADDED } else { 0 }, stream, &body);
        let mut sent = 0;
        while sent < LENGTH {
            let room = |client: &RawHttp2| {
                let of_stream = window + client.received(stream).granted - sent;
                of_stream.min(FIRST_WINDOW + client.granted - sent_before - sent) / body.len()
            };
            client.read_until("the windows have room", |client| room(client) > 0).await;
            let count = room(&client).min(16);
            client.write(&one.repeat(count)).await;
            sent += count * body.len();
        }
        client.send(DATA, END_STREAM, stream, &[]).await;
        assert_eq!(client.outcome(stream).await, Status(200));
        let length = sent / body.len() * PIECE;
        assert_eq!(origin.seen().last().unwrap(), &format!("POST / whole, {length} bytes"));
        sent_before += sent;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_bodies_pass_both_ways_unchanged() {
    const LENGTH: usize = 20_000_000;
    let world = World::start().await;
    let echo =
        |request: Request<Incoming>| async { Response::new(request.into_body().map_err(Into::into).boxed_unsync()) };
    let (mut one, mut two) = (world.socket(), world.socket());
    two.speaks(&world, OriginProtocol::Http2);
    let _one = world.tunnel(&mut one, origin(echo).await).await;
    let _two = world.tunnel(&mut two, h2_origin(echo).await).await;
    let sent = pattern(LENGTH);
    for socket in [one, two] {
        let mut sender = world.http2(&socket).await;
        let request = Request::post(format!("https://{}/", socket.host())).body(text(sent.clone())).unwrap();
        let response = soon(sender.send_request(request)).await.unwrap();
        let (mut body, mut got) = (response.into_body(), 0);
        while let Some(frame) = soon(body.frame()).await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(sent[got..].starts_with(&data), "bytes came wrong behind {got}");
            got += data.len();
        }
        assert_eq!(got, LENGTH, "{:?}", socket.route.origin_protocol);
    }
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused_and_others_go_on() {
    let (world, socket, origin, _connector) = scene().await;
    let mut client = RawHttp2::open(&world, &socket).await;
    client.all_is_looked_at().await;
    let most = client.settings[&MAX_CONCURRENT_STREAMS];
    assert_eq!(most, 200);
    let number = |stream: u32| 2 * stream + 1;
    for stream in 0..most + 5 {
        client.get(number(stream), "/held").await;
    }
    for stream in most..most + 5 {
        assert_eq!(client.outcome(number(stream)).await, Reset(REFUSED_STREAM));
    }
    until("the others are there", || origin.seen().len() == most as usize).await;
    origin.gate.add_permits(most as usize);
    for stream in 0..most {
        assert_eq!(client.outcome(number(stream)).await, Status(200));
    }
    client.get(number(most + 5), "/").await;
    assert_eq!(client.outcome(number(most + 5)).await, Status(200));
    assert_eq!(origin.seen().len(), most as usize + 1);
    until("the refused streams are counted", || counted(&world, "streams_reset", REFUSED_STREAM) == 5).await;
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused_and_the_connection_goes_on() {
    let (world, socket, origin, _connector) = scene().await;
    let mut client = RawHttp2::open(&world, &socket).await;
    client.all_is_looked_at().await;
    // MAX_HEADER_LIST_SIZE is setting 6.
    assert_eq!(client.settings[&6], 65_536);
    let value = "v".repeat(7_000);
    let long: Vec<_> = (0..10).map(|_| ("x-long", value.as_str())).collect();
    let many: Vec<_> = (0..101).map(|_| ("x-many", "v")).collect();
    let fits: Vec<_> = long[..8].to_vec();
    for (stream, fields, status) in [(1, long, 431), (3, many, 431), (5, fits, 200)] {
        let head = client.head("GET", "/", &fields);
        let parts: Vec<_> = head.chunks(16_384).collect();
        for (number, part) in parts.iter().enumerate() {
            let kind = if number == 0 { HEADERS } else { CONTINUATION };
            let ends = if number == 0 { END_STREAM } else { 0 };
            let last = if number == parts.len() - 1 { END_HEADERS } else { 0 };
            client.send(kind, ends | last, stream, part).await;
        }
        assert_eq!(client.outcome(stream).await, Status(status), "stream {stream}");
    }
    let error_page = String::from_utf8(client.received(1).data).unwrap();
    assert!(error_page.contains("header of the request is too long"), "{error_page}");
    // The body of such a request may follow. A response to HEAD has no body.
    let value = "v".repeat(66_000);
    for (stream, method) in [(7, "POST"), (9, "HEAD")] {
        let ends = if method == "HEAD" { END_STREAM } else { 0 };
        let head = client.head(method, "/", &[("x-long", &value)]);
        let (first, rest) = head.split_at(16_384);
        client.send(HEADERS, ends, stream, first).await;
        for part in rest[..rest.len() - 1].chunks(16_384) {
            client.send(CONTINUATION, 0, stream, part).await;
        }
        client.send(CONTINUATION, END_HEADERS, stream, &rest[rest.len() - 1..]).await;
        if method == "POST" {
            client.send(DATA, END_STREAM, stream, b"body").await;
        }
        assert_eq!(client.outcome(stream).await, Status(431), "{method}");
        assert_eq!(client.got(stream) > 0, method == "POST", "{method}");
    }
    client.get(11, "/").await;
    assert_eq!(client.outcome(11).await, Status(200));
    assert_eq!(origin.seen().len(), 2);
    // Such requests count without a socket, because the edge never reads their host.
    let lines = [r#"edge_refusals_total{reason="malformed"} 4"#, r#"requests_total{socket="none",status="4xx"} 4"#];
    let is_counted = || lines.iter().all(|line| world.edge.metrics_text().unwrap().contains(line));
    until("the refused requests are counted", is_counted).await;
}

/// A step of a flood that a client repeats, with `number` counting from 0.
type Again = fn(number: u32, head: &[u8]) -> Vec<u8>;

/// The stream of the request with this number.
fn stream_of(number: u32) -> u32 {
    2 * number + 3
}

const FLOODS: [(&str, Again); 13] = [
    ("PING", |_, _| frame(PING, 0, 0, &[7; 8])),
    ("SETTINGS", |_, _| frame(SETTINGS, 0, 0, &settings(&[(INITIAL_WINDOW_SIZE, 65_535)]))),
    ("empty SETTINGS", |_, _| frame(SETTINGS, 0, 0, &[])),
    ("PRIORITY", |number, _| frame(PRIORITY, 0, stream_of(number), &[0, 0, 0, 0, 1])),
    ("empty DATA", |_, _| frame(DATA, 0, 1, &[])),
    ("empty padded DATA", |_, _| frame(DATA, PADDED, 1, &[0])),
    ("WINDOW_UPDATE", |number, _| frame(WINDOW_UPDATE, 0, number % 2, &[0, 0, 0, 1])),
    ("unknown frames", |number, _| frame(0xee, 0, number, &[])),
    ("empty CONTINUATION", |number, _| frame(if number == 0 { HEADERS } else { CONTINUATION }, 0, 3, &[])),
    ("CONTINUATION", |number, _| {
        frame(if number == 0 { HEADERS } else { CONTINUATION }, 0, 3, &block(&[("x-flood", "v".repeat(200))]))
    }),
    ("rapid resets", |number, head| {
        let reset = frame(RST_STREAM, 0, stream_of(number), &CANCEL.to_be_bytes());
        [frame(HEADERS, END_HEADERS | END_STREAM, stream_of(number), head), reset].concat()
    }),
    ("resets by the edge", |number, head| {
        let request = frame(HEADERS, END_HEADERS | END_STREAM, stream_of(number), head);
        [request, frame(WINDOW_UPDATE, 0, stream_of(number), &[0; 4])].concat()
    }),
    ("requests", |number, head| frame(HEADERS, END_HEADERS | END_STREAM, stream_of(number), head)),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_from_a_client_that_reads_nothing_costs_little_memory() {
    const FLOOD_BYTES: usize = 16 * 1024 * 1024;
    const MAX_GROWTH_BYTES: usize = 4 * 1024 * 1024;
    /// The memory of one open request, including its share in the test's connector and origin.
    const MAX_REQUEST_BYTES: usize = 64 * 1024;
    if !is_alone("http2_limits::a_flood_from_a_client_that_reads_nothing_costs_little_memory").await {
        return;
    }
    let (world, socket, origin, _connector) = scene().await;
    assert_eq!(world.get(&socket, "/").await.text(), "ok");
    for (what, again) in FLOODS {
        let mut client = RawHttp2::open(&world, &socket).await;
        let head = client.head("POST", "/held", &[]);
        client.send(HEADERS, END_HEADERS, 1, &head).await;
        client.all_is_looked_at().await;
        let mut number = 0;
        if what == "requests" {
            // Opens as many requests as a client may have. Such requests cost the test's connector and origin more than
            // the edge.
            let (asked, rested) = (origin.seen().len(), resident_bytes());
            number = client.settings[&MAX_CONCURRENT_STREAMS] - 1;
            client.write(&(0..number).flat_map(|number| again(number, &head)).collect::<Vec<_>>()).await;
            until("the requests are at the origin", || origin.seen().len() >= asked + number as usize).await;
            let each = resident_bytes().saturating_sub(rested) / number as usize;
            assert!(each < MAX_REQUEST_BYTES, "{each} bytes for each of {number} requests");
        }
        let before = resident_bytes();
        let mut sent = 0;
        while sent < FLOOD_BYTES {
            let mut piece = Vec::new();
            while piece.len() < 60_000 {
                piece.extend(again(number, &head));
                number += 1;
            }
            // The edge may read all of the flood, stop reading, or end the connection.
            if !client.may_write(&piece, Duration::from_secs(2)).await {
                break;
            }
            sent += piece.len();
        }
        assert_eq!(world.get(&socket, "/").await.text(), "ok", "beside {what}");
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < MAX_GROWTH_BYTES, "{} KiB more after {sent} bytes of {what}", grown / 1024);
    }
}

#[tokio::test]
async fn an_endless_head_ends_its_connection() {
    let (world, socket, origin, _connector) = scene().await;
    for (what, again) in FLOODS.into_iter().filter(|(what, _)| what.ends_with("CONTINUATION")) {
        let mut client = RawHttp2::open(&world, &socket).await;
        let mut number = 0;
        while number < 20_000 && client.may_write(&again(number, &[]), PATIENCE).await {
            number += 1;
        }
        let code = client.end().await;
        assert!(matches!(code, None | Some(ENHANCE_YOUR_CALM | PROTOCOL_ERROR)), "{what}: {code:?}");
    }
    assert_eq!(world.get(&socket, "/").await.text(), "ok");
    assert_eq!(origin.seen(), ["GET /"]);
}

#[tokio::test]
async fn a_flood_is_tolerated_or_ends_its_connection() {
    const TIMES: u32 = 10_000;
    let (world, socket, _origin, _connector) = scene().await;
    for (what, again) in FLOODS.into_iter().filter(|(what, _)| !what.ends_with("CONTINUATION")) {
        let mut client = RawHttp2::open(&world, &socket).await;
        let head = client.head("POST", "/held", &[]);
        client.send(HEADERS, END_HEADERS, 1, &head).await;
        let mut number = 0;
        while number < TIMES && !client.ended {
            let piece: Vec<u8> = (number..number + 200).flat_map(|number| again(number, &head)).collect();
            number += 200;
            client.write(&piece).await;
            let (asked, payload) = (client.pongs.len(), u64::from(number).to_be_bytes());
            client.send(PING, 0, 0, &payload).await;
            let is_looked_at = |client: &RawHttp2| client.pongs[asked..].iter().any(|pong| *pong == payload);
            client.read_until("a ping is answered", |client| client.ended || is_looked_at(client)).await;
        }
        if client.ended {
            let code = client.goaways.last().map(|(_, code)| *code);
            assert!(matches!(code, None | Some(ENHANCE_YOUR_CALM | PROTOCOL_ERROR)), "{what}: {code:?}");
        }
        assert_eq!(world.get(&socket, "/").await.text(), "ok", "beside {what}");
    }
    // These floods end their connection: rapid resets, resets by the edge, and too many requests.
    until("those are counted", || counted(&world, "connections_failed", ENHANCE_YOUR_CALM) >= 3).await;
}
