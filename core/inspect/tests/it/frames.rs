//! Messages of WebSockets, of server-sent events and of gRPC, and HTTP/2.

use http::{HeaderName, HeaderValue, StatusCode};
use sallyport_http2::hpack::Encoder;
use sallyport_inspect::{Bounds, Exchange, FrameKind, From, MAX_FRAME_BYTES, Protocol, StreamProtocol, answer};

use crate::drive::Rig;

fn upgraded(extensions: &str) -> Rig {
    let mut rig = Rig::new();
    rig.client("GET /ws HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n");
    rig.service(format!("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n{extensions}\r\n"));
    assert_eq!(rig.last().protocol, Protocol::WebSocket);
    rig
}

fn texts(exchange: &Exchange) -> Vec<String> {
    exchange.frames.iter().map(|frame| String::from_utf8_lossy(&frame.data).into_owned()).collect()
}

/// A masked frame of a client.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let mut frame = vec![first, 0x80 | payload.len() as u8];
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
    frame
}

#[test]
fn messages_of_a_websocket_come_in_any_pieces() {
    let mut rig = upgraded("");
    let bytes = [masked(0x81, b"hello"), masked(0x01, b"{\"token\":"), masked(0x89, b"p"), masked(0x80, b"\"x\"}")];
    for byte in bytes.concat() {
        rig.client([byte]);
    }
    rig.service([0x82, 2, 0, 255]);
    rig.service([&[0x88, 5, 3, 0xe8][..], b"bye"].concat());
    rig.close(None);
    let exchange = rig.last();
    let shown = texts(exchange);
    assert_eq!(answer::Frame::from(&exchange.frames[4]).text.as_deref(), Some("1000 bye"));
    assert_eq!(shown[..3], ["hello", "p", "{\"token\":\"[redacted]\"}"]);
    let kinds: Vec<FrameKind> = exchange.frames.iter().map(|frame| frame.kind).collect();
    use FrameKind as K;
    assert_eq!(kinds, [K::Text, K::Ping, K::Text, K::Binary, K::Close]);
    assert_eq!((exchange.frames[0].from, exchange.frames[3].from), (From::Client, From::Service));
    assert!(exchange.duration_us.is_some() && !exchange.is_failed);
}

#[test]
fn compressed_messages_are_unfolded_within_bounds() {
    let mut rig = upgraded("sec-websocket-extensions: permessage-deflate\r\n");
    // RFC 7692 section 7.2.3.1 and 7.2.3.2: the same text twice, the second time from the window of the first.
    rig.service([0xc1, 7, 0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]);
    rig.service([0xc1, 5, 0xf2, 0x00, 0x11, 0x00, 0x00]);
    assert_eq!(texts(rig.last()), ["Hello", "Hello"]);
    rig.service([0xc1, 3, 0xff, 0xff, 0xff]);
    let broken = rig.last().frames.back().unwrap();
    assert!(broken.problem.as_ref().unwrap().contains("broken"), "{broken:?}");
}

#[test]
fn long_messages_are_cut_and_their_rest_is_unwanted() {
    let mut rig = upgraded("");
    let total = 1_u64 << 30;
    rig.service([&[0x82, 127][..], &total.to_be_bytes()].concat());
    rig.service(vec![7; MAX_FRAME_BYTES + 10]);
    let seen = rig.inspector.unwanted_until(1, From::Service);
    assert!(seen > total);
    rig.skip(From::Service, total - 1 - MAX_FRAME_BYTES as u64 - 10);
    rig.service([7, 0x81, 2, b'o', b'k']);
    let frames = &rig.last().frames;
    assert_eq!((frames[0].bytes, frames[0].is_truncated, frames[0].data.len()), (total, true, MAX_FRAME_BYTES));
    assert_eq!(&frames[1].data[..], b"ok");
    rig.skip(From::Service, 5);
    rig.service([0x81, 2, b'o', b'k']);
    assert!(rig.last().problems[0].contains("missed 5 bytes"));
}

#[test]
fn what_is_no_frame_ends_the_messages() {
    let mut rig = upgraded("");
    rig.service([0x83, 1, 0, 0x81, 1, b'x']);
    assert_eq!(rig.last().frames.len(), 1);
    assert!(rig.last().frames[0].problem.is_some());
}

#[test]
fn events_have_their_lines() {
    let mut rig = Rig::new();
    rig.client("GET /events HTTP/1.1\r\nhost: a\r\n\r\n");
    rig.service("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
    for byte in b"2d\r\nid: 1\r\ndata: {\"token\":\"x\"}\r\n\r\n\r\n: c\ndata: y\n\n\r\n" {
        rig.service([*byte]);
    }
    assert_eq!(rig.last().protocol, Protocol::Sse);
    assert_eq!(texts(rig.last()), ["id: 1\ndata: {\"token\":\"[redacted]\"}", ": c\ndata: y"]);
    assert_eq!(rig.last().duration_us, None, "it goes on");
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn fields(pairs: &[(&str, &str)]) -> Vec<u8> {
    // Literals without a table: RFC 7541 section 6.2.2.
    let text = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
    pairs.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

#[test]
fn a_call_of_grpc_over_http2_has_its_messages() {
    let mut rig = Rig::with(Bounds::default(), StreamProtocol::Http2);
    let head = fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/shop.Shop/Buy"),
        (":authority", "shop.example.com"),
        ("content-type", "application/grpc"),
        ("authorization", "Bearer secret"),
    ]);
    let mut client = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    client.extend(frame(4, 0, 0, &[]));
    client.extend(frame(1, 0, 1, &head[..20]));
    client.extend(frame(9, 4, 1, &head[20..]));
    client.extend(frame(0, 8, 1, &[&[2][..], &[0, 0, 0, 0, 3], b"one", &[0, 0]].concat()));
    client.extend(frame(0, 1, 1, &[0, 0, 0, 0, 0]));
    for byte in client {
        rig.client([byte]);
    }
    let mut encoder = Encoder::new();
    let mut block = Vec::new();
    encoder.begin(&mut block);
    encoder.status(StatusCode::OK, &mut block);
    let name = HeaderName::from_static("content-type");
    encoder.field(&name, &HeaderValue::from_static("application/grpc"), &mut block);
    let mut service = frame(1, 4, 1, &block);
    service.extend(frame(0, 0, 1, &[&[0, 0, 0, 0, 3][..], b"two"].concat()));
    service.extend(frame(1, 5, 1, &fields(&[("grpc-status", "0")])));
    for byte in service {
        rig.service([byte]);
    }
    let exchange = rig.last();
    assert_eq!((exchange.protocol, exchange.status), (Protocol::Grpc, Some(200)));
    assert_eq!((exchange.target.as_str(), exchange.host.as_str()), ("/shop.Shop/Buy", "shop.example.com"));
    assert_eq!(texts(exchange), ["one", "", "two"]);
    assert_eq!(exchange.response.as_ref().unwrap().trailers[0].name, "grpc-status");
    assert!(exchange.duration_us.is_some());
    let shown = serde_json::to_string(&answer::Details::from(exchange)).unwrap();
    assert!(shown.contains("[redacted]") && !shown.contains("Bearer"), "{shown}");
}

#[test]
fn a_reset_and_a_loss_end_exchanges_of_http2() {
    let mut rig = Rig::with(Bounds::default(), StreamProtocol::Http2);
    let head = fields(&[(":method", "GET"), (":path", "/")]);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    rig.client([preface, frame(1, 5, 1, &head), frame(1, 5, 3, &head)].concat());
    rig.service(frame(3, 0, 1, &[0, 0, 0, 8]));
    assert!(rig.inspector.store().get(1).unwrap().problems[0].contains("reset the request (code 8)"));
    rig.skip(From::Service, 10);
    rig.service([0]);
    assert!(rig.inspector.store().get(2).unwrap().problems[0].contains("missed 10 bytes"));
}
