//! The health of origins across edges, load that is relayed, and direct origins in a mesh.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Response, StatusCode};
use sallyport_bus::{Answer as QueryAnswer, Ask, TunnelFigures};
use sallyport_model::{HealthCheck, OriginHealth, Probe, SocketType, TunnelId};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::Semaphore,
};

use crate::{
    flows::{connect, service},
    harness::*,
    mesh::{Installation, MeshEdge},
};

/// An origin that responds with its name, and with status 500 while the flag is unset.
async fn switchable_origin(name: &'static str, well: &Arc<AtomicBool>) -> std::net::SocketAddr {
    let well = well.clone();
    origin(move |_| {
        let mut response = Response::new(text(name));
        if !well.load(Ordering::SeqCst) {
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
        async move { response }
    })
    .await
}

fn every_second() -> Option<HealthCheck> {
    let probe = Probe::Http { path: "/up".into(), status_from: 200, status_to: 299 };
    let (interval_seconds, timeout_seconds, healthy_threshold, unhealthy_threshold) = (1, 10, 1, 1);
    Some(HealthCheck { probe, interval_seconds, timeout_seconds, healthy_threshold, unhealthy_threshold })
}

impl MeshEdge {
    fn health_of(&self, tunnel: TunnelId) -> Option<OriginHealth> {
        self.world.directory.get(tunnel).map(|presence| presence.health)
    }

    /// The value of the metric in the line that starts with this text.
    fn counted(&self, line: &str) -> u64 {
        self.metrics().lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok()).unwrap_or(0)
    }

    /// The edge's figures for a tunnel that it holds.
    fn figures_of(&self, socket: &TestSocket, tunnel: TunnelId) -> TunnelFigures {
        let ask = Ask::Tunnels { organisation: socket.route.account, socket: socket.route.id };
        let QueryAnswer::Tunnels(held) = self.world.edge.answers().answer(ask) else { panic!("no tunnels") };
        held.into_iter().find(|held| held.tunnel == tunnel).unwrap()
    }

    /// The number of live requests and flows of this edge at the socket.
    fn live(&self, socket: &TestSocket) -> u64 {
        let ask = Ask::Stats { organisation: socket.route.account, socket: socket.route.id };
        let QueryAnswer::Stats(Some(used)) = self.world.edge.answers().answer(ask) else { panic!("no stats") };
        used.live
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unhealthy_origin_gets_no_requests_from_other_edges() {
    let mut installation = Installation::new();
    let (a, b, c) = (installation.edge(41, "eu"), installation.edge(42, "us"), installation.edge(43, "us"));
    let moods = [Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true))];
    let mut socket = b.world.socket();
    let _one = b.world.tunnel(&mut socket, switchable_origin("one", &moods[0]).await).await;
    let _two = c.world.tunnel(&mut socket, switchable_origin("two", &moods[1]).await).await;
    let (one, two) = (socket.route.tunnels[0].id, socket.route.tunnels[1].id);
    socket.set(&a.world, |settings| settings.health_check = every_second());
    installation.announce(&[&a, &b, &c]);
    let healthy = || a.counted(&format!("sallyport_edge_origins_healthy{{socket=\"{}\"}}", socket.route.name));
    until("both are known", || healthy() == 2).await;
    let names = async |count: usize| {
        let mut names = Vec::new();
        for _ in 0..count {
            let response = a.get(&socket, "/").await;
            names.push(format!("{} {}", response.status, response.text()));
        }
        names.sort();
        names
    };
    assert_eq!(names(4).await, ["200 one", "200 one", "200 two", "200 two"]);
    moods[0].store(false, Ordering::SeqCst);
    until("the edge with the tunnel finds the origin unhealthy", || b.health_of(one) == Some(OriginHealth::Unwell))
        .await;
    // The client's edge has no news yet. The holder refuses its streams, and the requests go to the other origin. The
    // edge sends no request that it cannot repeat over connections idle for more than three seconds.
    tokio::time::sleep(Duration::from_millis(3_100)).await;
    let head = format!("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", socket.host());
    for _ in 0..2 {
        let response = a.world.raw(&socket, head.as_bytes()).await;
        assert_eq!((response.status, response.text()), (200, "two"));
    }
    let refused = b.counted(r#"sallyport_mesh_failures_total{reason="unwell"}"#);
    assert!(refused > 0);
    // After the announcement, the client's edge does not try this origin.
    installation.announce(&[&b]);
    until("the client's edge knows the health", || healthy() == 1).await;
    assert_eq!(names(10).await, vec!["200 two"; 10]);
    assert_eq!(b.counted(r#"sallyport_mesh_failures_total{reason="unwell"}"#), refused);
    // No origin is healthy, so clients get 503.
    moods[1].store(false, Ordering::SeqCst);
    until("the other one is found unwell", || c.health_of(two) == Some(OriginHealth::Unwell)).await;
    installation.announce(&[&c]);
    let none = async || {
        loop {
            let response = a.world.get(&socket, "/").await;
            if response.status == 503 {
                return response;
            }
        }
    };
    let response = soon(none()).await;
    assert!(response.text().contains("no-healthy-origin"), "{}", response.text());
    moods[0].store(true, Ordering::SeqCst);
    until("the origin is healthy again", || b.health_of(one) == Some(OriginHealth::Well)).await;
    installation.announce(&[&b]);
    assert_eq!(a.get(&socket, "/").await.text(), "one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_origin_that_refuses_connections_is_ejected_by_all_edges() {
    let mut installation = Installation::new();
    let (a, b, c) = (installation.edge(44, "eu"), installation.edge(45, "us"), installation.edge(46, "eu"));
    let mut socket = b.world.socket();
    let _dead = b.world.tunnel(&mut socket, dead_origin()).await;
    let _good = b.world.tunnel(&mut socket, named_origin("good").await).await;
    let dead = socket.route.tunnels[0].id;
    installation.announce(&[&a, &b, &c]);
    // Refusals to clients of other edges count at the edge that holds the tunnel.
    for _ in 0..12 {
        let response = a.get(&socket, "/").await;
        assert_eq!((response.status, response.text()), (200, "good"));
    }
    until("the origin is ejected", || b.health_of(dead) == Some(OriginHealth::LeftOut)).await;
    installation.announce(&[&b]);
    until("the third edge knows", || {
        c.counted(&format!("sallyport_edge_origins_healthy{{socket=\"{}\"}}", socket.route.name)) == 1
    })
    .await;
    for _ in 0..6 {
        assert_eq!(c.get(&socket, "/").await.text(), "good");
    }
    assert_eq!(c.counted("sallyport_edge_retries_total"), 0, "the other edge got no request");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relayed_requests_and_flows_count_at_the_edge_with_the_tunnel() {
    let mut installation = Installation::new();
    let (a, b) = (installation.edge(47, "eu"), installation.edge(48, "us"));
    let named = |name: &'static str| async move {
        service(move |mut stream| async move {
            let _ = stream.write_all(name.as_bytes()).await;
            let _ = stream.read(&mut [0; 1]).await;
        })
        .await
    };
    let mut socket = b.world.socket();
    socket.set_type(&b.world, SocketType::Tcp).await;
    let _one = b.world.tunnel(&mut socket, named("one").await).await;
    installation.announce(&[&a, &b]);
    let name = async |edge: &MeshEdge| {
        let mut client = connect(edge.port(&socket)).await;
        let mut name = [0; 3];
        soon(client.read_exact(&mut name)).await.unwrap();
        (client, String::from_utf8(name.to_vec()).unwrap())
    };
    let (mut relayed, mut own) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        relayed.push(name(&a).await);
    }
    let one = socket.route.tunnels[0].id;
    assert_eq!((b.figures_of(&socket, one).live, b.live(&socket), a.live(&socket)), (3, 0, 3), "counted once");
    let mut with_two = TestSocket { route: socket.route.clone() };
    let _two = b.world.tunnel(&mut with_two, named("two").await).await;
    for _ in 0..3 {
        let (client, name) = name(&b).await;
        assert_eq!(name, "two", "the other one has three already");
        own.push(client);
    }
    drop(relayed);
    until("the relayed flows are over", || b.figures_of(&socket, one).live == 0).await;

    // A request counts until its response, and not while its connection idles.
    let (asked, may_answer) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (counter, waits) = (asked.clone(), may_answer.clone());
    let slow = origin(move |_| {
        let (counter, waits) = (counter.clone(), waits.clone());
        async move {
            counter.add_permits(1);
            waits.acquire().await.unwrap().forget();
            Response::new(text("done"))
        }
    })
    .await;
    let mut web = b.world.socket();
    let _slow = b.world.tunnel(&mut web, slow).await;
    installation.announce(&[&b]);
    let tunnel = web.route.tunnels[0].id;
    for _ in 0..2 {
        let (response, ()) = tokio::join!(a.get(&web, "/"), async {
            soon(asked.acquire()).await.unwrap().forget();
            tokio::time::sleep(Duration::from_millis(700)).await;
            assert_eq!(b.figures_of(&web, tunnel).live, 1);
            may_answer.add_permits(1);
        });
        assert_eq!(response.text(), "done");
        until("the request counts no more", || b.figures_of(&web, tunnel).live == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_does_not_dial_addresses_of_other_edges() {
    let mut installation = Installation::new();
    let (a, b) = (installation.edge(49, "eu"), installation.edge(50, "us"));
    let mut web = b.world.socket();
    web.direct(&b.world, &b.card.addresses[0].to_string());
    let mut tcp = b.world.socket();
    tcp.set_type(&b.world, SocketType::Tcp).await;
    installation.announce(&[&a, &b]);
    let failed = |edge: &MeshEdge| edge.counted(r#"sallyport_edge_direct_dials_total{outcome="failed"}"#);
    assert_eq!(a.world.get(&web, "/").await.status, 502);
    assert_eq!((failed(&a), failed(&b)), (1, 0), "edge a refuses the address of edge b");
    // Every edge serves the port of a socket.
    tcp.direct(&b.world, &b.port(&tcp).to_string());
    let mut client = connect(a.port(&tcp)).await;
    assert!(soon(client.read(&mut [0; 1])).await.is_err(), "the connection is reset");
    // A client that gets a reset at once may have connected twice.
    assert!(failed(&a) >= 2 && failed(&b) == 0);
}
