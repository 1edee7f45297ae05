//! What the fuzzer does with a frame at a balancer and at an edge: whatever it is, it goes somewhere, within its bytes.

use std::net::IpAddr;

use sallyport_packet_model::{
    balance::{
        Arrival, BalanceConfig, Edge, EdgeConfig, EdgeState, Encapsulation, Numbers, Outer, Ports, Protocol,
        ServiceConfig, SiteConfig, SteerReason, Steering, quic_server, unwrap, wrap,
    },
    parse::parse,
};

const OWN: &str = "10.9.0.1";
const EDGE: &str = "10.2.1.2";
const VIRTUAL: &str = "198.51.100.2";
const GUE: u16 = 6080;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap_or(IpAddr::from([0; 4]))
}

/// A balancer of one service and one edge.
pub(crate) fn balancer() -> Option<Steering> {
    let edge = EdgeConfig {
        name: "e1".to_owned(),
        address: address(EDGE),
        weight: 1,
        state: EdgeState::Serving,
        server: Some(7),
    };
    let service = |protocol| ServiceConfig {
        address: address(VIRTUAL),
        protocol,
        ports: Ports { first: 1, last: 65_535 },
        edges: None,
        quic: protocol == Protocol::Udp,
    };
    let config = BalanceConfig {
        source: vec![address(OWN)],
        edges: vec![edge],
        services: vec![service(Protocol::Tcp), service(Protocol::Udp)],
        sites: vec![SiteConfig { name: "fra".to_owned(), balancer: address("192.0.2.1") }],
        ..BalanceConfig::default()
    };
    let tables = config.compile(&mut Numbers::default()).ok()?;
    Some(Steering::new(tables, 16))
}

/// Takes the frame through a balancer, and through an edge.
pub(crate) fn tunnel_frame(balancer: &Steering, frame: &[u8]) {
    let _ = quic_server(frame, 0);
    let Ok(packet) = parse(frame) else { return };
    // Behind tags the kernel reads.
    let Some(ip) = packet.ip.filter(|ip| ip.offset == 14 && !ip.has_router_options) else { return };
    if let Ok(arrival) = Arrival::read(frame) {
        assert_eq!(usize::from(arrival.length), ip.total_bytes & 0xffff);
        assert!(arrival.payload <= frame.len());
    }
    let mut balancer = balancer.clone();
    let steered = balancer.steer(frame, std::time::Duration::ZERO, 1_500);
    assert!(balancer.connections() <= 16);
    match (steered.reason, &steered.frame) {
        (SteerReason::Balanced | SteerReason::BalancedPair, Some(sent)) => {
            let taken = unwrap(sent, GUE).map(|taken| taken.map(|taken| taken.frame));
            // What was not in a tunnel of another site comes out as it went in.
            if ip.destination == address(VIRTUAL) {
                assert_eq!(taken, Ok(Some(frame.to_vec())), "the edge has what the balancer got");
            }
        }
        (SteerReason::TooBigSent, Some(answer)) => {
            let answer = parse(answer).map(|packet| packet.ip.map(|ip| ip.destination));
            assert_eq!(answer, Ok(Some(ip.source)), "the client hears of it");
        }
        (reason, sent) => assert!(sent.is_none(), "{reason:?}"),
    }
    let edge = Edge {
        balancers: [ip.source].into(),
        mates: [address("10.2.1.3")].into(),
        addresses: [address(VIRTUAL)].into(),
        locals: [ip.destination].into(),
        gue_port: GUE,
        has_second_chance: true,
    };
    let (reason, taken) = edge.take(frame, |_| false);
    if reason == SteerReason::SecondChance {
        let again = unwrap(&taken, GUE).ok().flatten();
        assert!(again.is_some_and(|again| again.second.is_none()), "a packet goes on once");
    }
    assert!(taken.len() <= frame.len() || reason == SteerReason::SecondChance);
    // Whatever is inside a tunnel comes out of it.
    let outer = Outer {
        encapsulation: Encapsulation::Gue,
        source: address(OWN),
        destination: address(EDGE),
        second: Some(address("10.2.1.3")),
        port: GUE,
        hash: 1,
    };
    if let Ok(length) = u16::try_from(ip.total_bytes)
        && length < 60_000
    {
        let wrapped = unwrap(&wrap(frame, length, 0, &outer), GUE).ok().flatten();
        assert!(wrapped.is_some_and(|wrapped| wrapped.frame == frame && wrapped.second == outer.second));
    }
}
