//! Carriers over WebSocket: tunnels work over them, and invalid peers get the right close code.

use std::{io, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use sallyport_tunnel::{
    BoxFuture, BoxedCarrier, Dial,
    carrier::websocket::{MAX_MESSAGE_BYTES, PATH, SUBPROTOCOL, WebSocketCarrier, WebSocketRefusal, agree},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::lab::*;

/// Reads a request's head and answers as an edge does. Returns the carrier and the request line.
async fn accept(mut io: DuplexStream) -> Result<(WebSocketCarrier<DuplexStream>, String), WebSocketRefusal> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(io.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let (first, fields) = head.split_once("\r\n").unwrap();
    let mut headers = HeaderMap::new();
    for (name, value) in fields.lines().filter_map(|line| line.split_once(": ")) {
        headers.append(HeaderName::try_from(name).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    let mut answer = String::from("HTTP/1.1 101 Switching Protocols\r\n");
    for (name, value) in &agree(&headers)? {
        answer += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    io.write_all(format!("{answer}\r\n").as_bytes()).await.unwrap();
    Ok((WebSocketCarrier::accepted(io, Vec::new()).await, first.to_owned()))
}

/// A dialer of an edge: WebSockets over pipes of this size.
struct WebSockets {
    edge: Edge,
    pipe_bytes: usize,
}

impl Dial for WebSockets {
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let (near, far) = tokio::io::duplex(self.pipe_bytes);
        let edge = self.edge.clone();
        Box::pin(async move {
            tokio::spawn(async move {
                let (carrier, first) = accept(far).await.unwrap();
                assert_eq!(first, format!("GET {PATH} HTTP/1.1"));
                edge.tunnels.serve_carrier(carrier, peer()).await;
            });
            let carrier = WebSocketCarrier::request(near, "tunnel.localhost", 8443, "test/1").await?;
            Ok(Box::new(carrier) as BoxedCarrier)
        })
    }

    fn transport(&self) -> &'static str {
        "websocket"
    }
}

#[tokio::test]
async fn streams_travel_over_websockets_on_legs_and_on_the_control_connection() {
    for (max_legs, pipe_bytes) in [(512, 100_000), (512, 700), (0, 100_000), (0, 700)] {
        let edge = Edge::new();
        let dial = Arc::new(WebSockets { edge: edge.clone(), pipe_bytes });
        let connector = Connector::start_with(dial, echo(), &[tunnel(1)], |config| config.max_legs = max_legs);
        let handle = edge.attached(tunnel(1)).await;
        assert_eq!(handle.agent(), "test/1 over websocket");
        if max_legs > 0 {
            until("the legs join", || edge.tunnels.stats().legs_idle >= 8).await;
        }
        for length in [0, 1, 70_000, 1_500_000] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let (mut reader, mut writer) = tokio::io::split(handle.open(open_for(tunnel(1))).unwrap());
            let writing = async {
                writer.write_all(&bytes).await.unwrap();
                writer.shutdown().await.unwrap();
            };
            let mut back = Vec::new();
            let reading = async { reader.read_to_end(&mut back).await.unwrap() };
            soon(async { tokio::join!(writing, reading) }).await;
            assert!(back == bytes, "{length} bytes, legs {max_legs}, pipe {pipe_bytes}");
        }
        connector.ask_to_stop();
        soon(connector.task).await.unwrap().unwrap();
        until("the session ends", || edge.tunnels.stats().sessions == 0).await;
    }
}

/// A masked frame as a client sends it, with a mask of zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        len @ 0..=125 => frame.push(0x80 | len as u8),
        len @ 126..=65_535 => {
            frame.push(0x80 | 126);
            frame.extend((len as u16).to_be_bytes());
        }
        len => {
            frame.push(0x80 | 127);
            frame.extend((len as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// The bytes that the edge's side reads from these frames, and all of its answers.
async fn fed(frames: Vec<u8>) -> (io::Result<Vec<u8>>, Vec<u8>) {
    let (mut client, edge) = tokio::io::duplex(1 << 23);
    client.write_all(&frames).await.unwrap();
    client.shutdown().await.unwrap();
    let mut carrier = WebSocketCarrier::accepted(edge, Vec::new()).await;
    let mut got = Vec::new();
    let read = soon(carrier.read_to_end(&mut got)).await.map(|_| got);
    drop(carrier);
    let mut answer = Vec::new();
    soon(client.read_to_end(&mut answer)).await.unwrap();
    (read, answer)
}

fn close_code(answer: &[u8]) -> u16 {
    assert_eq!(answer[0], 0x88, "a Close frame comes first: {answer:?}");
    u16::from_be_bytes([answer[2], answer[3]])
}

#[tokio::test]
async fn messages_are_bytes_however_they_are_cut() {
    let frames = [
        frame(0x82, b"one, "),
        frame(0x82, b""),
        frame(0x02, b"two, "),
        frame(0x89, b"ping"),
        frame(0x80, b"three"),
        frame(0x8a, b"a pong without a ping"),
        frame(0x88, &1_000_u16.to_be_bytes()),
    ];
    let (read, answer) = fed(frames.concat()).await;
    assert_eq!(read.unwrap(), b"one, two, three");
    assert_eq!(answer, [b"\x8a\x04ping".as_slice(), b"\x88\x02\x03\xe8"].concat(), "a pong and a Close");
}

#[tokio::test]
async fn invalid_frames_get_the_right_close_code() {
    let unmasked = vec![0x82, 1, b'x'];
    let too_long = [0x82, 0x80 | 127].into_iter().chain((MAX_MESSAGE_BYTES as u64 + 1).to_be_bytes()).chain([0; 4]);
    let half = vec![7; MAX_MESSAGE_BYTES / 2 + 1];
    for (what, frames, code) in [
        ("text", frame(0x81, b"hello"), 1003),
        ("a long frame", too_long.collect(), 1009),
        ("a message in two frames that is long together", [frame(0x02, &half), frame(0x80, &half)].concat(), 1009),
        ("an unmasked frame", unmasked, 1002),
        ("a reserved opcode", frame(0x83, b""), 1002),
        ("a reserved bit", frame(0xc2, b"x"), 1002),
        ("a ping in pieces", frame(0x09, b"x"), 1002),
        ("garbage", b"GET / HTTP/1.1\r\n\r\n".to_vec(), 1002),
    ] {
        let (read, answer) = fed(frames).await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData, "{what}");
        assert_eq!(close_code(&answer), code, "{what}");
    }
}

#[tokio::test]
async fn the_longest_message_is_taken_and_a_lost_connection_is_an_error() {
    const { assert!(MAX_MESSAGE_BYTES <= 65_536, "anybody can have the edge hold this much") };
    let (read, _) = fed([frame(0x82, &vec![7; MAX_MESSAGE_BYTES]), frame(0x88, b"")].concat()).await;
    assert_eq!(read.unwrap().len(), MAX_MESSAGE_BYTES);
    let (read, _) = fed(frame(0x82, b"no Close follows")).await;
    assert!(read.is_err());
}

fn asked(change: impl FnOnce(&mut HeaderMap)) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("sec-websocket-version", HeaderValue::from_static("13"));
    headers.insert("sec-websocket-key", HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
    headers.insert("sec-websocket-protocol", HeaderValue::from_static(SUBPROTOCOL));
    change(&mut headers);
    headers
}

#[test]
fn a_request_is_agreed_to_when_it_is_a_connectors() {
    let answer = agree(&asked(|_| ())).unwrap();
    // The example of RFC 6455 section 1.3.
    assert_eq!(answer["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_eq!(answer["sec-websocket-protocol"], SUBPROTOCOL);
    let several = asked(|headers| {
        headers.insert("sec-websocket-protocol", HeaderValue::from_static("chat , sallyport-tunnel.1"));
    });
    assert!(agree(&several).is_ok());
    for (name, value, refusal) in [
        ("sec-websocket-version", "8", WebSocketRefusal::Version),
        ("sec-websocket-key", "c2hvcnQ=", WebSocketRefusal::Key),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZ!==", WebSocketRefusal::Key),
        ("sec-websocket-protocol", "sallyport-tunnel.2", WebSocketRefusal::Subprotocol),
    ] {
        let wrong = asked(|headers| drop(headers.insert(name, HeaderValue::from_static(value))));
        assert_eq!(agree(&wrong), Err(refusal), "{name}: {value}");
        let missing = asked(|headers| drop(headers.remove(name)));
        assert_eq!(agree(&missing), Err(refusal), "no {name}");
    }
    let page = asked(|headers| drop(headers.insert("origin", HeaderValue::from_static("https://elsewhere.example"))));
    let refusal = agree(&page).unwrap_err();
    assert_eq!((refusal, refusal.status().as_u16()), (WebSocketRefusal::Browser, 403));
    assert!(refusal.headers().is_empty() && refusal.to_string().contains("browser"), "{refusal}");
    let twice = asked(|headers| {
        headers.append("sec-websocket-key", HeaderValue::from_static("x"));
    });
    assert_eq!(agree(&twice), Err(WebSocketRefusal::Key));
}

#[tokio::test]
async fn a_failed_handshake_is_a_clear_error() {
    for (answer, words) in [
        ("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", "status 403"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "status 200"),
        (
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
             sec-websocket-accept: x\r\n\r\n",
            "WebSocket handshake with",
        ),
        ("SSH-2.0-OpenSSH_10\r\n\r\n", "WebSocket handshake with"),
    ] {
        let (client, mut edge) = tokio::io::duplex(65_536);
        edge.write_all(answer.as_bytes()).await.unwrap();
        let asking = WebSocketCarrier::request(client, "edge.example", 443, "test/1");
        let error = soon(asking).await.unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("edge.example:443"), "{error}");
    }
    // An IPv6 address is written with its brackets.
    let (client, mut edge) = tokio::io::duplex(65_536);
    let asking = tokio::spawn(async move { WebSocketCarrier::request(client, "::1", 443, "test/1").await.map(drop) });
    let mut head = vec![0; 1_000];
    let n = soon(edge.read(&mut head)).await.unwrap();
    let head = Bytes::copy_from_slice(&head[..n]);
    assert!(String::from_utf8_lossy(&head).to_lowercase().contains("host: [::1]:443\r\n"), "{head:?}");
    drop(edge);
    assert!(soon(asking).await.unwrap().is_err());
}
