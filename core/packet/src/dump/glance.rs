//! A frame at a glance: what can be read of it, whether or not the rest is right or was kept.

use std::net::IpAddr;

use crate::parse::{
    self, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, ICMP, ICMPV6, Ip, Tags, parse_ethernet, read_ip, word,
};

/// What can be read of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glance {
    /// The link layer.
    pub ethernet: Ethernet,
    /// The header of IP, even where its length or its checksum is wrong.
    pub ip: Option<Ip>,
    /// The ports of TCP, UDP, UDP-Lite, DCCP or SCTP, where they were kept.
    pub ports: Option<(u16, u16)>,
    /// The identifier of an ICMP echo, which a NAT treats as a port.
    pub echo: Option<u16>,
}

/// The protocols with two ports at the start.
const WITH_PORTS: [u8; 5] = [parse::TCP, parse::UDP, 33, 132, 136];

impl Glance {
    /// Reads what can be read; `None` without an Ethernet header.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let ethernet = parse_ethernet(frame).ok()?;
        let ip = read_ip(frame, &ethernet);
        let ports = ip.filter(|ip| {
            WITH_PORTS.contains(&ip.protocol) && !ip.fragment.is_some_and(|fragment| fragment.offset != 0)
        });
        let ports = ports.and_then(|ip| Some((word(frame, ip.payload())?, word(frame, ip.payload() + 2)?)));
        let echo = ip.filter(|ip| {
            let kind = frame.get(ip.payload());
            match ip.protocol {
                ICMP => matches!(kind, Some(0 | 8)),
                ICMPV6 => matches!(kind, Some(128 | 129)),
                _ => false,
            }
        });
        let echo = echo.and_then(|ip| word(frame, ip.payload() + 4));
        Some(Self { ethernet, ip, ports, echo })
    }

    /// Whether the frame says that it has IPv4.
    #[must_use]
    pub fn is_v4(&self) -> bool {
        self.ethernet.ether_type == ETHERTYPE_IPV4
    }

    /// Whether the frame says that it has IPv6.
    #[must_use]
    pub fn is_v6(&self) -> bool {
        self.ethernet.ether_type == ETHERTYPE_IPV6
    }

    /// Whether it is ICMP of its family.
    #[must_use]
    pub fn is_icmp(&self) -> bool {
        self.ip.is_some_and(|ip| ip.protocol == if self.is_v4() { ICMP } else { ICMPV6 })
    }

    /// What a NAT or a VLAN changes: tags, addresses, ports, and the identifiers of echoes.
    fn names(&self) -> (Tags, Option<(IpAddr, IpAddr)>, Option<(u16, u16)>, Option<u16>) {
        (self.ethernet.tags, self.ip.map(|ip| (ip.source, ip.destination)), self.ports, self.echo)
    }
}

/// Whether a frame was rewritten beyond what every router does: its tags, its addresses or its ports have changed.
#[must_use]
pub fn is_rewritten(before: &[u8], after: &[u8]) -> bool {
    match (Glance::of(before), Glance::of(after)) {
        (Some(before), Some(after)) => before.names() != after.names(),
        _ => false,
    }
}
