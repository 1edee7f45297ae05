//! The connector and its edge: discovery, trust, and the end.

use std::time::Duration;

use sallyport_connector::{ALPN, ConnectorError, ConnectorOptions};
use sallyport_net::{Trust, client_config};
use sallyport_wire::StreamProtocol::Raw;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lab::*;

#[tokio::test]
async fn a_stopped_connector_finishes_its_streams_and_ends_well() {
    let (edge, mut connector) = before(service(echo).await, None).await;
    let mut stream = edge.open(Raw).await;
    stream.write_all(b"x").await.unwrap();
    soon(stream.read_u8()).await.unwrap();
    connector.shutdown.trigger();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!connector.task.is_finished());
    stream.write_all(b"y").await.unwrap();
    assert_eq!(soon(stream.read_u8()).await.unwrap(), b'y');
    stream.shutdown().await.unwrap();
    assert_eq!(soon(stream.read(&mut [0])).await.unwrap(), 0);
    soon(&mut connector.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_edge_that_is_not_believed_is_not_used() {
    let edge = Edge::start().await;
    let stranger = Names::new();
    let tls = client_config(&Trust::Ca(stranger.ca_file()), &[ALPN]).unwrap();
    let mut connector = Connector::start(ConnectorOptions { tls, ..edge.options(1) });
    let reason = connector.disconnected().await;
    assert!(reason.contains("not trusted"), "{reason}");
    assert_eq!(edge.tunnels.stats().sessions, 0);
}

#[tokio::test]
async fn a_port_without_an_edge_is_reported_and_retried() {
    let edge = Edge::start().await;
    let port = service(|mut stream| async move {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await;
    });
    let mut connector = Connector::start(ConnectorOptions { edge_port: port.await, ..edge.options(1) });
    for _ in 0..2 {
        let reason = connector.disconnected().await;
        assert!(reason.contains("localhost:"), "{reason}");
    }
}

#[tokio::test]
async fn a_wrong_credential_ends_it() {
    let edge = Edge::start().await;
    let mut options = edge.options(1);
    options.services[0].tunnel.credential = "guess".into();
    let mut connector = Connector::start(options);
    let error = soon(&mut connector.task).await.unwrap().unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(ConnectorError::Refused(_))), "{error}");
}

#[tokio::test]
async fn without_legs_everything_still_works() {
    let edge = Edge::start().await;
    let port = service(echo).await;
    let _connector = Connector::start(ConnectorOptions { max_legs: 0, ..edge.options(port) });
    let bytes = vec![3; 1_000_000];
    let (mut reader, mut writer) = tokio::io::split(edge.open(Raw).await);
    let writing = async {
        writer.write_all(&bytes).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut answer = Vec::new();
    let reading = async { reader.read_to_end(&mut answer).await.unwrap() };
    soon(async { tokio::join!(reading, writing) }).await;
    assert!(answer == bytes);
    assert_eq!(edge.tunnels.stats().legs_idle, 0);
}
