//! Frames by hand: what is refused, and how a connection ends.

use std::time::Duration;

use quinn::ReadError;
use sallyport_http3::ErrorCode;

use super::{frames::*, harness::*};
use crate::lifecycle::phase::Phase;

#[tokio::test]
async fn violations_end_the_connection_with_their_codes() {
    let mut world = World::start().await;
    let cases: [(Vec<u8>, ErrorCode); 5] = [
        (frame(0, &[1]), ErrorCode::FRAME_UNEXPECTED),
        ([head("GET", "/", &[]), frame(4, &[])].concat(), ErrorCode::FRAME_UNEXPECTED),
        (frame(1, &[0, 0, 0x80]), ErrorCode::QPACK_DECOMPRESSION_FAILED),
        (head("GET", "/", &[])[..9].to_vec(), ErrorCode::FRAME_ERROR),
        // A frame of a type that is skipped, of 16 MiB.
        ([&[0x21, 0xc0, 0, 0, 0][..], &[1, 0, 0, 0, 0]].concat(), ErrorCode::EXCESSIVE_LOAD),
    ];
    for (bytes, expected) in cases {
        let (connection, _endpoint) = world.connect().await;
        open(&connection, &bytes, true).await;
        assert_eq!(close_code(&connection).await, code(expected), "{bytes:x?}");
    }
    let uni: [(&[u8], ErrorCode); 4] = [
        (&[1], ErrorCode::STREAM_CREATION_ERROR),
        (&[0, 7, 1, 0], ErrorCode::MISSING_SETTINGS),
        (&[2, 0x3f, 0xbd, 0x01], ErrorCode::QPACK_ENCODER_STREAM_ERROR),
        (&[3, 0x80], ErrorCode::QPACK_DECODER_STREAM_ERROR),
    ];
    for (bytes, expected) in uni {
        let (connection, _endpoint) = world.connect().await;
        let mut stream = soon(connection.open_uni()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        assert_eq!(close_code(&connection).await, code(expected), "{bytes:x?}");
    }
    // The end of a critical stream.
    let (connection, _endpoint) = world.connect().await;
    let mut stream = soon(connection.open_uni()).await.unwrap();
    stream.write_all(&[0, 4, 0]).await.unwrap();
    stream.finish().unwrap();
    assert_eq!(close_code(&connection).await, code(ErrorCode::CLOSED_CRITICAL_STREAM));
    for _ in 0..10 {
        soon(world.served.recv()).await.unwrap();
    }
    assert_eq!(world.metric("sallyport_edge_http3_connections_failed_total{code=\"H3_FRAME_UNEXPECTED\"}"), 2);
    assert_eq!(world.metric("sallyport_edge_http3_connections_failed_total{code=\"H3_CLOSED_CRITICAL_STREAM\"}"), 1);
}

#[tokio::test]
async fn malformed_requests_are_reset_alone() {
    let world = World::start().await;
    let (connection, _endpoint) = world.connect().await;
    let cases = [
        (head("GET", "/", &[("connection", "close")]), ErrorCode::MESSAGE_ERROR),
        ([head("POST", "/length", &[("content-length", "3")]), frame(0, &[1, 2])].concat(), ErrorCode::MESSAGE_ERROR),
        (Vec::new(), ErrorCode::REQUEST_INCOMPLETE),
    ];
    for (bytes, expected) in cases {
        let (_send, mut recv) = open(&connection, &bytes, true).await;
        let read = soon(recv.read_to_end(100_000)).await.unwrap_err();
        assert!(
            matches!(read, quinn::ReadToEndError::Read(ReadError::Reset(reset)) if reset == code(expected)),
            "{read:?}"
        );
    }
    let (_send, mut recv) = open(&connection, &head("GET", "/", &[]), true).await;
    assert!(starts_with_status(&soon(recv.read_to_end(100_000)).await.unwrap(), OK));
    assert_eq!(world.metric("sallyport_edge_http3_requests_reset_total{code=\"H3_MESSAGE_ERROR\"}"), 2);
}

#[tokio::test]
async fn refused_heads_and_unsupported_methods_are_answered() {
    let world = World::start().await;
    let (connection, _endpoint) = world.connect().await;
    let long = "v".repeat(70_000);
    let unknown = head("CONNECT", "/", &[(":protocol", "connect-udp")]);
    for (bytes, status) in [(head("GET", "/", &[("x-long", &long)]), "431"), (unknown, "501")] {
        let (_send, mut recv) = open(&connection, &bytes, true).await;
        let response = soon(recv.read_to_end(100_000)).await.unwrap();
        let mut expected = Vec::new();
        sallyport_http3::qpack::begin(&mut expected);
        sallyport_http3::qpack::status(http::StatusCode::from_bytes(status.as_bytes()).unwrap(), &mut expected);
        assert!(starts_with_status(&response, &expected), "{status}: {:x?}", &response[..20]);
    }
}

#[tokio::test]
async fn a_client_that_waits_for_100_continue_gets_it_before_the_response() {
    let world = World::start().await;
    let (connection, _endpoint) = world.connect().await;
    let waits = head("POST", "/length", &[("content-length", "3"), ("expect", "100-continue")]);
    let (mut send, mut recv) = open(&connection, &waits, false).await;
    let mut interim = [0; 7];
    soon(recv.read_exact(&mut interim)).await.unwrap();
    assert!(starts_with_status(&interim, CONTINUE), "{interim:x?}");
    send.write_all(&frame(0, b"abc")).await.unwrap();
    send.finish().unwrap();
    let response = soon(recv.read_to_end(100_000)).await.unwrap();
    assert!(starts_with_status(&response, OK) && response.ends_with(b"3"), "{response:x?}");
}

#[tokio::test]
async fn a_client_that_only_gives_up_requests_is_disconnected() {
    let world = World::start().await;
    let (connection, _endpoint) = world.connect().await;
    for n in 0..2_000 {
        let Ok((mut send, mut recv)) = soon(connection.open_bi()).await else {
            assert!(n > 500, "after {n}");
            break;
        };
        let _ = send.write_all(&head("GET", "/never", &[])).await;
        let _ = (send.reset(code(ErrorCode::REQUEST_CANCELLED)), recv.stop(code(ErrorCode::REQUEST_CANCELLED)));
    }
    assert_eq!(close_code(&connection).await, code(ErrorCode::EXCESSIVE_LOAD));
}

#[tokio::test]
async fn a_client_that_reads_nothing_loses_its_request() {
    let world = World::start_with(|config| config.send_timeout = Duration::from_millis(300)).await;
    let (connection, _endpoint) = world.connect().await;
    let (_send, mut recv) = open(&connection, &head("GET", "/bytes/20000000", &[]), true).await;
    // The rest is not read until the stream is reset.
    let reset = soon(recv.received_reset()).await.unwrap();
    assert_eq!(reset, Some(code(ErrorCode::REQUEST_CANCELLED)));
    let (_send, mut recv) = open(&connection, &head("GET", "/", &[]), true).await;
    assert!(starts_with_status(&soon(recv.read_to_end(100_000)).await.unwrap(), OK), "the connection goes on");
}

#[tokio::test]
async fn an_idle_connection_and_one_with_too_many_requests_end_in_order() {
    let world = World::start_with(|config| config.idle_timeout = Duration::from_millis(200)).await;
    let (connection, _endpoint) = world.connect().await;
    let mut control = soon(connection.accept_uni()).await.unwrap();
    assert_eq!(close_code(&connection).await, code(ErrorCode::NO_ERROR));
    drop(control.read_to_end(1_000).await);

    let world = World::start().await;
    let (connection, _endpoint) = world.connect().await;
    let (_send, mut recv) = open(&connection, &head("GET", "/", &[]), true).await;
    soon(recv.read_to_end(100_000)).await.unwrap();
    let mut control = soon(connection.accept_uni()).await.unwrap();
    world.edge.state.phase.all(Phase::Lingering);
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = soon(control.read_chunk(1_000, true)).await {
        bytes.extend_from_slice(&chunk.bytes);
    }
    assert!(bytes.starts_with(&[0, 4]), "the control stream begins with SETTINGS");
    let last = [7, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfc];
    assert!(bytes.ends_with(&[&last[..], &[7, 1, 4]].concat()), "{bytes:x?}");
    assert_eq!(close_code(&connection).await, code(ErrorCode::NO_ERROR));
}

/// Uploads that nothing reads, with this declared length.
async fn stuck_uploads(
    connection: &quinn::Connection,
    count: usize,
    length: &str,
) -> Vec<(quinn::SendStream, quinn::RecvStream)> {
    let mut uploads = Vec::new();
    for _ in 0..count {
        let upload = head("POST", "/never", &[("content-length", length)]);
        uploads.push(open(connection, &upload, false).await);
    }
    uploads
}

#[tokio::test]
async fn the_credit_of_uploads_counts_as_held() {
    let world = World::start().await;
    let held_is = async |wanted: usize| {
        soon(async {
            while world.edge.http.uploads.held() != wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    };
    let (connection, _endpoint) = world.connect().await;
    let short = stuck_uploads(&connection, 2, "1000").await;
    held_is(2_000).await;
    let long = stuck_uploads(&connection, 20, "100000000").await;
    // A connection has no more credit than its window.
    held_is(4 * 1024 * 1024).await;
    drop((short, long));
    connection.close(0_u32.into(), b"");
    held_is(0).await;

    let mut others = Vec::new();
    for _ in 0..9 {
        let (connection, endpoint) = world.connect().await;
        let uploads = stuck_uploads(&connection, 8, "100000000").await;
        others.push((connection, endpoint, uploads));
    }
    held_is(9 * 4 * 1024 * 1024).await;
    // Another upload of the address has little credit, and goes on all the same.
    let mut client = world.client().await;
    let request = http::Request::post(format!("https://{HOST}/length")).body(()).unwrap();
    let (_, length) = client.request(request, Some(vec![1; 9_000_000].into())).await;
    assert_eq!(length, b"9000000");
    drop(others);
    held_is(0).await;
}
