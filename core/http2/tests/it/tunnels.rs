//! Extended CONNECT (RFC 8441): heads with `:protocol`, and the bytes of their tunnels.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use sallyport_http2::{ErrorCode, Piece, Room};

use crate::client::*;

const CONNECT: (&str, &str) = (":method", "CONNECT");
const WEBSOCKET: (&str, &str) = (":protocol", "websocket");
const TARGET: [(&str, &str); 3] = [(":scheme", "https"), (":authority", "a.example"), (":path", "/chat?x=1")];

fn connect(stream: u32, flags: u8) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | flags, stream, &block(&[&[CONNECT, WEBSOCKET], &TARGET[..]].concat()))
}

/// Opens a tunnel on this stream.
fn open(tested: &mut Tested, stream: u32) {
    tested.send(&connect(stream, 0));
    let request = tested.request();
    assert_eq!((request.stream, request.has_body), (stream, true));
    tested.server.send_head(stream, StatusCode::OK, &HeaderMap::new(), false);
    assert_eq!(tested.frames().len(), 1);
}

#[test]
fn the_first_settings_offer_extended_connect() {
    let settings = Tested::silent().frames().remove(0);
    assert_eq!(settings.kind, SETTINGS);
    let offers = settings.payload.chunks_exact(6).filter(|parameter| parameter[..2] == [0, 8]);
    assert_eq!(offers.collect::<Vec<_>>(), [[0, 8, 0, 0, 0, 1]]);
}

#[test]
fn an_extended_connect_has_a_protocol_and_a_target() {
    let mut tested = Tested::new();
    tested.send(&connect(1, 0));
    let request = tested.request();
    assert_eq!((request.protocol.as_deref(), request.has_body), (Some(&b"websocket"[..]), true));
    assert_eq!(
        (request.head.method, request.head.uri),
        (Method::CONNECT, "https://a.example/chat?x=1".parse().unwrap())
    );
    // Any protocol is passed on: the responder decides.
    tested.send(&frame(HEADERS, END_HEADERS, 3, &block(&[&TARGET[..], &[CONNECT, (":protocol", "x")]].concat())));
    assert_eq!(tested.request().protocol.as_deref(), Some(&b"x"[..]));
    tested.get(5);
    assert_eq!(tested.request().protocol, None);
    tested.send(&frame(HEADERS, END_HEADERS, 7, &block(&[CONNECT, TARGET[1]])));
    assert_eq!(tested.request().protocol, None);
}

#[test]
fn a_malformed_extended_connect_is_reset() {
    let [scheme, authority, path] = TARGET;
    let bad: [&[(&str, &str)]; 9] = [
        &[CONNECT, WEBSOCKET, authority, path],
        &[CONNECT, WEBSOCKET, scheme, path, ("host", "a.example")],
        &[CONNECT, WEBSOCKET, scheme, authority],
        &[CONNECT, WEBSOCKET, authority],
        &[CONNECT, WEBSOCKET, WEBSOCKET, scheme, authority, path],
        &[CONNECT, WEBSOCKET, scheme, authority, (":path", "*")],
        &[(":method", "GET"), WEBSOCKET, scheme, authority, path],
        &[WEBSOCKET, scheme, authority, path],
        &[CONNECT, WEBSOCKET, scheme, authority, path, ("content-length", "0")],
    ];
    let mut tested = Tested::new();
    for (number, fields) in bad.iter().enumerate() {
        let stream = u32::try_from(2 * number + 1).unwrap();
        tested.send(&frame(HEADERS, END_HEADERS, stream, &block(fields)));
        assert!(tested.server.poll_request().is_none(), "{fields:?}");
        tested.resets(stream, ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn both_directions_of_a_tunnel_end_by_themselves() {
    let mut tested = Tested::new();
    open(&mut tested, 1);
    tested.send(&frame(DATA, 0, 1, b"one"));
    assert!(matches!(tested.server.poll_body(1), Piece::Data(data) if data == "one"));
    tested.send(&frame(DATA, END_STREAM, 1, b"two"));
    assert!(matches!(tested.server.poll_body(1), Piece::Data(data) if data == "two"));
    assert!(matches!(tested.server.poll_body(1), Piece::End));
    tested.server.release_body(1);
    assert_eq!(tested.server.room(1), Room::Bytes(16_384));
    tested.server.send_data(1, Bytes::from_static(b"three"), false);
    tested.server.send_data(1, Bytes::new(), true);
    tested.server.release_response(1);
    let frames = tested.frames();
    let shapes: Vec<_> = frames.iter().map(|frame| (frame.kind, frame.flags, frame.payload.len())).collect();
    assert_eq!(shapes, [(DATA, 0, 5), (DATA, END_STREAM, 0)]);
    assert!(tested.server.is_idle());

    // The other order: the server's direction ends first.
    open(&mut tested, 3);
    tested.server.send_data(3, Bytes::new(), true);
    tested.send(&frame(DATA, END_STREAM, 3, b"late"));
    assert!(matches!(tested.server.poll_body(3), Piece::Data(data) if data == "late"));
    tested.server.release_body(3);
    tested.server.release_response(3);
    assert!(tested.server.is_idle() && tested.frames().iter().all(|frame| frame.kind == DATA));
}

#[test]
fn a_tunnel_has_no_trailers() {
    let mut tested = Tested::new();
    open(&mut tested, 1);
    tested.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("x-checksum", "1")])));
    tested.resets(1, ErrorCode::PROTOCOL_ERROR);
    assert!(matches!(tested.server.poll_body(1), Piece::Failed(ErrorCode::PROTOCOL_ERROR)));
    assert_eq!(tested.server.room(1), Room::Reset);
}

#[test]
fn a_tunnel_dropped_early_is_reset() {
    let mut tested = Tested::new();
    open(&mut tested, 1);
    tested.server.release_response(1);
    tested.server.release_body(1);
    tested.resets(1, ErrorCode::CANCEL);
    assert!(tested.server.is_idle());
}
