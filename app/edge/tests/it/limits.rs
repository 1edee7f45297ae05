//! Limits of a socket: request rates, connections, bandwidth and queues.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use http::Response;
use sallyport_model::{Limits, SocketType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    flows::{ask, connect, echo_with_greeting, service},
    harness::*,
};

/// An origin that responds when the semaphore permits. Returns its address and the count of its requests.
async fn gated_origin(release: Arc<tokio::sync::Semaphore>) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let reached = Arc::new(AtomicUsize::new(0));
    let count = reached.clone();
    let addr = origin(move |_| {
        let (release, count) = (release.clone(), count.clone());
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            release.acquire().await.unwrap().forget();
            Response::new(text("done"))
        }
    })
    .await;
    (addr, reached)
}

#[tokio::test]
async fn requests_above_the_rate_get_429_with_retry_after() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("here").await).await;
    assert_eq!(world.get(&socket, "/").await.status, 200);
    socket.set(&world, |settings| settings.limits = Limits { requests_per_second: Some(1), ..Limits::default() });
    let mut responses = Vec::new();
    // All requests share one connection, because a handshake takes longer than a token needs to refill.
    let mut client = world.client(&socket).await;
    for _ in 0..5 {
        client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
        responses.push(read_response(&mut client).await);
    }
    assert_eq!(responses[0].status, 200, "one request at once is allowed");
    let refused = responses.iter().find(|response| response.status == 429).expect("five within a second are not");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(refused.text().contains("no more requests at the moment"), "{}", refused.text());
    socket.set(&world, |settings| settings.limits = Limits::default());
    for _ in 0..5 {
        assert_eq!(world.get(&socket, "/").await.status, 200);
    }
}

#[tokio::test]
async fn requests_above_the_connection_limit_wait_in_a_queue() {
    let world = Arc::new(World::start().await);
    let mut socket = world.socket();
    let release = Arc::new(tokio::sync::Semaphore::new(0));
    let (addr, reached) = gated_origin(release.clone()).await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let limits = Limits { max_connections: Some(1), queue: Some(1), ..Limits::default() };
    socket.set(&world, |settings| settings.limits = limits);
    let socket = Arc::new(socket);
    let request = || {
        let (world, socket) = (world.clone(), socket.clone());
        tokio::spawn(async move { world.get(&socket, "/").await })
    };
    let first = request();
    until("the first request is served", || reached.load(Ordering::SeqCst) == 1).await;
    let (mut second, mut third) = (request(), request());
    // One of the two requests waits in the queue. The edge refuses the other one.
    let (refused, waits) = tokio::select! {
        refused = &mut second => (refused.unwrap(), third),
        refused = &mut third => (refused.unwrap(), second),
    };
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some());
    release.add_permits(2);
    assert_eq!(soon(first).await.unwrap().status, 200);
    assert_eq!(soon(waits).await.unwrap().status, 200);
    assert_eq!(reached.load(Ordering::SeqCst), 2, "the refused one did not reach the origin");
    release.add_permits(1);
    assert_eq!(world.get(&socket, "/").await.status, 200, "places are given back");
}

#[tokio::test]
async fn tcp_connections_above_the_limit_are_reset() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let _connector = world.tunnel(&mut socket, service(echo_with_greeting).await).await;
    drop(ask(connect(addr).await, b"x").await);
    socket.set(&world, |settings| settings.limits = Limits { max_connections: Some(2), ..Limits::default() });
    let (mut one, mut two, mut three) = (connect(addr).await, connect(addr).await, connect(addr).await);
    let mut word = [0; 5];
    soon(one.read_exact(&mut word)).await.unwrap();
    soon(two.read_exact(&mut word)).await.unwrap();
    let error = soon(three.read(&mut word)).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(world.edge.metrics_text().unwrap().contains(r#"flows_total{transport="tcp",verdict="limited"} 1"#));
    drop(one);
    let mut response = Vec::new();
    for _ in 0..200 {
        let mut stream = connect(addr).await;
        stream.write_all(b"x").await.unwrap();
        let _ = stream.shutdown().await;
        response.clear();
        if soon(stream.read_to_end(&mut response)).await.is_ok() {
            break;
        }
    }
    assert_eq!(response, b"hello x bye", "a place that was given back is taken again");
}

#[tokio::test]
async fn bandwidth_is_limited() {
    const BODY: usize = 96 * 1024;
    let world = World::start().await;
    let limits = Limits { bytes_per_second: Some(64 * 1024), ..Limits::default() };

    let mut web = world.socket();
    let large = origin(|_| async { Response::new(text(vec![b'x'; BODY])) }).await;
    let _web = world.tunnel(&mut web, large).await;
    web.set(&world, |settings| settings.limits = limits);
    let began = Instant::now();
    for _ in 0..2 {
        assert_eq!(world.get(&web, "/").await.body.len(), BODY);
    }
    // The bytes of the first second are available at once. The next transfer pays for the last piece.
    assert!(began.elapsed() > Duration::from_millis(500), "{:?}", began.elapsed());

    let mut raw = world.socket();
    let addr = raw.set_type(&world, SocketType::Tcp).await;
    let _raw = world.tunnel(&mut raw, service(echo_with_greeting).await).await;
    raw.set(&world, |settings| settings.limits = limits);
    drop(connect(addr).await);
    let began = Instant::now();
    let response = ask(connect(addr).await, &vec![7; BODY]).await;
    assert_eq!(response.len(), BODY + 10);
    assert!(began.elapsed() > Duration::from_millis(500), "{:?}", began.elapsed());
}

/// Connects from another local address, if the edge accepts the connection.
async fn client_from(world: &World, last: u8, host: &str) -> std::io::Result<Client> {
    let tcp = tokio::net::TcpSocket::new_v4()?;
    tcp.bind(([127, 0, 0, last], 0).into())?;
    world.client_over(tcp.connect(world.addr).await?, host, &[b"http/1.1"]).await
}

/// An origin that accepts every WebSocket and keeps it open.
async fn websocket_origin() -> std::net::SocketAddr {
    origin(|mut request| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
            let _ = io.read_to_end(&mut Vec::new()).await;
        });
        let mut response = Response::new(text(""));
        *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert("connection", "Upgrade".parse().unwrap());
        response.headers_mut().insert("upgrade", "websocket".parse().unwrap());
        response
    })
    .await
}

#[tokio::test]
async fn a_websocket_counts_as_a_connection_until_it_ends() {
    let world = World::start_with(|config| {
        config.max_connections_per_address = 4;
        config.ready_legs = 2;
    })
    .await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, websocket_origin().await).await;
    let relayed = format!("GET /ws HTTP/1.1\r\nHost: {}", socket.host());
    let carrier = "GET /_sallyport/tunnel HTTP/1.1\r\nHost: tunnel.localhost\r\n\
                   Sec-WebSocket-Protocol: sallyport-tunnel.1";
    for (last, host, request) in [(2, socket.host(), relayed.as_str()), (3, "tunnel.localhost".to_owned(), carrier)] {
        let mut open = Vec::new();
        for _ in 0..4 {
            let mut client = client_from(&world, last, &host).await.unwrap();
            let head = format!(
                "{request}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            );
            client.write_all(head.as_bytes()).await.unwrap();
            let response = read_head(&mut client).await;
            assert!(response.starts_with("HTTP/1.1 101"), "{response}");
            open.push(client);
        }
        for _ in 0..20 {
            assert!(client_from(&world, last, &host).await.is_err(), "{host}: four are all");
        }
        drop(open.pop());
        let mut came = false;
        for _ in 0..200 {
            came = client_from(&world, last, &host).await.is_ok();
            if came {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(came, "{host}: a place that was given back is taken again");
    }
}
