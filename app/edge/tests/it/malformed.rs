//! Malformed requests, which are refused before they reach an origin.

use std::sync::atomic::Ordering;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::*;

#[tokio::test]
async fn request_smuggling_gets_an_error_page_and_ends_the_connection() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, reached) = raw_origin(|mut tcp| async move {
        read_rest(&mut tcp).await;
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let host = socket.host();
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    let cases = [
        format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd"),
        format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4, 4\r\n\r\nabcd"),
        format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: +4\r\n\r\nabcd"),
        format!("POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        format!("POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
        format!("POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: a\r\n b\r\n\r\n"),
        format!("GET / HTTP/1.1\nHost: {host}\n\n"),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: a\rb\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: a\0b\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nHost: other.localhost\r\n\r\n"),
        format!("GET http://other.localhost/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\nHost: user@{host}\r\n\r\n"),
        format!("GET  / HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET / HTTP/9.9\r\nHost: {host}\r\n\r\n"),
        format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: {}\r\n\r\n", "y".repeat(70_000)),
        format!("GET /{} HTTP/1.1\r\nHost: {host}\r\n\r\n", "y".repeat(20_000)),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\n{}\r\n", "X: y\r\n".repeat(150)),
    ];
    for case in cases {
        let mut client = world.client(&socket).await;
        client.write_all(case.as_bytes()).await.unwrap();
        write_lossy(&mut client, smuggled.as_bytes()).await;
        let response = read_response(&mut client).await;
        let start: String = case.chars().take(150).collect();
        assert!(matches!(response.status, 400 | 414 | 431 | 501 | 505), "{} for {start:?}", response.status);
        assert!(response.text().contains(response.header("x-request-id").unwrap()), "{start:?}");
        assert_eq!(response.header("connection"), Some("close"), "{start:?}");
        assert_eq!(read_rest(&mut client).await, b"", "the edge sent a second response after {start:?}");
    }
    assert_eq!(reached.load(Ordering::SeqCst), 0, "a malformed request reached the origin");
    assert_eq!(world.edge.metrics_text().unwrap().matches("reason=\"malformed\"").count(), 1);
}

#[tokio::test]
async fn a_body_with_a_malformed_first_chunk_ends_the_connection() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_rest(&mut tcp).await;
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    let head = format!("POST / HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n", socket.host());
    client.write_all(format!("{head}zz\r\n").as_bytes()).await.unwrap();
    let response = read_response(&mut client).await;
    assert_eq!((response.status, response.header("connection")), (400, Some("close")));
    assert_eq!(read_rest(&mut client).await, b"");
}

#[tokio::test]
async fn a_body_with_a_malformed_later_chunk_is_refused_and_the_origin_sees_no_complete_body() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (seen_in, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let (addr, _) = raw_origin(move |mut tcp| {
        let seen_in = seen_in.clone();
        async move {
            let mut start = read_head(&mut tcp).await.into_bytes();
            while !start.ends_with(b"hello\r\n") {
                start.push(tcp.read_u8().await.unwrap());
            }
            let _ = seen_in.send(start);
            let _ = seen_in.send(read_rest(&mut tcp).await);
        }
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let host = socket.host();
    let mut client = world.client(&socket).await;
    let start = format!("POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    client.write_all(start.as_bytes()).await.unwrap();
    let start = soon(seen.recv()).await.unwrap();
    assert!(start.starts_with(b"POST / HTTP/1.1\r\n"));
    client.write_all(b"5;\nhello\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let response = read_response(&mut client).await;
    assert_eq!(response.status, 400, "{response:?}");
    assert_eq!(read_rest(&mut client).await, b"");
    let seen = String::from_utf8(soon(seen.recv()).await.unwrap()).unwrap();
    assert!(!seen.contains("smuggled") && !seen.ends_with("0\r\n\r\n"), "{seen}");
}

#[tokio::test]
async fn the_internal_path_of_refusals_is_an_ordinary_path_for_clients() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("ok").await).await;
    let path = format!("/{}", "0".repeat(64));
    assert_eq!(world.get(&socket, &path).await.text(), "ok");
}

#[tokio::test]
async fn each_pipelined_request_is_checked() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("ok").await).await;
    let host = socket.host();
    let mut client = world.client(&socket).await;
    let both = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\nGET / HTTP/1.1\r\nHost: {host}\r\nX : y\r\n\r\n");
    client.write_all(both.as_bytes()).await.unwrap();
    assert_eq!(read_response(&mut client).await.text(), "ok");
    assert_eq!(read_response(&mut client).await.status, 400);
    assert_eq!(read_rest(&mut client).await, b"");
}

#[tokio::test]
async fn a_slow_head_is_408_and_an_idle_connection_closes() {
    let world = World::start_with(|config| {
        config.header_timeout = std::time::Duration::from_millis(300);
        config.idle_timeout = std::time::Duration::from_millis(600);
    })
    .await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("ok").await).await;
    let mut client = world.client(&socket).await;
    client.write_all(b"GET / HTTP/1.1\r\nHos").await.unwrap();
    assert_eq!(read_response(&mut client).await.status, 408);
    let mut client = world.client(&socket).await;
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
    assert_eq!(read_response(&mut client).await.text(), "ok");
    assert_eq!(read_rest(&mut client).await, b"");
}

#[tokio::test]
async fn garbage_instead_of_tls_or_tunnel_frames_ends_only_that_connection() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("ok").await).await;
    let mut plain = tokio::net::TcpStream::connect(world.addr).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    read_rest(&mut plain).await;
    let mut tunnel = world.client_with("tunnel.localhost", &[sallyport_wire::ALPN]).await;
    tunnel.write_all(&[0xff; 64]).await.unwrap();
    read_rest(&mut tunnel).await;
    assert_eq!(world.get(&socket, "/").await.text(), "ok");
}
