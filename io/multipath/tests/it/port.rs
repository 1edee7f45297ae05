//! The port that QUIC and associations share.

use sallyport_multipath::{HEADER_BYTE, HEADER_BYTES};

use crate::lab::{Edge, exchange, until};

#[tokio::test]
async fn quic_and_associations_share_a_port() {
    let edge = Edge::start(2);
    let connector = edge.connect(&["127.0.0.2"]).await;
    let client = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let plain = client.connect_with(edge.client(), edge.address(), "localhost").unwrap().await.unwrap();
    tokio::join!(exchange(&plain, 100_000), exchange(&connector.connection, 100_000));
    assert_eq!(edge.associations.unknown(), 0);
}

#[tokio::test]
async fn packets_of_unknown_associations_are_counted_and_get_no_answer() {
    let edge = Edge::start(1);
    let stranger = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for length in [1, HEADER_BYTES, 1_200] {
        let mut packet = vec![0; length];
        packet[0] = HEADER_BYTE;
        stranger.send_to(&packet, edge.address()).await.unwrap();
    }
    until("all are counted", || edge.associations.unknown() == 3).await;
    let client = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let plain = client.connect_with(edge.client(), edge.address(), "localhost").unwrap().await.unwrap();
    exchange(&plain, 1_000).await;
    assert!(stranger.try_recv(&mut [0; 2_048]).is_err(), "QUIC would have answered with a stateless reset");
}
