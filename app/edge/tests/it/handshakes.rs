//! TLS handshakes: server names, certificates, session tickets, long ClientHellos, and the PROXY protocol before them.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use http::Response;
use rustls::{
    ClientConfig, HandshakeKind, ProtocolVersion, SupportedProtocolVersion,
    client::{ClientSessionMemoryCache, ClientSessionStore as _, Resumption},
    pki_types::ServerName,
};
use sallyport_model::{ProxyProtocol, SocketType, TlsMode};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    flows::{ask, connect, connect_from, echo_with_greeting, service},
    harness::*,
};

fn config(world: &World, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    builder.with_root_certificates(world.roots()).with_no_client_auth()
}

/// A client that offers this protocol and 60,000 bytes of unknown protocols, in four records.
fn long_config(world: &World, alpn: &[u8]) -> ClientConfig {
    let mut config = config(world, rustls::ALL_VERSIONS);
    config.alpn_protocols = (0..240_u8).map(|number| vec![number.max(1); 249]).collect();
    config.alpn_protocols.push(alpn.to_vec());
    config
}

async fn handshake<S>(config: impl Into<Arc<ClientConfig>>, name: &str, io: S) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(name.to_owned()).unwrap();
    soon(TlsConnector::from(config.into()).connect(name, io)).await
}

async fn tls_socket(world: &World) -> (TestSocket, SocketAddr, Connector) {
    let mut socket = world.socket();
    let addr = socket.set_type(world, SocketType::Tls).await;
    let connector = world.tunnel(&mut socket, service(echo_with_greeting).await).await;
    drop(connect(addr).await);
    (socket, addr, connector)
}

/// A connection that writes one byte at a time.
struct Dribble(TcpStream);

impl AsyncRead for Dribble {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Dribble {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, &buf[..buf.len().min(1)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn an_unknown_server_name_is_refused_by_an_alert() {
    let world = World::start().await;
    let (_socket, addr, _connector) = tls_socket(&world).await;
    // A client with an encrypted ClientHello sends such an outer name.
    for name in ["public.example", "a.b.localhost"] {
        let error = world.client_at(world.addr, name, &[]).await.unwrap_err();
        assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    }
    let error = world.client_at(addr, "public.example", &[]).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "its own port has its own certificate: {error}");
}

#[tokio::test]
async fn without_a_server_name_the_port_selects_the_socket() {
    let world = World::start().await;
    let (socket, addr, _connector) = tls_socket(&world).await;
    let mut nameless = config(&world, rustls::ALL_VERSIONS);
    nameless.enable_sni = false;
    let nameless = Arc::new(nameless);
    let by_port = handshake(nameless.clone(), &socket.host(), connect(addr).await).await.unwrap();
    assert_eq!(ask(by_port, b"x").await, b"hello x bye");
    // TLS 1.2 behaves like TLS 1.3.
    let mut older = config(&world, &[&rustls::version::TLS12]);
    older.enable_sni = false;
    for nameless in [nameless, Arc::new(older)] {
        let error = handshake(nameless, &socket.host(), connect(world.addr).await).await.unwrap_err();
        assert!(error.to_string().contains("MissingExtension"), "{error}");
    }
}

#[tokio::test]
async fn a_client_hello_may_be_long_and_arrive_byte_by_byte() {
    let world = World::start().await;
    let (mut socket, _, _connector) = tls_socket(&world).await;
    socket.set(&world, |settings| settings.alpn = vec!["postgresql".into()]);

    let long = long_config(&world, b"postgresql");
    let client = handshake(long, &socket.host(), connect(world.addr).await).await.unwrap();
    assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"postgresql"[..]));
    assert_eq!(ask(client, b"x").await, b"hello x bye");

    let slow = Arc::new(config(&world, rustls::ALL_VERSIONS));
    let client = handshake(slow, &socket.host(), Dribble(connect(world.addr).await)).await.unwrap();
    assert_eq!(ask(client, b"y").await, b"hello y bye");
}

#[tokio::test]
async fn a_long_client_hello_passes_through_whole() {
    let world = World::start().await;
    let other = World::start().await;
    let mut socket = world.socket();
    socket.set_type(&world, SocketType::Tls).await;
    socket.set(&world, |settings| settings.tls_mode = TlsMode::Passthrough);
    let (mut inner, _, _inner_connector) = tls_socket(&other).await;
    inner.set(&other, |settings| settings.alpn = vec!["imap".into()]);
    let _connector = world.tunnel(&mut socket, other.addr).await;
    let client = handshake(long_config(&other, b"imap"), &socket.host(), connect(world.addr).await).await.unwrap();
    assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"imap"[..]));
    assert_eq!(ask(client, b"x").await, b"hello x bye");
}

#[tokio::test]
async fn tls_1_2_clients_are_served() {
    let world = World::start().await;
    let (socket, _, _connector) = tls_socket(&world).await;
    let old = config(&world, &[&rustls::version::TLS12]);
    let client = handshake(old, &socket.host(), connect(world.addr).await).await.unwrap();
    assert_eq!(client.get_ref().1.protocol_version(), Some(ProtocolVersion::TLSv1_2));
    assert_eq!(ask(client, b"x").await, b"hello x bye");
}

#[tokio::test]
async fn http_works_over_tls_1_2_and_1_3() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = origin(|_| async { Response::new(text("hello")) }).await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let head = format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", socket.host());
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let remembering = Arc::new(config(&world, &[version]));
        for wanted in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let tcp = Dribble(connect(world.addr).await);
            let mut client = handshake(remembering.clone(), &socket.host(), tcp).await.unwrap();
            assert_eq!(client.get_ref().1.protocol_version(), Some(version.version));
            assert_eq!(client.get_ref().1.handshake_kind(), Some(wanted));
            for _ in 0..2 {
                client.write_all(head.as_bytes()).await.unwrap();
                client.flush().await.unwrap();
                assert_eq!(read_response(&mut client).await.text(), "hello");
                if version.version == ProtocolVersion::TLSv1_3 {
                    client.get_mut().1.refresh_traffic_keys().unwrap();
                }
            }
            client.shutdown().await.unwrap();
            assert_eq!(read_rest(&mut client).await, b"", "the connection ends in order");
        }
    }
}

#[tokio::test]
async fn a_ticket_resumes_its_own_socket_only() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let world = World::start().await;
        let (socket, addr, _connector) = tls_socket(&world).await;
        let (_other, other_addr, _other_connector) = tls_socket(&world).await;
        let remembering = Arc::new(config(&world, &[version]));
        for (at, wanted) in
            [(world.addr, HandshakeKind::Full), (world.addr, HandshakeKind::Resumed), (addr, HandshakeKind::Resumed)]
        {
            let mut client = handshake(remembering.clone(), &socket.host(), connect(at).await).await.unwrap();
            assert_eq!(client.get_ref().1.handshake_kind(), Some(wanted));
            client.write_all(b"x").await.unwrap();
            // The tickets come before the first application data.
            soon(client.read_exact(&mut [0; 6])).await.unwrap();
        }
        let error = handshake(remembering, &socket.host(), connect(other_addr).await).await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "the other socket presents its own certificate: {error}");
    }
}

#[tokio::test]
async fn a_new_client_gets_two_tickets_and_a_resumed_one_gets_one() {
    let world = World::start().await;
    let (socket, _, _connector) = tls_socket(&world).await;
    for (host, request) in [(socket.host(), "x"), ("api.localhost".to_owned(), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")] {
        let name = ServerName::try_from(host.clone()).unwrap();
        let tickets = Arc::new(ClientSessionMemoryCache::new(4));
        let mut remembering = config(&world, &[&rustls::version::TLS13]);
        remembering.resumption = Resumption::store(tickets.clone());
        let remembering = Arc::new(remembering);
        for (kind, count) in [(HandshakeKind::Full, 2), (HandshakeKind::Resumed, 1), (HandshakeKind::Resumed, 1)] {
            let mut client = handshake(remembering.clone(), &host, connect(world.addr).await).await.unwrap();
            assert_eq!(client.get_ref().1.handshake_kind(), Some(kind));
            client.write_all(request.as_bytes()).await.unwrap();
            // The tickets come before the first application data.
            soon(client.read_exact(&mut [0; 6])).await.unwrap();
            let got: Vec<_> = std::iter::from_fn(|| tickets.take_tls13_ticket(&name)).collect();
            assert_eq!(got.len(), count, "{host}");
            got.into_iter().take(1).for_each(|ticket| tickets.insert_tls13_ticket(name.clone(), ticket));
        }
    }
}

#[tokio::test]
async fn tickets_are_sent_without_a_request() {
    let world = World::start().await;
    // The kernel delays a segment that waits for more data by at least 200 ms each time.
    for _ in 0..20 {
        let client = world.client_with("api.localhost", &[b"http/1.1"]).await;
        let done = Instant::now();
        assert_ne!(soon(client.get_ref().0.peek(&mut [0])).await.unwrap(), 0);
        if done.elapsed() < Duration::from_millis(150) {
            return;
        }
    }
    panic!("a client that sends its request when the end of its handshake is acknowledged would have waited");
}

#[tokio::test]
async fn http_clients_reach_the_origin_of_a_tls_socket() {
    let world = World::start().await;
    let mut socket = world.socket();
    socket.set_type(&world, SocketType::Tls).await;
    let origin = origin(|_| async { Response::new(text("over the tls socket")) }).await;
    let _connector = world.tunnel(&mut socket, origin).await;
    let response = world.get(&socket, "/").await;
    assert_eq!((response.status, response.text()), (200, "over the tls socket"));
    let client = world.client_with(&socket.host(), &[b"h2", b"http/1.1"]).await;
    assert_eq!(client.get_ref().1.alpn_protocol(), None, "the edge does not negotiate for the origin");
}

#[tokio::test]
async fn a_proxy_protocol_header_may_precede_the_client_hello() {
    let world = World::start_with(|config| config.trusted_proxies = vec!["127.0.0.2/32".parse().unwrap()]).await;
    let (mut socket, _, _connector) = tls_socket(&world).await;
    socket.set(&world, |settings| settings.proxy_protocol = ProxyProtocol::V1);
    let header = b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n";
    let tls = Arc::new(config(&world, rustls::ALL_VERSIONS));

    let mut trusted = connect_from([127, 0, 0, 2], world.addr).await;
    trusted.write_all(header).await.unwrap();
    let client = handshake(tls.clone(), &socket.host(), trusted).await.unwrap();
    let response = String::from_utf8(ask(client, b"x").await).unwrap();
    assert_eq!(response, "hello PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\nx bye");

    // From any other peer, the header is invalid TLS, and the connection ends with an alert.
    let mut stranger = connect_from([127, 0, 0, 3], world.addr).await;
    stranger.write_all(header).await.unwrap();
    assert!(handshake(tls, &socket.host(), stranger).await.is_err());
    until("the failed handshake is counted", || {
        let metrics = world.edge.metrics_text().unwrap();
        metrics.contains(r#"handshakes_failed_total{reason="tls"} 1"#)
    })
    .await;
}

/// Sends these bytes over plain TCP, and returns all that the client receives until the connection ends.
async fn send_plain(addr: SocketAddr, words: &[u8]) -> String {
    let mut client = connect(addr).await;
    client.write_all(words).await.unwrap();
    let mut response = Vec::new();
    soon(client.read_to_end(&mut response)).await.unwrap_or_else(|error| panic!("{}: {error}", words.escape_ascii()));
    String::from_utf8_lossy(&response).into_owned()
}

fn counts(world: &World, reason: &str, count: usize) -> bool {
    let metrics = world.edge.metrics_text().unwrap();
    metrics.contains(&format!(r#"handshakes_failed_total{{reason="{reason}"}} {count}"#))
}

#[tokio::test]
async fn plain_http_on_the_tls_port_gets_a_hint_to_use_https() {
    let world = World::start().await;
    let host = world.socket().host();
    let place = format!("https://{host}:{}/", world.addr.port());
    let methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"];
    for method in methods {
        let target = if method == "CONNECT" { format!("{host}:443") } else { "/a?b".to_owned() };
        let request = format!("{method} {target} HTTP/1.1\r\nHost: {host}:443\r\nContent-Length: 0\r\n\r\n");
        let response = send_plain(world.addr, request.as_bytes()).await;
        assert!(response.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{method}: {response}");
        assert!(response.contains("\r\nconnection: close\r\n"), "{method}: {response}");
        let (_, body) = response.split_once("\r\n\r\n").unwrap();
        match method {
            "HEAD" => assert_eq!(body, ""),
            "CONNECT" => assert!(body.starts_with("This port speaks HTTPS: use https://"), "{body}"),
            _ => assert_eq!(body, format!("This port speaks HTTPS: use {place}\n"), "{method}"),
        }
    }
    until("all are counted", || counts(&world, "plain-http", methods.len())).await;
}

#[tokio::test]
async fn the_https_hint_contains_no_unknown_host() {
    let world = World::start().await;
    for head in [
        "GET / HTTP/1.1\r\nHost: stranger.example\r\n\r\n",
        "GET https://stranger.example/ HTTP/1.1\r\nHost: stranger.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.localhost\r\nHost: stranger.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: stranger.example/a.localhost\r\n\r\n",
        "GET stranger.example\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
    ] {
        let response = send_plain(world.addr, head.as_bytes()).await;
        assert!(response.starts_with("HTTP/1.1 400 ") || response.starts_with("HTTP/1.0 400 "), "{head}: {response}");
        assert!(
            response.ends_with("\r\n\r\nThis port speaks HTTPS: use https:// in place of http://\n"),
            "{head}: {response}"
        );
        assert!(!response.contains("stranger"), "{response}");
    }
}

#[tokio::test]
async fn plain_http_may_arrive_byte_by_byte() {
    let world = World::start().await;
    let host = world.socket().host();
    let mut slow = connect(world.addr).await;
    slow.set_nodelay(true).unwrap();
    for byte in format!("OPTIONS * HTTP/1.1\r\nHost: {host}\r\n\r\n").bytes() {
        slow.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let response = String::from_utf8(read_rest(&mut slow).await).unwrap();
    assert!(response.starts_with("HTTP/1.1 400 ") && response.contains(&host), "{response}");
}

/// Whether the edge still reads the body after its response. The response is then not lost to a reset.
async fn reads_after_response(addr: SocketAddr, host: &str, fields: &str, status: &str) -> bool {
    let mut client = connect(addr).await;
    let head = format!("POST / HTTP/1.1\r\nHost: {host}\r\n{fields}Content-Length: 1000000\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    let response = String::from_utf8(read_rest(&mut client).await).unwrap();
    assert!(response.starts_with(&format!("HTTP/1.1 {status} ")) && response.contains(host), "{response}");
    for _ in 0..20 {
        if client.write_all(&[b'x'; 1_000]).await.is_err() {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}

#[tokio::test]
async fn a_plain_response_is_not_lost_to_an_unread_body() {
    let world = World::start().await;
    let host = world.socket().host();
    for (addr, status) in [(world.addr, "400"), (world.plain_addr, "308")] {
        // After an upgrade request, the HTTP server does not decide how the connection ends.
        for fields in ["", "Connection: upgrade\r\nUpgrade: h2c\r\n"] {
            let mut taken = false;
            // The edge reads for two seconds. A slow machine may exceed that time once, but not in each attempt.
            for _ in 0..10 {
                taken |= reads_after_response(addr, &host, fields, status).await;
                if taken {
                    break;
                }
            }
            assert!(taken, "{status} {fields}");
        }
    }
}

#[tokio::test]
async fn a_client_that_half_closes_after_a_plain_request_gets_its_response() {
    let world = World::start().await;
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", world.socket().host());
    for (addr, status) in [(world.addr, "400"), (world.plain_addr, "308")] {
        for _ in 0..10 {
            let mut client = connect(addr).await;
            client.write_all(request.as_bytes()).await.unwrap();
            client.shutdown().await.unwrap();
            let response = String::from_utf8(read_rest(&mut client).await).unwrap();
            assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
        }
    }
    until("all are counted", || counts(&world, "plain-http", 10)).await;
}

#[tokio::test]
async fn only_requests_that_got_the_https_hint_are_counted() {
    let world = World::start().await;
    for (at, words) in ["GET ", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a.localho"].into_iter().enumerate() {
        let mut client = connect(world.addr).await;
        client.write_all(words.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(read_rest(&mut client).await, b"", "{words}");
        until("the handshake counts as closed", || counts(&world, "closed", at + 1)).await;
    }
    assert!(!world.edge.metrics_text().unwrap().contains("plain-http"));
}

#[tokio::test]
async fn bytes_that_are_neither_tls_nor_http_get_an_alert() {
    let world = World::start().await;
    let (_socket, own_port, _connector) = tls_socket(&world).await;
    let shared = world.addr;
    let words = ["get / http/1.1\r\n\r\n", "HELO example\r\n", "GETTING / HTTP", "PRI * HTTP/2.0\r\n", "SSH-2.0-x\r\n"];
    let at_own_port = [(own_port, "GET / HTTP/1.1\r\n\r\n")];
    for (addr, words) in words.map(|words| (shared, words)).into_iter().chain(at_own_port) {
        let mut client = connect(addr).await;
        client.write_all(words.as_bytes()).await.unwrap();
        // A fatal alert such as decode_error (RFC 8446 section 6). Unread bytes may then reset the connection.
        let mut alert = [0; 7];
        soon(client.read_exact(&mut alert)).await.unwrap();
        assert_eq!((alert[0], &alert[3..6]), (21, &[0, 2, 2][..]), "{words}: {alert:?}");
    }
    until("the handshakes count as TLS failures", || counts(&world, "tls", 6)).await;
    assert!(!world.edge.metrics_text().unwrap().contains("plain-http"));
}
