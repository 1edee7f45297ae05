//! The edge as a whole: passwords, its own hosts, plain HTTP and shutdown.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Response;
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::Semaphore};

use crate::harness::*;

#[tokio::test]
async fn a_password_is_required_and_is_not_forwarded() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = origin(|request| async move {
        Response::new(text(format!("authorized: {}", request.headers().contains_key("authorization"))))
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    socket.protect(&world, "ann", "correct horse");
    let response = world.get(&socket, "/").await;
    assert_eq!(response.status, 401);
    assert!(response.header("www-authenticate").unwrap().starts_with("Basic realm="));
    assert!(response.text().contains("requires a user name"), "{}", response.text());
    let with = |password: &str| {
        let credentials = STANDARD.encode(format!("ann:{password}"));
        format!("GET / HTTP/1.1\r\nHost: {}\r\nAuthorization: Basic {credentials}\r\n\r\n", socket.host())
    };
    let (good, bad) = (with("correct horse"), with("wrong"));
    let response = world.raw(&socket, good.as_bytes()).await;
    assert_eq!((response.status, response.text()), (200, "authorized: false"));
    for _ in 0..10 {
        let response = world.raw(&socket, bad.as_bytes()).await;
        assert!(response.status == 401 && response.text().contains("is wrong"), "{}", response.text());
    }
    let blocked = world.raw(&socket, bad.as_bytes()).await;
    assert_eq!(blocked.status, 429);
    assert!(blocked.header("retry-after").unwrap().parse::<u64>().unwrap() <= 61);
}

#[tokio::test]
async fn the_edges_own_host_serves_health_metrics_and_the_api() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("ok").await).await;
    assert_eq!(world.get(&socket, "/").await.status, 200);
    let mut client = world.client_with("api.localhost", &[b"http/1.1"]).await;
    for (path, status, wanted) in [
        ("/healthz", 200, "ok"),
        ("/readyz", 200, "ready"),
        ("/v1/info", 200, "api /v1/info for 127.0.0.1"),
        ("/metrics", 200, "sallyport_edge_requests_total{socket=\"calm-bay-1000\",status=\"2xx\"} 1"),
        ("/metrics", 200, "sallyport_edge_tunnels_up 1"),
    ] {
        client.write_all(format!("GET {path} HTTP/1.1\r\nHost: API.localhost\r\n\r\n").as_bytes()).await.unwrap();
        let response = read_response(&mut client).await;
        assert_eq!(response.status, status, "{path}");
        assert!(response.text().contains(wanted), "{path}: {}", response.text());
    }
}

#[tokio::test]
async fn plain_http_redirects_to_https_for_known_names_only() {
    let world = World::start().await;
    let ask = async |request: &str| {
        let mut tcp = TcpStream::connect(world.plain_addr).await.unwrap();
        tcp.write_all(request.as_bytes()).await.unwrap();
        read_response(&mut tcp).await
    };
    let response = ask("GET /a?b=c HTTP/1.1\r\nHost: Calm-Bay-1000.localhost:8080\r\n\r\n").await;
    assert_eq!(response.status, 308);
    let port = world.addr.port();
    let expected = format!("https://calm-bay-1000.localhost:{port}/a?b=c");
    assert_eq!(response.header("location"), Some(expected.as_str()));
    assert_eq!(ask("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await.status, 404);
    assert_eq!(ask("GET / HTTP/1.1\r\n\r\n").await.status, 400);
    assert_eq!(ask("GET / HTTP/1.1\r\nHost: a.localhost\r\nX : y\r\n\r\n").await.status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_half_open_connections_do_not_affect_others() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("ok").await).await;
    let mut silent = Vec::new();
    for number in 0..1_000 {
        let mut tcp = TcpStream::connect(world.addr).await.unwrap();
        if number % 2 == 0 {
            // The start of a ClientHello that never completes.
            tcp.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).await.unwrap();
        }
        silent.push(tcp);
    }
    for _ in 0..20 {
        assert_eq!(world.get(&socket, "/").await.text(), "ok");
    }
    drop(silent);
}

#[tokio::test]
async fn a_connection_accepted_before_shutdown_is_served() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("served").await).await;
    let tcp = TcpStream::connect(world.addr).await.unwrap();
    until("the connection is taken", || world.edge.metrics_text().unwrap().contains("handshakes_pending 1")).await;
    world.shutdown.trigger();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut client = world.client_over(tcp, &socket.host(), &[b"http/1.1"]).await.unwrap();
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
    let response = read_response(&mut client).await;
    assert_eq!((response.status, response.text()), (200, "served"));
    world.stop().await;
}

#[tokio::test]
async fn shutdown_lets_a_running_request_finish() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (began, release) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let addr = origin({
        let (began, release) = (began.clone(), release.clone());
        move |_| {
            let (began, release) = (began.clone(), release.clone());
            async move {
                began.add_permits(1);
                release.acquire().await.unwrap().forget();
                Response::new(text("finished"))
            }
        }
    })
    .await;
    let connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
    soon(began.acquire()).await.unwrap().forget();
    let (shutdown, addr) = (world.shutdown.clone(), world.addr);
    let stopping = tokio::spawn(world.stop());
    until("the shutdown has begun", || shutdown.is_triggered()).await;
    soon(async {
        // The edge accepts no new connections.
        while TcpStream::connect(addr).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(!stopping.is_finished());
    release.add_permits(1);
    let response = read_response(&mut client).await;
    assert_eq!((response.status, response.text(), response.header("connection")), (200, "finished", Some("close")));
    let report = soon(stopping).await.unwrap();
    assert_eq!((report.finished, report.cut), (1, 0));
    connector.kill();
}

#[tokio::test]
async fn shutdown_aborts_requests_after_the_grace_period() {
    let world = World::start_with(|config| config.shutdown_grace = Duration::from_millis(300)).await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        tcp.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsome\r\n").await.unwrap();
        read_rest(&mut tcp).await;
    })
    .await;
    let connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
    read_head(&mut client).await;
    let report = world.stop().await;
    assert_eq!((report.finished, report.cut), (0, 1));
    assert!(!read_rest(&mut client).await.ends_with(b"0\r\n\r\n"));
    connector.kill();
}

#[tokio::test]
async fn the_origin_gets_the_edges_span_as_parent_only_when_traces_are_exported() {
    use tracing_subscriber::layer::SubscriberExt as _;
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    // Interest in a span is kept per process. Other tests install subscribers of their own, so this test runs alone.
    if !is_alone("edges::the_origin_gets_the_edges_span_as_parent_only_when_traces_are_exported").await {
        return;
    }
    let world = World::start().await;
    let mut socket = world.socket();
    let addr =
        origin(
            |request| async move { Response::new(text(request.headers()["traceparent"].to_str().unwrap().to_owned())) },
        )
        .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let head = format!("GET / HTTP/1.1\r\nHost: {}\r\nTraceparent: {PARENT}\r\n\r\n", socket.host());
    assert_eq!(world.raw(&socket, head.as_bytes()).await.text(), PARENT);
    let traces = sallyport_otlp::Traces::start("http://127.0.0.1:9", "0.0.0", 1.0).unwrap();
    let _here = tracing::subscriber::set_default(tracing_subscriber::registry().with(traces.layer()));
    let response = world.raw(&socket, head.as_bytes()).await;
    assert!(response.text().starts_with(&PARENT[..36]) && response.text() != PARENT, "{}", response.text());
}

/// Measures how long the thread of the edge and the test gets no processor.
fn measure_stalls() -> Arc<Mutex<Duration>> {
    const STEP: Duration = Duration::from_millis(10);
    let total = Arc::new(Mutex::new(Duration::ZERO));
    let measured = total.clone();
    tokio::spawn(async move {
        loop {
            let began = std::time::Instant::now();
            tokio::time::sleep(STEP).await;
            *measured.lock().unwrap() += Some(began.elapsed()).filter(|time| *time > 4 * STEP).unwrap_or_default();
        }
    });
    total
}

#[tokio::test]
async fn shutdown_ends_within_its_grace_period() {
    let drain = Duration::from_millis(3_500);
    let world = World::start_with(|config| config.shutdown_grace = drain).await;
    let mut socket = world.socket();
    let (addr, taken) = raw_origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        // The origin reads nothing more, so the stream to it does not end by itself.
        std::future::pending::<()>().await;
    })
    .await;
    let connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
    until("the request runs", || taken.load(std::sync::atomic::Ordering::SeqCst) > 0).await;
    let held_up = measure_stalls();
    let began = std::time::Instant::now();
    let report = world.stop().await;
    let took = began.elapsed();
    assert_eq!((report.finished, report.cut), (0, 1));
    // The limit is less than the time tunnels get to end their streams. No stream is left here.
    let held_up = *held_up.lock().unwrap();
    assert!(took < drain + Duration::from_millis(1_200) + held_up, "{took:?}, and {held_up:?} without a processor");
    connector.kill();
}
