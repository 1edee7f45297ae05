//! HTTP/2 messages: which requests are valid, and how requests and responses pass (RFC 9113 section 8).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sallyport_edge::BoxError;
use sallyport_model::OriginProtocol;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
};

use crate::{
    harness::*,
    http2::Frames,
    raw_http2::{Outcome::*, *},
};

fn request(socket: &TestSocket, path: &str, body: TestBody) -> Request<TestBody> {
    Request::builder().uri(format!("https://{}{path}", socket.host())).body(body).unwrap()
}

#[tokio::test]
async fn a_malformed_request_resets_its_stream_and_reaches_no_origin() {
    let world = World::start().await;
    let mut socket = world.socket();
    let origin = TestOrigin::start().await;
    let _connector = world.tunnel(&mut socket, origin.addr).await;
    let host = socket.host();
    let other = "other.localhost";
    let (method, scheme, authority) = ((":method", "GET"), (":scheme", "https"), (":authority", host.as_str()));
    let path = (":path", "/malformed");
    let with = |field: (&'static str, &'static str)| vec![method, scheme, authority, path, field];
    let cases: Vec<Vec<(&str, &str)>> = vec![
        // Section 8.2.1: names and values.
        with(("X-Upper", "x")),
        with(("x-Upper", "x")),
        with(("", "x")),
        with(("x y", "x")),
        with(("x:y", "x")),
        with(("x\u{7f}", "x")),
        with(("x\r\n", "x")),
        with(("x-value", "a\0b")),
        with(("x-value", "a\rb")),
        with(("x-value", "a\nb")),
        with(("x-value", " a")),
        with(("x-value", "a\t")),
        // Section 8.2.2: connection-specific fields.
        with(("connection", "keep-alive")),
        with(("connection", "x-value")),
        with(("keep-alive", "timeout=5")),
        with(("proxy-connection", "keep-alive")),
        with(("transfer-encoding", "chunked")),
        with(("upgrade", "h2c")),
        with(("te", "gzip")),
        with(("te", "trailers, gzip")),
        // Section 8.3: pseudo-header fields.
        with((":status", "200")),
        with((":unknown", "x")),
        with((":method", "GET")),
        with((":scheme", "https")),
        with((":authority", "x")),
        with((":path", "/malformed")),
        vec![scheme, authority, path],
        vec![method, authority, path],
        vec![method, scheme, authority],
        vec![method, scheme, authority, ("x-value", "x"), path],
        vec![method, ("x-value", "x"), scheme, authority, path],
        vec![method, scheme, path],
        vec![method, scheme, (":authority", ""), path],
        vec![method, scheme, (":authority", "user@calm-bay-1000.localhost"), path],
        vec![method, scheme, authority, path, ("host", other)],
        vec![method, scheme, path, ("host", &host), ("host", other)],
        vec![method, scheme, authority, (":path", "")],
        vec![method, scheme, authority, (":path", "malformed")],
        vec![method, scheme, authority, (":path", "*")],
        vec![method, scheme, authority, (":path", "/malformed here")],
        vec![method, scheme, authority, (":path", "/malformed\r\nx: y")],
        vec![(":method", ""), scheme, authority, path],
        vec![(":method", "GE T"), scheme, authority, path],
        vec![(":method", "GET /malformed HTTP/1.1\r\nx: y\r\n\r\nGET"), scheme, authority, path],
        vec![method, (":scheme", "ftp"), authority, path],
        // Section 8.5, and RFC 8441 section 4.
        vec![(":method", "CONNECT"), authority],
        vec![(":method", "CONNECT"), scheme, authority, path],
        vec![(":method", "CONNECT"), authority, (":protocol", "websocket")],
        vec![method, scheme, authority, path, (":protocol", "websocket")],
        // Section 8.1.1: lengths.
        with(("content-length", "5")),
        with(("content-length", "x")),
        with(("content-length", "-1")),
        with(("content-length", "+0")),
        with(("content-length", "0, 0")),
        with(("content-length", "99999999999999999999999999")),
        vec![method, scheme, authority, path, ("content-length", "0"), ("content-length", "1")],
    ];
    let mut client = RawHttp2::open(&world, &socket).await;
    let (mut stream, mut resets) = (1, 0);
    for case in cases {
        client.send(HEADERS, END_HEADERS | END_STREAM, stream, &block(&case)).await;
        let outcome = client.outcome(stream).await;
        assert!(matches!(outcome, Reset(PROTOCOL_ERROR) | Status(400 | 501)), "{outcome:?} for {case:?}");
        resets += u64::from(outcome == Reset(PROTOCOL_ERROR));
        stream += 2;
    }
    client.get(stream, "/well-formed").await;
    assert_eq!(client.outcome(stream).await, Status(200), "the connection goes on");
    assert_eq!(origin.seen(), ["GET /well-formed"]);
    until("all are counted", || counted(&world, "streams_reset", PROTOCOL_ERROR) == resets).await;
    assert!(resets > 1 && counted(&world, "connections_failed", PROTOCOL_ERROR) == 0);
}

#[tokio::test]
async fn every_form_of_a_valid_request_reaches_its_origin() {
    let world = World::start().await;
    let mut socket = world.socket();
    let origin = TestOrigin::start().await;
    let _connector = world.tunnel(&mut socket, origin.addr).await;
    let host = socket.host();
    let (scheme, authority) = ((":scheme", "https"), (":authority", host.as_str()));
    let (get, path) = ((":method", "GET"), (":path", "/"));
    let many: Vec<_> = (0..80).map(|_| ("cookie", "a=b")).collect();
    let cases: Vec<(Vec<(&str, &str)>, &str)> = vec![
        (vec![get, scheme, authority, path], "GET /"),
        (vec![path, authority, scheme, get], "GET /"),
        (vec![get, scheme, authority, path, ("te", "trailers")], "GET /"),
        (vec![get, scheme, authority, path, ("host", &host)], "GET /"),
        (vec![get, scheme, path, ("host", &host)], "GET /"),
        (vec![get, scheme, authority, path, ("x-empty", "")], "GET /"),
        (vec![get, scheme, authority, path, ("content-length", "0")], "GET /"),
        ([&[get, scheme, authority, path][..], &many, &many].concat(), "GET /"),
        (vec![get, scheme, authority, (":path", "/?a=/b&c=%20")], "GET /?a=/b&c=%20"),
        (vec![get, scheme, authority, (":path", "//a//b/../c")], "GET //a//b/../c"),
        (vec![(":method", "OPTIONS"), scheme, authority, (":path", "*")], "OPTIONS *"),
        (vec![(":method", "OPTIONS"), scheme, authority, path], "OPTIONS /"),
        (vec![(":method", "PROPFIND"), scheme, authority, path], "PROPFIND /"),
        (vec![(":method", "X-own"), scheme, authority, path], "X-own /"),
    ];
    let mut client = RawHttp2::open(&world, &socket).await;
    let mut stream = 1;
    for (case, seen) in cases {
        client.send(HEADERS, END_HEADERS | END_STREAM, stream, &block(&case)).await;
        assert_eq!(client.outcome(stream).await, Status(200), "{case:?}");
        assert_eq!(origin.seen().last().unwrap(), seen, "{case:?}");
        stream += 2;
    }
}

#[tokio::test]
async fn heads_and_data_may_have_padding_and_priorities() {
    let world = World::start().await;
    let mut socket = world.socket();
    let origin = TestOrigin::start().await;
    let _connector = world.tunnel(&mut socket, origin.addr).await;
    let mut client = RawHttp2::open(&world, &socket).await;
    let head = client.head("POST", "/", &[("content-length", "5")]);
    let padded = [&[7, 0, 0, 0, 0, 15][..], &head, &[0; 7]].concat();
    client.send(HEADERS, END_HEADERS | PADDED | PRIORITIZED, 1, &padded).await;
    client.send(DATA, 0, 1, &[]).await;
    client.send(DATA, PADDED, 1, &[0]).await;
    client.send(DATA, PADDED, 1, &[3, 0, 0, 0]).await;
    client.send(DATA, PADDED, 1, b"\x02hel\0\0").await;
    client.send(DATA, PADDED, 1, &[vec![255], b"lo".to_vec(), vec![0; 255]].concat()).await;
    client.send(DATA, PADDED | END_STREAM, 1, &[1, 0]).await;
    assert_eq!(client.outcome(1).await, Status(200));
    assert_eq!(origin.seen(), ["POST /", "POST / whole, 5 bytes"]);
}

/// An origin that never responds. The origin reports each head, and then all bytes until the end of the connection.
async fn rest_origin() -> (std::net::SocketAddr, mpsc::UnboundedReceiver<Vec<u8>>) {
    let (seen, seen_out) = mpsc::unbounded_channel();
    let (addr, _) = raw_origin(move |mut tcp| {
        let seen = seen.clone();
        async move {
            let _ = seen.send(read_head(&mut tcp).await.into_bytes());
            let _ = seen.send(read_rest(&mut tcp).await);
        }
    })
    .await;
    (addr, seen_out)
}

#[tokio::test]
async fn a_wrong_content_length_resets_the_stream_and_the_origin_sees_no_complete_body() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, mut seen) = rest_origin().await;
    let _connector = world.tunnel(&mut socket, addr).await;
    for (what, frames) in [
        ("shorter", vec![(0, &b"hello"[..]), (END_STREAM, b"")]),
        ("shorter, in one", vec![(END_STREAM, b"hello")]),
        ("longer", vec![(0, b"hello"), (0, b" world, and so on")]),
        ("longer, in one", vec![(END_STREAM, b"hello world, and so on")]),
    ] {
        let mut client = RawHttp2::open(&world, &socket).await;
        client.post(1, "/", &[("content-length", "10")]).await;
        soon(seen.recv()).await.expect("a head");
        for (flags, data) in frames {
            client.send(DATA, flags, 1, data).await;
        }
        assert_eq!(client.outcome(1).await, Reset(PROTOCOL_ERROR), "{what}");
        let got = soon(seen.recv()).await.unwrap();
        assert!(b"hello".starts_with(&got), "{what}: {:?}", String::from_utf8_lossy(&got));
        client.all_is_looked_at().await;
    }
}

#[tokio::test]
async fn invalid_trailers_reset_the_stream_and_the_origin_sees_no_complete_body() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, mut seen) = rest_origin().await;
    let _connector = world.tunnel(&mut socket, addr).await;
    for (what, flags, field) in
        [("without an end", END_HEADERS, ("x-sum", "1")), ("upper case", END_HEADERS | END_STREAM, ("X-Sum", "1"))]
    {
        let mut client = RawHttp2::open(&world, &socket).await;
        client.post(1, "/", &[]).await;
        soon(seen.recv()).await.expect("a head");
        client.send(DATA, 0, 1, b"hello").await;
        client.send(HEADERS, flags, 1, &block(&[field])).await;
        assert_eq!(client.outcome(1).await, Reset(PROTOCOL_ERROR), "{what}");
        let got = soon(seen.recv()).await.unwrap();
        assert!(!got.ends_with(b"0\r\n\r\n"), "{what}: {:?}", String::from_utf8_lossy(&got));
    }
}

#[tokio::test]
async fn pseudo_header_fields_in_trailers_reset_the_stream_and_the_origin_sees_no_complete_body() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, mut seen) = rest_origin().await;
    let _connector = world.tunnel(&mut socket, addr).await;
    for field in [(":path", "/other"), (":method", "GET"), (":unknown", "x")] {
        let mut client = RawHttp2::open(&world, &socket).await;
        client.post(1, "/", &[]).await;
        soon(seen.recv()).await.expect("a head");
        client.send(DATA, 0, 1, b"hello").await;
        client.send(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[field])).await;
        assert_eq!(client.outcome(1).await, Reset(PROTOCOL_ERROR), "{field:?}");
        let got = soon(seen.recv()).await.unwrap();
        assert!(!got.ends_with(b"0\r\n\r\n"), "{field:?}: {:?}", String::from_utf8_lossy(&got));
    }
}

fn with_trailer(body: &'static str, name: &'static str, value: &'static str) -> TestBody {
    let mut trailers = HeaderMap::new();
    trailers.insert(name, HeaderValue::from_static(value));
    let frames = [Ok::<_, BoxError>(Frame::data(Bytes::from_static(body.as_bytes()))), Ok(Frame::trailers(trailers))];
    StreamBody::new(Frames(frames.into_iter())).boxed_unsync()
}

#[tokio::test]
async fn trailers_pass_both_ways_with_http1_and_http2_origins() {
    let world = World::start().await;
    let echo = |request: Request<hyper::body::Incoming>| async move {
        let collected = request.into_body().collect().await.unwrap();
        let sum = collected.trailers().and_then(|trailers| trailers.get("x-sum")).cloned();
        let mut response = Response::new(with_trailer("body", "x-out", "out"));
        response.headers_mut().insert("x-seen", sum.unwrap_or(HeaderValue::from_static("none")));
        response.headers_mut().insert("trailer", HeaderValue::from_static("x-out"));
        response
    };
    let (mut one, mut two) = (world.socket(), world.socket());
    two.speaks(&world, OriginProtocol::Http2);
    let _one = world.tunnel(&mut one, origin(echo).await).await;
    let _two = world.tunnel(&mut two, h2_origin(echo).await).await;
    for socket in [one, two] {
        let mut sender = world.http2(&socket).await;
        let mut request = request(&socket, "/", with_trailer("body", "x-sum", "42"));
        *request.method_mut() = Method::POST;
        request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
        request.headers_mut().insert("trailer", HeaderValue::from_static("x-sum"));
        let response = soon(sender.send_request(request)).await.unwrap();
        let version = socket.route.origin_protocol;
        assert_eq!(response.headers()["x-seen"], "42", "{version:?}");
        let collected = soon(response.into_body().collect()).await.unwrap();
        assert_eq!(collected.trailers().unwrap()["x-out"], "out", "{version:?}");
        assert_eq!(collected.to_bytes(), "body", "{version:?}");
    }
}

#[tokio::test]
async fn a_response_without_content_ends_with_its_head() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        loop {
            let head = read_head(&mut tcp).await;
            let response = match head.split(' ').nth(1).unwrap() {
                "/204" => "204 No Content\r\n\r\n",
                "/304" => "304 Not Modified\r\ncontent-length: 7\r\netag: \"x\"\r\n\r\n",
                "/empty" => "200 OK\r\ncontent-length: 0\r\n\r\n",
                _ => "200 OK\r\ncontent-length: 7\r\n\r\n",
            };
            tcp.write_all(format!("HTTP/1.1 {response}").as_bytes()).await.unwrap();
        }
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = RawHttp2::open(&world, &socket).await;
    let cases = [
        (1, "HEAD", "/", 200, Some("7")),
        (3, "GET", "/204", 204, None),
        (5, "GET", "/304", 304, Some("7")),
        (7, "HEAD", "/304", 304, Some("7")),
        (9, "GET", "/empty", 200, Some("0")),
    ];
    for (stream, method, path, status, _) in cases {
        let head = client.head(method, path, &[]);
        client.send(HEADERS, END_HEADERS | END_STREAM, stream, &head).await;
        assert_eq!(client.outcome(stream).await, Status(status), "{method} {path}");
        let frames = client.received(stream).frames;
        let [(HEADERS, flags, _)] = frames[..] else { panic!("{method} {path}: {frames:?}") };
        assert_eq!(flags, END_HEADERS | END_STREAM, "{method} {path}");
    }
    let mut sender = world.http2(&socket).await;
    for (_, method, path, status, length) in cases {
        let mut request = request(&socket, path, text(""));
        *request.method_mut() = method.parse().unwrap();
        let response = soon(sender.send_request(request)).await.unwrap();
        let content_length = response.headers().get("content-length").map(|length| length.to_str().unwrap());
        assert_eq!((response.status().as_u16(), content_length), (status, length), "{method} {path}");
        assert!(soon(response.into_body().collect()).await.unwrap().to_bytes().is_empty());
    }
}

#[tokio::test]
async fn an_http2_client_may_expect_100_continue() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        let head = read_head(&mut tcp).await;
        assert!(head.to_ascii_lowercase().contains("expect: 100-continue"), "{head}");
        if head.contains("/unwanted") {
            tcp.write_all(b"HTTP/1.1 417 No\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
        } else {
            tcp.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
            tcp.read_exact(&mut [0; 5]).await.unwrap();
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nyes";
            tcp.write_all(response).await.unwrap();
        }
        read_rest(&mut tcp).await;
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = RawHttp2::open(&world, &socket).await;
    let expects = [("content-length", "5"), ("expect", "100-continue")];
    client.post(1, "/wanted", &expects).await;
    client.read_until("status 100 arrives", |client| !client.received(1).heads.is_empty()).await;
    assert_eq!(client.received(1).heads, [Some(100)]);
    client.send(DATA, END_STREAM, 1, b"hello").await;
    assert_eq!(client.outcome(1).await, Status(200));
    assert_eq!(client.received(1).data, b"yes");
    assert_eq!(client.received(1).heads, [Some(100), Some(200)]);

    client.post(3, "/unwanted", &expects).await;
    client.read_until("the response is there", |client| client.got(3) == 2).await;
    assert_eq!(client.received(3).heads, [Some(417)], "before any of the body was sent");
    client.send(DATA, END_STREAM, 3, b"hello").await;
    assert_eq!(client.outcome(3).await, Status(417));
}

#[tokio::test]
async fn a_response_of_the_edge_does_not_wait_for_an_unread_body() {
    let world = World::start().await;
    let socket = world.socket();
    let mut client = RawHttp2::open(&world, &socket).await;
    let host = "nobody.localhost";
    let head = block(&[(":method", "POST"), (":scheme", "https"), (":authority", host), (":path", "/")]);
    for stream in [1, 3] {
        client.send(HEADERS, END_HEADERS, stream, &head).await;
        client.send(DATA, 0, stream, &[b'x'; 10_000]).await;
        client.read_until("the response is there", |client| client.got(stream) > 0).await;
        assert_eq!(client.received(stream).heads, [Some(404)]);
        assert_eq!(client.received(stream).reset, None, "the client may still send");
    }
    // One client ends its body. The other client gets a reset after the whole response.
    client.send(DATA, END_STREAM, 1, &[b'x'; 10_000]).await;
    assert_eq!(client.outcome(1).await, Status(404));
    assert_eq!(client.outcome(3).await, Status(404));
    client.read_until("the reset arrives", |client| client.received(3).reset.is_some()).await;
    assert_eq!(client.received(3).reset, Some(NO_ERROR));
    client.all_is_looked_at().await;
    assert_eq!(client.received(1).reset, None);
}

#[tokio::test]
async fn header_fields_pass_unchanged_both_ways() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = origin(|request| async move {
        let mut response = Response::new(text("ok"));
        let headers = response.headers_mut();
        for value in request.headers().get_all("x-value") {
            headers.append("x-seen", value.clone());
        }
        headers.append("set-cookie", HeaderValue::from_static("a=1; Path=/"));
        headers.append("set-cookie", HeaderValue::from_static("b=2, 3"));
        headers.append("x-empty", HeaderValue::from_static(""));
        if request.uri().path() == "/long" {
            for number in 0..30_u8 {
                headers.append("x-long", HeaderValue::from_bytes(&[b'a' + number % 26; 1_000]).unwrap());
            }
        }
        response
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let values: [&[u8]; 4] = [b"caf\xe9 \xff\x80", b"a, b", b"tab\there", b""];
    let tls = world.client_with(&socket.host(), &[b"h2"]).await;
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.max_header_list_size(64 * 1024);
    let (mut sender, connection) = builder.handshake(TokioIo::new(tls)).await.unwrap();
    tokio::spawn(connection);
    for path in ["/", "/long", "/"] {
        let mut request = request(&socket, path, text(""));
        for value in values {
            request.headers_mut().append("x-value", HeaderValue::from_bytes(value).unwrap());
        }
        let response = soon(sender.send_request(request)).await.unwrap();
        let all = |name: &str| response.headers().get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>();
        assert_eq!(all("x-seen"), values, "{path}");
        assert_eq!(all("set-cookie"), [&b"a=1; Path=/"[..], b"b=2, 3"], "{path}");
        assert_eq!(all("x-empty"), [b""], "{path}");
        let long = all("x-long");
        assert_eq!(long.len(), if path == "/long" { 30 } else { 0 });
        assert!(long.iter().enumerate().all(|(number, value)| value == &[b'a' + number as u8 % 26; 1_000]));
    }
    // This head is longer than the largest frame the client accepts.
    let mut client = RawHttp2::open(&world, &socket).await;
    client.get(1, "/long").await;
    assert_eq!(client.outcome(1).await, Status(200));
    let kinds: Vec<_> = client.received(1).frames.iter().map(|(kind, flags, _)| (*kind, flags & END_HEADERS)).collect();
    assert!(kinds.starts_with(&[(HEADERS, 0), (CONTINUATION, END_HEADERS)]), "{kinds:?}");
}

/// An origin with endless responses, and a flag that is set when one of its connections has ended.
async fn unending_origin() -> (std::net::SocketAddr, Arc<AtomicBool>) {
    let ended = Arc::new(AtomicBool::new(false));
    let (addr, _) = raw_origin({
        let ended = ended.clone();
        move |mut tcp| {
            let ended = ended.clone();
            async move {
                read_head(&mut tcp).await;
                tcp.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsome\r\n").await.unwrap();
                read_rest(&mut tcp).await;
                ended.store(true, Ordering::SeqCst);
            }
        }
    })
    .await;
    (addr, ended)
}

#[tokio::test]
async fn a_client_that_cancels_a_request_releases_its_origin() {
    enum Leaves {
        Resets,
        Ends,
        InMidFrame,
    }
    let world = World::start().await;
    for (how, uploads) in [
        (Leaves::Resets, false),
        (Leaves::Resets, true),
        (Leaves::Ends, false),
        (Leaves::Ends, true),
        (Leaves::InMidFrame, true),
    ] {
        let mut socket = world.socket();
        let (addr, ended) = unending_origin().await;
        let connector = world.tunnel(&mut socket, addr).await;
        let mut client = RawHttp2::open(&world, &socket).await;
        if uploads {
            client.post(1, "/", &[("content-length", "100000")]).await;
            client.send(DATA, 0, 1, &[b'x'; 1_000]).await;
        } else {
            client.get(1, "/").await;
        }
        client.read_until("the response began", |client| client.got(1) == 4).await;
        match how {
            Leaves::Resets => client.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()).await,
            Leaves::Ends => drop(client),
            Leaves::InMidFrame => {
                client.write(&frame(DATA, 0, 1, &[b'x'; 1_000])[..500]).await;
                drop(client);
            }
        }
        until("the origin's connection has ended", || ended.load(Ordering::SeqCst)).await;
        connector.stop().await;
    }
}

#[tokio::test]
async fn a_truncated_response_resets_its_stream() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        let head = read_head(&mut tcp).await;
        let length = if head.contains("/short") { "content-length: 10" } else { "transfer-encoding: chunked" };
        let response = format!("HTTP/1.1 200 OK\r\n{length}\r\n\r\n4\r\nsome\r\n");
        tcp.write_all(response.as_bytes()).await.unwrap();
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = RawHttp2::open(&world, &socket).await;
    for (stream, path) in [(1, "/short"), (3, "/chunked")] {
        client.get(stream, path).await;
        let outcome = client.outcome(stream).await;
        assert!(matches!(outcome, Reset(code) if code != NO_ERROR), "{path}: {outcome:?}");
        assert_eq!(client.received(stream).heads, [Some(200)], "{path}");
    }
    client.all_is_looked_at().await;
}
