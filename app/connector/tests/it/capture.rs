//! Copies of relayed bytes for an inspector.

use sallyport_connector::{Capture, CaptureEvent, Captured, ConnectorOptions, RelayedFrom};
use sallyport_wire::StreamProtocol::{Http1, Raw};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::lab::*;

const MEBIBYTE: usize = 1 << 20;

/// Answers how many bytes came.
async fn count(mut stream: TcpStream) {
    let (mut buffer, mut count) = (vec![0; 64 << 10], 0);
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        count += read;
    }
    let _ = stream.write_all(count.to_string().as_bytes()).await;
}

/// The events up to the end of a stream.
async fn until_closed(mut captured: Captured) -> (Vec<CaptureEvent>, Captured) {
    let read = tokio::task::spawn_blocking(move || {
        let mut events = Vec::new();
        loop {
            let event = captured.blocking_next().unwrap();
            let is_last = matches!(event, CaptureEvent::Closed(..));
            events.push(event);
            if is_last {
                return (events, captured);
            }
        }
    });
    soon(read).await.unwrap()
}

fn bytes(events: &[CaptureEvent], sender: RelayedFrom) -> usize {
    let bytes = events.iter().map(|event| match event {
        CaptureEvent::Bytes { from, data, .. } if *from == sender => data.len(),
        _ => 0,
    });
    bytes.sum()
}

#[tokio::test]
async fn an_inspector_that_does_not_read_holds_nothing_up_and_sees_what_it_missed() {
    let (capture, captured) = Capture::new();
    let edge = Edge::start().await;
    let port = service(count).await;
    let _connector = Connector::start(ConnectorOptions { capture: Some(capture), ..edge.options(port) });
    assert_eq!(edge.exchange(Raw, b"no HTTP, no copies").await.unwrap(), b"18");
    let answer = edge.exchange(Http1, &vec![7; 32 * MEBIBYTE]).await.unwrap();
    assert_eq!(answer, (32 * MEBIBYTE).to_string().as_bytes());
    let (events, captured) = until_closed(captured).await;
    let CaptureEvent::Opened(opened) = &events[0] else { panic!("{:?}", events[0]) };
    assert!(!opened.is_http2 && opened.tunnel == tunnel(), "{opened:?}");
    let kept = bytes(&events, RelayedFrom::Client);
    assert!((MEBIBYTE..=6 * MEBIBYTE).contains(&kept), "{kept}");
    // Nothing is repeated, and the places say what is missing.
    let mut next = 0;
    for event in &events {
        if let CaptureEvent::Bytes { from: RelayedFrom::Client, offset, data, .. } = event {
            assert!(*offset >= next);
            next = offset + data.len() as u64;
        }
    }

    // There is room again.
    assert_eq!(edge.exchange(Http1, &vec![7; 2 * MEBIBYTE]).await.unwrap(), (2 * MEBIBYTE).to_string().as_bytes());
    let (events, _) = until_closed(captured).await;
    assert_eq!(bytes(&events, RelayedFrom::Client), 2 * MEBIBYTE);
    assert_eq!(bytes(&events, RelayedFrom::Service), 7);
    let ended: Vec<&CaptureEvent> = events.iter().filter(|event| matches!(event, CaptureEvent::Ended(..))).collect();
    assert!(ended.len() >= 2, "{ended:?}");
    assert!(matches!(events.last(), Some(CaptureEvent::Closed(_, None))));
}

#[tokio::test]
async fn bytes_that_nobody_wants_are_not_copied() {
    let (capture, mut captured) = Capture::new();
    let edge = Edge::start().await;
    let port = service(count).await;
    let _connector = Connector::start(ConnectorOptions { capture: Some(capture), ..edge.options(port) });
    let mut stream = edge.open(Http1).await;
    stream.write_all(b"head").await.unwrap();
    let reading = tokio::task::spawn_blocking(move || {
        let Some(CaptureEvent::Opened(opened)) = captured.blocking_next() else { panic!("it begins with the stream") };
        let Some(CaptureEvent::Bytes { data, .. }) = captured.blocking_next() else { panic!("then come bytes") };
        assert_eq!(&data[..], b"head");
        opened.wanted.set(RelayedFrom::Client, 4 + 5 * MEBIBYTE as u64);
        captured
    });
    let captured = soon(reading).await.unwrap();
    let body = vec![7; 5 * MEBIBYTE + 3];
    stream.write_all(&body).await.unwrap();
    stream.shutdown().await.unwrap();
    soon(stream.read_to_end(&mut Vec::new())).await.unwrap();
    let (events, _) = until_closed(captured).await;
    assert_eq!(bytes(&events, RelayedFrom::Client), 3);
    let offset = events.iter().find_map(|event| match event {
        CaptureEvent::Bytes { from: RelayedFrom::Client, offset, .. } => Some(*offset),
        _ => None,
    });
    assert_eq!(offset, Some(4 + 5 * MEBIBYTE as u64));
}
