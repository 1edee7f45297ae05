//! Clients that stop reading or sending, and the timeouts that end them.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::Request;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::*;

/// The send and receive timeout: short for a test, and long for a busy machine.
const BOUND: Duration = Duration::from_secs(2);

/// An origin with endless responses, and a flag that is set when one of its connections has ended.
async fn endless_origin() -> (std::net::SocketAddr, Arc<AtomicBool>) {
    let ended = Arc::new(AtomicBool::new(false));
    let (addr, _) = raw_origin({
        let ended = ended.clone();
        move |mut tcp| {
            let ended = ended.clone();
            async move {
                if read_head(&mut tcp).await.contains("/short") {
                    write_lossy(&mut tcp, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                    return;
                }
                write_lossy(&mut tcp, b"HTTP/1.1 200 OK\r\ncontent-length: 9000000000000\r\n\r\n").await;
                while tcp.write_all(&[b'x'; 65_536]).await.is_ok() {}
                ended.store(true, Ordering::SeqCst);
            }
        }
    })
    .await;
    (addr, ended)
}

#[tokio::test]
async fn a_client_that_stops_reading_releases_its_origin() {
    let world = World::start_with(|config| config.send_timeout = BOUND).await;
    let mut socket = world.socket();
    let (addr, ended) = endless_origin().await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
    read_head(&mut client).await;
    until("the origin's connection has ended", || ended.load(Ordering::SeqCst)).await;
}

#[tokio::test]
async fn an_http2_stream_with_no_window_releases_its_origin_and_other_streams_go_on() {
    let world = World::start_with(|config| config.send_timeout = BOUND).await;
    let mut socket = world.socket();
    let (addr, ended) = endless_origin().await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut sender = world.http2(&socket).await;
    let request =
        |path: &str| Request::builder().uri(format!("https://{}{path}", socket.host())).body(text("")).unwrap();
    let unread = soon(sender.send_request(request("/"))).await.unwrap();
    until("the origin's connection has ended", || ended.load(Ordering::SeqCst)).await;
    assert!(soon(unread.into_body().collect()).await.is_err(), "the response must not look whole");
    let other = soon(sender.send_request(request("/short"))).await.unwrap();
    assert_eq!(soon(other.into_body().collect()).await.unwrap().to_bytes(), "ok");
}

#[tokio::test]
async fn a_response_with_nothing_to_send_is_not_timed_out() {
    let world = World::start_with(|config| config.send_timeout = Duration::from_millis(300)).await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\none").await.unwrap();
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        tcp.write_all(b"two").await.unwrap();
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    assert_eq!(world.get(&socket, "/").await.text(), "onetwo");
    let mut sender = world.http2(&socket).await;
    let request = Request::builder().uri(format!("https://{}/", socket.host())).body(text("")).unwrap();
    let response = soon(sender.send_request(request)).await.unwrap();
    assert_eq!(soon(response.into_body().collect()).await.unwrap().to_bytes(), "onetwo");
}

#[tokio::test]
async fn a_slow_client_gets_its_whole_response() {
    const LENGTH: usize = 24 * 1024 * 1024;
    let world = World::start_with(|config| config.send_timeout = BOUND).await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        tcp.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n").as_bytes()).await.unwrap();
        write_lossy(&mut tcp, &vec![b'x'; LENGTH]).await;
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
    read_head(&mut client).await;
    let (mut piece, mut got) = (vec![0; LENGTH / 12], 0);
    while got < LENGTH {
        soon(client.read_exact(&mut piece)).await.unwrap();
        got += piece.len();
        tokio::time::sleep(BOUND / 4).await;
    }
}

#[tokio::test]
async fn a_body_that_stalls_after_its_response_is_ended() {
    let world = World::start_with(|config| config.send_timeout = BOUND).await;
    let mut socket = world.socket();
    let ended = Arc::new(AtomicBool::new(false));
    let addr = h2_origin({
        let ended = ended.clone();
        move |request: Request<hyper::body::Incoming>| {
            let ended = ended.clone();
            tokio::spawn(async move {
                let whole = request.into_body().collect().await.is_ok();
                ended.store(!whole, Ordering::SeqCst);
            });
            async { http::Response::new(text("enough")) }
        }
    })
    .await;
    socket.speaks(&world, sallyport_model::OriginProtocol::Http2);
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    let head = format!("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: 100\r\n\r\nsome", socket.host());
    client.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(read_response(&mut client).await.text(), "enough");
    for _ in 0..8 {
        client.write_all(b"x").await.unwrap();
        tokio::time::sleep(BOUND / 4).await;
        assert!(!ended.load(Ordering::SeqCst), "an upload that still arrives was ended");
    }
    until("the request at the origin has ended", || ended.load(Ordering::SeqCst)).await;
}

/// A body that counts the pieces taken from it.
struct Counted {
    pieces: usize,
    taken: Arc<AtomicUsize>,
}

const PIECE: &[u8] = &[b'x'; 16_384];

impl http_body::Body for Counted {
    type Data = bytes::Bytes;
    type Error = sallyport_edge::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        Poll::Ready(self.pieces.checked_sub(1).map(|rest| {
            self.pieces = rest;
            self.taken.fetch_add(PIECE.len(), Ordering::SeqCst);
            Ok(http_body::Frame::data(bytes::Bytes::from_static(PIECE)))
        }))
    }
}

#[tokio::test]
async fn an_unread_http2_upload_gets_its_response_and_may_finish() {
    const PIECES: usize = 200;
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        tcp.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
        read_rest(&mut tcp).await;
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    for (host, status) in [("api.localhost", 200), ("no-such-name.localhost", 404), (socket.host().as_str(), 413)] {
        let mut sender = world.http2(&socket).await;
        let taken = Arc::new(AtomicUsize::new(0));
        let body = Counted { pieces: PIECES, taken: taken.clone() }.boxed_unsync();
        let request = Request::post(format!("https://{host}/v1/things")).body(body).unwrap();
        let response = soon(sender.send_request(request)).await.unwrap();
        assert_eq!(response.status(), status, "{host}");
        assert!(soon(response.into_body().collect()).await.is_ok(), "{host}");
        // The response ends before the upload does. The upload still runs to its end.
        until("the upload was not cut off", || taken.load(Ordering::SeqCst) == PIECES * PIECE.len()).await;
    }
}

#[tokio::test]
async fn an_endless_unread_http2_upload_is_reset_after_its_response() {
    let world = World::start().await;
    let socket = world.socket();
    let mut sender = world.http2(&socket).await;
    let taken = Arc::new(AtomicUsize::new(0));
    let body = Counted { pieces: usize::MAX, taken: taken.clone() }.boxed_unsync();
    let request = Request::post("https://api.localhost/v1/things").body(body).unwrap();
    let response = soon(sender.send_request(request)).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(soon(response.into_body().collect()).await.is_ok());
}

#[tokio::test]
async fn request_bytes_that_the_api_reads_are_counted() {
    let world = World::start().await;
    let socket = world.socket();
    let body = "x".repeat(12_345);
    let head = "POST /v1/read HTTP/1.1\r\nHost: api.localhost\r\nContent-Length: 12345\r\n\r\n";
    assert_eq!(world.raw(&socket, format!("{head}{body}").as_bytes()).await.status, 200);
    until("the bytes are counted", || world.edge.metrics_text().unwrap().contains(" 12345\n")).await;
}
