//! WebSockets by extended CONNECT (RFC 9220): tungstenite over frames by hand, and frames alone.

use std::{future::poll_fn, net::SocketAddr, ops::RangeInclusive, pin::Pin, time::Duration};

use futures_core::Stream as _;
use futures_sink::Sink as _;
use http::HeaderMap;
use quinn::{ReadError, ReadExactError, RecvStream, SendStream, VarInt};
use sallyport_http2::hpack::Field;
use sallyport_http3::{ErrorCode, qpack};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream},
    net::{TcpListener, TcpStream},
    sync::mpsc::{UnboundedReceiver, error::TryRecvError, unbounded_channel},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, handshake::derive_accept_key, protocol::Role},
};

use super::{frames::*, harness::*};
use crate::{EdgeConfig, http::multiplexed::STREAM_WINDOW_BYTES, lifecycle::phase::Phase};

const DATA: u8 = 0;

/// An origin of WebSockets.
struct Origin {
    addr: SocketAddr,
    /// The heads of its requests.
    heads: UnboundedReceiver<String>,
    /// The paths of WebSockets that have ended.
    ended: UnboundedReceiver<String>,
}

impl Origin {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (send_head, heads) = unbounded_channel();
        let (send_end, ended) = unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut tcp, _)) = listener.accept().await {
                let (send_head, send_end) = (send_head.clone(), send_end.clone());
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(byte) = tcp.read_u8().await else { return };
                        head.push(byte);
                    }
                    let head = String::from_utf8(head).unwrap();
                    let path = head.split(' ').nth(1).unwrap().to_owned();
                    let _ = send_head.send(head.clone());
                    serve(&path, &head, tcp).await;
                    let _ = send_end.send(path);
                });
            }
        });
        Self { addr, heads, ended }
    }
}

/// Serves a WebSocket of an origin until its end.
async fn serve(path: &str, head: &str, mut tcp: TcpStream) {
    if path == "/refused" {
        let _ = tcp.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 7\r\n\r\nrefused").await;
        return;
    }
    if path == "/silent" {
        let _ = tcp.read_u8().await;
        return;
    }
    let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
    let accepted = format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-protocol: superchat\r\nsec-websocket-accept: {}\r\n\r\n",
        derive_accept_key(key.as_bytes())
    );
    tcp.write_all(accepted.as_bytes()).await.unwrap();
    let mut bytes = vec![0; 65_536];
    match path {
        "/messages" => {
            let mut socket = WebSocketStream::from_raw_socket(tcp, Role::Server, None).await;
            while let Some(message) = next(&mut socket).await {
                if message.is_text() || message.is_binary() {
                    send(&mut socket, message).await;
                }
            }
        }
        "/flood" => while tcp.write_all(&bytes).await.is_ok() {},
        "/unread" => std::future::pending().await,
        "/reset" => {
            tcp.read_u8().await.unwrap();
            tcp.set_zero_linger().unwrap();
        }
        _ => {
            while let Ok(length @ 1..) = tcp.read(&mut bytes).await {
                tcp.write_all(&bytes[..length]).await.unwrap();
            }
            let _ = tcp.write_all(b"bye").await;
        }
    }
}

async fn send(socket: &mut WebSocketStream<impl AsyncRead + AsyncWrite + Unpin>, message: Message) {
    soon(poll_fn(|cx| Pin::new(&mut *socket).poll_ready(cx))).await.unwrap();
    Pin::new(&mut *socket).start_send(message).unwrap();
    soon(poll_fn(|cx| Pin::new(&mut *socket).poll_flush(cx))).await.unwrap();
}

/// The next message; `None` at the end, orderly or not.
async fn next(socket: &mut WebSocketStream<impl AsyncRead + AsyncWrite + Unpin>) -> Option<Message> {
    poll_fn(|cx| Pin::new(&mut *socket).poll_next(cx)).await?.ok()
}

/// A variable-length integer; `None` at the end of the stream. An error is the code with which the stream was reset.
async fn integer(recv: &mut RecvStream) -> Result<Option<u64>, VarInt> {
    let mut first = [0];
    if !exact(recv, &mut first).await? {
        return Ok(None);
    }
    let mut rest = vec![0; (1 << (first[0] >> 6)) - 1];
    assert!(exact(recv, &mut rest).await?, "an integer is whole");
    Ok(Some(rest.iter().fold(u64::from(first[0] & 0x3f), |value, byte| value << 8 | u64::from(*byte))))
}

/// Whether the stream has these bytes.
async fn exact(recv: &mut RecvStream, bytes: &mut [u8]) -> Result<bool, VarInt> {
    match soon(recv.read_exact(bytes)).await {
        Ok(()) => Ok(true),
        Err(ReadExactError::FinishedEarly(0)) => Ok(false),
        Err(ReadExactError::ReadError(ReadError::Reset(code))) => Err(code),
        Err(error) => panic!("{error}"),
    }
}

/// The next frame; `None` at the end of the stream.
async fn next_frame(recv: &mut RecvStream) -> Result<Option<(u64, Vec<u8>)>, VarInt> {
    let Some(kind) = integer(recv).await? else { return Ok(None) };
    let mut payload = vec![0; integer(recv).await?.expect("a frame has a length") as usize];
    if !payload.is_empty() {
        assert!(exact(recv, &mut payload).await?, "a frame is whole");
    }
    Ok(Some((kind, payload)))
}

/// The fields of a response, which has this status.
async fn response(recv: &mut RecvStream, status: u16) -> HeaderMap {
    let (kind, section) = next_frame(recv).await.unwrap().unwrap();
    assert_eq!(kind, 1);
    let mut expected = Vec::new();
    qpack::begin(&mut expected);
    qpack::status(http::StatusCode::from_u16(status).unwrap(), &mut expected);
    assert!(section.starts_with(&expected), "no {status}: {section:x?}");
    let mut fields = HeaderMap::new();
    qpack::decode(&section, |field, _| {
        if let Field::Regular(name, value) = field {
            fields.append(name, value);
        }
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    fields
}

/// Bytes of DATA frames, at least as many. An error is the code with which the stream was reset.
async fn data(recv: &mut RecvStream, at_least: usize) -> Result<Vec<u8>, VarInt> {
    let mut bytes = Vec::new();
    while bytes.len() < at_least
        && let Some((kind, payload)) = next_frame(recv).await?
    {
        assert_eq!(kind, u64::from(DATA));
        bytes.extend_from_slice(&payload);
    }
    Ok(bytes)
}

fn connect(path: &str) -> Vec<u8> {
    let fields =
        [(":protocol", "websocket"), ("sec-websocket-version", "13"), ("sec-websocket-protocol", "chat, superchat")];
    head("CONNECT", path, &fields)
}

/// An open WebSocket.
async fn websocket(connection: &quinn::Connection, path: &str) -> (SendStream, RecvStream) {
    let (send, mut recv) = open(connection, &connect(path), false).await;
    response(&mut recv, 200).await;
    (send, recv)
}

/// The bytes of a WebSocket, without their frames.
fn without_frames(mut send: SendStream, mut recv: RecvStream) -> DuplexStream {
    let (near, far) = tokio::io::duplex(65_536);
    let (mut from, mut to) = tokio::io::split(far);
    tokio::spawn(async move {
        let mut bytes = vec![0; 16_384];
        while let Ok(length @ 1..) = from.read(&mut bytes).await {
            send.write_all(&frame(DATA, &bytes[..length])).await.unwrap();
        }
        send.finish().unwrap();
    });
    tokio::spawn(async move {
        while let Ok(Some((_, payload))) = next_frame(&mut recv).await {
            to.write_all(&payload).await.unwrap();
        }
        let _ = to.shutdown().await;
    });
    near
}

async fn world(change: impl FnOnce(&mut EdgeConfig)) -> (World, Origin) {
    let origin = Origin::start().await;
    (World::start_at(origin.addr, change).await, origin)
}

const CANCELLED: ErrorCode = ErrorCode::REQUEST_CANCELLED;

#[tokio::test]
async fn messages_pass_both_ways() {
    let (world, mut origin) = world(|_| ()).await;
    let (connection, _endpoint) = world.connect().await;
    let (to, mut from) = open(&connection, &connect("/messages"), false).await;
    let fields = response(&mut from, 200).await;
    assert_eq!(fields["sec-websocket-protocol"], "superchat");
    assert!(fields.contains_key("x-request-id") && fields.contains_key("date"), "{fields:?}");
    for absent in ["connection", "upgrade", "sec-websocket-accept", "content-length", "transfer-encoding"] {
        assert!(!fields.contains_key(absent), "{fields:?}");
    }
    let head = soon(origin.heads.recv()).await.unwrap().to_ascii_lowercase();
    let host = format!("host: {HOST}");
    for line in [
        "get /messages http/1.1",
        &host,
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-protocol: chat, superchat",
        "via: 3 sallyport",
    ] {
        assert!(head.lines().any(|found| found == line), "{line}: {head}");
    }
    let bytes = without_frames(to, from);
    let mut socket = WebSocketStream::from_raw_socket(bytes, Role::Client, None).await;
    // The last one has more than all windows and buffers.
    let large = Message::binary((0..6_000_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>());
    for message in [Message::text("one"), Message::text("two"), large] {
        send(&mut socket, message.clone()).await;
        assert_eq!(soon(next(&mut socket)).await, Some(message));
    }
    soon(socket.close(None)).await.unwrap();
    assert!(matches!(soon(next(&mut socket)).await, Some(Message::Close(_))));
    assert_eq!(soon(next(&mut socket)).await, None);
    soon(origin.ended.recv()).await.unwrap();
}

#[tokio::test]
async fn each_direction_ends_by_itself() {
    let (world, _origin) = world(|_| ()).await;
    let (connection, _endpoint) = world.connect().await;
    let (mut send, mut recv) = websocket(&connection, "/").await;
    send.write_all(&frame(DATA, b"one ")).await.unwrap();
    assert_eq!(data(&mut recv, 4).await.unwrap(), b"one ");
    send.write_all(&frame(DATA, b"two ")).await.unwrap();
    send.finish().unwrap();
    assert_eq!(data(&mut recv, usize::MAX).await.unwrap(), b"two bye");

    // A client that ends its direction at once, and one that sends before the response.
    let early = [connect("/"), frame(DATA, b"early "), frame(DATA, b"bytes ")].concat();
    for (bytes, answer) in [(connect("/"), &b"bye"[..]), (early, b"early bytes bye")] {
        let (_send, mut recv) = open(&connection, &bytes, true).await;
        response(&mut recv, 200).await;
        assert_eq!(data(&mut recv, usize::MAX).await.unwrap(), answer);
    }
}

#[tokio::test]
async fn a_refused_websocket_gets_the_response() {
    let (world, _origin) = world(|_| ()).await;
    let (connection, _endpoint) = world.connect().await;
    let (send, mut recv) = open(&connection, &[connect("/refused"), frame(DATA, b"early")].concat(), false).await;
    assert_eq!(response(&mut recv, 403).await["content-length"], "7");
    assert_eq!(data(&mut recv, usize::MAX).await.unwrap(), b"refused");
    assert_eq!(soon(send.stopped()).await.unwrap(), Some(code(ErrorCode::NO_ERROR)));

    // A malformed one is reset.
    let malformed = head("CONNECT", "/", &[(":protocol", "websocket"), ("content-length", "0")]);
    let (_send, mut recv) = open(&connection, &malformed, false).await;
    assert_eq!(next_frame(&mut recv).await, Err(code(ErrorCode::MESSAGE_ERROR)));
}

#[tokio::test]
async fn resets_pass_in_both_directions() {
    let (world, mut origin) = world(|_| ()).await;
    let (connection, _endpoint) = world.connect().await;
    let (mut send, mut recv) = websocket(&connection, "/by-the-client").await;
    assert_eq!(origin.ended.try_recv(), Err(TryRecvError::Empty));
    send.reset(code(CANCELLED)).unwrap();
    assert_eq!(soon(origin.ended.recv()).await.unwrap(), "/by-the-client");
    assert_eq!(data(&mut recv, usize::MAX).await, Err(code(CANCELLED)));

    // A client that resets its direction alone, before the response.
    assert!(soon(origin.heads.recv()).await.unwrap().contains("/by-the-client"));
    let (mut send, mut recv) = open(&connection, &connect("/silent"), false).await;
    assert!(soon(origin.heads.recv()).await.unwrap().contains("/silent"));
    send.reset(code(CANCELLED)).unwrap();
    assert_eq!(soon(origin.ended.recv()).await.unwrap(), "/silent");
    assert_eq!(next_frame(&mut recv).await, Err(code(CANCELLED)));

    // A client that ended its direction before.
    let (mut send, mut recv) = websocket(&connection, "/flood").await;
    send.finish().unwrap();
    data(&mut recv, 1).await.unwrap();
    recv.stop(code(CANCELLED)).unwrap();
    assert_eq!(soon(origin.ended.recv()).await.unwrap(), "/flood");

    let (mut send, mut recv) = websocket(&connection, "/reset").await;
    send.write_all(&frame(DATA, b"x")).await.unwrap();
    assert_eq!(data(&mut recv, usize::MAX).await, Err(code(CANCELLED)));
    assert_eq!(soon(send.stopped()).await.unwrap(), Some(code(CANCELLED)));
}

#[tokio::test]
async fn policies_are_those_of_a_get_and_end_a_websocket() {
    let (world, mut origin) = world(|_| ()).await;
    world.set_policy(r#"{"allow":[{"what":{"methods":["GET"]}}]}"#);
    let (connection, _endpoint) = world.connect().await;
    let (mut send, mut recv) = websocket(&connection, "/path").await;
    send.write_all(&frame(DATA, b"x")).await.unwrap();
    assert_eq!(data(&mut recv, 1).await.unwrap(), b"x");
    world.set_policy(r#"{"allow":[{"what":{"methods":["GET"]}}],"deny":[{"what":{"paths":["/path"]}}]}"#);
    assert_eq!(data(&mut recv, usize::MAX).await, Err(code(CANCELLED)));
    assert_eq!(soon(origin.ended.recv()).await.unwrap(), "/path");
    let (_send, mut recv) = open(&connection, &connect("/path"), true).await;
    response(&mut recv, 403).await;
}

#[tokio::test]
async fn frames_that_are_no_data_end_the_connection() {
    let (world, mut origin) = world(|_| ()).await;
    let (connection, _endpoint) = world.connect().await;
    let (mut send, _recv) = websocket(&connection, "/").await;
    send.write_all(&section(&[("x-checksum", "7")])).await.unwrap();
    assert_eq!(close_code(&connection).await, code(ErrorCode::FRAME_UNEXPECTED));
    soon(origin.ended.recv()).await.unwrap();
}

#[tokio::test]
async fn a_client_that_reads_nothing_loses_its_websocket() {
    let (world, mut origin) = world(|config| config.send_timeout = Duration::from_millis(300)).await;
    let (connection, _endpoint) = world.connect().await;
    let (_send, mut recv) = websocket(&connection, "/flood").await;
    // The bytes are not read until the stream is reset.
    assert_eq!(soon(recv.received_reset()).await.unwrap(), Some(code(CANCELLED)));
    assert_eq!(soon(origin.ended.recv()).await.unwrap(), "/flood");
    let (mut send, mut recv) = websocket(&connection, "/").await;
    send.finish().unwrap();
    assert_eq!(data(&mut recv, usize::MAX).await.unwrap(), b"bye", "the connection goes on");
}

#[tokio::test]
async fn a_quiet_websocket_stays_open() {
    let bound = Duration::from_millis(200);
    let (world, _origin) = world(|config| (config.send_timeout, config.idle_timeout) = (bound, bound)).await;
    let (connection, _endpoint) = world.connect().await;
    let (mut send, mut recv) = websocket(&connection, "/").await;
    for _ in 0..2 {
        tokio::time::sleep(3 * bound).await;
        send.write_all(&frame(DATA, b"x")).await.unwrap();
        assert_eq!(data(&mut recv, 1).await.unwrap(), b"x");
    }
}

#[tokio::test]
async fn only_bytes_that_wait_for_the_origin_count_as_held() {
    let (world, _origin) = world(|_| ()).await;
    let held_is = async |wanted: RangeInclusive<usize>| {
        soon(async {
            while !wanted.contains(&world.edge.http.uploads.held()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    };
    let (connection, _endpoint) = world.connect().await;
    let (mut send, mut recv) = websocket(&connection, "/").await;
    send.write_all(&frame(DATA, b"x")).await.unwrap();
    assert_eq!(data(&mut recv, 1).await.unwrap(), b"x");
    held_is(0..=0).await;
    let (mut send, _recv) = websocket(&connection, "/unread").await;
    let bytes = frame(DATA, &[0; 65_536]);
    // The client hears of free room once an eighth of the window is free.
    let window = STREAM_WINDOW_BYTES as usize;
    tokio::select! {
        () = held_is(window - window / 8..=window) => {}
        _ = async { while send.write_all(&bytes).await.is_ok() {} } => panic!("the stream ended"),
    }
    // A stream that is dropped ends in order, which an origin that reads nothing never hears.
    send.reset(code(CANCELLED)).unwrap();
    held_is(0..=0).await;
}

#[tokio::test]
async fn a_websocket_goes_on_while_its_connection_ends_in_order() {
    let (mut world, _origin) = world(|_| ()).await;
    let (connection, _endpoint) = world.connect().await;
    let (mut send, mut recv) = websocket(&connection, "/").await;
    let mut control = soon(connection.accept_uni()).await.unwrap();
    world.edge.state.phase.all(Phase::Lingering);
    let mut frames = Vec::new();
    while !frames.ends_with(&[7, 1, 4]) {
        let chunk = soon(control.read_chunk(1_000, true)).await.unwrap().unwrap();
        frames.extend_from_slice(&chunk.bytes);
    }
    send.write_all(&frame(DATA, b"hello ")).await.unwrap();
    assert_eq!(data(&mut recv, 6).await.unwrap(), b"hello ");
    assert_eq!(world.served.try_recv(), Err(TryRecvError::Empty), "the connection is still served");
    send.finish().unwrap();
    assert_eq!(data(&mut recv, usize::MAX).await.unwrap(), b"bye");
    assert_eq!(close_code(&connection).await, code(ErrorCode::NO_ERROR));
    soon(world.served.recv()).await.unwrap();
}

#[tokio::test]
async fn a_websocket_is_cut_at_the_end_of_the_grace_period() {
    let (mut world, mut origin) = world(|_| ()).await;
    let (connection, _endpoint) = world.connect().await;
    let (_send, _recv) = websocket(&connection, "/").await;
    world.edge.state.phase.all(Phase::Cut);
    assert_eq!(close_code(&connection).await, code(ErrorCode::NO_ERROR));
    soon(world.served.recv()).await.unwrap();
    soon(origin.ended.recv()).await.unwrap();
}
