//! HTTP/2 to clients and origins.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use sallyport_edge::BoxError;
use sallyport_model::OriginProtocol;
use tokio::io::AsyncWriteExt;

use crate::harness::*;

fn request(socket: &TestSocket, path: &str, body: TestBody) -> Request<TestBody> {
    Request::builder().uri(format!("https://{}{path}", socket.host())).body(body).unwrap()
}

#[tokio::test]
async fn http2_clients_reach_http1_origins_with_host_and_one_cookie() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = origin(|request| async move {
        assert_eq!(request.version(), Version::HTTP_11);
        let headers = request.headers().clone();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let cookies: Vec<_> = headers.get_all("cookie").iter().map(|v| v.to_str().unwrap()).collect();
        let host = headers["host"].to_str().unwrap();
        Response::new(text(format!("{host} {cookies:?} {}", String::from_utf8_lossy(&body))))
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut sender = world.http2(&socket).await;
    let mut responses = Vec::new();
    for number in 0..20 {
        let mut request = request(&socket, "/", text(format!("body {number}")));
        *request.method_mut() = http::Method::POST;
        request.headers_mut().append("cookie", HeaderValue::from_static("a=1"));
        request.headers_mut().append("cookie", HeaderValue::from_static("b=2"));
        responses.push(tokio::spawn(sender.send_request(request)));
        sender.ready().await.unwrap();
    }
    for (number, response) in responses.into_iter().enumerate() {
        let response = soon(response).await.unwrap().unwrap();
        assert_eq!(response.version(), Version::HTTP_2);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, format!("{} [\"a=1; b=2\"] body {number}", socket.host()));
    }
}

fn grpc_response() -> TestBody {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = [Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"\0\0\0\0\x02ok"))), Ok(Frame::trailers(trailers))];
    StreamBody::new(Frames(frames.into_iter())).boxed_unsync()
}

/// A stream of frames that are ready at once.
pub(crate) struct Frames<I>(pub(crate) I);

impl<I: Iterator + Unpin> futures_core::Stream for Frames<I> {
    type Item = I::Item;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<I::Item>> {
        std::task::Poll::Ready(self.0.next())
    }
}

#[tokio::test]
async fn grpc_reaches_an_h2c_origin_with_trailers_both_ways() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = h2_origin(|request| async move {
        assert_eq!(request.version(), Version::HTTP_2);
        assert_eq!(request.headers()["te"], "trailers");
        assert!(request.uri().authority().unwrap().as_str().starts_with("calm-bay-"));
        let collected = request.into_body().collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()["x-checksum"], "7");
        let mut response = Response::new(grpc_response());
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        response
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut sender = world.http2(&socket).await;
    for _ in 0..5 {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", HeaderValue::from_static("7"));
        let frames = [Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"\0\0\0\0\0"))), Ok(Frame::trailers(trailers))];
        let mut call =
            request(&socket, "/pkg.Service/Call", StreamBody::new(Frames(frames.into_iter())).boxed_unsync());
        *call.method_mut() = http::Method::POST;
        call.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc+proto"));
        call.headers_mut().insert("te", HeaderValue::from_static("trailers"));
        let response = soon(sender.send_request(call)).await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/grpc");
        let collected = soon(response.into_body().collect()).await.unwrap();
        assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(collected.to_bytes(), &b"\0\0\0\0\x02ok"[..]);
    }
}

#[tokio::test]
async fn a_grpc_call_without_an_origin_gets_a_grpc_status() {
    let world = World::start_with(|_| ()).await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, dead_origin()).await;
    let mut sender = world.http2(&socket).await;
    let mut call = request(&socket, "/pkg.Service/Call", text("x"));
    *call.method_mut() = http::Method::POST;
    call.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let response = soon(sender.send_request(call)).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["grpc-status"]),
        (200, &HeaderValue::from_static("14"))
    );
}

#[tokio::test]
async fn http1_clients_reach_http2_origins() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = h2_origin(|request| async move {
        assert_eq!(request.version(), Version::HTTP_2);
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Response::new(text(format!("{path} {}", body.len())))
    })
    .await;
    socket.speaks(&world, OriginProtocol::Http2);
    let _connector = world.tunnel(&mut socket, addr).await;
    let response = world.get(&socket, "/one").await;
    assert_eq!((response.status, response.text()), (200, "/one 0"));
    let head = format!("POST /two HTTP/1.1\r\nHost: {}\r\nContent-Length: 5\r\n\r\nhello", socket.host());
    assert_eq!(world.raw(&socket, head.as_bytes()).await.text(), "/two 5");
}

#[tokio::test]
async fn an_early_response_does_not_wait_for_the_end_of_its_request() {
    let world = World::start().await;
    let mut socket = world.socket();
    let answered = Arc::new(Mutex::new(Instant::now()));
    let addr = h2_origin({
        let answered = answered.clone();
        move |request| {
            // The origin keeps reading.
            tokio::spawn(request.into_body().collect());
            *answered.lock().unwrap() = Instant::now();
            async { Response::new(text("early")) }
        }
    })
    .await;
    socket.speaks(&world, OriginProtocol::Http2);
    let _connector = world.tunnel(&mut socket, addr).await;
    let head =
        format!("POST / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: 1000\r\n\r\nhello", socket.host());
    // A response that waits for the end of the connection takes at least 200 ms each time.
    for _ in 0..20 {
        let mut client = world.client(&socket).await;
        client.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(read_response(&mut client).await.text(), "early");
        if answered.lock().unwrap().elapsed() < Duration::from_millis(150) {
            return;
        }
    }
    panic!("each response waited");
}

#[tokio::test]
async fn malformed_http2_requests_are_refused_and_leave_the_connection_usable() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = named_origin("ok").await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let mut sender = world.http2(&socket).await;
    let mut conflicting = request(&socket, "/", text(""));
    conflicting.headers_mut().insert("host", HeaderValue::from_static("other.localhost"));
    assert_eq!(soon(sender.send_request(conflicting)).await.unwrap().status(), 400);
    assert_eq!(soon(sender.send_request(request(&socket, "/", text("")))).await.unwrap().status(), 200);
}

#[tokio::test]
async fn an_http2_stream_is_reset_when_its_connector_is_killed() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        use tokio::io::AsyncWriteExt;
        read_head(&mut tcp).await;
        tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nsome").await.unwrap();
        read_rest(&mut tcp).await;
    })
    .await;
    let connector = world.tunnel(&mut socket, addr).await;
    let mut sender = world.http2(&socket).await;
    let mut response = soon(sender.send_request(request(&socket, "/", text("")))).await.unwrap();
    assert_eq!(soon(response.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap(), "some");
    connector.kill();
    assert!(soon(response.into_body().collect()).await.is_err());
}

#[tokio::test]
async fn thousands_of_reset_streams_do_not_affect_other_clients() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("ok").await).await;
    let mut rapid = world.http2(&socket).await;
    for _ in 0..5_000 {
        if rapid.ready().await.is_err() {
            break;
        }
        drop(rapid.send_request(request(&socket, "/", text(""))));
    }
    let mut calm = world.http2(&socket).await;
    assert_eq!(soon(calm.send_request(request(&socket, "/", text("")))).await.unwrap().status(), 200);
    assert_eq!(world.get(&socket, "/").await.text(), "ok");
}

#[tokio::test]
async fn a_head_response_of_the_edge_has_no_body() {
    let world = World::start().await;
    let mut socket = world.socket();
    socket.protect(&world, "ann", "horse");
    let nobody = world.socket();
    let mut sender = world.http2(&socket).await;
    let (socket, nobody) = (socket.host(), nobody.host());
    let asked = [
        (200, "api.localhost", "/healthz"),
        (200, "api.localhost", "/metrics"),
        (200, "api.localhost", "/v1/anything"),
        (401, socket.as_str(), "/"),
        (503, nobody.as_str(), "/"),
        (404, "nope.localhost", "/"),
        (426, "tunnel.localhost", "/_sallyport/tunnel"),
    ];
    for (status, host, path) in asked {
        let mut lengths = Vec::new();
        for method in [http::Method::GET, http::Method::HEAD] {
            let request = Request::builder().method(method.clone()).uri(format!("https://{host}{path}"));
            let response = soon(sender.send_request(request.body(text("")).unwrap())).await.unwrap();
            assert_eq!(response.status(), status, "{host}{path}");
            lengths.push(response.headers()["content-length"].clone());
            let body = soon(response.into_body().collect()).await.unwrap_or_else(|e| panic!("{method} {path}: {e}"));
            assert_eq!(body.to_bytes().is_empty(), method == http::Method::HEAD, "{method} {host}{path}");
        }
        assert!(path == "/metrics" || lengths[0] == lengths[1], "the same head: {lengths:?} for {host}{path}");
        soon(sender.ready()).await.expect("the connection lives on");
    }
}

/// The value of this gauge.
fn gauge(world: &World, name: &str) -> usize {
    let text = world.edge.metrics_text().unwrap();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn short_responses_share_a_connection_under_load() {
    const SHARED: &str = "sallyport_edge_streams_multiplexed";
    let world = World::start().await;
    let mut socket = world.socket();
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let addr = origin({
        let gate = gate.clone();
        move |request| {
            let gate = gate.clone();
            async move {
                if request.uri().path() == "/held" {
                    gate.acquire().await.unwrap().forget();
                }
                let length = if request.uri().path() == "/long" { 20_000 } else { 2 };
                Response::new(text("x".repeat(length)))
            }
        }
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    until("legs are there", || gauge(&world, "sallyport_edge_legs_idle") >= 8).await;
    let mut sender = world.http2(&socket).await;
    let mut length = |path: &'static str| {
        let response = sender.send_request(request(&socket, path, text("")));
        async { soon(response).await.unwrap().into_body().collect().await.unwrap().to_bytes().len() }
    };
    let mut held = Vec::new();
    for _ in 0..7 {
        held.push(tokio::spawn(length("/held")));
    }
    until("all are under way", || gauge(&world, "sallyport_edge_legs_busy") == 7).await;
    assert_eq!(gauge(&world, SHARED), 0, "each has a leg while they are few");
    until("more legs are there", || gauge(&world, "sallyport_edge_legs_idle") > 0).await;
    assert_eq!(length("/").await, 2);
    assert_eq!(gauge(&world, SHARED), 1, "though there are legs");
    assert_eq!(length("/long").await, 20_000);
    assert_eq!(length("/").await, 2);
    assert_eq!(gauge(&world, SHARED), 1);
    assert_eq!(gauge(&world, "sallyport_edge_legs_busy"), 8, "after a long response, it had a leg");
    gate.add_permits(7);
    for response in held {
        assert_eq!(response.await.unwrap(), 2);
    }
}
