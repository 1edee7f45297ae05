//! The configuration of a balancer, made of what control says.

use std::{collections::BTreeSet, net::IpAddr};

use sallyport_api::{
    BalancedEdge, BalancedEdgeState, BalancedProtocol, BalancedService, Balancer, BalancerEncapsulation,
};
use sallyport_packet_model::balance::{
    BalanceConfig, EdgeConfig, EdgeState, Encapsulation, MAX_RANGES, Ports, Protocol, ServiceConfig,
};

/// What a machine is to do: what the file says, and what control says of the site. `own` are the addresses of this
/// machine, and `answers` says whether an edge answers the probes.
pub(super) fn plan(
    base: &BalanceConfig,
    site: &Balancer,
    own: &BTreeSet<IpAddr>,
    answers: impl Fn(&str) -> bool,
) -> BalanceConfig {
    let mut config = base.clone();
    config.encapsulation = match site.encapsulation {
        BalancerEncapsulation::Gue => Encapsulation::Gue,
        BalancerEncapsulation::Ipip => Encapsulation::Ipip,
    };
    if config.source.is_empty() {
        for is_v4 in [true, false] {
            let found = site.balancers.iter().find(|address| address.is_ipv4() == is_v4 && own.contains(address));
            config.source.extend(found);
        }
    }
    let mut edges: Vec<_> = site.edges.iter().filter_map(|edge| edge_of(edge, answers(&edge.name))).collect();
    // This machine, and not all edges, may be cut off: then control alone counts.
    if !edges.iter().any(|edge| edge.state == EdgeState::Serving) {
        edges = site.edges.iter().filter_map(|edge| edge_of(edge, true)).collect();
    }
    config.edges.extend(edges);
    for address in &site.addresses {
        for (protocol, of_api) in [(Protocol::Tcp, BalancedProtocol::Tcp), (Protocol::Udp, BalancedProtocol::Udp)] {
            let services: Vec<_> = site.services.iter().filter(|one| one.protocol == of_api).collect();
            let service = |(ports, quic)| ServiceConfig { address: *address, protocol, ports, edges: None, quic };
            config.services.extend(few(&services).into_iter().map(service));
        }
    }
    config
}

/// An edge as the data path knows it; `None` where its address is not known.
fn edge_of(edge: &BalancedEdge, answers: bool) -> Option<EdgeConfig> {
    let state = match edge.state {
        _ if !answers => EdgeState::Down,
        BalancedEdgeState::Serving if edge.weight > 0 => EdgeState::Serving,
        BalancedEdgeState::Serving | BalancedEdgeState::Draining => EdgeState::Draining,
        BalancedEdgeState::Down => EdgeState::Down,
    };
    Some(EdgeConfig {
        name: edge.name.clone(),
        address: edge.address?,
        weight: edge.weight.max(1),
        state,
        server: Some(edge.server),
    })
}

/// At most as many ranges as the data path takes of an address and a protocol: those with the smallest gaps become one.
/// Edges refuse what comes at a port between them.
fn few(services: &[&BalancedService]) -> Vec<(Ports, bool)> {
    let ports =
        |service: &&BalancedService| (Ports { first: service.first_port, last: service.last_port }, service.quic);
    let mut ranges: Vec<_> = services.iter().map(ports).collect();
    ranges.sort_unstable_by_key(|range| range.0.first);
    while ranges.len() > MAX_RANGES {
        let gap = |at: &usize| ranges[at + 1].0.first - ranges[*at].0.last;
        let alike = |at: &usize| ranges[*at].1 == ranges[at + 1].1;
        let Some(at) = (0..ranges.len() - 1).filter(alike).min_by_key(gap) else {
            ranges.truncate(MAX_RANGES);
            break;
        };
        let (next, _) = ranges.remove(at + 1);
        ranges[at].0.last = next.last;
    }
    ranges
}

#[cfg(test)]
pub(super) mod tests {
    use sallyport_packet_model::balance::Numbers;
    use serde_json::json;

    use super::*;

    pub(in crate::control) fn balancer() -> Balancer {
        let edge = |number: u16, state: &str| {
            json!({
                "id": format!("00000000-0000-4000-8000-00000000000{number}"), "name": format!("eu-{number}"),
                "address": format!("192.0.2.1{number}"), "probe_port": 443, "server": number, "weight": 100,
                "state": state,
            })
        };
        let value = json!({
            "site": "eu", "addresses": ["198.51.100.1", "2001:db8::1"], "balancers": ["192.0.2.5", "192.0.2.6"],
            "encapsulation": "gue", "edges": [edge(1, "serving"), edge(2, "draining")], "is_stale": false,
            "services": [
                {"protocol": "tcp", "first_port": 443, "last_port": 443},
                {"protocol": "udp", "first_port": 443, "last_port": 443, "quic": true},
            ],
            "created_at": "2027-01-15T08:00:00Z",
        });
        serde_json::from_value(value).unwrap()
    }

    fn own() -> BTreeSet<IpAddr> {
        ["192.0.2.6", "10.0.0.1"].iter().map(|text| text.parse().unwrap()).collect()
    }

    fn states(config: &BalanceConfig) -> Vec<&'static str> {
        config.edges.iter().map(|edge| edge.state.name()).collect()
    }

    #[test]
    fn a_site_becomes_a_configuration_that_compiles() {
        let base = BalanceConfig { dev: vec!["eth0".to_owned()], seed: 7, ..BalanceConfig::default() };
        let config = plan(&base, &balancer(), &own(), |_| true);
        assert_eq!((config.seed, config.dev.len(), config.services.len()), (7, 1, 4));
        assert_eq!(config.source, ["192.0.2.6".parse::<IpAddr>().unwrap()], "the own one of the balancers");
        assert_eq!(states(&config), ["serving", "draining"]);
        assert_eq!(config.services.iter().filter(|service| service.quic).count(), 2);
        config.compile(&mut Numbers::default()).unwrap();
    }

    #[test]
    fn an_edge_that_does_not_answer_is_down_unless_nobody_would_be_left() {
        let mut site = balancer();
        site.edges[1].state = BalancedEdgeState::Serving;
        let base = BalanceConfig::default();
        assert_eq!(states(&plan(&base, &site, &own(), |edge| edge != "eu-1")), ["down", "serving"]);
        assert_eq!(states(&plan(&base, &site, &own(), |_| false)), ["serving", "serving"]);
        site.edges[0].weight = 0;
        assert_eq!(states(&plan(&base, &site, &own(), |_| true)), ["draining", "serving"]);
    }

    #[test]
    fn many_ports_become_as_many_ranges_as_the_data_path_takes() {
        let mut site = balancer();
        let range = |first: u16| BalancedService {
            protocol: BalancedProtocol::Tcp,
            first_port: first,
            last_port: first,
            quic: false,
        };
        site.services.extend((0..40).map(|number| range(20_000 + 3 * number)));
        let config = plan(&BalanceConfig::default(), &site, &own(), |_| true);
        let of_one = config.services.iter().filter(|one| one.address.is_ipv4() && one.protocol == Protocol::Tcp);
        let ranges: Vec<_> = of_one.map(|service| service.ports).collect();
        assert_eq!(ranges.len(), MAX_RANGES);
        assert!((0..40).all(|number| {
            let port = 20_000 + 3 * number;
            ranges.iter().any(|range| (range.first..=range.last).contains(&port))
        }));
        assert!(ranges.iter().any(|range| *range == Ports::one(443)), "what is far away stays alone");
        config.compile(&mut Numbers::default()).unwrap();
    }
}
