//! Two ends without a network between them.

use std::time::Instant;

use bytes::Bytes;
use sallyport_multipath::{
    Association, AssociationId, Config, Event, PathId, PathSettings, Refused, Secret, Setup, Side,
};

fn ends(now: Instant) -> (Association, Association) {
    let [connector, edge] = [AssociationId([1; 8]), AssociationId([2; 8])];
    let end = |side, local, remote| {
        Association::new(Config::default(), &Setup { side, local, remote, secret: Secret::new([7; 32]) }, now)
    };
    (end(Side::Connector, connector, edge), end(Side::Edge, edge, connector))
}

#[test]
fn datagrams_arrive_in_order_and_open_the_path() {
    let now = Instant::now();
    let (mut connector, mut edge) = ends(now);
    let path = connector.add_path(PathSettings::default(), now).unwrap();
    for number in 0..10u8 {
        connector.send(Bytes::from(vec![number; 100]), now).unwrap();
    }
    let mut arrivals = 0;
    while let Some(mut transmit) = connector.poll_transmit(now) {
        let arrival = edge.handle(&mut transmit.bytes, now).unwrap();
        assert!(arrival.is_newest && arrival.path == path);
        arrivals += 1;
    }
    assert!(arrivals > 0);
    assert_eq!(edge.poll_event(), Some(Event::PathOpened(PathId(0))));
    let received: Vec<Bytes> = std::iter::from_fn(|| edge.receive()).collect();
    assert_eq!(received, (0..10).map(|number| Bytes::from(vec![number; 100])).collect::<Vec<_>>());
}

#[test]
fn a_packet_counts_once_and_unchanged() {
    let now = Instant::now();
    let (mut connector, mut edge) = ends(now);
    connector.add_path(PathSettings::default(), now).unwrap();
    connector.send(Bytes::from_static(b"once"), now).unwrap();
    let sent = connector.poll_transmit(now).unwrap().bytes;
    for at in 0..sent.len() {
        let mut changed = sent.clone();
        changed[at] ^= 1;
        let refused = edge.handle(&mut changed, now).unwrap_err();
        assert!(matches!(refused, Refused::Foreign | Refused::Unsealed), "{at}: {refused}");
    }
    assert!(edge.handle(&mut sent.clone(), now).is_ok());
    assert_eq!(edge.handle(&mut sent.clone(), now), Err(Refused::Replayed));
}
