//! HTTP/1 connections: requests in sequence, and the end of a connection.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use sallyport_model::OriginProtocol;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{Notify, mpsc, watch},
};

use crate::harness::*;

/// An origin that echoes the request's body.
async fn echo() -> std::net::SocketAddr {
    origin(|request| async move { Response::new(text(request.into_body().collect().await.unwrap().to_bytes())) }).await
}

#[tokio::test]
async fn pipelined_requests_with_bodies_of_all_sizes_are_answered_in_order() {
    const SIZES: [usize; 12] = [0, 1, 2, 100, 2_047, 2_048, 2_049, 4_096, 16_384, 16_385, 65_536, 200_000];
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, echo().await).await;
    let (mut client, mut sender) = tokio::io::split(world.client(&socket).await);
    let body = |number: usize| vec![b'a' + u8::try_from(number % 26).unwrap(); SIZES[number % SIZES.len()]];
    let host = socket.host();
    let sending = tokio::spawn(async move {
        for number in 0..10 * SIZES.len() {
            let body = body(number);
            let mut request = format!("POST /{number} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
            if number % 3 == 0 {
                request.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                for chunk in body.chunks(1 + number * 97) {
                    request.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    request.extend_from_slice(&[chunk, b"\r\n"].concat());
                }
                request.extend_from_slice(b"0\r\n\r\n");
            } else {
                request.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
                request.extend_from_slice(&body);
            }
            sender.write_all(&request).await.unwrap();
        }
        sender
    });
    for number in 0..10 * SIZES.len() {
        let response = read_response(&mut client).await;
        assert_eq!(response.status, 200, "request {number}");
        assert!(response.body == body(number), "request {number}: {} bytes", response.body.len());
    }
    sending.await.unwrap();
}

#[tokio::test]
async fn a_short_unread_body_keeps_the_connection() {
    let world = World::start().await;
    let mut client = world.client_with("nobody.localhost", &[]).await;
    for _ in 0..3 {
        let body = "b".repeat(5_000);
        let head = format!("POST / HTTP/1.1\r\nHost: nobody.localhost\r\nContent-Length: {}\r\n\r\n", body.len());
        client.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.unwrap();
        assert_eq!(read_response(&mut client).await.status, 404);
    }
}

#[tokio::test]
async fn a_long_unread_body_closes_the_connection_after_the_response() {
    let world = World::start().await;
    let mut client = world.client_with("nobody.localhost", &[]).await;
    client.write_all(b"POST / HTTP/1.1\r\nHost: nobody.localhost\r\nContent-Length: 100000000\r\n\r\n").await.unwrap();
    client.write_all(&vec![b'b'; 300_000]).await.unwrap();
    assert_eq!(read_response(&mut client).await.status, 404);
    assert_eq!(read_rest(&mut client).await, b"", "an orderly end, and no reset");
}

#[tokio::test]
async fn a_client_that_leaves_before_its_response_releases_the_origin() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (asked, left) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (addr, _) = raw_origin({
        let (asked, left) = (asked.clone(), left.clone());
        move |mut tcp| {
            let (asked, left) = (asked.clone(), left.clone());
            async move {
                read_head(&mut tcp).await;
                asked.notify_one();
                read_rest(&mut tcp).await;
                left.notify_one();
            }
        }
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    // The cases include the extra empty line that old clients send, and the start of another request.
    for early in ["", "\r\n", "GE"] {
        let mut client = world.client(&socket).await;
        let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n{early}", socket.host());
        client.write_all(request.as_bytes()).await.unwrap();
        soon(asked.notified()).await;
        drop(client);
        soon(left.notified()).await;
    }
}

#[tokio::test]
async fn draining_closes_a_connection_after_its_response() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (asked, response) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let addr = origin({
        let (asked, response) = (asked.clone(), response.clone());
        move |_| {
            let (asked, response) = (asked.clone(), response.clone());
            async move {
                asked.notify_one();
                response.notified().await;
                Response::new(text("late"))
            }
        }
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
    soon(asked.notified()).await;
    let began = Instant::now();
    let stopping = tokio::spawn(world.stop());
    tokio::time::sleep(Duration::from_millis(100)).await;
    response.notify_one();
    let response = read_response(&mut client).await;
    assert_eq!((response.text(), response.header("connection")), ("late", Some("close")));
    assert_eq!(soon(client.read(&mut [0])).await.unwrap(), 0, "an orderly end");
    let report = soon(stopping).await.unwrap();
    assert_eq!(report.cut, 0, "after {:?}", began.elapsed());
}

#[tokio::test]
async fn a_response_in_many_chunks_is_whole() {
    const SIZES: [usize; 5] = [1, 100, 2_048, 2_049, 30_000];
    let chunk = |number: usize| vec![b'a' + u8::try_from(number % 26).unwrap(); SIZES[number % SIZES.len()]];
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(move |mut tcp| async move {
        loop {
            let head = read_head(&mut tcp).await;
            let count: usize = head.split(' ').nth(1).unwrap()[1..].parse().unwrap();
            let mut response = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
            for data in (0..count).map(chunk) {
                response.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
                response.extend_from_slice(&[&data[..], b"\r\n"].concat());
            }
            response.extend_from_slice(b"0\r\n\r\n");
            for part in response.chunks(77_777) {
                tcp.write_all(part).await.unwrap();
            }
        }
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    for count in [0, 1, 2, 5, 17, 300] {
        let request = format!("GET /{count} HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host());
        client.write_all(request.as_bytes()).await.unwrap();
        let response = read_response(&mut client).await;
        assert!(response.complete && response.body == (0..count).flat_map(chunk).collect::<Vec<_>>(), "{count} chunks");
    }
}

/// A body that yields this data and never ends.
struct Unended(Option<Bytes>);

impl http_body::Body for Unended {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.take().map_or(Poll::Pending, |data| Poll::Ready(Some(Ok(Frame::data(data)))))
    }
}

/// A response with a content length and a body that never ends.
pub(crate) fn unended(body: &'static [u8]) -> Response<TestBody> {
    let mut response =
        Response::new(Unended(Some(Bytes::from_static(body))).map_err(|never| match never {}).boxed_unsync());
    response.headers_mut().insert(http::header::CONTENT_LENGTH, body.len().into());
    response
}

/// An HTTP/2 origin that responds at once. The origin reports the bytes it read of the request's body, and whether the
/// body was whole.
async fn early_h2_origin() -> (std::net::SocketAddr, mpsc::UnboundedReceiver<(usize, bool)>) {
    let (report_sender, reports) = mpsc::unbounded_channel();
    let addr = h2_origin(move |request: Request<Incoming>| {
        let report_sender = report_sender.clone();
        async move {
            tokio::spawn(async move {
                let (mut body, mut bytes) = (request.into_body(), 0);
                let is_whole = loop {
                    match body.frame().await {
                        Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, Bytes::len),
                        Some(Err(_)) => break false,
                        None => break true,
                    }
                };
                let _ = report_sender.send((bytes, is_whole));
            });
            Response::new(text(""))
        }
    })
    .await;
    (addr, reports)
}

/// A client that has sent two of ten bytes, and already has its response.
async fn client_with_early_response(world: &World, socket: &TestSocket, option: &str) -> Client {
    let mut client = world.client(socket).await;
    let host = socket.host();
    let head = format!("POST / HTTP/1.1\r\nHost: {host}\r\nConnection: {option}\r\nContent-Length: 10\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(b"01").await.unwrap();
    assert_eq!(read_response(&mut client).await.status, 200);
    client
}

#[tokio::test]
async fn an_origin_gets_the_rest_of_a_body_after_the_last_response() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, mut reports) = early_h2_origin().await;
    socket.speaks(&world, OriginProtocol::Http2);
    let _connector = world.tunnel(&mut socket, addr).await;
    for option in ["keep-alive", "close"] {
        let mut client = client_with_early_response(&world, &socket, option).await;
        for piece in [&b"23"[..], b"45", b"6789"] {
            tokio::time::sleep(Duration::from_millis(50)).await;
            client.write_all(piece).await.unwrap();
        }
        assert_eq!(soon(reports.recv()).await, Some((10, true)), "{option}");
    }
}

#[tokio::test]
async fn an_origin_sees_a_client_leave_mid_body_after_its_response() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, mut reports) = early_h2_origin().await;
    socket.speaks(&world, OriginProtocol::Http2);
    let _connector = world.tunnel(&mut socket, addr).await;
    for option in ["keep-alive", "close"] {
        drop(client_with_early_response(&world, &socket, option).await);
        assert_eq!(soon(reports.recv()).await, Some((2, false)), "{option}");
    }
}

#[tokio::test]
async fn draining_does_not_wait_for_idle_connections() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("ok").await).await;
    // One client got an error for a request with an unread body. The other sends an empty line after its request.
    let mut clients = Vec::new();
    for (host, more, status) in
        [("nobody.localhost", "Content-Length: 3\r\n\r\nabc", 404), (&socket.host(), "\r\n\r\n", 200)]
    {
        let mut client = world.client_with(host, &[]).await;
        client.write_all(format!("POST / HTTP/1.1\r\nHost: {host}\r\n{more}").as_bytes()).await.unwrap();
        assert_eq!(read_response(&mut client).await.status, status);
        clients.push(client);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let report = soon(tokio::spawn(world.stop())).await.unwrap();
    assert_eq!(report.cut, 0);
    for client in &mut clients {
        assert_eq!(read_rest(client).await, b"", "an orderly end");
    }
}

#[tokio::test]
async fn draining_ends_idle_connections_and_serves_connections_before_their_first_request() {
    let (order, emptied) = watch::channel(None);
    let world = World::start_with(|config| config.drain_until = emptied).await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("here").await).await;
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host());
    let (first, rest) = request.split_at(20);
    let (mut silent, mut slow) = (world.client(&socket).await, world.client(&socket).await);
    slow.write_all(first.as_bytes()).await.unwrap();
    let mut plain = tokio::net::TcpStream::connect(world.plain_addr).await.unwrap();
    plain.write_all(first.as_bytes()).await.unwrap();
    let mut idle = world.client(&socket).await;
    idle.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(read_response(&mut idle).await.status, 200);
    tokio::time::sleep(Duration::from_millis(300)).await;

    order.send(Some(tokio::time::Instant::now())).unwrap();
    assert_eq!(soon(read_rest(&mut idle)).await, b"", "an orderly end");
    for (client, what) in [(&mut silent, request.as_str()), (&mut slow, rest)] {
        client.write_all(what.as_bytes()).await.unwrap();
        let response = soon(read_response(client)).await;
        assert_eq!((response.status, response.text()), (200, "here"));
        assert!(response.head.contains("connection: close"), "{}", response.head);
        assert_eq!(soon(read_rest(client)).await, b"", "an orderly end");
    }
    plain.write_all(rest.as_bytes()).await.unwrap();
    assert_eq!(soon(read_response(&mut plain)).await.status, 308);
}

#[tokio::test]
async fn a_response_ends_at_its_content_length() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = h2_origin(|_| async { unended(b"hello") }).await;
    socket.speaks(&world, OriginProtocol::Http2);
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host());
    client.write_all(request.repeat(3).as_bytes()).await.unwrap();
    for _ in 0..3 {
        assert_eq!(soon(read_response(&mut client)).await.text(), "hello");
    }
}

#[tokio::test]
async fn a_client_is_not_blocked_forever_by_an_origin_that_reads_no_body() {
    let world = World::start_with(|config| config.send_timeout = Duration::from_millis(400)).await;
    let mut socket = world.socket();
    let addr = h2_origin(|request: Request<Incoming>| async move {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            drop(request);
        });
        Response::new(text(""))
    })
    .await;
    socket.speaks(&world, OriginProtocol::Http2);
    let _connector = world.tunnel(&mut socket, addr).await;
    let (mut client, mut sender) = tokio::io::split(world.client(&socket).await);
    let head =
        format!("POST / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: 50000000\r\n\r\n", socket.host());
    let sending = tokio::spawn(async move {
        sender.write_all(head.as_bytes()).await.unwrap();
        write_lossy(&mut sender, &vec![b'x'; 50_000_000]).await;
    });
    assert_eq!(read_response(&mut client).await.status, 200);
    assert_eq!(soon(read_rest(&mut client)).await, b"", "an orderly end");
    sending.abort();
}
