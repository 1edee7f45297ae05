//! Edges that relay for each other, in one process. The test itself applies the changes of the shared directory.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http::Response;
use http_body_util::BodyExt as _;
use rustls::pki_types::ServerName;
use sallyport_bus::{DirectoryChange, EdgeCard, EdgeState, Fleet, Orders, Routes, Steering};
use sallyport_edge::{MeshSettings, MeshTls, MeshTlsPair};
use sallyport_model::{EdgeId, EdgeOrders, SocketType};
use sallyport_net::{
    LocalCa, Trust, client_config, client_config_of_node_for, client_config_of_pem, server_config_of_node,
};
use sallyport_pki::{
    ClientRequest, KeyPair, NODE_DOMAIN, NODE_LIFETIME, PKCS_ECDSA_P256_SHA256, certificate_pem, certificate_request,
    edge_node,
};
use sallyport_policy::DialedNetworks;
use sallyport_wire::{ALPN, MESH_ALPN};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
};
use tokio_rustls::TlsConnector;

use crate::{
    flows::{ask, connect, echo_with_greeting, service},
    harness::*,
};

/// The state that the edges of a test share.
pub(crate) struct Installation {
    dir: Arc<tempfile::TempDir>,
    nodes: LocalCa,
    routes: Routes,
    fleets: Vec<Fleet>,
    orders: Orders,
}

/// An edge of the installation.
pub(crate) struct MeshEdge {
    pub(crate) world: World,
    pub(crate) card: EdgeCard,
    ip: [u8; 4],
}

impl Installation {
    pub(crate) fn new() -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let nodes = dir.path().join("nodes");
        std::fs::create_dir(&nodes).unwrap();
        let nodes = LocalCa::open_or_create(&nodes, NODE_DOMAIN).unwrap();
        Self { dir, nodes, routes: Routes::default(), fleets: Vec::new(), orders: Orders::default() }
    }

    /// The certificate of an edge and its key, in PEM.
    fn certify(&self, edge: EdgeId) -> (String, String) {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let request = ClientRequest::from_pem(&certificate_request(&key).unwrap()).unwrap();
        let (id, now) = (edge.to_string(), time::OffsetDateTime::now_utc());
        let issued = self.nodes.authority().issue_edge(&request, (&id, "test"), now, [7; 16], NODE_LIFETIME).unwrap();
        (issued.chain.iter().map(|der| certificate_pem(der)).collect(), key.serialize_pem())
    }

    /// Starts an edge in this region, at an address of its own.
    pub(crate) fn edge(&mut self, number: u8, region: &str) -> MeshEdge {
        let (own, fleet) = (EdgeId::from_random([number; 16]), Fleet::default());
        let (chain, key) = self.certify(own);
        let root = self.nodes.root_pem().to_owned();
        let (routes, dir) = (self.routes.clone(), self.dir.clone());
        let ip = [127, 0, 0, number];
        let ca = dir.path().join("ca.pem");
        let (mut address, orders) = (None, self.orders.clone());
        let world = World::start_beside(
            ip,
            dir,
            routes,
            |config| {
                config.region = Some(region.parse().unwrap());
                config.connect_timeout = Duration::from_secs(20);
                config.direct_origins = DialedNetworks::new(vec!["127.0.0.0/8".parse().unwrap()]);
            },
            |edge, at| {
                address = Some(at);
                let tls = MeshTlsPair {
                    server: server_config_of_node(&root, &chain, &key, &[MESH_ALPN]).unwrap(),
                    client: client_config_of_node_for(&root, &chain, &key, &[MESH_ALPN]).unwrap(),
                };
                let legs = client_config_of_pem(&std::fs::read(&ca).unwrap(), &[ALPN]).unwrap();
                let (fleet, tls) = (fleet.clone(), MeshTls::new(tls));
                let (orders, steering) = (orders.clone(), Steering::default());
                edge.join_mesh(MeshSettings { own, agent: "test/1".into(), fleet, orders, steering, tls, legs });
            },
        );
        let card = EdgeCard {
            edge: own,
            name: format!("{region}-{number}").parse().unwrap(),
            region: region.parse().unwrap(),
            addresses: vec![address.unwrap()],
            program: "test".into(),
            since: 0,
            state: EdgeState::default(),
            http3_port: None,
            anycast: Vec::new(),
            egress: Vec::new(),
            balanced: None,
        };
        self.fleets.push(fleet);
        MeshEdge { world, card, ip }
    }

    /// Announces these edges and their tunnels to all edges.
    pub(crate) fn announce(&self, edges: &[&MeshEdge]) {
        for edge in edges {
            self.apply(DirectoryChange::EdgeCame(edge.card.clone()));
            for presence in edge.world.directory.all() {
                self.apply(DirectoryChange::TunnelCame(edge.card.edge, presence));
            }
        }
    }

    pub(crate) fn apply(&self, change: DirectoryChange) {
        self.fleets.iter().for_each(|fleet| fleet.apply(change.clone(), None));
    }
}

impl MeshEdge {
    /// Repeats the request until the edge has a route to the socket.
    pub(crate) async fn get(&self, socket: &TestSocket, path: &str) -> HttpResponse {
        loop {
            let response = self.world.get(socket, path).await;
            if response.status != 503 {
                return response;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn metrics(&self) -> String {
        self.world.edge.metrics_text().unwrap()
    }

    pub(crate) fn port(&self, socket: &TestSocket) -> SocketAddr {
        (self.ip, socket.route.port.unwrap()).into()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_share_one_link_and_reuse_connections() {
    let mut installation = Installation::new();
    let (a, b) = (installation.edge(11, "eu"), installation.edge(12, "us"));
    let mut socket = b.world.socket();
    let origin = origin(|request| async move {
        let client = request.headers().get("x-forwarded-for").cloned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut response = Response::new(text(body));
        response.headers_mut().insert("x-client", client.unwrap());
        response
    })
    .await;
    let _connector = b.world.tunnel(&mut socket, origin).await;
    installation.announce(&[&a, &b]);

    let response = a.get(&socket, "/").await;
    assert_eq!((response.status, response.header("x-client")), (200, Some("127.0.0.1")));
    // A megabyte each way, ten times, on one client connection.
    let mut client = a.world.client(&socket).await;
    let body = vec![b'x'; 1 << 20];
    let head = format!("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n", socket.host(), body.len());
    for _ in 0..10 {
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(&body).await.unwrap();
        let response = read_response(&mut client).await;
        assert!(response.status == 200 && response.body == body, "{}", response.head);
    }
    let mut many = tokio::task::JoinSet::new();
    let (host, addr) = (socket.host(), a.world.addr);
    let roots = a.world.roots();
    for _ in 0..50 {
        let (host, roots) = (host.clone(), roots.clone());
        many.spawn(async move {
            let tls = client_with_roots(roots);
            let tcp = TcpStream::connect(addr).await.unwrap();
            let name = ServerName::try_from(host.clone()).unwrap();
            let mut client = TlsConnector::from(tls).connect(name, tcp).await.unwrap();
            for _ in 0..4 {
                client.write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await.unwrap();
                assert_eq!(read_response(&mut client).await.status, 200);
            }
        });
    }
    while let Some(done) = soon(many.join_next()).await {
        done.unwrap();
    }
    let (at_a, at_b) = (a.metrics(), b.metrics());
    assert!(at_a.contains(r#"sallyport_mesh_links{direction="out"} 1"#), "{at_a}");
    assert!(at_b.contains(r#"sallyport_mesh_links{direction="in"} 1"#), "{at_b}");
    assert!(at_a.contains("sallyport_mesh_round_trip_seconds{edge=\"us-12\"}"), "{at_a}");
    // The 261 requests need far fewer streams, because the edges reuse connections.
    let relayed =
        at_a.lines().find(|line| line.starts_with(r#"sallyport_mesh_relayed_total{direction="out""#)).unwrap();
    let relayed: u64 = relayed.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(relayed < 150, "{relayed} streams");
}

fn client_with_roots(roots: rustls::RootCertStore) -> Arc<rustls::ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_half_closes_resets_and_datagrams_pass_unchanged() {
    let mut installation = Installation::new();
    let (a, b) = (installation.edge(13, "eu"), installation.edge(14, "eu"));
    let mut socket = b.world.socket();
    socket.set_type(&b.world, SocketType::Tcp).await;
    let (report_sender, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let origin = service(move |mut stream| {
        let report_sender = report_sender.clone();
        async move {
            let mut word = [0; 5];
            match stream.read_exact(&mut word).await {
                Ok(_) if &word == b"reset" => stream.set_zero_linger().unwrap(),
                Ok(_) if &word == b"hangs" => {
                    stream.write_all(b"yes").await.unwrap();
                    let _ = report_sender.send(stream.read(&mut word).await.map_err(|e| e.kind()));
                }
                _ => echo_with_greeting(stream).await,
            }
        }
    })
    .await;
    let _connector = b.world.tunnel(&mut socket, origin).await;
    installation.announce(&[&a, &b]);
    let at = a.port(&socket);

    let large = vec![7; 3_000_000];
    let response = ask(connect(at).await, &large).await;
    assert_eq!(response.len(), large.len() - 5 + 10, "the first five bytes are the word");
    // When the origin resets, the edge resets.
    let mut client = connect(at).await;
    client.write_all(b"reset").await.unwrap();
    let error = soon(client.read(&mut [0; 8])).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    // When the client resets, the origin sees the reset.
    let mut client = connect(at).await;
    client.write_all(b"hangs").await.unwrap();
    soon(client.read_exact(&mut [0; 3])).await.unwrap();
    client.set_zero_linger().unwrap();
    drop(client);
    let received = soon(reports.recv()).await.unwrap();
    assert!(!matches!(received, Ok(1..)), "{received:?}");
    // Nothing listens at the origin. The flow is refused like a local one.
    let mut refused = b.world.socket();
    refused.set_type(&b.world, SocketType::Tcp).await;
    let _refused = b.world.tunnel(&mut refused, dead_origin()).await;
    installation.announce(&[&a, &b]);
    let mut client = connect(a.port(&refused)).await;
    assert!(soon(client.read(&mut [0; 8])).await.is_err());
    until("the flow is counted", || a.metrics().contains(r#"verdict="origin-refused"} 1"#)).await;

    // Datagrams pass as well.
    let echo = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let echo_at = echo.local_addr().unwrap();
    tokio::spawn(async move {
        let mut datagram = vec![0; 2_048];
        while let Ok((n, from)) = echo.recv_from(&mut datagram).await {
            let _ = echo.send_to(&datagram[..n], from).await;
        }
    });
    let mut udp = b.world.socket();
    udp.route.socket_type = SocketType::Udp;
    udp.route.port = Some(refused.route.port.unwrap());
    b.world.routes.put(udp.route.clone());
    let _udp = b.world.tunnel(&mut udp, echo_at).await;
    installation.announce(&[&a, &b]);
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(a.port(&udp)).await.unwrap();
    let mut response = [0; 64];
    let asked = async {
        loop {
            let _ = client.send(b"a datagram").await;
            let received = tokio::time::timeout(Duration::from_millis(100), client.recv(&mut response)).await;
            if let Ok(Ok(n)) = received {
                return n;
            }
        }
    };
    assert_eq!(soon(asked).await, 10);
    assert_eq!(&response[..10], b"a datagram");
    // A flow that restarts while the carrier of datagrams connects is counted again.
    let relayed = a.metrics();
    assert!(relayed.contains(r#"sallyport_mesh_relayed_total{direction="out",kind="flow"}"#), "{relayed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_directory_entry_gets_an_error_and_no_second_relay() {
    let mut installation = Installation::new();
    let (a, b, c) = (installation.edge(15, "eu"), installation.edge(16, "us"), installation.edge(17, "us"));
    let mut socket = b.world.socket();
    let _connector = b.world.tunnel(&mut socket, named_origin("here").await).await;
    let presence = b.world.directory.all().remove(0);
    // A believes that C holds the tunnel. All other edges have the correct entry.
    for (number, fleet) in installation.fleets.iter().enumerate() {
        for card in [&a.card, &b.card, &c.card] {
            fleet.apply(DirectoryChange::EdgeCame(card.clone()), None);
        }
        let holder = if number == 0 { c.card.edge } else { b.card.edge };
        fleet.apply(DirectoryChange::TunnelCame(holder, presence.clone()), None);
    }
    // C has a route to the tunnel, but must not relay a second time.
    assert_eq!(c.get(&socket, "/").await.text(), "here");
    until("A knows a way", || a.metrics().contains("sallyport_edge_origins_healthy")).await;
    let response = a.world.get(&socket, "/").await;
    assert!(response.status == 502 || response.status == 503, "{}", response.head);
    assert!(c.metrics().contains(r#"sallyport_mesh_failures_total{reason="not-here"}"#), "{}", c.metrics());
    assert!(!c.metrics().contains(r#"sallyport_mesh_relayed_total{direction="in""#), "{}", c.metrics());
    // With the correct entry beside the wrong one, requests succeed.
    installation.fleets[0].apply(DirectoryChange::TunnelCame(b.card.edge, presence), None);
    for _ in 0..4 {
        assert_eq!(a.get(&socket, "/").await.text(), "here");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nearest_origins_are_used_first() {
    let mut installation = Installation::new();
    let (a, b, c) = (installation.edge(18, "eu"), installation.edge(19, "eu"), installation.edge(20, "us"));
    let mut socket = a.world.socket();
    let here = a.world.tunnel(&mut socket, named_origin("here").await).await;
    let near = b.world.tunnel(&mut socket, named_origin("near").await).await;
    let _far = c.world.tunnel(&mut socket, named_origin("far").await).await;
    installation.announce(&[&a, &b, &c]);
    let served_by = async |name: &str| {
        until_async(async || a.get(&socket, "/").await.text() == name).await;
        for _ in 0..4 {
            assert_eq!(a.get(&socket, "/").await.text(), name);
        }
    };
    served_by("here").await;
    let tunnel = here.tunnel;
    installation.apply(DirectoryChange::TunnelLeft(a.card.edge, tunnel));
    here.stop().await;
    served_by("near").await;
    // A releases its idle connections through B when B announces that the tunnel has left. The connector waits for
    // that.
    let tunnel = near.tunnel;
    installation.apply(DirectoryChange::TunnelLeft(b.card.edge, tunnel));
    near.stop().await;
    served_by("far").await;
    // A uses a tunnel of its own at once, and drops the route through the other edge.
    let back = a.world.connect(tunnel, named_origin("back").await).await;
    served_by("back").await;
    drop(back);
}

async fn until_async(mut is_so: impl AsyncFnMut() -> bool) {
    let asked = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("not so in time");
}

#[tokio::test]
async fn only_other_edges_of_the_installation_get_a_link() {
    let mut installation = Installation::new();
    let b = installation.edge(21, "eu");
    let root = installation.nodes.root_pem().to_owned();
    let name = edge_node(&b.card.edge.to_string());
    let link = async |tls: Arc<rustls::ClientConfig>| {
        let tcp = TcpStream::connect(b.world.addr).await.unwrap();
        let name = ServerName::try_from(name.clone()).unwrap();
        let mut stream = soon(TlsConnector::from(tls).connect(name, tcp)).await.map_err(|error| error.to_string())?;
        // In TLS 1.3 a client sees the refusal of its certificate only when it reads.
        let mut hello = [0; 4];
        soon(stream.read_exact(&mut hello)).await.map_err(|error| error.to_string()).map(|_| hello[0])
    };
    // No certificate.
    let none = client_config_of_pem(root.as_bytes(), &[MESH_ALPN]).unwrap();
    let error = link(none).await.unwrap_err();
    assert!(error.to_ascii_lowercase().contains("certificate"), "{error}");
    // A certificate of another installation.
    let other = Installation::new();
    let (chain, key) = other.certify(EdgeId::from_random([9; 16]));
    let error = link(client_config_of_node_for(&root, &chain, &key, &[MESH_ALPN]).unwrap()).await.unwrap_err();
    assert!(!error.is_empty());
    // The edge's own certificate: an edge does not relay to itself.
    let (chain, key) = installation.certify(b.card.edge);
    assert!(link(client_config_of_node_for(&root, &chain, &key, &[MESH_ALPN]).unwrap()).await.is_err());
    // A certificate of another edge. B sends the first frame, because B acts as the connector.
    let (chain, key) = installation.certify(EdgeId::from_random([10; 16]));
    let hello = link(client_config_of_node_for(&root, &chain, &key, &[MESH_ALPN]).unwrap()).await.unwrap();
    assert_eq!(hello, sallyport_wire::FrameType::Hello as u8);
    until("all are counted", || b.metrics().contains(r#"sallyport_mesh_failures_total{reason="refused"} 3"#)).await;
    // The same certificate, after control no longer lists its edge.
    installation.orders.put(EdgeOrders { edge: b.card.edge, drain: None, server: 0 });
    assert!(link(client_config_of_node_for(&root, &chain, &key, &[MESH_ALPN]).unwrap()).await.is_err());
    until("its link is over", || b.metrics().contains(r#"sallyport_mesh_links{direction="in"} 0"#)).await;
    // An edge without a mesh does not offer the protocol.
    let alone = World::start().await;
    let tcp = TcpStream::connect(alone.addr).await.unwrap();
    let tls = client_config(&Trust::Ca(installation.dir.path().join("ca.pem")), &[MESH_ALPN]).unwrap();
    let name = ServerName::try_from(name.clone()).unwrap();
    assert!(soon(TlsConnector::from(tls).connect(name, tcp)).await.is_err());
}
