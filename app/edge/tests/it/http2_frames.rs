//! HTTP/2 frames: their order, settings and the end of connections (RFC 9113 sections 3 to 6).

use std::collections::BTreeMap;

use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;

use crate::{
    harness::*,
    raw_http2::{Outcome::*, *},
};

/// A world with an origin that records its requests.
async fn scene() -> (World, TestSocket, TestOrigin, Connector) {
    let world = World::start().await;
    let mut socket = world.socket();
    let origin = TestOrigin::start().await;
    let connector = world.tunnel(&mut socket, origin.addr).await;
    (world, socket, origin, connector)
}

/// The name of a case, the frames to send, and the error codes with which the connection may end.
type Broken = (&'static str, Vec<Vec<u8>>, &'static [u32]);

/// Valid frames in the wrong place, with this head of a request.
fn out_of_place(head: &[u8]) -> Vec<Broken> {
    let open = frame(HEADERS, END_HEADERS, 1, head);
    let (begun, rest) = (frame(HEADERS, 0, 1, &head[..10]), &head[10..]);
    let ping = frame(PING, 0, 0, &[0; 8]);
    vec![
        // Section 5.1: streams that are not open, and stream numbers.
        ("DATA on the connection", vec![frame(DATA, 0, 0, b"x")], &[PROTOCOL_ERROR]),
        ("DATA on an idle stream", vec![frame(DATA, 0, 1, b"x")], &[PROTOCOL_ERROR]),
        ("HEADERS on the connection", vec![frame(HEADERS, END_HEADERS, 0, head)], &[PROTOCOL_ERROR]),
        ("HEADERS on a stream of the edge", vec![frame(HEADERS, END_HEADERS, 2, head)], &[PROTOCOL_ERROR]),
        (
            "HEADERS on an earlier stream",
            vec![frame(HEADERS, END_HEADERS, 5, head), frame(HEADERS, END_HEADERS, 3, head)],
            &[PROTOCOL_ERROR, STREAM_CLOSED],
        ),
        ("RST_STREAM on the connection", vec![frame(RST_STREAM, 0, 0, &[0; 4])], &[PROTOCOL_ERROR]),
        ("RST_STREAM on an idle stream", vec![frame(RST_STREAM, 0, 1, &[0; 4])], &[PROTOCOL_ERROR]),
        ("PRIORITY on the connection", vec![frame(PRIORITY, 0, 0, &[0; 5])], &[PROTOCOL_ERROR]),
        ("WINDOW_UPDATE on an idle stream", vec![frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])], &[PROTOCOL_ERROR]),
        ("CONTINUATION on the connection", vec![frame(CONTINUATION, END_HEADERS, 0, head)], &[PROTOCOL_ERROR]),
        ("PUSH_PROMISE", vec![open.clone(), frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])], &[PROTOCOL_ERROR]),
        ("SETTINGS on a stream", vec![open.clone(), frame(SETTINGS, 0, 1, &[])], &[PROTOCOL_ERROR]),
        ("PING on a stream", vec![open.clone(), frame(PING, 0, 1, &[0; 8])], &[PROTOCOL_ERROR]),
        ("GOAWAY on a stream", vec![open.clone(), frame(GOAWAY, 0, 1, &[0; 8])], &[PROTOCOL_ERROR]),
        // Sections 6.1 and 6.2: padding.
        ("DATA that is all padding", vec![open.clone(), frame(DATA, PADDED, 1, &[3, 0, 0])], &[PROTOCOL_ERROR]),
        ("DATA of more padding", vec![open.clone(), frame(DATA, PADDED, 1, &[255, 0, 0])], &[PROTOCOL_ERROR]),
        (
            "DATA that does not say how much padding",
            vec![open.clone(), frame(DATA, PADDED, 1, &[])],
            &[PROTOCOL_ERROR, FRAME_SIZE_ERROR],
        ),
        (
            "HEADERS of more padding",
            vec![frame(HEADERS, END_HEADERS | PADDED, 1, &[&[200][..], head].concat())],
            &[PROTOCOL_ERROR],
        ),
        (
            "HEADERS with half a priority",
            vec![frame(HEADERS, END_HEADERS | PRIORITIZED, 1, &[0, 0, 0, 0])],
            &[PROTOCOL_ERROR, FRAME_SIZE_ERROR],
        ),
        // Section 6.10: no other frame comes between the parts of a head.
        ("PING in a head", vec![begun.clone(), ping], &[PROTOCOL_ERROR]),
        ("DATA in a head", vec![begun.clone(), frame(DATA, 0, 1, b"x")], &[PROTOCOL_ERROR]),
        ("an unknown frame in a head", vec![begun.clone(), frame(0xee, 0, 1, b"x")], &[PROTOCOL_ERROR]),
        ("another head in a head", vec![begun.clone(), frame(HEADERS, END_HEADERS, 3, head)], &[PROTOCOL_ERROR]),
        ("a head of two streams", vec![begun, frame(CONTINUATION, END_HEADERS, 3, rest)], &[PROTOCOL_ERROR]),
        ("CONTINUATION of nothing", vec![frame(CONTINUATION, END_HEADERS, 1, head)], &[PROTOCOL_ERROR]),
        (
            "CONTINUATION of a whole head",
            vec![open.clone(), frame(CONTINUATION, END_HEADERS, 1, &block(&[("x", "y")]))],
            &[PROTOCOL_ERROR],
        ),
    ]
}

/// Malformed frames, with this head of a request.
fn out_of_shape(head: &[u8]) -> Vec<Broken> {
    let open = frame(HEADERS, END_HEADERS, 1, head);
    let set = |id: u16, value: u32| frame(SETTINGS, 0, 0, &settings(&[(id, value)]));
    // The edge refuses the frame by its first bytes.
    let long = |kind: u8| frame(kind, END_HEADERS, 1, &[0; 16_385])[..9].to_vec();
    vec![
        // Sections 4.2 and 6: lengths.
        ("long DATA", vec![open.clone(), long(DATA)], &[FRAME_SIZE_ERROR]),
        ("long HEADERS", vec![long(HEADERS)], &[FRAME_SIZE_ERROR]),
        ("an unknown long frame", vec![long(0xee)], &[FRAME_SIZE_ERROR]),
        ("a short PING", vec![frame(PING, 0, 0, &[0; 7])], &[FRAME_SIZE_ERROR]),
        ("a long PING", vec![frame(PING, 0, 0, &[0; 9])], &[FRAME_SIZE_ERROR]),
        ("a short RST_STREAM", vec![open.clone(), frame(RST_STREAM, 0, 1, &[0; 3])], &[FRAME_SIZE_ERROR]),
        ("a short WINDOW_UPDATE", vec![frame(WINDOW_UPDATE, 0, 0, &[0; 3])], &[FRAME_SIZE_ERROR]),
        ("SETTINGS of a half", vec![frame(SETTINGS, 0, 0, &[0; 5])], &[FRAME_SIZE_ERROR]),
        ("SETTINGS in an ACK", vec![frame(SETTINGS, ACK, 0, &[0; 6])], &[FRAME_SIZE_ERROR]),
        // Section 6.5.2: values.
        ("ENABLE_PUSH of 2", vec![set(ENABLE_PUSH, 2)], &[PROTOCOL_ERROR]),
        ("too large windows", vec![set(INITIAL_WINDOW_SIZE, 1 << 31)], &[FLOW_CONTROL_ERROR]),
        ("too small frames", vec![set(MAX_FRAME_SIZE, 16_383)], &[PROTOCOL_ERROR]),
        ("too large frames", vec![set(MAX_FRAME_SIZE, 1 << 24)], &[PROTOCOL_ERROR]),
        // Section 6.9: windows.
        ("a window that grows by nothing", vec![frame(WINDOW_UPDATE, 0, 0, &[0; 4])], &[PROTOCOL_ERROR]),
        (
            "a window that grows too large",
            vec![frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes())],
            &[FLOW_CONTROL_ERROR],
        ),
        (
            "a stream's window that all windows' growth makes too large",
            vec![
                open.clone(),
                frame(WINDOW_UPDATE, 0, 1, &(0x7fff_ffff_u32 - 65_535).to_be_bytes()),
                set(INITIAL_WINDOW_SIZE, 65_536),
            ],
            &[FLOW_CONTROL_ERROR],
        ),
        // Section 4.3: field blocks.
        ("field 0", vec![frame(HEADERS, END_HEADERS, 1, &[0x80])], &[COMPRESSION_ERROR]),
        ("a field of no table", vec![frame(HEADERS, END_HEADERS, 1, &[0xff, 0x7f])], &[COMPRESSION_ERROR]),
        ("half a field", vec![frame(HEADERS, END_HEADERS, 1, &head[..10])], &[COMPRESSION_ERROR]),
        ("an endless number", vec![frame(HEADERS, END_HEADERS, 1, &[0xff; 40])], &[COMPRESSION_ERROR]),
        ("a table beyond bounds", vec![frame(HEADERS, END_HEADERS, 1, &[0x3f, 0xff, 0xff, 3])], &[COMPRESSION_ERROR]),
        (
            "Huffman's code with too much padding",
            vec![frame(HEADERS, END_HEADERS, 1, &[head, &[0, 1, b'x', 0x82, 0x1f, 0xff]].concat())],
            &[COMPRESSION_ERROR],
        ),
    ]
}

#[tokio::test]
async fn a_frame_error_ends_the_connection_with_its_code() {
    let (world, socket, origin, _connector) = scene().await;
    let head = RawHttp2::connect(&world, &socket.host()).await.head("POST", "/held", &[]);
    let (mut wrong, mut seen_codes) = (Vec::new(), BTreeMap::<u32, u64>::new());
    for (what, frames, codes) in out_of_place(&head).into_iter().chain(out_of_shape(&head)) {
        let mut client = RawHttp2::open(&world, &socket).await;
        client.write(&frames.concat()).await;
        let code = client.end().await;
        *seen_codes.entry(code.unwrap_or(NO_ERROR)).or_default() += 1;
        if !code.is_some_and(|code| codes.contains(&code)) {
            wrong.push((what, code));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(
        [PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR].iter().all(|code| seen_codes[code] > 1),
        "{seen_codes:?}"
    );
    for (code, times) in seen_codes {
        until("all are counted", || counted(&world, "connections_failed", code) == times).await;
    }
    let reached = origin.seen();
    assert!(reached.iter().all(|asked| asked == "POST /held"), "{reached:?}");
    assert_eq!(world.get(&socket, "/").await.text(), "ok");
}

#[tokio::test]
async fn frames_on_a_closed_stream_are_an_error() {
    let (world, socket, origin, _connector) = scene().await;
    let head = RawHttp2::connect(&world, &socket.host()).await.head("POST", "/held", &[]);
    for late in [
        frame(DATA, 0, 1, b"late"),
        frame(DATA, END_STREAM, 1, b""),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &head),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("x-late", "x")])),
    ] {
        let mut client = RawHttp2::open(&world, &socket).await;
        client.send(HEADERS, END_HEADERS | END_STREAM, 1, &head).await;
        client.write(&late).await;
        assert_eq!(client.outcome(1).await, Reset(STREAM_CLOSED), "{late:?}");
    }
    until("all are counted", || counted(&world, "streams_reset", STREAM_CLOSED) == 4).await;
    assert!(origin.seen().iter().all(|asked| asked == "POST /held"), "{:?}", origin.seen());
}

#[tokio::test]
async fn frames_that_cross_a_reset_are_ignored() {
    let (world, socket, _origin, _connector) = scene().await;
    let mut client = RawHttp2::open(&world, &socket).await;
    client.post(1, "/", &[("content-length", "1")]).await;
    client.send(DATA, 0, 1, b"two").await;
    assert_eq!(client.outcome(1).await, Reset(PROTOCOL_ERROR));
    // Section 5.1: frames that the client sent before it received the reset.
    client.send(DATA, 0, 1, b"more").await;
    client.grant(1, 100).await;
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("x-sum", "1")])).await;
    client.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()).await;
    client.get(3, "/").await;
    assert_eq!(client.outcome(3).await, Status(200));
}

#[tokio::test]
async fn unknown_frames_settings_and_flags_are_ignored() {
    let (world, socket, _origin, _connector) = scene().await;
    let mut client = RawHttp2::open_with(&world, &socket, &[(0xee, 7), (8, 0)]).await;
    for stream in [0, 1, 2, 99] {
        client.send(0xee, 0xff, stream, b"anything").await;
    }
    client.send(PRIORITY, 0xff, 9, &[0, 0, 0, 0, 200]).await;
    client.send(PING, 0xfe, 0x8000_0000, b"likewise").await;
    client.read_until("a ping is answered", |client| client.pongs == [b"likewise"]).await;
    let head = client.head("GET", "/", &[]);
    let unused = 0x80 | 0x40 | 0x10 | 0x2;
    client.send(HEADERS, END_HEADERS | END_STREAM | unused, 0x8000_0001, &head).await;
    assert_eq!(client.outcome(1).await, Status(200));
    client.read_until("settings are taken", |client| client.settings_taken == 1).await;
}

#[tokio::test]
async fn an_invalid_preface_ends_the_connection() {
    let (world, socket, origin, _connector) = scene().await;
    let host = socket.host();
    for start in [
        format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes(),
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX"[..], &frame(SETTINGS, 0, 0, &[])].concat(),
        frame(SETTINGS, 0, 0, &[]),
    ] {
        let mut client = RawHttp2::connect(&world, &host).await;
        client.write(&start).await;
        // Section 3.4: the edge may omit GOAWAY, because such a client may not speak HTTP/2.
        let code = client.end().await;
        assert!(matches!(code, None | Some(PROTOCOL_ERROR)), "{code:?}");
    }
    // The preface includes the client's SETTINGS.
    let mut client = RawHttp2::connect(&world, &host).await;
    client.write(&[PREFACE, &frame(PING, 0, 0, &[0; 8])].concat()).await;
    assert_eq!(client.end().await, Some(PROTOCOL_ERROR));
    // The preface may arrive in parts.
    let mut client = RawHttp2::connect(&world, &host).await;
    client.write(&PREFACE[..10]).await;
    client.write(&PREFACE[10..]).await;
    for byte in frame(SETTINGS, 0, 0, &settings(&[(HEADER_TABLE_SIZE, 0)])) {
        client.write(&[byte]).await;
    }
    client.get(1, "/").await;
    assert_eq!(client.outcome(1).await, Status(200));
    assert_eq!(origin.seen(), ["GET /"]);
}

#[tokio::test]
async fn a_head_may_be_split_into_continuation_frames() {
    let (world, socket, origin, _connector) = scene().await;
    let mut client = RawHttp2::open(&world, &socket).await;
    let head = client.head("POST", "/", &[]);
    let trailers = block(&[("x-sum", "1")]);
    for (stream, cuts) in [(1, [0, 0, 10]), (3, [1, 2, 3]), (5, [head.len() - 1, head.len(), head.len()])] {
        client.send(HEADERS, 0, stream, &head[..cuts[0]]).await;
        client.send(CONTINUATION, 0, stream, &head[cuts[0]..cuts[1]]).await;
        client.send(CONTINUATION, 0, stream, &head[cuts[1]..cuts[2]]).await;
        client.send(CONTINUATION, END_HEADERS, stream, &head[cuts[2]..]).await;
        client.send(DATA, 0, stream, b"body").await;
        client.send(HEADERS, END_STREAM, stream, &trailers[..4]).await;
        client.send(CONTINUATION, END_HEADERS, stream, &trailers[4..]).await;
        assert_eq!(client.outcome(stream).await, Status(200), "{cuts:?}");
    }
    assert_eq!(origin.seen(), ["POST /", "POST / whole, 4 bytes"].repeat(3));
    let parts: Vec<u8> = head.iter().flat_map(|byte| frame(CONTINUATION, 0, 7, &[*byte])).collect();
    let all = [frame(HEADERS, END_STREAM, 7, &[]), parts, frame(CONTINUATION, END_HEADERS, 7, &[])].concat();
    client.write(&all).await;
    assert_eq!(client.outcome(7).await, Status(200));
}

#[tokio::test]
async fn responses_use_no_dynamic_table_when_the_client_keeps_none() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = origin(|_| async {
        let mut response = Response::new(text("ok"));
        response.headers_mut().insert("x-long", HeaderValue::from_bytes(&[b'X'; 1_000]).unwrap());
        response
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = RawHttp2::open(&world, &socket).await;
    for stream in [1, 3, 5] {
        client.get(stream, "/").await;
        assert_eq!(client.outcome(stream).await, Status(200));
        let (_, _, length) = client.received(stream).frames[0];
        assert!(length >= 1_000, "{length} bytes on stream {stream}");
    }
}

#[tokio::test]
async fn a_client_that_sends_goaway_gets_its_running_responses() {
    let (world, socket, origin, _connector) = scene().await;
    let mut client = RawHttp2::open(&world, &socket).await;
    client.get(1, "/held").await;
    client.post(3, "/held", &[]).await;
    until("both requests are at the origin", || origin.seen().len() == 2).await;
    client.send(GOAWAY, 0, 0, &[0; 8]).await;
    client.all_is_looked_at().await;
    client.send(DATA, END_STREAM, 3, b"the rest").await;
    origin.gate.add_permits(2);
    assert_eq!(client.outcome(1).await, Status(200));
    assert_eq!(client.outcome(3).await, Status(200));
    assert!(origin.seen().contains(&"POST /held whole, 8 bytes".to_owned()));
}

#[tokio::test]
async fn an_abrupt_disconnect_does_not_affect_other_clients() {
    let (world, socket, _origin, _connector) = scene().await;
    let head = RawHttp2::connect(&world, &socket.host()).await.head("POST", "/", &[]);
    let whole =
        [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(HEADERS, END_HEADERS, 1, &head), &frame(DATA, 0, 1, b"x")];
    let whole = whole.concat();
    let settings = PREFACE.len() + 9;
    for cut in
        [0, 1, PREFACE.len(), PREFACE.len() + 4, settings, settings + 3, settings + 20, whole.len() - 1, whole.len()]
    {
        let mut io = world.client_with(&socket.host(), &[b"h2"]).await;
        soon(write_lossy(&mut io, &whole[..cut])).await;
        // The client first closes in order, and then without notice.
        soon(io.shutdown()).await.unwrap();
        read_rest(&mut io).await;
        let mut io = world.client_with(&socket.host(), &[b"h2"]).await;
        soon(write_lossy(&mut io, &whole[..cut])).await;
    }
    assert_eq!(world.get(&socket, "/").await.text(), "ok");
}

#[tokio::test]
async fn draining_finishes_open_streams_and_takes_no_new_ones() {
    let (world, socket, origin, _connector) = scene().await;
    let mut client = RawHttp2::open(&world, &socket).await;
    client.get(1, "/held").await;
    client.post(3, "/held", &[]).await;
    until("both requests are at the origin", || origin.seen().len() == 2).await;
    let mut sender = world.http2(&socket).await;
    let request = Request::builder().uri(format!("https://{}/held", socket.host())).body(text("")).unwrap();
    let polite = tokio::spawn(sender.send_request(request));
    until("the third request is at the origin", || origin.seen().len() == 3).await;
    world.shutdown.trigger();
    // Section 6.8: the first GOAWAY may leave the last stream open. The last GOAWAY names the last stream.
    client
        .read_until("the last GOAWAY arrives", |client| {
            client.goaways.last().is_some_and(|(last, code)| *last < 0x7fff_ffff && *code == NO_ERROR)
        })
        .await;
    assert!(client.goaways.windows(2).all(|pair| pair[1].0 <= pair[0].0), "{:?}", client.goaways);
    assert_eq!(client.goaways.last().unwrap().0, 3);
    client.get(5, "/new").await;
    client.all_is_looked_at().await;
    client.send(DATA, END_STREAM, 3, b"the rest").await;
    origin.gate.add_permits(3);
    assert_eq!(client.outcome(1).await, Status(200));
    assert_eq!(client.outcome(3).await, Status(200));
    client.end().await;
    assert!(matches!(client.received(5).reset, None | Some(REFUSED_STREAM)), "{:?}", client.received(5));
    assert!(client.received(5).heads.is_empty());
    let response = soon(polite).await.unwrap().unwrap();
    assert_eq!(soon(response.into_body().collect()).await.unwrap().to_bytes(), "ok");
    assert!(!origin.seen().contains(&"GET /new".to_owned()));
    let report = world.stop().await;
    assert_eq!(report.cut, 0);
}
