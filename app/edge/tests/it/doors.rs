//! What stands before a TLS socket: names, certificates, tickets, long ClientHellos, balancers.

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
    flows::{ask, connect, connect_from, says_back, service},
    harness::*,
};

fn config(world: &World, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    builder.with_root_certificates(world.roots()).with_no_client_auth()
}

/// A client that offers 60,000 bytes of protocols that nobody speaks, in four records, and this one.
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
    let addr = socket.is_of_type(world, SocketType::Tls).await;
    let connector = world.tunnel(&mut socket, service(says_back).await).await;
    drop(connect(addr).await);
    (socket, addr, connector)
}

/// A connection that is written to byte by byte.
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
async fn a_name_of_nobody_here_is_refused_by_an_alert() {
    let world = World::start().await;
    let (_socket, addr, _connector) = tls_socket(&world).await;
    // As a client with an encrypted ClientHello whose outer name is not ours.
    for name in ["public.example", "a.b.localhost"] {
        let error = world.client_at(world.addr, name, &[]).await.unwrap_err();
        assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    }
    let error = world.client_at(addr, "public.example", &[]).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "its own port has its own certificate: {error}");
}

#[tokio::test]
async fn without_a_name_the_port_says_which_socket_is_meant() {
    let world = World::start().await;
    let (socket, addr, _connector) = tls_socket(&world).await;
    let mut nameless = config(&world, rustls::ALL_VERSIONS);
    nameless.enable_sni = false;
    let nameless = Arc::new(nameless);
    let by_port = handshake(nameless.clone(), &socket.host(), connect(addr).await).await.unwrap();
    assert_eq!(ask(by_port, b"x").await, b"hello x bye");
    let error = handshake(nameless, &socket.host(), connect(world.addr).await).await.unwrap_err();
    assert!(error.to_string().contains("AccessDenied"), "{error}");
}

#[tokio::test]
async fn a_client_hello_may_be_long_and_come_byte_by_byte() {
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
async fn a_long_client_hello_is_passed_through_whole() {
    let world = World::start().await;
    let other = World::start().await;
    let mut socket = world.socket();
    socket.is_of_type(&world, SocketType::Tls).await;
    socket.set(&world, |settings| settings.tls_mode = TlsMode::Passthrough);
    let (mut inner, _, _inner_connector) = tls_socket(&other).await;
    inner.set(&other, |settings| settings.alpn = vec!["imap".into()]);
    let _connector = world.tunnel(&mut socket, other.addr).await;
    let client = handshake(long_config(&other, b"imap"), &socket.host(), connect(world.addr).await).await.unwrap();
    assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"imap"[..]));
    assert_eq!(ask(client, b"x").await, b"hello x bye");
}

#[tokio::test]
async fn clients_of_tls_1_2_are_served() {
    let world = World::start().await;
    let (socket, _, _connector) = tls_socket(&world).await;
    let old = config(&world, &[&rustls::version::TLS12]);
    let client = handshake(old, &socket.host(), connect(world.addr).await).await.unwrap();
    assert_eq!(client.get_ref().1.protocol_version(), Some(ProtocolVersion::TLSv1_2));
    assert_eq!(ask(client, b"x").await, b"hello x bye");
}

#[tokio::test]
async fn http_is_spoken_over_either_version_of_tls() {
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
                assert_eq!(read_answer(&mut client).await.text(), "hello");
                if version.version == ProtocolVersion::TLSv1_3 {
                    client.get_mut().1.refresh_traffic_keys().unwrap();
                }
            }
            client.shutdown().await.unwrap();
            assert_eq!(read_rest(&mut client).await, b"", "it ends in good order");
        }
    }
}

#[tokio::test]
async fn a_ticket_resumes_its_own_socket_and_opens_no_other() {
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
            // The tickets come before the first word.
            soon(client.read_exact(&mut [0; 6])).await.unwrap();
        }
        let error = handshake(remembering, &socket.host(), connect(other_addr).await).await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "the other socket shows who it is: {error}");
    }
}

#[tokio::test]
async fn a_new_client_gets_two_tickets_and_one_that_brings_one_gets_one_for_it() {
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
            // The tickets come before the first word.
            soon(client.read_exact(&mut [0; 6])).await.unwrap();
            let got: Vec<_> = std::iter::from_fn(|| tickets.take_tls13_ticket(&name)).collect();
            assert_eq!(got.len(), count, "{host}");
            got.into_iter().take(1).for_each(|ticket| tickets.insert_tls13_ticket(name.clone(), ticket));
        }
    }
}

#[tokio::test]
async fn tickets_come_without_a_request() {
    let world = World::start().await;
    // The kernel sends what waits for more after 200 ms at least, each time.
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
    socket.is_of_type(&world, SocketType::Tls).await;
    let origin = origin(|_| async { Response::new(text("over the tls socket")) }).await;
    let _connector = world.tunnel(&mut socket, origin).await;
    let answer = world.get(&socket, "/").await;
    assert_eq!((answer.status, answer.text()), (200, "over the tls socket"));
    let client = world.client_with(&socket.host(), &[b"h2", b"http/1.1"]).await;
    assert_eq!(client.get_ref().1.alpn_protocol(), None, "the edge does not say what the origin speaks");
}

#[tokio::test]
async fn a_balancers_header_goes_before_the_client_hello() {
    let world = World::start_with(|config| config.trusted_proxies = vec!["127.0.0.2/32".parse().unwrap()]).await;
    let (mut socket, _, _connector) = tls_socket(&world).await;
    socket.set(&world, |settings| settings.proxy_protocol = ProxyProtocol::V1);
    let header = b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n";
    let tls = Arc::new(config(&world, rustls::ALL_VERSIONS));

    let mut trusted = connect_from([127, 0, 0, 2], world.addr).await;
    trusted.write_all(header).await.unwrap();
    let client = handshake(tls.clone(), &socket.host(), trusted).await.unwrap();
    let answer = String::from_utf8(ask(client, b"x").await).unwrap();
    assert_eq!(answer, "hello PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\nx bye");

    // From anybody else it is no TLS, and the connection ends with an alert.
    let mut stranger = connect_from([127, 0, 0, 3], world.addr).await;
    stranger.write_all(header).await.unwrap();
    assert!(handshake(tls, &socket.host(), stranger).await.is_err());
    until("it is counted", || {
        let metrics = world.edge.metrics_text().unwrap();
        metrics.contains(r#"handshakes_failed_total{reason="tls"} 1"#)
    })
    .await;
}
