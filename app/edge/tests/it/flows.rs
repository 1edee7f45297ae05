//! TCP and TLS sockets: opaque bytes in both directions.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use sallyport_model::{ProxyProtocol, SocketType, TlsMode};
use sallyport_tunnel::ConnectorEvent;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::harness::*;

impl TestSocket {
    /// Gives the socket this type and a port of its own.
    pub(crate) async fn set_type(&mut self, world: &World, socket_type: SocketType) -> SocketAddr {
        self.route.socket_type = socket_type;
        self.route.port = Some(free_port());
        world.routes.put(self.route.clone());
        SocketAddr::new([127, 0, 0, 1].into(), self.route.port.unwrap())
    }

    pub(crate) fn set(&mut self, world: &World, change: impl FnOnce(&mut sallyport_model::SocketSettings)) {
        change(&mut self.route.settings);
        world.routes.put(self.route.clone());
    }
}

/// Connects to a port, which opens a moment after the route changed.
pub(crate) async fn connect(addr: SocketAddr) -> TcpStream {
    soon(async {
        loop {
            if let Ok(stream) = TcpStream::connect(addr).await {
                stream.set_nodelay(true).unwrap();
                return stream;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await
}

/// An origin that passes each connection to this function.
pub(crate) async fn service<F, R>(serve: F) -> SocketAddr
where
    F: Fn(TcpStream) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    addr
}

/// An origin that sends a greeting, and after the client's half-close all received bytes and a farewell.
pub(crate) async fn echo_with_greeting(mut stream: TcpStream) {
    stream.write_all(b"hello ").await.unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    stream.write_all(&all).await.unwrap();
    stream.write_all(b" bye").await.unwrap();
}

pub(crate) async fn ask(
    mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    question: &[u8],
) -> Vec<u8> {
    stream.write_all(question).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.unwrap();
    answer
}

/// Checks the path to an [`echo_with_greeting`] origin: the origin sends first, half-closes pass, and long transfers
/// are whole.
pub(crate) async fn goes_both_ways(addr: SocketAddr) {
    let mut client = connect(addr).await;
    let mut word = [0; 6];
    soon(client.read_exact(&mut word)).await.unwrap();
    assert_eq!(&word, b"hello ", "before the client has sent anything");
    assert_eq!(ask(client, b"a question").await, b"a question bye");
    let large = vec![7; 3_000_000];
    assert_eq!(ask(connect(addr).await, &large).await.len(), large.len() + 10);
}

/// An origin that resets its connection when it reads `reset`. Otherwise it reports how the connection ended.
pub(crate) async fn resetting_origin() -> (SocketAddr, mpsc::UnboundedReceiver<Result<usize, io::ErrorKind>>) {
    let (report_sender, reports) = mpsc::unbounded_channel();
    let addr = service(move |mut stream| {
        let report_sender = report_sender.clone();
        async move {
            let mut word = [0; 5];
            stream.read_exact(&mut word).await.unwrap();
            if &word == b"reset" {
                stream.set_zero_linger().unwrap();
                return;
            }
            let _ = report_sender.send(stream.read(&mut word).await.map_err(|error| error.kind()));
        }
    })
    .await;
    (addr, reports)
}

/// Checks that a reset of a [`resetting_origin`] reaches the client. Returns the origin's report of a reset by the
/// client.
pub(crate) async fn resets_pass(
    addr: SocketAddr,
    reports: &mut mpsc::UnboundedReceiver<Result<usize, io::ErrorKind>>,
) -> Result<usize, io::ErrorKind> {
    let mut client = connect(addr).await;
    client.write_all(b"reset").await.unwrap();
    let error = soon(client.read(&mut [0; 1])).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);

    let mut client = connect(addr).await;
    client.write_all(b"wait!").await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    client.set_zero_linger().unwrap();
    drop(client);
    soon(reports.recv()).await.expect("the origin notices that the client is gone")
}

/// Checks that an [`echo_with_greeting`] origin gets the client's address in both versions of the PROXY protocol.
pub(crate) async fn assert_proxy_headers(world: &World, socket: &mut TestSocket, addr: SocketAddr) {
    socket.set(world, |settings| settings.proxy_protocol = ProxyProtocol::V1);
    let client = connect(addr).await;
    let from = client.local_addr().unwrap();
    let answer = String::from_utf8(ask(client, b"x").await).unwrap();
    let header = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", from.port(), addr.port());
    assert_eq!(answer, format!("hello {header}x bye"));
    socket.set(world, |settings| settings.proxy_protocol = ProxyProtocol::V2);
    let answer = ask(connect(addr).await, b"x").await;
    assert!(answer.starts_with(b"hello \r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"), "{answer:?}");
}

#[tokio::test]
async fn a_tcp_socket_passes_half_closes_and_lets_the_origin_send_first() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let _connector = world.tunnel(&mut socket, service(echo_with_greeting).await).await;
    goes_both_ways(addr).await;
    let metrics = world.edge.metrics_text().unwrap();
    assert!(metrics.contains(r#"flows_total{transport="tcp",verdict="complete"} 2"#), "{metrics}");
}

#[tokio::test]
async fn resets_pass_in_both_directions() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let (origin, mut reports) = resetting_origin().await;
    let _connector = world.tunnel(&mut socket, origin).await;
    resets_pass(addr, &mut reports).await.ok();
    let metrics = world.edge.metrics_text().unwrap();
    assert!(metrics.contains(r#"flows_total{transport="tcp",verdict="broken"} 1"#), "{metrics}");
}

#[tokio::test]
async fn an_origin_reset_after_its_response_counts_as_complete() {
    let world = World::start().await;
    let mut socket = world.socket();
    // Like PostgreSQL, which leaves the last TLS alert unread, the origin resets its connection. The word of the client
    // selects what the origin does before.
    let addr = service(|mut stream| async move {
        let mut word = [0; 6];
        stream.read_exact(&mut word).await.unwrap();
        if &word != b"silent" {
            stream.write_all(b"hello").await.unwrap();
        }
        read_rest(&mut stream).await;
        // A TLS 1.3 alert has these clear bytes and this length.
        let last: &[u8] = match &word {
            b"midway" => b"part of an answer",
            b"by tls" => &[23, 3, 3, 0, 19, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0],
            _ => b"",
        };
        stream.write_all(last).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        stream.set_zero_linger().unwrap();
    })
    .await;
    let port = socket.set_type(&world, SocketType::Tcp).await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let verdicts = |verdict: &str, count: usize| {
        let line = format!("flows_total{{transport=\"tcp\",verdict=\"{verdict}\"}} {count}");
        world.edge.metrics_text().unwrap().contains(&line)
    };
    for (number, (word, verdict, count)) in
        [("usual.", "complete", 1), ("silent", "broken", 1), ("by tls", "complete", 2), ("midway", "broken", 2)]
            .into_iter()
            .enumerate()
    {
        let mut client = connect(port).await;
        client.write_all(word.as_bytes()).await.unwrap();
        if word != "silent" {
            let mut hello = [0; 5];
            soon(client.read_exact(&mut hello)).await.unwrap();
        }
        client.shutdown().await.unwrap();
        // A client that still reads sees the reset.
        let end = soon(client.read_to_end(&mut Vec::new())).await;
        assert!(end.is_err(), "{number}: {word} looks complete");
        until("the flow is counted", || verdicts(verdict, count)).await;
    }
}

#[tokio::test]
async fn a_client_reset_after_its_half_close_is_noticed_while_the_origin_is_silent() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let (report_sender, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let origin = service(move |mut stream| {
        let report_sender = report_sender.clone();
        async move {
            let _ = report_sender.send(stream.read_to_end(&mut Vec::new()).await.map_err(|error| error.kind()));
            std::future::pending::<()>().await;
        }
    })
    .await;
    let _connector = world.tunnel(&mut socket, origin).await;
    let mut client = connect(addr).await;
    client.write_all(b"a question").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(soon(reports.recv()).await, Some(Ok(10)));
    client.set_zero_linger().unwrap();
    drop(client);
    until("the edge notices", || {
        let metrics = world.edge.metrics_text().unwrap();
        metrics.contains(r#"flows_total{transport="tcp",verdict="client-left"} 1"#)
    })
    .await;
}

#[tokio::test]
async fn every_flow_is_reported_to_the_owner_with_its_client_bytes() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let mut connector = world.tunnel(&mut socket, service(echo_with_greeting).await).await;
    for version in [ProxyProtocol::Off, ProxyProtocol::V1, ProxyProtocol::V2] {
        socket.set(&world, |settings| settings.proxy_protocol = version);
        let client = connect(addr).await;
        let from = client.local_addr().unwrap();
        let answer = ask(client, b"ten bytes.").await;
        let record = loop {
            match soon(connector.log.recv()).await.unwrap() {
                ConnectorEvent::Flow(record) if record.client == from => break record,
                _ => {}
            }
        };
        assert_eq!((record.bytes_in, record.bytes_out), (10, answer.len() as u64), "{version:?}");
        assert_eq!((record.transport, record.verdict.as_str()), (SocketType::Tcp, "complete"));
    }
}

#[tokio::test]
async fn flows_refused_by_access_rules_are_reported_to_the_owner() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let mut connector = world.tunnel(&mut socket, service(echo_with_greeting).await).await;
    socket.set(&world, |settings| settings.access.deny = vec!["127.0.0.0/8".to_owned()]);
    let mut client = connect(addr).await;
    let from = client.local_addr().unwrap();
    soon(client.read(&mut [0; 1])).await.ok();
    let record = loop {
        match soon(connector.log.recv()).await.unwrap() {
            ConnectorEvent::Flow(record) if record.client == from => break record,
            _ => {}
        }
    };
    assert_eq!((record.verdict.as_str(), record.bytes_in, record.bytes_out), ("denied", 0, 0));
}

/// Sends and reads this many bytes at once.
async fn exchange(stream: TcpStream, bytes: usize) -> usize {
    let (mut read, mut write) = stream.into_split();
    let writing = tokio::spawn(async move {
        write.write_all(&vec![3; bytes]).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut all = Vec::new();
    soon(read.read_to_end(&mut all)).await.unwrap();
    writing.await.unwrap();
    all.len()
}

#[tokio::test]
async fn large_transfers_run_in_both_directions_at_once() {
    const BYTES: usize = 8 << 20;
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let (report_sender, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let origin = service(move |stream| {
        let report_sender = report_sender.clone();
        async move { report_sender.send(exchange(stream, BYTES).await).unwrap() }
    })
    .await;
    let _connector = world.tunnel(&mut socket, origin).await;
    assert_eq!(exchange(connect(addr).await, BYTES).await, BYTES);
    assert_eq!(soon(reports.recv()).await, Some(BYTES));
}

#[tokio::test]
async fn a_client_that_stops_reading_applies_backpressure_to_the_origin() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    let origin = service(move |mut stream| {
        let counter = counter.clone();
        async move {
            while stream.write_all(&[5; 65_536]).await.is_ok() {
                counter.fetch_add(65_536, Ordering::SeqCst);
            }
        }
    })
    .await;
    let _connector = world.tunnel(&mut socket, origin).await;
    let mut client = connect(addr).await;
    client.write_all(b"go").await.unwrap();
    let mut before = usize::MAX;
    while before != sent.load(Ordering::SeqCst) || before == 0 {
        before = sent.load(Ordering::SeqCst);
        assert!(before < 200 << 20, "unread bytes are kept: {before}");
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    assert!(before < 64 << 20, "{before} bytes are kept, which is more than the kernel's buffers");
}

#[tokio::test]
async fn a_refusing_origin_is_skipped_and_without_origins_the_client_is_reset() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let _dead = world.tunnel(&mut socket, dead_origin()).await;
    let mut client = connect(addr).await;
    client.write_all(b"anybody?").await.unwrap();
    let error = soon(client.read(&mut [0; 1])).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let _alive = world.tunnel(&mut socket, service(echo_with_greeting).await).await;
    for _ in 0..6 {
        assert_eq!(ask(connect(addr).await, b"x").await, b"hello x bye");
    }
}

#[tokio::test]
async fn a_deleted_socket_closes_its_port() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    drop(connect(addr).await);
    world.routes.remove(socket.route.id);
    soon(async {
        while TcpStream::connect(addr).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_origin_gets_the_client_address_by_the_proxy_protocol() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let _connector = world.tunnel(&mut socket, service(echo_with_greeting).await).await;
    assert_proxy_headers(&world, &mut socket, addr).await;
}

/// Connects from this local address.
pub(crate) async fn connect_from(ip: [u8; 4], addr: SocketAddr) -> TcpStream {
    drop(connect(addr).await);
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((ip, 0))).unwrap();
    socket.connect(addr).await.unwrap()
}

#[tokio::test]
async fn only_a_trusted_balancer_sets_the_client_address() {
    let world = World::start_with(|config| config.trusted_proxies = vec!["127.0.0.2/32".parse().unwrap()]).await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let _connector = world.tunnel(&mut socket, service(echo_with_greeting).await).await;
    socket.set(&world, |settings| settings.proxy_protocol = ProxyProtocol::V1);
    let payload = b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\nx";
    let answer = ask(connect_from([127, 0, 0, 2], addr).await, payload).await;
    assert_eq!(String::from_utf8(answer).unwrap(), "hello PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\nx bye");
    let mut silent = connect_from([127, 0, 0, 2], addr).await;
    silent.write_all(b"no header at all").await.unwrap();
    assert!(!matches!(soon(silent.read(&mut [0; 1])).await, Ok(1..)), "the connection is closed");
    // From any other peer, the header is part of the payload after the true header.
    let answer = String::from_utf8(ask(connect_from([127, 0, 0, 3], addr).await, payload).await).unwrap();
    assert!(
        answer.starts_with("hello PROXY TCP4 127.0.0.3 ") && answer.contains("\r\nPROXY TCP4 192.0.2.7 "),
        "{answer}"
    );
}

#[tokio::test]
async fn a_tls_socket_is_reached_by_its_name_and_its_port() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tls).await;
    let _connector = world.tunnel(&mut socket, service(echo_with_greeting).await).await;
    socket.set(&world, |settings| settings.alpn = vec!["postgresql".into()]);
    let by_name = world.client_with(&socket.host(), &[b"h2", b"postgresql"]).await;
    assert_eq!(by_name.get_ref().1.alpn_protocol(), Some(&b"postgresql"[..]));
    assert_eq!(ask(by_name, b"x").await, b"hello x bye");
    drop(connect(addr).await);
    let by_port = world.client_at(addr, &socket.host(), &[]).await.unwrap();
    assert_eq!(ask(by_port, b"x").await, b"hello x bye");
    let error = world.client_at(addr, &socket.host(), &[b"h2"]).await.unwrap_err();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
}

#[tokio::test]
async fn with_passthrough_the_origin_holds_the_key() {
    let world = World::start().await;
    let other = World::start().await;
    let mut socket = world.socket();
    socket.set_type(&world, SocketType::Tls).await;
    socket.set(&world, |settings| settings.tls_mode = TlsMode::Passthrough);
    // The origin is another edge with its own authority, which ends TLS for the same name.
    let mut inner = other.socket();
    inner.set_type(&other, SocketType::Tls).await;
    assert_eq!(inner.host(), socket.host());
    let _inner = other.tunnel(&mut inner, service(echo_with_greeting).await).await;
    let _connector = world.tunnel(&mut socket, other.addr).await;
    let client = other.client_at(world.addr, &socket.host(), &[]).await.unwrap();
    assert_eq!(ask(client, b"x").await, b"hello x bye");
    assert!(world.client_at(world.addr, &socket.host(), &[]).await.is_err(), "the certificate is not of this edge");
}

#[tokio::test]
async fn http_by_name_does_not_reach_a_tcp_socket() {
    let world = World::start().await;
    let mut socket = world.socket();
    socket.set_type(&world, SocketType::Tcp).await;
    let _connector = world.tunnel(&mut socket, service(echo_with_greeting).await).await;
    assert_eq!(world.get(&socket, "/").await.status, 404);
}

#[tokio::test]
async fn a_client_hello_that_is_too_long_or_never_ends_is_closed() {
    let world = World::start().await;
    let mut client = TcpStream::connect(world.addr).await.unwrap();
    // A handshake record of 16 KiB that announces a message of 16 MiB.
    let record = [&[22, 3, 1, 64, 0, 1, 0xff, 0xff, 0xff][..], &[0; 16_380]].concat();
    for _ in 0..5 {
        if client.write_all(&record).await.is_err() {
            break;
        }
    }
    let mut rest = Vec::new();
    let _ = soon(client.read_to_end(&mut rest)).await;
    assert!(rest.len() <= 7, "an alert at most: {rest:?}");
}
