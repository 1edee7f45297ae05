//! Requests and responses, by the crate `h3`.

use std::net::{Ipv4Addr, UdpSocket};

use bytes::Bytes;
use http::Request;
use tokio::sync::mpsc::error::TryRecvError;

use super::harness::*;
use crate::lifecycle::phase::Phase;

#[tokio::test]
async fn a_request_reaches_the_origin_and_its_response_the_client() {
    let world = World::start().await;
    let mut client = world.client().await;
    for _ in 0..3 {
        assert_eq!(client.get("/").await, (200, "3 sallyport 127.0.0.1 - -".to_owned()));
    }
    let head = Request::head(format!("https://{HOST}/bytes/100")).body(()).unwrap();
    let (response, body) = client.request(head, None).await;
    assert_eq!((response.headers()["content-length"].as_bytes(), body.len()), (&b"100"[..], 0));
    assert!(response.headers().contains_key("date") && !response.headers().contains_key("connection"));
    let unknown = Request::get("https://nothing.localhost/").body(()).unwrap();
    assert_eq!(client.request(unknown, None).await.0.status(), 404);
    assert_eq!(world.metric("sallyport_edge_http3_connections_failed_total"), 0);
}

#[tokio::test]
async fn bodies_of_both_directions_are_whole() {
    let world = World::start().await;
    let mut client = world.client().await;
    let large = Bytes::from((0..9_000_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>());
    for (length, declared) in [(0, true), (1, false), (1, true), (5_000, false), (9_000_000, true), (9_000_000, false)]
    {
        let mut request = Request::post(format!("https://{HOST}/echo"));
        if declared {
            request = request.header("content-length", length);
        }
        let body = large.slice(..length);
        let (response, echo) = client.request(request.body(()).unwrap(), Some(body.clone())).await;
        assert_eq!((response.status().as_u16(), echo.len()), (200, length));
        assert!(echo == body, "{length} bytes come back");
    }
    let (status, body) = client.get("/bytes/20000000").await;
    assert_eq!((status, body.len()), (200, 20_000_000));
    assert_eq!(world.edge.http.uploads.held(), 0, "no upload is under way");
}

#[tokio::test]
async fn many_requests_run_at_once() {
    let world = World::start().await;
    let client = world.client().await;
    let requests = (0..300).map(|n| {
        let mut client = Client {
            sender: client.sender.clone(),
            driver: tokio::spawn(std::future::pending()),
            connection: client.connection.clone(),
            endpoint: client.endpoint.clone(),
        };
        tokio::spawn(async move {
            let length = 1 + n * 7;
            let request = Request::post(format!("https://{HOST}/length")).body(()).unwrap();
            let (_, body) = client.request(request, Some(Bytes::from(vec![1; length]))).await;
            assert_eq!(body, length.to_string().into_bytes());
        })
    });
    for request in requests.collect::<Vec<_>>() {
        soon(request).await.unwrap();
    }
}

#[tokio::test]
async fn a_response_before_the_end_of_the_request_is_whole() {
    let world = World::start().await;
    let mut client = world.client().await;
    for _ in 0..3 {
        let request = Request::post(format!("https://{HOST}/early")).body(()).unwrap();
        let (response, body) = client.request(request, Some(Bytes::from(vec![1; 3_000_000]))).await;
        assert_eq!((response.status().as_u16(), &body[..]), (200, &b"early"[..]));
    }
}

#[tokio::test]
async fn a_grpc_call_has_trailers_both_ways() {
    let world = World::start().await;
    let mut client = world.client().await;
    let request = Request::post(format!("https://{HOST}/trailers"))
        .header("te", "trailers")
        .header("content-type", "application/grpc");
    let (mut send, mut recv) = soon(client.sender.send_request(request.body(()).unwrap())).await.unwrap().split();
    send.send_data(Bytes::from_static(b"message")).await.unwrap();
    let sum = [("x-checksum".parse().unwrap(), "7".parse().unwrap())];
    send.send_trailers(sum.into_iter().collect()).await.unwrap();
    send.finish().await.unwrap();
    let response = soon(recv.recv_response()).await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["x-version"]), (200, &"HTTP/2.0".parse().unwrap()));
    let mut body = Vec::new();
    while let Some(data) = soon(recv.recv_data()).await.unwrap() {
        body.extend_from_slice(bytes::Buf::chunk(&data));
    }
    assert_eq!(body, b"message");
    let trailers = soon(recv.recv_trailers()).await.unwrap().expect("the response has trailers");
    assert_eq!((&trailers["grpc-status"], &trailers["x-checksum"]), (&"0".parse().unwrap(), &"7".parse().unwrap()));
}

#[tokio::test]
async fn a_request_after_a_migration_has_the_new_address() {
    let world = World::start().await;
    let mut client = world.client().await;
    assert_eq!(client.get("/").await.1, "3 sallyport 127.0.0.1 - -");
    // A download that runs is not disturbed.
    let mut other = client.sender.clone();
    let request = Request::get(format!("https://{HOST}/bytes/5000000")).body(()).unwrap();
    let mut download = other.send_request(request).await.unwrap();
    download.finish().await.unwrap();
    assert_eq!(soon(download.recv_response()).await.unwrap().status(), 200);
    client.endpoint.rebind(UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 9), 0)).unwrap()).unwrap();
    // The server learns of the address with the next packets.
    let mut seen = String::new();
    for _ in 0..50 {
        seen = client.get("/").await.1;
        if seen.contains("127.0.0.9") {
            break;
        }
    }
    assert_eq!(seen, "3 sallyport 127.0.0.9 - -");
    let mut got = 0;
    while let Some(data) = soon(download.recv_data()).await.unwrap() {
        got += bytes::Buf::remaining(&data);
    }
    assert_eq!(got, 5_000_000);
}

#[tokio::test]
async fn a_shutdown_waits_for_running_requests() {
    let mut world = World::start().await;
    let mut client = world.client().await;
    client.get("/").await;
    let request = Request::post(format!("https://{HOST}/echo")).body(()).unwrap();
    let mut running = client.sender.send_request(request).await.unwrap();
    running.send_data(Bytes::from_static(b"first ")).await.unwrap();
    assert_eq!(soon(running.recv_response()).await.unwrap().status(), 200);
    world.edge.state.phase.all(Phase::Lingering);
    // A request after the second GOAWAY is rejected: the client sees GOAWAY first, and refuses it itself.
    soon(async {
        loop {
            let request = Request::get(format!("https://{HOST}/")).body(()).unwrap();
            match client.sender.send_request(request).await {
                Ok(mut stream) => {
                    let _ = stream.finish().await;
                    let _ = stream.recv_response().await;
                }
                Err(_) => return,
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(world.served.try_recv(), Err(TryRecvError::Empty), "the connection is still served");
    running.send_data(Bytes::from_static(b"last")).await.unwrap();
    running.finish().await.unwrap();
    let mut body = Vec::new();
    while let Some(data) = soon(running.recv_data()).await.unwrap() {
        body.extend_from_slice(bytes::Buf::chunk(&data));
    }
    assert_eq!(body, b"first last");
    let ended = soon(client.driver).await.unwrap();
    assert!(ended.is_h3_no_error(), "{ended:?}");
    soon(world.served.recv()).await.unwrap();
}
