//! Services without TLS: bytes, ends, and everything that a service can do wrong.

use std::{io, time::Duration};

use sallyport_connector::{ConnectorOptions, Service};
use sallyport_model::OriginAddr;
use sallyport_wire::{FailureReason, StreamProtocol::Raw};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    sync::mpsc,
};

use crate::lab::*;

#[tokio::test]
async fn bytes_pass_unchanged_and_each_direction_ends_for_itself() {
    let (edge, _connector) = before(service(echo).await, None).await;
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| ((i * 7) >> 5) as u8).collect();
    for _ in 0..3 {
        let (mut reader, mut writer) = tokio::io::split(edge.open(Raw).await);
        let writing = async {
            writer.write_all(&bytes).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let reading = async {
            let mut answer = Vec::new();
            reader.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let (answer, ()) = soon(async { tokio::join!(reading, writing) }).await;
        assert!(answer == bytes);
    }
}

#[tokio::test]
async fn a_service_may_say_its_last_word_first() {
    let (sender, mut received) = mpsc::channel(1);
    let port = service(move |mut stream: TcpStream| {
        let sender = sender.clone();
        async move {
            stream.write_all(b"said first").await.unwrap();
            stream.shutdown().await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            sender.send(text).await.unwrap();
        }
    });
    let (edge, _connector) = before(port.await, None).await;
    let mut stream = edge.open(Raw).await;
    let mut text = String::new();
    soon(stream.read_to_string(&mut text)).await.unwrap();
    assert_eq!(text, "said first");
    stream.write_all(b"said last").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(soon(received.recv()).await.unwrap(), "said last");
}

/// This service has Nagle's algorithm on, and writes each answer in three pieces. The second piece waits for the
/// acknowledgement of the first, which must come at once.
#[tokio::test]
async fn responses_in_pieces_stall_no_longer_after_detection() {
    let port = service(|mut stream: TcpStream| async move {
        stream.set_nodelay(false).unwrap();
        while stream.read_u8().await.is_ok() {
            for piece in [b"head", b"more", b"tail"] {
                stream.write_all(piece).await.unwrap();
                // Written separately, not in one segment.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    let (edge, _connector) = before(port.await, None).await;
    let mut stream = edge.open(Raw).await;
    let mut times = Vec::new();
    for _ in 0..80 {
        let asked = std::time::Instant::now();
        stream.write_all(b"?").await.unwrap();
        let mut answer = [0; 12];
        soon(stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"headmoretail");
        times.push(asked.elapsed());
    }
    // A busy machine may be slow at any time, but not nearly always.
    let slow = times.iter().filter(|time| **time >= Duration::from_millis(35)).count();
    assert!(slow < 40, "{slow} of 80 answers stalled: {times:?}");
}

#[tokio::test]
async fn small_responses_do_not_wait_for_more() {
    let port = service(|mut stream: TcpStream| async move {
        stream.write_all(b"hello").await.unwrap();
        std::future::pending::<()>().await;
    });
    let (edge, _connector) = before(port.await, None).await;
    let mut stream = edge.open(Raw).await;
    let mut hello = [0; 5];
    soon(stream.read_exact(&mut hello)).await.unwrap();
    assert_eq!(&hello, b"hello");
}

#[tokio::test]
async fn a_service_that_does_not_run_is_reported_with_advice() {
    // A port that is bound but not listening refuses connections, and stays reserved.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = held.local_addr().unwrap().port();
    let (edge, _connector) = before(port, None).await;
    let failure = edge.failure(Raw).await;
    is(&failure, FailureReason::Refused, &format!("nothing listens on localhost:{port}: start the service"));
}

#[tokio::test]
async fn a_service_that_takes_no_connection_is_given_up_in_time() {
    // A full accept queue, so that the kernel leaves further connections unanswered.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(500), TcpStream::connect(address)).await {
        waiting.push(stream);
    }
    let edge = Edge::start().await;
    let origin = OriginAddr { host: "127.0.0.1".into(), port: address.port() }.into();
    let connect_timeout = Duration::from_millis(300);
    let services = vec![Service { origin, connect_timeout, ..service_at(0) }];
    let _connector = Connector::start(ConnectorOptions { services, ..edge.options(0) });
    let failure = edge.failure(Raw).await;
    is(&failure, FailureReason::TimedOut, "did not answer within 300ms");
}

#[tokio::test]
async fn a_host_without_address_is_reported() {
    let edge = Edge::start().await;
    let origin = OriginAddr { host: "no such host".into(), port: 80 }.into();
    let services = vec![Service { origin, ..service_at(0) }];
    let _connector = Connector::start(ConnectorOptions { services, ..edge.options(0) });
    is(&edge.failure(Raw).await, FailureReason::Unresolved, "\"no such host\" has no address");
}

#[tokio::test]
async fn a_broken_response_is_no_complete_response() {
    let port = service(|mut stream: TcpStream| async move {
        stream.read_u8().await.unwrap();
        stream.write_all(b"half an ans").await.unwrap();
        stream.flush().await.unwrap();
        stream.read_u8().await.unwrap();
        stream.set_zero_linger().unwrap();
    });
    let (edge, _connector) = before(port.await, None).await;
    let mut stream = edge.open(Raw).await;
    stream.write_all(b"?").await.unwrap();
    let mut half = [0; 11];
    soon(stream.read_exact(&mut half)).await.unwrap();
    stream.write_all(b"!").await.unwrap();
    let error = soon(stream.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
}

#[tokio::test]
async fn a_client_that_breaks_off_is_no_complete_request() {
    let (ended_in, mut ended) = mpsc::channel(1);
    let port = service(move |mut stream: TcpStream| {
        let ended_in = ended_in.clone();
        async move {
            let mut half = [0; 4];
            stream.read_exact(&mut half).await.unwrap();
            stream.write_all(b"ok").await.unwrap();
            ended_in.send(stream.read_u8().await.map_err(|error| error.kind())).await.unwrap();
        }
    });
    let (edge, _connector) = before(port.await, None).await;
    let mut stream = edge.open(Raw).await;
    stream.write_all(b"half").await.unwrap();
    let mut ok = [0; 2];
    soon(stream.read_exact(&mut ok)).await.unwrap();
    drop(stream);
    assert_eq!(soon(ended.recv()).await.unwrap(), Err(io::ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn a_response_sent_before_the_request_was_read_still_arrives() {
    // The connection is closed with most of the request unread, so the kernel resets it.
    let port = service(|mut stream: TcpStream| async move {
        let mut beginning = [0; 1_000];
        stream.read_exact(&mut beginning).await.unwrap();
        stream.write_all(&[b'4'; 5_000]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    });
    let (edge, _connector) = before(port.await, None).await;
    for _ in 0..5 {
        let (mut reader, mut writer) = tokio::io::split(edge.open(Raw).await);
        let writing = tokio::spawn(async move {
            let much = vec![1; 100_000];
            let mut sent = 0_u64;
            while writer.write_all(&much).await.is_ok() && sent < 1 << 30 {
                sent += 100_000;
            }
            sent
        });
        let mut answer = [0; 5_000];
        soon(reader.read_exact(&mut answer)).await.unwrap();
        assert_eq!(answer, [b'4'; 5_000]);
        assert!(soon(writing).await.unwrap() < 1 << 30, "the client gets the reset, since nothing reads any more");
    }
}

#[tokio::test]
async fn a_client_that_breaks_off_after_its_end_is_a_reset_to_a_service_that_is_silent() {
    let (ended_in, mut ended) = mpsc::channel(1);
    let port = service(move |mut stream: TcpStream| {
        let ended_in = ended_in.clone();
        async move {
            stream.write_all(b"!").await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.unwrap();
            ended_in.send(None).await.unwrap();
            // Waits only: the reset is an error of the socket, not of a read after the end.
            while stream.take_error().unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            ended_in.send(Some(())).await.unwrap();
        }
    });
    let (edge, _connector) = before(port.await, None).await;
    let mut stream = edge.open(Raw).await;
    stream.write_all(b"a question").await.unwrap();
    stream.shutdown().await.unwrap();
    soon(stream.read_u8()).await.unwrap();
    assert_eq!(soon(ended.recv()).await.unwrap(), None);
    stream.reset(sallyport_wire::ResetCode::Cancelled);
    assert_eq!(soon(ended.recv()).await.unwrap(), Some(()));
}
