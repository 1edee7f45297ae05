//! The edges that the name server sends clients to: their addresses, and the ports of HTTPS records.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use sallyport_bus::{EdgeCard, EdgeState, Fleet, FleetEdge};
use sallyport_zone::data::HttpPorts;

/// The edges that clients are sent to: those that accept clients, or without any the draining ones.
pub(super) fn answered_edges(fleet: &Fleet) -> Vec<FleetEdge> {
    let mut edges = fleet.edges();
    edges.retain(|edge| !edge.card.addresses.is_empty());
    if edges.iter().any(|edge| edge.card.state == EdgeState::Serving) {
        edges.retain(|edge| edge.card.state == EdgeState::Serving);
    }
    edges
}

/// The addresses of these edges; without an edge the own ones.
pub(super) fn addresses_of(edges: &[FleetEdge], own: &[IpAddr]) -> Vec<IpAddr> {
    if edges.is_empty() {
        return own.to_vec();
    }
    let all = edges.iter().flat_map(|edge| edge.card.addresses.iter().map(SocketAddr::ip));
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The addresses that clients are sent to.
pub(super) fn edge_addresses(fleet: &Fleet, own: &[IpAddr]) -> Vec<IpAddr> {
    addresses_of(&answered_edges(fleet), own)
}

/// The ports of HTTP/2 and HTTP/3, if they are the same at every address of these edges. An HTTPS record applies to all
/// addresses of its name.
pub(super) fn common_ports<'a>(edges: impl Iterator<Item = &'a EdgeCard>) -> Option<HttpPorts> {
    let mut common = None;
    for card in edges {
        let udp = card.http3_port?;
        for tcp in card.addresses.iter().map(SocketAddr::port) {
            let ports = HttpPorts { tcp, udp };
            if *common.get_or_insert(ports) != ports {
                return None;
            }
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use sallyport_model::EdgeId;

    use super::*;

    fn card(addresses: &[&str], http3_port: Option<u16>) -> EdgeCard {
        EdgeCard {
            edge: EdgeId::from_random([1; 16]),
            name: "eu-1".parse().unwrap(),
            region: "eu".parse().unwrap(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            program: "0.1.0".to_owned(),
            since: 0,
            state: EdgeState::Serving,
            http3_port,
            anycast: Vec::new(),
            egress: Vec::new(),
            balanced: None,
        }
    }

    #[test]
    fn ports_are_those_of_every_edge() {
        let ports = |cards: &[EdgeCard]| common_ports(cards.iter()).map(|ports| (ports.tcp, ports.udp));
        let (one, two) =
            (card(&["192.0.2.1:443", "[2001:db8::1]:443"], Some(443)), card(&["192.0.2.2:443"], Some(443)));
        assert_eq!(ports(&[one.clone(), two]), Some((443, 443)));
        assert_eq!(ports(&[card(&["192.0.2.1:443"], Some(8443))]), Some((443, 8443)));
        assert_eq!(ports(&[]), None);
        for other in [
            card(&["192.0.2.2:443"], None),
            card(&["192.0.2.2:443"], Some(8443)),
            card(&["192.0.2.2:8443"], Some(443)),
            card(&["192.0.2.2:443", "[2001:db8::2]:8443"], Some(443)),
        ] {
            assert_eq!(ports(&[one.clone(), other.clone()]), None, "{other:?}");
            assert_eq!(ports(&[other.clone(), one.clone()]), None, "{other:?}");
        }
    }
}
