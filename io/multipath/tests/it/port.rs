//! The port that QUIC and associations share.

use std::sync::atomic::Ordering;

use sallyport_multipath::{Association, Config, HEADER_BYTE, HEADER_BYTES, PathSettings, Side};
use sallyport_multipath_udp::Associations;
use sallyport_quic::QuicPort;

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

#[tokio::test]
async fn replayed_and_changed_packets_count_for_nothing() {
    let edge = Edge::start(1);
    let (at_edge, offer) = edge.associations.open().unwrap();
    let now = std::time::Instant::now();
    let mut sender = Association::new(Config::default(), &offer.setup(Side::Connector), now);
    sender.add_path(PathSettings::default(), now).unwrap();
    sender.send("once".into(), now).unwrap();
    let packet = sender.poll_transmit(now).unwrap().bytes;
    let link = tokio::net::UdpSocket::bind("127.0.0.2:0").await.unwrap();
    let mut changed = packet.clone();
    *changed.last_mut().unwrap() ^= 1;
    link.send_to(&changed, edge.address()).await.unwrap();
    until("the changed packet is refused", || at_edge.counts().refused_unsealed == 1).await;
    assert!(at_edge.paths().is_empty(), "a stranger opens no path");
    link.send_to(&packet, edge.address()).await.unwrap();
    until("the packet is believed", || at_edge.paths().len() == 1).await;
    let thief = tokio::net::UdpSocket::bind("127.0.0.9:0").await.unwrap();
    thief.send_to(&packet, edge.address()).await.unwrap();
    until("the replayed packet is refused", || at_edge.counts().refused_replayed == 1).await;
    assert_eq!(at_edge.paths()[0].remote, Some(link.local_addr().unwrap()), "answers do not go to the thief");
}

#[tokio::test]
async fn a_takeover_keeps_associations_in_the_former_process() {
    let edge = Edge::start(1);
    let connector = edge.connect(&["127.0.0.2"]).await;
    exchange(&connector.connection, 1_000).await;
    let next = QuicPort::inherit(edge.port.pass().unwrap()).unwrap();
    let associations = Associations::new(Config::default(), next.sender().unwrap());
    next.share_with(associations.clone());
    let _listeners = edge.serve(&next);
    exchange(&connector.connection, 100_000).await;
    assert!(next.counts().to_former_processes.load(Ordering::Relaxed) > 0);
    assert!(edge.port.counts().from_successor.load(Ordering::Relaxed) > 0);
    assert!(associations.is_empty() && !edge.associations.is_empty());
}
