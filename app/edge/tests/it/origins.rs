//! HTTP/1.1 responses of origins: valid responses in all forms, and responses with an ambiguous end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::*;

/// Responds to each request with the table's text for the request's path.
async fn origin_of(
    table: &'static [(&'static str, &'static str)],
) -> (std::net::SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
    raw_origin(move |mut tcp| async move {
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match tcp.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => return,
                }
            }
            let head = String::from_utf8(head).unwrap();
            let path = head.split(' ').nth(1).unwrap();
            let (_, response) = table.iter().find(|(name, _)| *name == path).unwrap();
            // Sends the response in two pieces. The first piece ends within a line.
            let (start, rest) = response.split_at(response.len() / 2);
            tcp.write_all(start.as_bytes()).await.unwrap();
            tcp.flush().await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
            if tcp.write_all(rest.as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await
}

#[tokio::test]
async fn ambiguous_responses_are_502_and_close_the_origin_connection() {
    const BAD: &[(&str, &str)] = &[
        ("/both", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("/differ", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello"),
        ("/sign", "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello"),
        ("/coding", "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        ("/folded", "HTTP/1.1 200 OK\r\na: b\r\n content-length: 5\r\ncontent-length: 5\r\n\r\nhello"),
        ("/space", "HTTP/1.1 200 OK\r\ncontent-length : 5\r\n\r\nhello"),
        ("/old", "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("/garbage", "SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        ("/good", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood"),
    ];
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, connections) = origin_of(BAD).await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    for (path, _) in BAD {
        let (before, is_good) = (connections.load(Ordering::SeqCst), *path == "/good");
        client.write_all(format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
        let response = read_response(&mut client).await;
        assert_eq!(response.status, if is_good { 200 } else { 502 }, "{path}");
        assert!(is_good || response.text().contains("(origin-broken,"), "{path}: {}", response.text());
        assert_eq!(connections.load(Ordering::SeqCst), before + 1, "the request is not retried: {path}");
    }
}

#[tokio::test]
async fn malformed_chunks_abort_the_response() {
    const BAD: &[(&str, &str)] = &[
        ("/long", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsome!\r\n0\r\n\r\n"),
        ("/bare", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsome\n0\r\n\r\n"),
        ("/size", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsome\r\n-1\r\n\r\n"),
        ("/trailers", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsome\r\n0\r\na : b\r\n\r\n"),
    ];
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = origin_of(BAD).await;
    let _connector = world.tunnel(&mut socket, addr).await;
    for (path, _) in BAD {
        let response = world.get(&socket, path).await;
        assert_eq!((response.status, response.text(), response.complete), (200, "some", false), "{path}");
    }
}

#[tokio::test]
async fn bytes_after_a_response_are_discarded() {
    const POISON: &[(&str, &str)] = &[
        ("/length", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison"),
        ("/none", "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison"),
        (
            "/chunked",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\npoison",
        ),
        ("/good", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood"),
    ];
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = origin_of(POISON).await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    for (path, _) in &POISON[..3] {
        for (path, text) in [(*path, if *path == "/none" { "" } else { "ok" }), ("/good", "good")] {
            let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host());
            client.write_all(head.as_bytes()).await.unwrap();
            let response = read_response(&mut client).await;
            assert_eq!((response.text(), response.complete), (text, true), "{path}");
        }
    }
}

#[tokio::test]
async fn interim_responses_are_not_the_final_response() {
    const HINTS: &[(&str, &str)] = &[(
        "/",
        "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    )];
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, connections) = origin_of(HINTS).await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    for _ in 0..3 {
        client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
        let response = read_response(&mut client).await;
        assert_eq!((response.status, response.text(), response.header("link")), (200, "ok", None));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    // An origin that sends only interim responses never sends a final one.
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        while tcp.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_ok() {}
    })
    .await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, addr).await;
    assert_eq!(world.get(&socket, "/").await.status, 502);
}

#[tokio::test]
async fn a_response_may_start_before_the_request_ends() {
    let world = World::start().await;
    let mut socket = world.socket();
    let whole = Arc::new(AtomicBool::new(false));
    let (addr, _) = raw_origin({
        let whole = whole.clone();
        move |mut tcp| {
            let whole = whole.clone();
            async move {
                let head = read_head(&mut tcp).await;
                if head.starts_with("POST /refused") {
                    tcp.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
                    return;
                }
                tcp.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nearly\r\n").await.unwrap();
                let mut body = vec![0; 300_000];
                tcp.read_exact(&mut body).await.unwrap();
                whole.store(body.iter().all(|byte| *byte == b'x'), Ordering::SeqCst);
                tcp.write_all(b"4\r\nlate\r\n0\r\n\r\n").await.unwrap();
            }
        }
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    let head = format!("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: 300000\r\n\r\n", socket.host());
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&[b'x'; 1_000]).await.unwrap();
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 200"));
    let mut early = [0; 10];
    soon(client.read_exact(&mut early)).await.unwrap();
    assert_eq!(&early, b"5\r\nearly\r\n");
    client.write_all(&vec![b'x'; 299_000]).await.unwrap();
    let mut late = [0; 14];
    soon(client.read_exact(&mut late)).await.unwrap();
    assert_eq!(&late, b"4\r\nlate\r\n0\r\n\r\n");
    assert!(whole.load(Ordering::SeqCst));
    let mut client = world.client(&socket).await;
    let head = format!("POST /refused HTTP/1.1\r\nHost: {}\r\nContent-Length: 300000\r\n\r\n", socket.host());
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&[b'x'; 1_000]).await.unwrap();
    let response = read_response(&mut client).await;
    assert_eq!((response.status, response.text()), (413, "no"));
}

#[tokio::test]
async fn a_body_of_unknown_length_reaches_the_origin_with_any_method() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        for _ in 0..2 {
            let head = read_head(&mut tcp).await;
            assert!(head.contains("transfer-encoding: chunked\r\n") && !head.contains("content-length"), "{head}");
            let mut body = vec![0; 31];
            tcp.read_exact(&mut body).await.unwrap();
            assert_eq!(body, b"b\r\nhello world\r\n0\r\nx-sum: 1\r\n\r\n");
            tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        }
        read_rest(&mut tcp).await;
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    for method in ["POST", "GET"] {
        let mut client = world.client(&socket).await;
        let head = format!(
            "{method} / HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n\
             b\r\nhello world\r\n",
            socket.host()
        );
        client.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.write_all(b"0\r\nx-sum: 1\r\n\r\n").await.unwrap();
        let response = read_response(&mut client).await;
        assert_eq!((response.status, response.text()), (200, "ok"), "{method}");
    }
}
