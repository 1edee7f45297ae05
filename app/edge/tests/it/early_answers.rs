//! Responses that come before the end of their request. The client gets the whole response. The client's connection
//! then goes on, or the response announces the end of the connection.

use std::{net::SocketAddr, time::Duration};

use http::Response;
use sallyport_model::OriginProtocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    harness::*,
    raw_http2::{Outcome::Status, *},
};

/// More than the edge reads after a response, and more than the buffers on the path hold.
const LONG_BYTES: usize = 24 * 1024 * 1024;

/// An origin that responds after each request head, and discards the body while it arrives.
async fn refusing_origin(response: &'static str) -> SocketAddr {
    let (addr, _) = raw_origin(move |mut tcp| async move {
        read_head(&mut tcp).await;
        tcp.write_all(response.as_bytes()).await.unwrap();
        read_rest(&mut tcp).await;
    })
    .await;
    addr
}

/// Hosts that respond before the body: the edge, the API (which does not read the body), and an origin.
async fn hosts(world: &World, socket: &mut TestSocket) -> ([(String, u16); 3], Connector) {
    let origin = refusing_origin("HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno").await;
    let connector = world.tunnel(socket, origin).await;
    let hosts = [("nobody.localhost".to_owned(), 404), ("api.localhost".to_owned(), 200), (socket.host(), 403)];
    (hosts, connector)
}

#[tokio::test]
async fn a_body_after_its_response_leaves_the_connection_usable() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (hosts, _connector) = hosts(&world, &mut socket).await;
    for (host, status) in &hosts {
        for (framing, body) in [
            ("Content-Length: 2", &["{", "}"][..]),
            ("Content-Length: 400000", &["x".repeat(200_000).as_str(), &"x".repeat(200_000)]),
            ("Transfer-Encoding: chunked", &["5\r\nhello\r\n", "0\r\n\r\n"]),
        ] {
            let mut client = world.client_with(host, &[b"http/1.1"]).await;
            for number in 0..3 {
                let head = format!("POST /{number} HTTP/1.1\r\nHost: {host}\r\n{framing}\r\n\r\n");
                client.write_all(head.as_bytes()).await.unwrap();
                let response = read_response(&mut client).await;
                assert_eq!((response.status, response.complete), (*status, true), "{host} {framing} {number}");
                assert_eq!(response.header("connection"), None, "{host} {framing} {number}");
                for piece in body {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    client.write_all(piece.as_bytes()).await.unwrap();
                }
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_sends_a_long_body_first_gets_its_response() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (hosts, _connector) = hosts(&world, &mut socket).await;
    let body = vec![b'x'; LONG_BYTES];
    for (host, status) in &hosts {
        for version in ["HTTP/1.1", "HTTP/1.0"] {
            let mut client = world.client_with(host, &[b"http/1.1"]).await;
            let head = format!("POST / {version}\r\nHost: {host}\r\nContent-Length: {LONG_BYTES}\r\n\r\n");
            client.write_all(head.as_bytes()).await.unwrap();
            soon(client.write_all(&body)).await.unwrap_or_else(|error| panic!("{host} {version}: {error}"));
            soon(client.flush()).await.unwrap();
            let response = read_response(&mut client).await;
            assert_eq!((response.status, response.complete), (*status, true), "{host} {version}");
            let says_close = response.header("connection") == Some("close");
            // An origin slower than the client responds after the body. The connection may then serve the next request.
            let may_go_on = version == "HTTP/1.1" && *host == socket.host();
            if may_go_on && !says_close {
                client.write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await.unwrap();
                assert_eq!(read_response(&mut client).await.status, *status, "{host}: the next request");
                continue;
            }
            assert!(says_close || version == "HTTP/1.0", "{host}");
            assert_eq!(soon(client.read(&mut [0])).await.unwrap(), 0, "{host} {version}: an orderly end");
        }
    }
}

#[tokio::test]
async fn a_long_response_is_whole_for_a_client_that_sends_its_body_first() {
    const ANSWER_BYTES: usize = 12 * 1024 * 1024;
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        let (mut read, mut write) = tcp.split();
        let response = async {
            write
                .write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {ANSWER_BYTES}\r\n\r\n").as_bytes())
                .await
                .unwrap();
            write.write_all(&vec![b'a'; ANSWER_BYTES]).await.unwrap();
        };
        tokio::join!(response, read_rest(&mut read));
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    let head =
        format!("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n", socket.host(), LONG_BYTES + 3_000_000);
    client.write_all(head.as_bytes()).await.unwrap();
    soon(client.write_all(&vec![b'x'; LONG_BYTES])).await.unwrap();
    soon(client.flush()).await.unwrap();
    // The end of the body comes late, or never.
    let response = read_response(&mut client).await;
    assert_eq!((response.status, response.complete, response.body.len()), (200, true, ANSWER_BYTES));
    assert_eq!(soon(client.read(&mut [0])).await.unwrap(), 0, "an orderly end");
}

#[tokio::test]
async fn bytes_after_a_malformed_discarded_body_are_no_request() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (hosts, _connector) = hosts(&world, &mut socket).await;
    for (host, status) in &hosts {
        let mut client = world.client_with(host, &[b"http/1.1"]).await;
        let head = format!("POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(read_response(&mut client).await.status, *status, "{host}");
        client.write_all(format!("5\r\nhelloGET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await.unwrap();
        assert_eq!(read_rest(&mut client).await, b"", "{host}");
    }
}

#[tokio::test]
async fn an_http2_response_without_a_body_ends_at_once() {
    let world = World::start().await;
    // The cases: an early HTTP/1.1 response without a body, and a gRPC call refused before the client half-closes.
    let (mut over_http1, mut over_http2) = (world.socket(), world.socket());
    let _first = world.tunnel(&mut over_http1, refusing_origin("HTTP/1.1 204 No Content\r\n\r\n").await).await;
    let refuses = h2_origin(|_| async {
        let mut response = Response::new(text(""));
        response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        response.headers_mut().insert("grpc-status", "7".parse().unwrap());
        response
    });
    let _second = world.tunnel(&mut over_http2, refuses.await).await;
    over_http2.speaks(&world, OriginProtocol::Http2);
    for (socket, status, kind) in [(&over_http1, 204, "text/plain"), (&over_http2, 200, "application/grpc")] {
        let mut client = RawHttp2::open(&world, socket).await;
        client.post(1, "/", &[("content-type", kind), ("te", "trailers")]).await;
        client.send(DATA, 0, 1, b"\0\0\0\0\x02hi").await;
        assert_eq!(client.outcome(1).await, Status(status));
        let frames = client.received(1).frames;
        assert!(matches!(frames[..], [(HEADERS, flags, _)] if flags == END_HEADERS | END_STREAM), "{frames:?}");
        // The client may send for a while, and the connection serves other streams.
        client.send(DATA, 0, 1, &[b'x'; 10_000]).await;
        client.get(3, "/").await;
        assert_eq!(client.outcome(3).await, Status(status));
        client.send(DATA, END_STREAM, 1, b"").await;
        client.all_is_looked_at().await;
        assert!(matches!(client.received(1).reset, None | Some(NO_ERROR)), "{:?}", client.received(1));
    }
}
