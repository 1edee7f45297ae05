//! The flow of a packet, and the hash that chooses among equal next hops.

use std::net::IpAddr;

use super::{IcmpMessage, Packet, Transport};

/// The packets that belong together: they take one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol number.
    pub protocol: u8,
    /// Source port; of an echo request the identifier; 0 without ports.
    pub source_port: u16,
    /// Destination port; of an echo reply the identifier; 0 without ports.
    pub destination_port: u16,
}

impl Flow {
    /// The flow of a packet; `None` without an IP header. Fragments have no ports, so that all take one way.
    #[must_use]
    pub fn of(packet: &Packet) -> Option<Self> {
        let ip = packet.ip?;
        let (source_port, destination_port) = match packet.transport {
            _ if ip.fragment.is_some() => (0, 0),
            Transport::Tcp(tcp) => (tcp.source, tcp.destination),
            Transport::Udp(udp) => (udp.source, udp.destination),
            Transport::Icmp(icmp) => match icmp.message {
                IcmpMessage::EchoRequest(identifier) => (identifier, 0),
                IcmpMessage::EchoReply(identifier) => (0, identifier),
                _ => (0, 0),
            },
            _ => (0, 0),
        };
        let (source, destination) = (ip.source, ip.destination);
        Some(Self { source, destination, protocol: ip.protocol, source_port, destination_port })
    }

    /// The flow by which equal next hops are chosen. An ICMP error takes the way of answers to the quoted packet.
    #[must_use]
    pub fn for_routing(packet: &Packet) -> Option<Self> {
        match packet.transport {
            Transport::Icmp(icmp) => match icmp.message {
                IcmpMessage::Error(quoted) => Some(Self {
                    source: quoted.ip.destination,
                    destination: quoted.ip.source,
                    protocol: quoted.ip.protocol,
                    source_port: quoted.destination,
                    destination_port: quoted.source,
                }),
                _ => Self::of(packet),
            },
            _ => Self::of(packet),
        }
    }

    /// The same flow in the other direction.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            protocol: self.protocol,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }
}

/// The hash of a flow: [`mix_words`] over the words of the source, of the destination, the ports (source in the upper
/// half) and the protocol. An IPv4 address is one word, an IPv6 address four, each in host order of the network's
/// number.
#[must_use]
pub fn flow_hash(flow: &Flow, seed: u32) -> u32 {
    let hash = address_words(flow.destination, address_words(flow.source, seed));
    let ports = u32::from(flow.source_port) << 16 | u32::from(flow.destination_port);
    finish(mix(mix(hash, ports), u32::from(flow.protocol)))
}

/// A hash of words: a multiplication for each word, and the last steps of MurmurHash3 of 32 bits. It is no secret
/// function; the seed keeps strangers from a choice of collisions.
#[must_use]
pub fn mix_words(words: &[u32], seed: u32) -> u32 {
    finish(words.iter().fold(seed, |hash, word| mix(hash, *word)))
}

fn address_words(address: IpAddr, hash: u32) -> u32 {
    match address {
        IpAddr::V4(address) => mix(hash, address.to_bits()),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            [96, 64, 32, 0].iter().fold(hash, |hash, shift| mix(hash, (bits >> shift & 0xffff_ffff) as u32))
        }
    }
}

fn mix(hash: u32, word: u32) -> u32 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b1);
    hash ^ hash >> 15
}

fn finish(hash: u32) -> u32 {
    let hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}
