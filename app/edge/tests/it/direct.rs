//! Direct origins: origins that the edge dials itself.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Response;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use sallyport_model::{
    Affinity, DirectOriginId, DirectOriginRoute, HealthCheck, OriginProtocol, OriginTlsSettings, Probe, SocketType,
};
use sallyport_net::Fingerprint;
use sallyport_policy::DialedNetworks;
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpSocket, TcpStream, UdpSocket},
};

use crate::{
    flows::{
        assert_proxy_headers, connect, echo_with_greeting, goes_both_ways, resets_pass, resetting_origin, service,
    },
    harness::*,
};

/// An edge that may dial these networks.
async fn world_of(networks: &[&str]) -> World {
    let networks = DialedNetworks::new(networks.iter().map(|text| text.parse().unwrap()).collect());
    World::start_with(|config| {
        config.direct_origins = networks;
        config.connect_timeout = Duration::from_secs(1);
    })
    .await
}

impl TestSocket {
    /// Adds a direct origin with this address.
    pub(crate) fn direct(&mut self, world: &World, address: &str) -> DirectOriginId {
        let number = u8::try_from(self.route.origins.len()).unwrap();
        let id = DirectOriginId::from_random([100 + number; 16]);
        let (address, tls) = (address.parse().unwrap(), OriginTlsSettings::default());
        self.route.origins.push(DirectOriginRoute {
            capacity: sallyport_model::Capacity::default(),
            id,
            address,
            region: None,
            weight: 100,
            tls,
            path: Default::default(),
        });
        world.routes.put(self.route.clone());
        id
    }
}

/// The value of the metric in the line that starts with this text.
fn metric(world: &World, line: &str) -> u64 {
    let text = world.edge.metrics_text().unwrap();
    text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok()).unwrap_or(0)
}

fn dials(world: &World, outcome: &str) -> u64 {
    metric(world, &format!("sallyport_edge_direct_dials_total{{outcome=\"{outcome}\"}}"))
}

/// An origin that responds with its name, and the count of its connections.
async fn counted_origin(name: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let (listener, count) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::new(AtomicUsize::new(0)));
    let (addr, taken) = (listener.local_addr().unwrap(), count.clone());
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            taken.fetch_add(1, Ordering::SeqCst);
            let service = service_fn(move |_| async move { Ok::<_, Infallible>(Response::new(text(name))) });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tcp), service));
        }
    });
    (addr, count)
}

/// Runs this ignored test within a network of its own that has few local ports.
#[track_caller]
fn run_with_few_ports(test: &str) {
    let within = |script: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--net", "sh", "-c", script]);
        command
    };
    if !within("ip link set lo up").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: a network of its own needs root, and Debian's packages `util-linux` and `iproute2`");
        return;
    }
    let script =
        "set -e; ip link set lo up; echo '40000 40099' >/proc/sys/net/ipv4/ip_local_port_range; exec \"$0\" \"$@\"";
    let output = within(script)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("1 passed"), "{shown}");
}

#[test]
fn dials_without_a_local_port_are_counted() {
    run_with_few_ports("direct::no_port_left");
}

#[tokio::test]
#[ignore = "needs a network of its own"]
async fn no_port_left() {
    let world = world_of(&["127.0.0.0/8"]).await;
    let mut socket = world.socket();
    let (origin, _) = counted_origin("direct").await;
    socket.direct(&world, &origin.to_string());
    let mut taken = Vec::new();
    // Each port has a connection to the origin.
    let error = loop {
        match TcpStream::connect(origin).await {
            Ok(stream) => taken.push(stream),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::AddrNotAvailable);
    assert_eq!(world.get(&socket, "/").await.status, 502);
    assert_eq!((dials(&world, "no-port") > 0, dials(&world, "failed")), (true, 0));
    drop(taken.split_off(50));
}

#[tokio::test]
async fn direct_origins_and_tunnels_share_requests_and_connections_are_reused() {
    let world = world_of(&["127.0.0.0/8"]).await;
    let mut socket = world.socket();
    let (direct, taken) = counted_origin("direct").await;
    socket.direct(&world, &direct.to_string());
    let _connector = world.tunnel(&mut socket, named_origin("tunnel").await).await;
    let mut counts = std::collections::HashMap::new();
    for _ in 0..20 {
        *counts.entry(world.get(&socket, "/").await.text().to_owned()).or_insert(0) += 1;
    }
    assert_eq!((counts["direct"], counts["tunnel"]), (10, 10), "{counts:?}");
    assert!(taken.load(Ordering::SeqCst) < 10, "a connection carries more than one request");
    assert_eq!(dials(&world, "connected"), taken.load(Ordering::SeqCst) as u64);

    socket.route.origins[0].weight = 0;
    world.routes.put(socket.route.clone());
    for _ in 0..4 {
        assert_eq!(world.get(&socket, "/").await.text(), "tunnel", "what weighs nothing gets nothing new");
    }
    socket.route.origins.clear();
    world.routes.put(socket.route.clone());
    assert_eq!(world.get(&socket, "/").await.text(), "tunnel");
}

/// A listener on ::1, and a socket that keeps the same port of 127.0.0.1 closed: it is bound and does not listen.
async fn port_of_ipv6_alone() -> (TcpSocket, TcpListener) {
    for _ in 0..10 {
        let closed = TcpSocket::new_v4().unwrap();
        closed.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let port = closed.local_addr().unwrap().port();
        if let Ok(listener) = TcpListener::bind(("::1", port)).await {
            return (closed, listener);
        }
    }
    panic!("::1 has no port that is free on 127.0.0.1 too");
}

#[tokio::test]
async fn a_name_is_resolved_and_each_address_is_tried() {
    // localhost resolves to 127.0.0.1 and ::1. This origin listens only on the second address.
    let (_closed, listener) = port_of_ipv6_alone().await;
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new(text("six"))) });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tcp), service));
        }
    });
    let world = world_of(&["127.0.0.0/8", "::1"]).await;
    let mut socket = world.socket();
    socket.direct(&world, &format!("localhost:{port}"));
    assert_eq!(world.get(&socket, "/").await.text(), "six");
    // Only one of the addresses may be dialed, and nothing listens there.
    let world = world_of(&["127.0.0.0/8"]).await;
    let mut socket = world.socket();
    socket.direct(&world, &format!("localhost:{port}"));
    assert_eq!(world.get(&socket, "/").await.status, 502);
    assert_eq!((dials(&world, "refused"), dials(&world, "connected")), (1, 0));
}

#[tokio::test]
async fn networks_outside_the_allow_list_are_not_dialed() {
    let (origin, taken) = counted_origin("secret").await;
    for (networks, dialed) in [
        (&["10.0.0.0/8"][..], origin.to_string()),
        (&["0.0.0.0/0", "::/0"], origin.to_string()),
        (&["0.0.0.0/0", "::/0"], format!("localhost:{}", origin.port())),
        (&["0.0.0.0/0", "::/0"], format!("[::ffff:127.0.0.1]:{}", origin.port())),
        (&["127.0.0.2"], origin.to_string()),
    ] {
        let world = world_of(networks).await;
        let mut socket = world.socket();
        socket.direct(&world, &dialed);
        let response = world.get(&socket, "/").await;
        assert_eq!((response.status, dials(&world, "failed")), (502, 1), "{dialed}: {}", response.text());
        assert!(!response.text().contains("127.0.0.1"), "clients do not learn of addresses: {}", response.text());
    }
    // With no allowed network, the edge dials nothing.
    let world = world_of(&[]).await;
    let mut socket = world.socket();
    socket.direct(&world, &origin.to_string());
    let _connector = world.tunnel(&mut socket, named_origin("tunnel").await).await;
    for _ in 0..4 {
        assert_eq!(world.get(&socket, "/").await.text(), "tunnel");
    }
    assert_eq!((taken.load(Ordering::SeqCst), dials(&world, "failed")), (0, 0));
}

#[tokio::test]
async fn an_edge_does_not_dial_its_own_addresses() {
    let world = world_of(&["127.0.0.0/8"]).await;
    let mut socket = world.socket();
    socket.direct(&world, &world.addr.to_string());
    assert_eq!(world.get(&socket, "/").await.status, 502);
    let mut tcp = world.socket();
    let addr = tcp.set_type(&world, SocketType::Tcp).await;
    tcp.direct(&world, &addr.to_string());
    let mut client = connect(addr).await;
    assert!(soon(client.read(&mut [0; 1])).await.is_err(), "the connection is reset");
    assert_eq!((dials(&world, "failed"), dials(&world, "connected")), (2, 0));
}

#[tokio::test]
async fn a_killed_origin_fails_no_request() {
    let world = world_of(&["127.0.0.0/8"]).await;
    let mut socket = world.socket();
    let (alive, _) = counted_origin("alive").await;
    socket.direct(&world, &dead_origin().to_string());
    socket.direct(&world, &alive.to_string());
    for number in 0..12 {
        let body = format!("body {number}");
        let (host, length) = (socket.host(), body.len());
        let head =
            format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        let response = world.raw(&socket, head.as_bytes()).await;
        assert_eq!((response.status, response.text()), (200, "alive"));
    }
    assert_eq!(dials(&world, "refused"), 5, "the dead origin is ejected after five failures");
}

/// An address that neither accepts nor refuses connections: its queue is full while the returned guard lives.
async fn silent_origin() -> (SocketAddr, impl Sized) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(addr)).await {
        waiting.push(stream);
    }
    (addr, (listener, waiting))
}

#[tokio::test]
async fn a_silent_origin_delays_one_request_and_no_later_one() {
    let world = world_of(&["127.0.0.0/8"]).await;
    let mut socket = world.socket();
    let ((silent, _held), (alive, _)) = (silent_origin().await, counted_origin("alive").await);
    socket.direct(&world, &silent.to_string());
    socket.direct(&world, &alive.to_string());
    for _ in 0..10 {
        assert_eq!(world.get(&socket, "/").await.text(), "alive");
    }
    assert_eq!((dials(&world, "timed-out"), metric(&world, "sallyport_edge_origin_ejections_total")), (1, 1));
}

#[tokio::test]
async fn tcp_passes_both_ways_with_half_closes_and_resets() {
    let world = world_of(&["127.0.0.0/8"]).await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    socket.direct(&world, &service(echo_with_greeting).await.to_string());
    goes_both_ways(addr).await;
    let (origin, mut reports) = resetting_origin().await;
    socket.route.origins.clear();
    socket.direct(&world, &origin.to_string());
    assert!(resets_pass(addr, &mut reports).await.is_err(), "the origin sees a reset, and no end");
}

#[tokio::test]
async fn the_proxy_protocol_header_comes_first() {
    let world = world_of(&["127.0.0.0/8"]).await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    socket.direct(&world, &service(echo_with_greeting).await.to_string());
    assert_proxy_headers(&world, &mut socket, addr).await;
}

#[tokio::test]
async fn datagrams_pass_both_ways() {
    let world = world_of(&["127.0.0.0/8"]).await;
    let mut socket = world.socket();
    let origin = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = origin.local_addr().unwrap();
    let peers = Arc::new(Mutex::new(std::collections::HashSet::new()));
    let seen = peers.clone();
    tokio::spawn(async move {
        let mut datagram = vec![0; 2_048];
        while let Ok((n, peer)) = origin.recv_from(&mut datagram).await {
            seen.lock().unwrap().insert(peer);
            let _ = origin.send_to(&[b"echo ", &datagram[..n]].concat(), peer).await;
        }
    });
    let port = socket.make_udp(&world);
    socket.direct(&world, &at.to_string());
    for _ in 0..2 {
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(("127.0.0.1", port)).await.unwrap();
        let mut response = [0; 64];
        let echoed = async {
            loop {
                // Ports open a moment after the route, and datagrams may be lost.
                let _ = client.send(b"hello").await;
                let receiving = client.recv(&mut response);
                if let Ok(Ok(n)) = tokio::time::timeout(Duration::from_millis(100), receiving).await {
                    return n;
                }
            }
        };
        let n = soon(echoed).await;
        assert_eq!(&response[..n], b"echo hello");
    }
    assert_eq!(peers.lock().unwrap().len(), 2, "each client has a socket of its own");
    // Nothing listens at this address.
    drop(peers);
    let mut nobody = world.socket();
    let port = nobody.make_udp(&world);
    nobody.direct(&world, &dead_origin().to_string());
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(("127.0.0.1", port)).await.unwrap();
    let mut tries = tokio::time::interval(Duration::from_millis(20));
    soon(async {
        while dials(&world, "refused") == 0 {
            tries.tick().await;
            let _ = client.send(b"hello").await;
        }
    })
    .await;
}

/// An HTTPS origin with a self-signed certificate for this name. Returns its address and the certificate in PEM and
/// DER.
async fn tls_origin(name: &str) -> (SocketAddr, String, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let (pem, der) = (made.cert.pem(), made.cert.der().to_vec());
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(tls) = acceptor.accept(tcp).await else { return };
                let is_h2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
                let version = if is_h2 { "two" } else { "one" };
                let service = service_fn(move |_| async move { Ok::<_, Infallible>(Response::new(text(version))) });
                let (io, executor) = (TokioIo::new(tls), hyper_util::rt::TokioExecutor::new());
                if is_h2 {
                    let _ = hyper::server::conn::http2::Builder::new(executor).serve_connection(io, service).await;
                } else {
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
                }
            });
        }
    });
    (addr, pem, der)
}

#[tokio::test]
async fn an_https_origin_must_present_a_valid_certificate() {
    let world = world_of(&["127.0.0.0/8"]).await;
    let mut socket = world.socket();
    socket.route.socket_type = SocketType::Https;
    let (addr, pem, der) = tls_origin("origin.localhost").await;
    socket.direct(&world, &format!("origin.localhost:{}", addr.port()));
    let pin = Fingerprint::of_der(&der).to_string();
    let (ca, pin, name) = (Some(pem), Some(pin), |name: &str| Some(name.to_owned()));
    let plain = OriginTlsSettings::default;
    let other = Some(format!("sha256:{}", "00".repeat(32)));
    for (tls, status) in [
        (plain(), 502),
        (OriginTlsSettings { ca: ca.clone(), ..plain() }, 200),
        (OriginTlsSettings { ca: ca.clone(), server_name: name("other.localhost"), ..plain() }, 502),
        (OriginTlsSettings { pin, server_name: name("other.localhost"), ..plain() }, 200),
        (OriginTlsSettings { pin: other, ..plain() }, 502),
    ] {
        socket.route.origins[0].tls = tls.clone();
        world.routes.put(socket.route.clone());
        assert_eq!(world.get(&socket, "/").await.status, status, "{tls:?}");
    }
    assert_eq!((dials(&world, "tls"), dials(&world, "connected")), (3, 2));
    socket.route.origins[0].tls = OriginTlsSettings { ca, ..plain() };
    socket.speaks(&world, OriginProtocol::Http2);
    assert_eq!(world.get(&socket, "/").await.text(), "two");
    // The address is an IP address, so the settings must name the server.
    socket.route.origins[0].address = addr.to_string().parse().unwrap();
    world.routes.put(socket.route.clone());
    assert_eq!(world.get(&socket, "/").await.status, 502);
    socket.route.origins[0].tls.server_name = name("origin.localhost");
    world.routes.put(socket.route.clone());
    assert_eq!(world.get(&socket, "/").await.status, 200);
}

#[tokio::test]
async fn direct_origins_are_checked_before_the_first_client() {
    let world = world_of(&["127.0.0.0/8"]).await;
    let mut socket = world.socket();
    socket.route.settings.health_check = Some(HealthCheck {
        probe: Probe::Tcp,
        interval_seconds: 1,
        timeout_seconds: 10,
        healthy_threshold: 1,
        unhealthy_threshold: 1,
    });
    let (alive, _) = counted_origin("alive").await;
    let well = socket.direct(&world, &alive.to_string());
    let ill = socket.direct(&world, &dead_origin().to_string());
    until("both are judged", || {
        (world.directory.health(well), world.directory.health(ill)) == (Some(true), Some(false))
    })
    .await;
    let refused = dials(&world, "refused");
    for _ in 0..4 {
        assert_eq!(world.get(&socket, "/").await.text(), "alive");
    }
    assert!(dials(&world, "refused") <= refused + 10, "only checks go there");
    socket.route.origins.pop();
    world.routes.put(socket.route.clone());
    until("the directory drops the removed origin", || world.directory.health(ill).is_none()).await;
    world.routes.remove(socket.route.id);
    until("so is the other one", || world.directory.health(well).is_none()).await;
}

#[tokio::test]
async fn a_client_returns_to_its_direct_origin() {
    let world = world_of(&["127.0.0.0/8"]).await;
    for affinity in [Affinity::Address, Affinity::Cookie] {
        let mut socket = world.socket();
        socket.route.settings.affinity = affinity;
        for name in ["one", "two", "three"] {
            let (origin, _) = counted_origin(name).await;
            socket.direct(&world, &origin.to_string());
        }
        let first = world.get(&socket, "/").await;
        let cookie = first.header("set-cookie").map_or("a=b", |cookie| cookie.split(';').next().unwrap());
        let host = socket.host();
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n");
        for _ in 0..6 {
            assert_eq!(world.raw(&socket, head.as_bytes()).await.text(), first.text(), "{affinity:?}");
        }
    }
}
