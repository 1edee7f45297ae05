//! Balancing over several origins, failing origins and missing origins.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Response;
use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;

use crate::harness::*;

#[tokio::test]
async fn requests_are_spread_evenly_over_four_origins() {
    let world = World::start().await;
    let mut socket = world.socket();
    let mut connectors = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let addr = named_origin(name).await;
        connectors.push(world.tunnel(&mut socket, addr).await);
    }
    let mut counts = std::collections::HashMap::new();
    for _ in 0..20 {
        let response = world.get(&socket, "/").await;
        *counts.entry(response.text().to_owned()).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 4);
    assert!(counts.values().all(|count| *count == 5), "{counts:?}");
}

#[tokio::test]
async fn a_busy_origin_gets_fewer_requests() {
    let world = World::start().await;
    let mut socket = world.socket();
    let release = Arc::new(tokio::sync::Semaphore::new(0));
    let (at_slow, at_fast) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let slow = origin({
        let (release, reached) = (release.clone(), at_slow.clone());
        move |_| {
            let (release, reached) = (release.clone(), reached.clone());
            async move {
                reached.fetch_add(1, Ordering::SeqCst);
                let _held = release.acquire().await.unwrap();
                Response::new(text("slow"))
            }
        }
    })
    .await;
    let fast = origin({
        let reached = at_fast.clone();
        move |_| {
            reached.fetch_add(1, Ordering::SeqCst);
            async { Response::new(text("fast")) }
        }
    })
    .await;
    let _slow = world.tunnel(&mut socket, slow).await;
    let _fast = world.tunnel(&mut socket, fast).await;
    // One of these requests is stuck at the slow origin. All later requests go to the other origin.
    let mut first = world.client(&socket).await;
    let mut second = world.client(&socket).await;
    let head = format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", socket.host());
    first.write_all(head.as_bytes()).await.unwrap();
    second.write_all(head.as_bytes()).await.unwrap();
    let reached = || (at_slow.load(Ordering::SeqCst), at_fast.load(Ordering::SeqCst));
    until("each of them has one", || reached() == (1, 1)).await;
    for _ in 0..10 {
        assert_eq!(world.get(&socket, "/").await.text(), "fast");
    }
    release.add_permits(10);
    let mut both = [read_response(&mut first).await.body, read_response(&mut second).await.body];
    both.sort();
    assert_eq!(both, [b"fast".to_vec(), b"slow".to_vec()]);
}

#[tokio::test]
async fn a_request_with_a_body_is_retried_when_an_origin_refuses() {
    let world = World::start().await;
    let mut socket = world.socket();
    let alive = origin(|request| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Response::new(text(body))
    })
    .await;
    let _dead = world.tunnel(&mut socket, dead_origin()).await;
    let _alive = world.tunnel(&mut socket, alive).await;
    for number in 0..10 {
        let body = format!("body {number}");
        let head = format!(
            "POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            socket.host(),
            body.len()
        );
        let response = world.raw(&socket, head.as_bytes()).await;
        assert_eq!((response.status, response.text()), (200, body.as_str()));
    }
}

#[tokio::test]
async fn each_failure_has_its_status_and_an_error_page() {
    let world = World::start_with(|config| config.response_timeout = Duration::from_millis(300)).await;
    // No socket has this name.
    let mut client = world.client_with("nobody-here-1.localhost", &[b"http/1.1"]).await;
    let head = "GET / HTTP/1.1\r\nHost: nobody-here-1.localhost\r\nAccept: text/html\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let response = read_response(&mut client).await;
    assert_eq!((response.status, response.header("content-type")), (404, Some("text/html; charset=utf-8")));
    assert!(response.text().contains(response.header("x-request-id").unwrap()));
    // Every origin refuses the connection.
    let mut refused = world.socket();
    let _one = world.tunnel(&mut refused, dead_origin()).await;
    let _two = world.tunnel(&mut refused, dead_origin()).await;
    let json = format!("GET / HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\n\r\n", refused.host());
    let response = world.raw(&refused, json.as_bytes()).await;
    assert_eq!((response.status, response.header("content-type")), (502, Some("application/problem+json")));
    // An origin accepts the request and never responds.
    let mut slow = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_rest(&mut tcp).await;
    })
    .await;
    let _slow = world.tunnel(&mut slow, addr).await;
    assert_eq!(world.get(&slow, "/").await.status, 504);
    // An origin sends garbage, or closes the connection without a response.
    let mut broken = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        tcp.write_all(b"SSH-2.0-nonsense\r\n\r\n").await.unwrap();
    })
    .await;
    let _broken = world.tunnel(&mut broken, addr).await;
    assert_eq!(world.get(&broken, "/").await.status, 502);
}

#[tokio::test]
async fn a_request_waits_for_an_expected_tunnel() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = named_origin("here").await;
    let tunnel = world.new_tunnel(&mut socket);
    // The edge has just started and still expects the tunnel.
    let mut client = world.client(&socket).await;
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let _connector = world.connect(tunnel, addr).await;
    let response = read_response(&mut client).await;
    assert_eq!((response.status, response.text()), (200, "here"));
}

#[tokio::test]
async fn a_socket_without_tunnels_fails_after_the_wait() {
    let world = World::start().await;
    let socket = world.socket();
    let response = world.get(&socket, "/").await;
    assert_eq!(response.status, 503);
    let text = response.text();
    assert!(text.starts_with("This service is offline: ") && text.contains("(no-tunnel, request "), "{text}");
    assert!(!text.contains("sallyport ") && !text.contains('`'), "the page for visitors names no commands: {text}");
    assert!(response.header("retry-after").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_of_connectors_fails_no_request() {
    let world = Arc::new(World::start().await);
    let mut socket = world.socket();
    let (one, two) = (named_origin("one").await, named_origin("two").await);
    let first = world.tunnel(&mut socket, one).await;
    let second = world.tunnel(&mut socket, two).await;
    let stop = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let socket = Arc::new(socket);
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (world, socket, stop, served) = (world.clone(), socket.clone(), stop.clone(), served.clone());
            tokio::spawn(async move {
                let mut client = world.client(&socket).await;
                let head = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host());
                while !stop.load(Ordering::Relaxed) {
                    client.write_all(head.as_bytes()).await.unwrap();
                    let response = read_response(&mut client).await;
                    assert_eq!(response.status, 200, "{}", response.text());
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut connectors = vec![(first, one), (second, two)];
    for _ in 0..6 {
        let (connector, addr) = connectors.remove(0);
        let (tunnel, before) = (connector.tunnel, served.load(Ordering::Relaxed));
        connector.stop().await;
        connectors.push((world.connect(tunnel, addr).await, addr));
        until("requests go on", || served.load(Ordering::Relaxed) > before + 20).await;
    }
    stop.store(true, Ordering::Relaxed);
    for task in load {
        soon(task).await.unwrap();
    }
}

#[tokio::test]
async fn a_deleted_tunnel_or_a_new_credential_ends_the_attachment() {
    let world = World::start().await;
    let mut socket = world.socket();
    let connector = world.tunnel(&mut socket, named_origin("here").await).await;
    assert_eq!(world.get(&socket, "/").await.status, 200);
    assert!(world.directory.get(connector.tunnel).is_some());
    socket.route.tunnels.clear();
    world.routes.put(socket.route.clone());
    until("the tunnel is gone", || world.directory.is_empty()).await;
    let mut log = connector.log;
    let detached = async {
        loop {
            if let sallyport_tunnel::ConnectorEvent::Detached { code, .. } = log.recv().await.unwrap() {
                return code;
            }
        }
    };
    assert_eq!(soon(detached).await, "deleted");
}

#[tokio::test]
async fn a_new_connector_replaces_a_killed_one() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = named_origin("here").await;
    let connector = world.tunnel(&mut socket, addr).await;
    let tunnel = connector.tunnel;
    assert_eq!(world.get(&socket, "/").await.status, 200);
    connector.kill();
    until("the tunnel is gone", || world.directory.is_empty()).await;
    let _again = world.connect(tunnel, addr).await;
    assert_eq!(world.get(&socket, "/").await.text(), "here");
}

#[tokio::test]
async fn a_second_connector_takes_over_a_tunnel() {
    let world = World::start().await;
    let mut socket = world.socket();
    let first = world.tunnel(&mut socket, named_origin("first").await).await;
    assert_eq!(world.get(&socket, "/").await.text(), "first");
    let second = world.connect(first.tunnel, named_origin("second").await).await;
    for _ in 0..5 {
        assert_eq!(world.get(&socket, "/").await.text(), "second");
    }
    assert!(world.directory.get(second.tunnel).is_some());
    let mut log = first.log;
    let detached = async {
        loop {
            if let sallyport_tunnel::ConnectorEvent::Detached { code, .. } = log.recv().await.unwrap() {
                return code;
            }
        }
    };
    assert_eq!(soon(detached).await, "replaced");
}

#[tokio::test]
async fn unknown_credentials_and_tunnels_are_refused() {
    let world = World::start().await;
    let mut socket = world.socket();
    let tunnel = world.new_tunnel(&mut socket);
    socket.route.tunnels[0].credential = sallyport_model::CredentialHash([0; 32]);
    world.routes.put(socket.route.clone());
    assert_eq!(world.refusal(tunnel).await.code, "bad-credential");
    let unknown = sallyport_model::TunnelId::from_random([99; 16]);
    assert_eq!(world.refusal(unknown).await.code, "unknown-tunnel");
    assert!(world.directory.is_empty());
}

#[tokio::test]
async fn a_body_with_an_unrequested_coding_is_502() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        let response = "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        tcp.write_all(response.as_bytes()).await.unwrap();
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let response = world.get(&socket, "/").await;
    assert_eq!(response.status, 502, "{}", response.text());
}

#[tokio::test]
async fn a_burst_over_the_control_connection_leaves_no_idle_connections_there() {
    let world = Arc::new(World::start().await);
    let mut socket = world.socket();
    let (release, reached) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let slow = origin({
        let (release, reached) = (release.clone(), reached.clone());
        move |_| {
            let (release, reached) = (release.clone(), reached.clone());
            async move {
                reached.fetch_add(1, Ordering::SeqCst);
                let _held = release.acquire().await.unwrap();
                Response::new(text("slow"))
            }
        }
    })
    .await;
    let _connector = world.tunnel(&mut socket, slow).await;
    let gauge = |name: &str| -> u64 {
        let metrics = world.edge.metrics_text().unwrap();
        let line = metrics
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .unwrap_or_else(|| panic!("{name}: {metrics}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let socket = Arc::new(socket);
    // All clients connect before the first request. Otherwise legs could open as fast as handshakes end.
    let mut clients = Vec::new();
    for _ in 0..64 {
        clients.push(world.client(&socket).await);
    }
    let burst: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            // A request with a body never shares the control connection by choice.
            let head = format!("POST / HTTP/1.1\r\nhost: {}\r\ncontent-length: 1\r\n\r\nx", socket.host());
            tokio::spawn(async move {
                client.write_all(head.as_bytes()).await.unwrap();
                read_response(&mut client).await.status
            })
        })
        .collect();
    until("the burst to reach the origin", || reached.load(Ordering::SeqCst) == 64).await;
    assert!(gauge("sallyport_edge_streams_multiplexed") > 0, "a burst of 64 finds no 64 legs ready");
    until("more legs to come", || gauge("sallyport_edge_legs_idle") > 0).await;
    release.add_permits(64);
    for request in burst {
        assert_eq!(request.await.unwrap(), 200);
    }
    until("shared streams to end", || gauge("sallyport_edge_streams_multiplexed") == 0).await;
}
