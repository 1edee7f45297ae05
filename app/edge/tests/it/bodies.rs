//! Streaming of bodies, and bodies that end early.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::*;

#[tokio::test]
async fn chunked_bodies_and_trailers_pass_both_ways() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = origin(|request| async move {
        let collected = request.into_body().collect().await.unwrap();
        let trailers: HeaderMap = collected.trailers().cloned().unwrap_or_default();
        let seen = trailers.get("x-sum").map_or("none", |value| value.to_str().unwrap()).to_owned();
        let mut sent = HeaderMap::new();
        sent.insert("x-out", HeaderValue::from_static("out"));
        let body = text(collected.to_bytes()).with_trailers(async move { Some(Ok(sent)) }).boxed_unsync();
        let mut response = Response::new(body);
        response.headers_mut().insert("x-seen", seen.parse().unwrap());
        response.headers_mut().insert("trailer", HeaderValue::from_static("x-out"));
        response.headers_mut().insert("transfer-encoding", HeaderValue::from_static("chunked"));
        response
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\nTE: trailers\r\n\r\n\
         5\r\nhello\r\n6\r\n world\r\n0\r\nx-sum: 42\r\n\r\n",
        socket.host()
    );
    let response = world.raw(&socket, head.as_bytes()).await;
    assert_eq!(response.header("x-seen"), Some("42"), "{response:?}");
    assert_eq!(response.text(), "hello worldx-out: out\r\n");
}

#[tokio::test]
async fn a_100_continue_comes_from_the_origin() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        loop {
            let head = read_head(&mut tcp).await;
            assert!(head.to_ascii_lowercase().contains("expect: 100-continue"), "{head}");
            if head.contains("/unwanted") {
                tcp.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
            } else {
                tcp.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
                let mut body = [0; 5];
                tcp.read_exact(&mut body).await.unwrap();
                assert_eq!(&body, b"hello");
                tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes").await.unwrap();
            }
        }
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let head = |path: &str| {
        let host = socket.host();
        format!("PUT {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    };
    let mut client = world.client(&socket).await;
    client.write_all(head("/wanted").as_bytes()).await.unwrap();
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 100 "));
    client.write_all(b"hello").await.unwrap();
    assert_eq!(read_response(&mut client).await.text(), "yes");
    let mut client = world.client(&socket).await;
    client.write_all(head("/unwanted").as_bytes()).await.unwrap();
    let response = read_response(&mut client).await;
    assert_eq!((response.status, response.text()), (413, "no"));
    // The client decides whether it sends the body. The edge cannot tell the body from another request.
    assert_eq!(response.header("connection"), Some("close"));
    assert_eq!(read_rest(&mut client).await, b"");
}

#[tokio::test]
async fn a_slow_response_is_whole_without_100_continue() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        tcp.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        // This delay exceeds the time that any side waits for 100 Continue.
        for _ in 0..6 {
            tcp.write_all(b"2\r\nab\r\n").await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        tcp.write_all(b"0\r\n\r\n").await.unwrap();
        read_rest(&mut tcp).await;
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    let host = socket.host();
    let head = format!("PUT / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    let response = read_response(&mut client).await;
    assert_eq!((response.status, response.text(), response.complete), (200, "abababababab", true));
    assert_eq!(response.header("connection"), Some("close"));
    assert_eq!(read_rest(&mut client).await, b"", "an orderly end");
}

#[tokio::test]
async fn server_sent_events_arrive_one_by_one() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            .await
            .unwrap();
        // The client confirms each event out of band. The origin sends the next event only then.
        for _ in 0..3 {
            tcp.write_all(b"9\r\ndata: x\n\n\r\n").await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        read_rest(&mut tcp).await;
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
    assert!(read_head(&mut client).await.contains("text/event-stream"));
    for _ in 0..3 {
        let mut event = [0; 14];
        soon(client.read_exact(&mut event)).await.unwrap();
        assert_eq!(&event, b"9\r\ndata: x\n\n\r\n");
    }
}

#[tokio::test]
async fn a_connector_killed_mid_body_aborts_the_response() {
    let world = World::start().await;
    for head in ["content-length: 1000", "transfer-encoding: chunked", "connection: close"] {
        let mut socket = world.socket();
        let (addr, _) = raw_origin(move |mut tcp| async move {
            read_head(&mut tcp).await;
            let start = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n");
            tcp.write_all(start.as_bytes()).await.unwrap();
            tcp.write_all(b"4\r\nsome\r\n").await.unwrap();
            read_rest(&mut tcp).await;
        })
        .await;
        let connector = world.tunnel(&mut socket, addr).await;
        let mut client = world.client(&socket).await;
        client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
        read_head(&mut client).await;
        let mut some = [0; 4];
        soon(client.read_exact(&mut some)).await.unwrap();
        connector.kill();
        let mut rest = Vec::new();
        let end = soon(client.read_to_end(&mut rest)).await;
        assert!(!rest.ends_with(b"0\r\n\r\n"), "{head}: it looks complete: {rest:?}");
        assert!(end.is_err(), "{head}: TLS ended as if all was well");
    }
}

#[tokio::test]
async fn an_origin_that_fails_mid_body_aborts_the_response() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nsome").await.unwrap();
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let response = world.get(&socket, "/").await;
    assert_eq!((response.status, response.complete), (200, false));
}

#[tokio::test]
async fn a_client_disconnect_closes_the_origin_connection() {
    let world = World::start().await;
    let mut socket = world.socket();
    let ended = Arc::new(AtomicBool::new(false));
    let (addr, _) = raw_origin({
        let ended = ended.clone();
        move |mut tcp| {
            let ended = ended.clone();
            async move {
                read_head(&mut tcp).await;
                tcp.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
                read_rest(&mut tcp).await;
                ended.store(true, Ordering::SeqCst);
            }
        }
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
    read_head(&mut client).await;
    drop(client);
    until("the origin's connection has ended", || ended.load(Ordering::SeqCst)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_body_streams_both_ways_in_little_memory() {
    const TOTAL: usize = 128 * 1024 * 1024;
    const MAX_GROWTH_BYTES: usize = 48 * 1024 * 1024;
    if !is_alone("bodies::a_large_body_streams_both_ways_in_little_memory").await {
        return;
    }
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {TOTAL}\r\n\r\n");
        tcp.write_all(head.as_bytes()).await.unwrap();
        let (mut read, mut write) = tcp.split();
        tokio::io::copy(&mut (&mut read).take(TOTAL as u64), &mut write).await.unwrap();
        read_rest(&mut tcp).await;
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let client = world.client(&socket).await;
    let before = resident_bytes();
    let (mut read, mut write) = tokio::io::split(client);
    let head = format!("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: {TOTAL}\r\n\r\n", socket.host());
    write.write_all(head.as_bytes()).await.unwrap();
    let upload = tokio::spawn(async move {
        let piece: Vec<u8> = (0..65_536u32).map(|n| (n % 251) as u8).collect();
        for _ in 0..TOTAL / piece.len() {
            write.write_all(&piece).await.unwrap();
        }
        // TLS records still hold the bytes for which the socket had no room.
        write.flush().await.unwrap();
        write
    });
    assert!(read_head(&mut read).await.starts_with("HTTP/1.1 200"));
    let expected: Vec<u8> = (0..65_536u32).map(|n| (n % 251) as u8).collect();
    let mut piece = vec![0; expected.len()];
    let mut most = 0;
    for _ in 0..TOTAL / expected.len() {
        soon(read.read_exact(&mut piece)).await.unwrap();
        assert!(piece == expected, "bytes came wrong");
        most = most.max(resident_bytes());
    }
    soon(upload).await.unwrap();
    assert!(most < before + MAX_GROWTH_BYTES, "{} MiB more", (most - before) >> 20);
}

#[tokio::test]
async fn a_long_upload_does_not_hit_the_response_timeout() {
    let world = World::start_with(|config| config.response_timeout = Duration::from_secs(3)).await;
    let mut socket = world.socket();
    let addr = origin(|request| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Response::new(text(format!("{}", body.len())))
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    let head = format!("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: 10\r\n\r\n", socket.host());
    client.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..10 {
        client.write_all(b"x").await.unwrap();
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    assert_eq!(read_response(&mut client).await.text(), "10");
    // An upload that stops altogether is an error of the client.
    let mut client = world.client(&socket).await;
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(b"x").await.unwrap();
    assert_eq!(read_response(&mut client).await.status, 408);
}

/// The bytes of uploads that the edge buffers, from its metrics.
fn buffered_upload_bytes(world: &World) -> usize {
    let text = world.edge.metrics_text().unwrap();
    let line = text.lines().find(|line| line.starts_with("sallyport_edge_uploads_held_bytes ")).unwrap();
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[tokio::test]
async fn unread_uploads_hold_bounded_memory_and_release_it() {
    const CLIENTS: usize = 12;
    const PINGS: Duration = Duration::from_secs(3);
    let world = World::start_with(|config| config.ping_interval = PINGS).await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|tcp| async move {
        std::future::pending::<()>().await;
        drop(tcp);
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    // This size exceeds the kernel buffers on the path.
    let body = bytes::Bytes::from(vec![b'x'; 32 << 20]);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut sender = world.http2(&socket).await;
        for _ in 0..6 {
            let uri = format!("https://{}/", socket.host());
            let request = Request::post(uri).body(text(body.clone())).unwrap();
            sender.ready().await.unwrap();
            clients.push(tokio::spawn(sender.send_request(request)));
        }
    }
    // Without a bound, each upload would hold 4 MiB.
    until("the bound is reached", || buffered_upload_bytes(&world) >= 32 << 20).await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let held = buffered_upload_bytes(&world);
    assert!(held <= (32 << 20) + CLIENTS * 128 * 1024, "{held}");
    clients.iter().for_each(tokio::task::JoinHandle::abort);
    drop(clients);
    // The edge does not notice a client's disconnect while it reads nothing. The connection ends at the ping timeout.
    let nothing_held = async {
        while buffered_upload_bytes(&world) > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(90), nothing_held).await.unwrap();
}
