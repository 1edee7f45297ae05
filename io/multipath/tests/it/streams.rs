//! Streams of QUIC over an association.

use crate::lab::{Edge, exchange, until};

#[tokio::test]
async fn streams_travel_over_an_association() {
    let edge = Edge::start(2);
    let connector = edge.connect(&["127.0.0.2"]).await;
    for length in [0, 1, 200_000] {
        exchange(&connector.connection, length).await;
    }
    let [path] = &connector.multipath.paths()[..] else { panic!("one link, one path") };
    assert_eq!((path.link.as_deref(), path.remote), (Some("loopback"), Some(edge.address())));
    assert_eq!(path.local.map(|local| local.to_string()).as_deref(), Some("127.0.0.2"));
    assert!(path.stats.sent_bytes > 200_000 && path.stats.received_bytes > 200_000, "{path:?}");
    let [path] = &connector.at_edge.paths()[..] else { panic!("the edge has the connector's path") };
    assert_eq!(path.remote.map(|remote| remote.ip().to_string()).as_deref(), Some("127.0.0.2"));
    assert_eq!(connector.connection.remote_address(), edge.address());
}

#[tokio::test]
async fn the_end_of_the_connector_ends_the_association_at_the_edge() {
    let edge = Edge::start(1);
    let connector = edge.connect(&["127.0.0.2"]).await;
    exchange(&connector.connection, 1_000).await;
    assert_eq!(edge.associations.len(), 1);
    drop(connector);
    until("the edge keeps no association", || edge.associations.is_empty()).await;
}
