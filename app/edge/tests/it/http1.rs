//! HTTP/1.1 to clients and origins.

use std::sync::{Arc, atomic::Ordering};

use http::{Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::*;

#[tokio::test]
async fn requests_on_one_connection_reuse_one_origin_connection() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, connections) = raw_origin(|mut tcp| async move {
        loop {
            let head = read_head(&mut tcp).await;
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len());
            tcp.write_all(response.as_bytes()).await.unwrap();
        }
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    for number in 0..10 {
        let head = format!("GET /{number}?q HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host());
        client.write_all(head.as_bytes()).await.unwrap();
        let response = read_response(&mut client).await;
        assert_eq!((response.status, response.text()), (200, &*format!("/{number}?q")));
        assert_eq!(response.header("x-request-id").unwrap().len(), 32);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_idle_connection_serves_the_next_request() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = origin(|request| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Response::new(text(body))
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    for round in 0..4 {
        // Longer than a connection waits before it drops its HTTP server.
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        let body = format!("round {round}");
        let head = format!("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n", socket.host(), body.len());
        for piece in [&head.as_bytes()[..20], &head.as_bytes()[20..], body.as_bytes()] {
            client.write_all(piece).await.unwrap();
            client.flush().await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(50 * round)).await;
        }
        let response = read_response(&mut client).await;
        assert_eq!((response.status, response.text()), (200, &*body));
    }
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").await.unwrap();
    assert_eq!(read_response(&mut client).await.status, 400);
    assert_eq!(read_rest(&mut client).await, b"");
}

#[tokio::test]
async fn draining_closes_idle_connections() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("ok").await).await;
    let mut client = world.client(&socket).await;
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
    assert_eq!(read_response(&mut client).await.text(), "ok");
    tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    let report = world.stop().await;
    assert_eq!(report.cut, 0);
    assert_eq!(read_rest(&mut client).await, b"", "an orderly end");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = origin(|request| async move { Response::new(text(request.uri().path().to_owned())) }).await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    let host = socket.host();
    let both = format!("GET /one HTTP/1.1\r\nHost: {host}\r\n\r\nGET /two HTTP/1.1\r\nHost: {host}\r\n\r\n");
    client.write_all(both.as_bytes()).await.unwrap();
    assert_eq!(read_response(&mut client).await.text(), "/one");
    assert_eq!(read_response(&mut client).await.text(), "/two");
}

#[tokio::test]
async fn head_range_and_not_modified_pass() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = origin(|request| async move {
        let mut response = Response::new(text(""));
        if request.method() == http::Method::HEAD {
            response.headers_mut().insert(header::CONTENT_LENGTH, 12_345.into());
        } else if request.headers().contains_key(header::RANGE) {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            response.headers_mut().insert(header::CONTENT_RANGE, "bytes 1-2/9".parse().unwrap());
            *response.body_mut() = text("bc");
        } else {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        response
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    let host = socket.host();
    client.write_all(format!("HEAD / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await.unwrap();
    assert!(read_head(&mut client).await.contains("content-length: 12345\r\n"));
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\nRange: bytes=1-2\r\n\r\n").as_bytes()).await.unwrap();
    let part = read_response(&mut client).await;
    assert_eq!((part.status, part.text(), part.header("content-range")), (206, "bc", Some("bytes 1-2/9")));
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await.unwrap();
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 304"));
}

#[tokio::test]
async fn forwarding_headers_come_from_the_edge_only() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = origin(|request| async move { Response::new(text(format!("{:?}", request.headers()))) }).await;
    let mut connector = world.tunnel(&mut socket, addr).await;
    let head = format!(
        "GET /path HTTP/1.1\r\nHost: {}\r\nX-Forwarded-For: 6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\n\
         X-Real-IP: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Request-Id: mine\r\nX-Forwarded-Proto: gopher\r\n\
         Connection: close, x-custom\r\nX-Custom: secret\r\nKeep-Alive: 5\r\nX-Kept: yes\r\n\r\n",
        socket.host()
    );
    let response = world.raw(&socket, head.as_bytes()).await;
    let seen = response.text();
    assert!(!seen.contains("6.6.6.6") && !seen.contains("mine") && !seen.contains("gopher"), "{seen}");
    assert!(!seen.contains("secret") && !seen.contains("keep-alive"), "{seen}");
    assert!(seen.contains("\"x-forwarded-for\": \"127.0.0.1\"") && seen.contains("\"x-kept\": \"yes\""), "{seen}");
    assert!(seen.contains("\"x-forwarded-proto\": \"https\""), "{seen}");
    let id = response.header("x-request-id").unwrap();
    assert!(seen.contains(id), "{seen}");
    let record = loop {
        if let sallyport_tunnel::ConnectorEvent::Request(record) = soon(connector.log.recv()).await.unwrap() {
            break record;
        }
    };
    assert_eq!((record.request_id.as_str(), record.status, record.target.as_str()), (id, 200, "/path"));
    assert_eq!(record.bytes_out, response.body.len() as u64);
}

/// A repeated burst that is larger than the usual number of idle connections.
#[tokio::test]
async fn a_repeated_burst_reuses_its_origin_connections() {
    const AT_ONCE: usize = 300;
    let world = World::start().await;
    let mut socket = world.socket();
    let all_are_there = Arc::new(tokio::sync::Barrier::new(AT_ONCE));
    let (addr, connections) = raw_origin(move |mut tcp| {
        let all_are_there = all_are_there.clone();
        async move {
            loop {
                read_head(&mut tcp).await;
                all_are_there.wait().await;
                tcp.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            }
        }
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut clients = [world.http2(&socket).await, world.http2(&socket).await];
    // Some requests get a leg and others share one connection, in varying numbers. The first bursts may open more
    // connections.
    for _ in 0..30 {
        let before = connections.load(Ordering::SeqCst);
        let mut responses = Vec::new();
        for number in 0..AT_ONCE {
            let request = hyper::Request::get(format!("https://{}/", socket.host())).body(text("")).unwrap();
            responses.push(tokio::spawn(clients[number % clients.len()].send_request(request)));
        }
        for response in responses {
            assert_eq!(soon(response).await.unwrap().unwrap().status(), 204);
        }
        if connections.load(Ordering::SeqCst) == before {
            return;
        }
    }
    panic!("connections to the origin are made for every crowd: {connections:?}");
}

#[tokio::test]
async fn websockets_carry_bytes_both_ways_until_one_side_ends() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = origin(|mut request| async move {
        assert_eq!(request.headers()[header::UPGRADE], "websocket");
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgrade.await.unwrap());
            io.write_all(b"welcome").await.unwrap();
            let mut buffer = [0; 1_024];
            while let Ok(n @ 1..) = io.read(&mut buffer).await {
                io.write_all(&buffer[..n].to_ascii_uppercase()).await.unwrap();
            }
        });
        let mut response = Response::new(text(""));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(header::CONNECTION, "Upgrade".parse().unwrap());
        response.headers_mut().insert(header::UPGRADE, "websocket".parse().unwrap());
        response.headers_mut().insert("sec-websocket-accept", "x".parse().unwrap());
        response
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    let head = format!(
        "GET /ws HTTP/1.1\r\nHost: {}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
         Sec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13\r\n\r\nearly",
        socket.host()
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let response = read_head(&mut client).await;
    assert!(response.starts_with("HTTP/1.1 101") && response.contains("upgrade: websocket"), "{response}");
    assert!(response.contains("sec-websocket-accept: x"));
    let mut welcome = [0; 7];
    soon(client.read_exact(&mut welcome)).await.unwrap();
    assert_eq!(&welcome, b"welcome");
    let mut early = [0; 5];
    soon(client.read_exact(&mut early)).await.unwrap();
    assert_eq!(&early, b"EARLY", "bytes that arrived before the response");
    for _ in 0..50 {
        client.write_all(b"GET / HTTP/1.1\r\n\n\0bytes").await.unwrap();
        let mut echo = [0; 23];
        soon(client.read_exact(&mut echo)).await.unwrap();
        assert_eq!(&echo, b"GET / HTTP/1.1\r\n\n\0BYTES");
    }
    client.shutdown().await.unwrap();
    assert_eq!(read_rest(&mut client).await, b"");
}

#[tokio::test]
async fn a_declined_websocket_leaves_the_connection_usable() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = named_origin("no websockets").await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    let host = socket.host();
    for _ in 0..3 {
        let head = format!(
            "GET /ws HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\
             GET /next HTTP/1.1\r\nHost: {host}\r\n\r\n"
        );
        client.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..2 {
            let response = read_response(&mut client).await;
            assert_eq!((response.status, response.text()), (200, "no websockets"));
        }
    }
}

#[tokio::test]
async fn a_connection_with_a_declined_websocket_closes_in_order() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = named_origin("no websockets").await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let host = socket.host();
    let ask = |option: &str| {
        format!("GET /ws HTTP/1.1\r\nHost: {host}\r\nConnection: {option}Upgrade\r\nUpgrade: websocket\r\n\r\n")
    };
    let last = format!("GET /last HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    for (requests, responses) in [(ask("close, "), 1), (ask("") + &last, 2), (ask("") + &ask("close, "), 2)] {
        let mut client = world.client(&socket).await;
        client.write_all(requests.as_bytes()).await.unwrap();
        for _ in 0..responses {
            assert_eq!(read_response(&mut client).await.text(), "no websockets");
        }
        let ended = soon(client.read(&mut [0])).await;
        assert_eq!(ended.expect("close_notify comes before the end"), 0);
    }
}

#[tokio::test]
async fn connection_close_is_answered_and_obeyed() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("ok").await).await;
    let host = socket.host();
    for option in [&b"close"[..], b"close, \xe9", b"\xe9, close"] {
        let mut client = world.client(&socket).await;
        let head = [b"GET / HTTP/1.1\r\nHost: ", host.as_bytes(), b"\r\nConnection: ", option, b"\r\n\r\n"];
        client.write_all(&head.concat()).await.unwrap();
        let response = read_response(&mut client).await;
        assert_eq!((response.text(), response.header("connection")), ("ok", Some("close")));
        assert_eq!(soon(client.read(&mut [0])).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn an_unrequested_101_from_an_origin_is_502() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        tcp.write_all(b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").await.unwrap();
        read_rest(&mut tcp).await;
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    assert_eq!(world.get(&socket, "/").await.status, 502);
}

#[tokio::test]
async fn http_1_0_clients_and_origins_are_supported() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        tcp.write_all(b"HTTP/1.0 200 OK\r\n\r\nuntil the end").await.unwrap();
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let response = world.get(&socket, "/").await;
    assert_eq!((response.status, response.text(), response.complete), (200, "until the end", true));
    assert!(response.head.starts_with("HTTP/1.1"));
    let old = world.raw(&socket, format!("GET / HTTP/1.0\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await;
    assert_eq!((old.status, old.text(), old.header("transfer-encoding")), (200, "until the end", None));
}

#[tokio::test]
async fn an_origin_that_closes_idle_connections_fails_no_request() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, connections) = raw_origin(|mut tcp| async move {
        // The origin promises to keep the connection, and closes it.
        read_head(&mut tcp).await;
        tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    for _ in 0..20 {
        client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
        assert_eq!(read_response(&mut client).await.status, 200);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 20);
}

#[tokio::test]
async fn refused_requests_are_reported_to_the_owner_with_the_reason() {
    let world = World::start().await;
    let mut socket = world.socket();
    let mut connector = world.tunnel(&mut socket, named_origin("x").await).await;
    let mut seen = async || loop {
        if let sallyport_tunnel::ConnectorEvent::Request(record) = soon(connector.log.recv()).await.unwrap() {
            break record;
        }
    };
    socket.protect(&world, "ann", "right");
    assert_eq!(world.get(&socket, "/private?key=secret").await.status, 401);
    let record = seen().await;
    assert_eq!((record.status, record.refused.as_deref()), (401, Some("unauthorized")));
    assert_eq!(record.target, "/private", "what strangers put into a query stays out");
    assert_eq!(record.tunnel, Some(socket.route.tunnels[0].id));
    socket.set(&world, |settings| settings.access.deny = vec!["127.0.0.0/8".to_owned()]);
    assert_eq!(world.get(&socket, "/").await.status, 403);
    assert_eq!(seen().await.refused.as_deref(), Some("denied"));
    // The limit on reports also covers refused requests: clients must not flood the owner's terminal. The edge counts
    // omitted reports.
    let began = std::time::Instant::now();
    let mut asked = 400;
    for _ in 0..asked {
        assert_eq!(world.get(&socket, "/flood").await.status, 403);
    }
    let (mut logged, mut omitted) = (0, 0);
    while logged + omitted < asked {
        match tokio::time::timeout(std::time::Duration::from_secs(1), seen()).await {
            Ok(record) => (logged, omitted) = (logged + 1, omitted + u64::from(record.omitted_before)),
            // The next report carries the number of omitted reports.
            Err(_) => {
                assert_eq!(world.get(&socket, "/last").await.status, 403);
                asked += 1;
            }
        }
    }
    assert!(logged <= 200 + 51 * (began.elapsed().as_secs() + 1), "{logged} of {asked} requests were logged");
}
