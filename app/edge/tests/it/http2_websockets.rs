//! WebSockets over HTTP/2 by extended CONNECT (RFC 8441): a client with hyper and tungstenite, and raw frames.

use std::{future::poll_fn, net::SocketAddr, pin::Pin, time::Duration};

use futures_core::Stream;
use futures_sink::Sink;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::{body::Incoming, client::conn::http2::SendRequest, ext::Protocol, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use sallyport_model::Limits;
use sallyport_tunnel::ConnectorEvent;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::{
            derive_accept_key,
            server::{ErrorResponse, Request as OriginRequest, Response as OriginResponse},
        },
        protocol::Role,
    },
};

use crate::{
    harness::*,
    identity::{IdentityFixture, asks, now},
    identity_flows::policy,
    raw_http2::*,
};

/// The parameter that announces extended CONNECT (RFC 8441 section 3).
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

type WebSocket = WebSocketStream<TokioIo<Upgraded>>;

async fn send<S>(socket: &mut WebSocketStream<S>, message: Message)
where
    WebSocketStream<S>: Sink<Message, Error: std::fmt::Debug> + Unpin,
{
    soon(poll_fn(|cx| Pin::new(&mut *socket).poll_ready(cx))).await.unwrap();
    Pin::new(&mut *socket).start_send(message).unwrap();
    soon(poll_fn(|cx| Pin::new(&mut *socket).poll_flush(cx))).await.unwrap();
}

/// The next message; `None` at the end, orderly or not.
async fn next<S>(socket: &mut WebSocketStream<S>) -> Option<Message>
where
    WebSocketStream<S>: Stream<Item = Result<Message, tokio_tungstenite::tungstenite::Error>> + Unpin,
{
    soon(poll_fn(|cx| Pin::new(&mut *socket).poll_next(cx))).await?.ok()
}

/// An origin that echoes messages, chooses the last subprotocol, and reports the heads of its requests.
async fn echo_origin() -> (SocketAddr, UnboundedReceiver<http::HeaderMap>) {
    let (heads, received) = unbounded_channel();
    let (addr, _) = raw_origin(move |tcp| {
        let heads = heads.clone();
        async move {
            #[expect(clippy::result_large_err, reason = "tungstenite sets the type")]
            let accept = |request: &OriginRequest, mut response: OriginResponse| -> Result<_, ErrorResponse> {
                if let Some(offered) = request.headers().get("sec-websocket-protocol") {
                    let chosen = offered.to_str().unwrap().rsplit(", ").next().unwrap();
                    response.headers_mut().insert("sec-websocket-protocol", chosen.parse().unwrap());
                }
                heads.send(request.headers().clone()).unwrap();
                Ok(response)
            };
            let Ok(mut socket) = accept_hdr_async(tcp, accept).await else { return };
            while let Some(message) = next(&mut socket).await {
                if message.is_text() || message.is_binary() {
                    send(&mut socket, message).await;
                }
            }
        }
    })
    .await;
    (addr, received)
}

/// Accepts a WebSocket on a connection of a raw origin.
async fn accept(tcp: &mut TcpStream) {
    let head = read_head(tcp).await;
    let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-accept: {}\r\n\r\n",
        derive_accept_key(key.as_bytes())
    );
    tcp.write_all(answer.as_bytes()).await.unwrap();
}

/// An origin that echoes the bytes behind the handshake until their end, and then sends `bye`.
pub(crate) async fn byte_origin() -> SocketAddr {
    let serve = |mut tcp: TcpStream| async move {
        accept(&mut tcp).await;
        let mut bytes = [0; 4_096];
        while let Ok(length @ 1..) = tcp.read(&mut bytes).await {
            tcp.write_all(&bytes[..length]).await.unwrap();
        }
        let _ = tcp.write_all(b"bye").await;
    };
    raw_origin(serve).await.0
}

fn connect(host: &str, path: &str, fields: &[(&str, &str)]) -> Request<TestBody> {
    let mut request = Request::builder()
        .method(Method::CONNECT)
        .uri(format!("https://{host}{path}"))
        .header("sec-websocket-version", "13")
        .extension(Protocol::from_static("websocket"));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(text("")).unwrap()
}

async fn ask(
    sender: &mut SendRequest<TestBody>,
    socket: &TestSocket,
    path: &str,
    fields: &[(&str, &str)],
) -> Response<Incoming> {
    soon(sender.send_request(connect(&socket.host(), path, fields))).await.unwrap()
}

async fn opened(response: Response<Incoming>) -> WebSocket {
    assert_eq!(response.status(), StatusCode::OK);
    let io = TokioIo::new(soon(hyper::upgrade::on(response)).await.unwrap());
    WebSocketStream::from_raw_socket(io, Role::Client, None).await
}

async fn echoes(socket: &mut WebSocket, message: &str) {
    send(socket, Message::text(message)).await;
    assert_eq!(next(socket).await, Some(Message::text(message)));
}

async fn body(response: Response<Incoming>) -> String {
    let bytes = soon(response.into_body().collect()).await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_websocket_works_beside_requests_and_is_logged_as_it_came() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, mut heads) = echo_origin().await;
    let mut connector = world.tunnel(&mut socket, addr).await;
    let mut sender = world.http2(&socket).await;
    let fields = [
        ("sec-websocket-protocol", "chat, superchat"),
        ("sec-websocket-extensions", "x-none"),
        ("sec-websocket-key", "from the client"),
        ("x-real-ip", "192.0.2.1"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
    ];
    let response = ask(&mut sender, &socket, "/chat?x=1", &fields).await;
    let headers = response.headers();
    assert_eq!(headers["sec-websocket-protocol"], "superchat");
    assert!(headers.contains_key("x-request-id") && headers.contains_key("date"), "{headers:?}");
    for absent in ["connection", "upgrade", "sec-websocket-accept", "content-length"] {
        assert!(!headers.contains_key(absent), "{headers:?}");
    }
    let head = soon(heads.recv()).await.unwrap();
    let expected = [
        ("host", socket.host().as_str()),
        ("upgrade", "websocket"),
        ("connection", "Upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "chat, superchat"),
        ("sec-websocket-extensions", "x-none"),
        ("x-real-ip", "127.0.0.1"),
        ("via", "2 sallyport"),
        ("cookie", "a=1; b=2"),
    ]
    .map(|(name, value)| (name, value.to_owned()));
    let seen = expected.each_ref().map(|(name, _)| (*name, head[*name].to_str().unwrap().to_owned()));
    assert_eq!(seen, expected);
    let keys: Vec<_> = head.get_all("sec-websocket-key").iter().collect();
    assert!(keys.len() == 1 && keys[0].len() == 24 && keys[0].as_bytes().ends_with(b"=="), "{keys:?}");

    let mut first = opened(response).await;
    let mut second = opened(ask(&mut sender, &socket, "/second", &[]).await).await;
    for number in 0..20 {
        echoes(&mut first, &format!("first {number}")).await;
        echoes(&mut second, &format!("second {number}")).await;
    }
    // More than all windows and buffers.
    let large = Message::binary(pattern(6_000_000));
    let (mut reader, mut writer) = (Vec::new(), Some(large.clone()));
    poll_fn(|cx| {
        if let std::task::Poll::Ready(Some(message)) = Pin::new(&mut first).poll_next(cx) {
            reader.push(message.unwrap());
            return std::task::Poll::Ready(());
        }
        if writer.is_some() && Pin::new(&mut first).poll_ready(cx).is_ready() {
            Pin::new(&mut first).start_send(writer.take().unwrap()).unwrap();
        }
        let _ = Pin::new(&mut first).poll_flush(cx);
        std::task::Poll::Pending
    })
    .await;
    assert_eq!(reader, [large]);
    echoes(&mut second, "goes on").await;

    first.close(None).await.unwrap();
    assert!(matches!(next(&mut first).await, Some(Message::Close(_))));
    assert_eq!(next(&mut first).await, None);
    let mut rest = Vec::new();
    soon(first.get_mut().read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"", "the stream ends in order");
    soon(first.get_mut().shutdown()).await.unwrap();
    let record = loop {
        if let ConnectorEvent::Request(record) = soon(connector.log.recv()).await.unwrap() {
            break record;
        }
    };
    let shown = (record.method.as_str(), record.target.as_str(), record.version.as_str(), record.status);
    assert_eq!(shown, ("CONNECT", "/chat?x=1", "HTTP/2.0", 200));
    assert!(record.bytes_in > 6_000_000 && record.bytes_out > 6_000_000, "{record:?}");
    echoes(&mut second, "still here").await;
}

#[tokio::test]
async fn a_websocket_needs_the_login_and_ends_with_it() {
    let fixture = IdentityFixture::start().await;
    let mut socket = fixture.world.socket();
    let (addr, _heads) = echo_origin().await;
    let _connector = fixture.world.tunnel(&mut socket, addr).await;
    let mut sender = fixture.world.http2(&socket).await;
    let mut early = opened(ask(&mut sender, &socket, "/early", &[]).await).await;
    echoes(&mut early, "no login is needed yet").await;
    socket.set(&fixture.world, |settings| settings.identity = asks("example.com"));
    assert_eq!(next(&mut early).await, None, "it is judged again");

    let page = format!("https://{}", socket.host());
    let status = |response: Response<Incoming>| response.status().as_u16();
    assert_eq!(status(ask(&mut sender, &socket, "/", &[("origin", &page)]).await), 401);
    let ann = fixture.login(1, "ann@example.com");
    let cookie = fixture.cookie(socket.route.id, &ann, now());
    let cookie = cookie.trim_end().strip_prefix("Cookie: ").unwrap();
    let foreign = [("origin", "https://evil.localhost"), ("cookie", cookie)];
    assert_eq!(status(ask(&mut sender, &socket, "/", &foreign).await), 403, "a page of another site");
    let own = [("origin", page.as_str()), ("cookie", cookie)];
    let mut open = opened(ask(&mut sender, &socket, "/", &own).await).await;
    echoes(&mut open, "with a login").await;
    fixture.identities.end_sessions(|_| true);
    assert_eq!(next(&mut open).await, None, "the login has ended");
}

#[tokio::test]
async fn policies_and_passwords_are_those_of_a_get() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _heads) = echo_origin().await;
    let _connector = world.tunnel(&mut socket, addr).await;
    socket.route.policies =
        policy(r#"{"allow":[{"what":{"methods":["GET"]}}],"deny":[{"what":{"paths":["/denied"]}}]}"#);
    world.routes.put(socket.route.clone());
    let mut sender = world.http2(&socket).await;
    echoes(&mut opened(ask(&mut sender, &socket, "/allowed", &[]).await).await, "allowed").await;
    assert_eq!(ask(&mut sender, &socket, "/denied", &[]).await.status(), 403);
    socket.protect(&world, "ann", "secret");
    assert_eq!(ask(&mut sender, &socket, "/allowed", &[]).await.status(), 401);
    let authorization = [("authorization", "Basic YW5uOnNlY3JldA==")];
    echoes(&mut opened(ask(&mut sender, &socket, "/allowed", &authorization).await).await, "in").await;
}

#[tokio::test]
async fn only_an_opened_websocket_is_answered_with_success() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        let head = read_head(&mut tcp).await;
        let answer = match head.split(' ').nth(1).unwrap() {
            "/no-answer-to-the-key" => "101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
            "/another-key" => {
                "101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                 sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
            }
            "/page" => "200 OK\r\ncontent-length: 6\r\n\r\na page",
            "/empty" => "204 No Content\r\n\r\n",
            "/moved" => "302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n",
            _ => "400 Bad Request\r\ncontent-length: 8\r\n\r\ndeclined",
        };
        let _ = tcp.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await;
        read_rest(&mut tcp).await;
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut sender = world.http2(&socket).await;
    for path in ["/no-answer-to-the-key", "/another-key", "/page", "/empty"] {
        // A gRPC status would be a 200.
        let response = ask(&mut sender, &socket, path, &[("content-type", "application/grpc")]).await;
        assert_eq!(response.status(), 502, "{path}");
        assert!(body(response).await.contains("origin-broken"), "{path}");
    }
    let response = ask(&mut sender, &socket, "/moved", &[]).await;
    assert_eq!((response.status().as_u16(), &response.headers()["location"]), (302, &"/elsewhere".parse().unwrap()));
    let response = ask(&mut sender, &socket, "/declined", &[]).await;
    assert_eq!((response.status().as_u16(), body(response).await.as_str()), (400, "declined"));
}

#[tokio::test]
async fn hosts_of_the_edge_itself_serve_no_extended_connect() {
    let world = World::start().await;
    for (host, path, status) in [
        ("api.localhost", "/healthz", 501),
        ("api.localhost", "/v1/sockets", 501),
        ("login.localhost", "/", 501),
        ("127.0.0.1", "/metrics", 501),
        ("tunnel.localhost", "/_sallyport/tunnel", 426),
        ("localhost", "/", 404),
    ] {
        let tls = world.client_with("api.localhost", &[b"h2"]).await;
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake::<_, _, TestBody>(executor, TokioIo::new(tls)).await.unwrap();
        tokio::spawn(connection);
        let response = soon(sender.send_request(connect(host, path, &[]))).await.unwrap();
        assert_eq!(response.status(), status, "{host}{path}");
    }
}

/// Opens a WebSocket on this stream of a raw client.
pub(crate) async fn open(client: &mut RawHttp2, stream: u32, path: &str) {
    let head = client.head("CONNECT", path, &[(":protocol", "websocket"), ("sec-websocket-version", "13")]);
    client.send(HEADERS, END_HEADERS, stream, &head).await;
    client.read_until("the websocket is open", |client| client.received(stream).heads == [Some(200)]).await;
}

#[tokio::test]
async fn each_direction_ends_by_itself() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, byte_origin().await).await;
    let mut client = RawHttp2::open(&world, &socket).await;
    client.read_until("the settings come", |client| !client.settings.is_empty()).await;
    assert_eq!(client.settings.get(&ENABLE_CONNECT_PROTOCOL), Some(&1));
    open(&mut client, 1, "/").await;
    client.send(DATA, 0, 1, b"one ").await;
    client.read_until("the first bytes are echoed", |client| client.got(1) == 4).await;
    assert!(!client.received(1).whole);
    client.send(DATA, END_STREAM, 1, b"two ").await;
    assert_eq!(client.outcome(1).await, Outcome::Status(200));
    assert_eq!(client.received(1).data, b"one two bye");
    client.all_is_looked_at().await;
    assert_eq!(client.received(1).reset, None);

    // A client that ends its direction at once, and one that sends before the response.
    let fields = [(":protocol", "websocket")];
    let head = client.head("CONNECT", "/", &fields);
    client.send(HEADERS, END_HEADERS | END_STREAM, 3, &head).await;
    assert_eq!((client.outcome(3).await, &client.received(3).data[..]), (Outcome::Status(200), &b"bye"[..]));
    let early = [frame(HEADERS, END_HEADERS, 5, &head), frame(DATA, 0, 5, b"early "), frame(DATA, END_STREAM, 5, b"")];
    client.write(&early.concat()).await;
    assert_eq!((client.outcome(5).await, &client.received(5).data[..]), (Outcome::Status(200), &b"early bye"[..]));
}

#[tokio::test]
async fn resets_pass_in_both_directions() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (ends, mut ended) = unbounded_channel();
    let (addr, _) = raw_origin(move |mut tcp| {
        let ends = ends.clone();
        async move {
            let mut byte = [0];
            accept(&mut tcp).await;
            if tcp.read(&mut byte).await.is_ok_and(|bytes| bytes == 1) {
                tcp.set_zero_linger().unwrap();
                return;
            }
            ends.send(()).unwrap();
        }
    })
    .await;
    let mut connector = world.tunnel(&mut socket, addr).await;
    let mut client = RawHttp2::open(&world, &socket).await;
    open(&mut client, 1, "/reset-by-the-client").await;
    client.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()).await;
    soon(ended.recv()).await.unwrap();
    let record = loop {
        if let ConnectorEvent::Request(record) = soon(connector.log.recv()).await.unwrap() {
            break record;
        }
    };
    assert_eq!((record.target.as_str(), record.status), ("/reset-by-the-client", 200));
    open(&mut client, 3, "/reset-by-the-origin").await;
    client.send(DATA, 0, 3, b"x").await;
    assert_eq!(client.outcome(3).await, Outcome::Reset(CANCEL));
}

#[tokio::test]
async fn a_client_without_window_gets_no_bytes_and_is_reset() {
    let world = World::start_with(|config| config.send_timeout = Duration::from_secs(1)).await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        accept(&mut tcp).await;
        let _ = tcp.write_all(&pattern(100_000)).await;
        read_rest(&mut tcp).await;
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = RawHttp2::open_with(&world, &socket, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    open(&mut client, 1, "/").await;
    client.all_is_looked_at().await;
    assert_eq!(client.got(1), 0);
    client.grant(1, 20_000).await;
    client.read_until("the window is used up", |client| client.got(1) == 20_000).await;
    assert_eq!(client.received(1).data, pattern(20_000));
    assert_eq!(client.outcome(1).await, Outcome::Reset(CANCEL));
    assert_eq!(client.got(1), 20_000);
}

#[tokio::test]
async fn a_quiet_websocket_stays_open() {
    let world = World::start_with(|config| {
        (config.send_timeout, config.idle_timeout) = (Duration::from_millis(300), Duration::from_millis(300));
    })
    .await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, byte_origin().await).await;
    let mut client = RawHttp2::open(&world, &socket).await;
    open(&mut client, 1, "/").await;
    for count in 1..=3 {
        client.send(DATA, 0, 1, b"x").await;
        client.read_until("the byte is echoed", |client| client.got(1) == count).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    assert_eq!(client.goaways, []);
}

#[tokio::test]
async fn malformed_and_unknown_extended_connects_are_refused() {
    let world = World::start().await;
    let mut socket = world.socket();
    let origin = TestOrigin::start().await;
    let _connector = world.tunnel(&mut socket, origin.addr).await;
    let host = socket.host();
    let (connect, websocket) = ((":method", "CONNECT"), (":protocol", "websocket"));
    let (scheme, authority, path) = ((":scheme", "https"), (":authority", host.as_str()), (":path", "/"));
    let malformed = Outcome::Reset(PROTOCOL_ERROR);
    let cases: [(&[(&str, &str)], Outcome); 10] = [
        (&[connect, websocket, authority, path], malformed),
        (&[connect, websocket, scheme, path, ("host", &host)], malformed),
        (&[connect, websocket, scheme, authority], malformed),
        (&[connect, websocket, websocket, scheme, authority, path], malformed),
        (&[(":method", "GET"), websocket, scheme, authority, path], malformed),
        (&[connect, websocket, scheme, authority, path, ("content-length", "5")], malformed),
        (&[connect, websocket, scheme, authority, path, ("content-length", "0")], malformed),
        (&[connect, websocket, scheme, authority, path, ("upgrade", "websocket")], malformed),
        (&[connect, (":protocol", "connect-udp"), scheme, authority, path], Outcome::Status(501)),
        (&[connect, authority], Outcome::Status(501)),
    ];
    let mut client = RawHttp2::open(&world, &socket).await;
    let mut stream = 1;
    for (fields, expected) in cases {
        client.send(HEADERS, END_HEADERS, stream, &block(fields)).await;
        assert_eq!(client.outcome(stream).await, expected, "{fields:?}");
        client.send(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()).await;
        stream += 2;
    }
    assert_eq!(origin.seen(), [""; 0]);
}

#[tokio::test]
async fn a_tunnel_has_no_trailers_and_a_connection_has_a_bound_on_tunnels() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, byte_origin().await).await;
    let mut client = RawHttp2::open(&world, &socket).await;
    open(&mut client, 1, "/").await;
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("x-checksum", "7")])).await;
    assert_eq!(client.outcome(1).await, Outcome::Reset(PROTOCOL_ERROR));

    let head = client.head("CONNECT", "/", &[(":protocol", "websocket")]);
    let places = client.settings[&3];
    let last = 3 + 2 * places;
    for stream in (3..=last).step_by(2) {
        client.send(HEADERS, END_HEADERS, stream, &head).await;
    }
    assert_eq!(client.outcome(last).await, Outcome::Reset(REFUSED_STREAM));
    client.send(DATA, END_STREAM, 3, b"").await;
    assert_eq!(client.outcome(3).await, Outcome::Status(200));
    open(&mut client, last + 2, "/").await;
}

#[tokio::test]
async fn a_websocket_goes_on_while_its_connection_ends_in_order() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, byte_origin().await).await;
    let mut client = RawHttp2::open(&world, &socket).await;
    open(&mut client, 1, "/").await;
    world.shutdown.trigger();
    client.read_until("the end is announced", |client| !client.goaways.is_empty()).await;
    client.send(DATA, 0, 1, b"hello").await;
    client.read_until("the bytes are echoed", |client| client.got(1) == 5).await;
    client.send(DATA, END_STREAM, 1, b"").await;
    assert_eq!(client.outcome(1).await, Outcome::Status(200));
    assert_eq!(client.end().await, Some(NO_ERROR));
}

#[tokio::test]
async fn a_websocket_is_cut_at_the_end_of_the_grace_period() {
    let world = World::start_with(|config| config.shutdown_grace = Duration::from_millis(500)).await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, byte_origin().await).await;
    let mut client = RawHttp2::open(&world, &socket).await;
    open(&mut client, 1, "/").await;
    let report = world.stop().await;
    assert_eq!((report.finished, report.cut), (0, 2), "the connection and its websocket");
    client.end().await;
    assert!(!client.received(1).whole, "it is not taken for complete");
}

#[tokio::test]
async fn a_websocket_keeps_its_place_within_the_limits_of_its_socket() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _heads) = echo_origin().await;
    let mut connector = world.tunnel(&mut socket, addr).await;
    socket.set(&world, |settings| settings.limits = Limits { max_connections: Some(1), ..Limits::default() });
    let mut sender = world.http2(&socket).await;
    let mut open = opened(ask(&mut sender, &socket, "/first", &[]).await).await;
    assert_eq!(ask(&mut sender, &socket, "/second", &[]).await.status(), 429);
    echoes(&mut open, "still here").await;
    drop(open);
    while !matches!(soon(connector.log.recv()).await.unwrap(), ConnectorEvent::Request(record) if record.target == "/first")
    {
    }
    echoes(&mut opened(ask(&mut sender, &socket, "/third", &[]).await).await, "in its place").await;
}
