//! Tunnels between balancers and edges, and the answer to packets that do not fit: packet/bpf/tunnel.h.

use std::net::IpAddr;

use super::{Encapsulation, SteerReason, arrival::IP_OFFSET};
use crate::{
    checksum,
    parse::{ICMP, ICMPV6, UDP, bytes, word},
};

/// The protocol numbers of IP in IP.
pub(super) const IPIP: u8 = 4;
pub(super) const IPV6: u8 = 41;
/// The kind of private data of GUE that names the second edge.
const SECOND: u8 = 1;
/// The time to live of outer headers.
const TTL: u8 = 64;
/// The first source port of GUE.
const FIRST_SOURCE: u16 = 0xc000;
/// Bytes that an ICMP error quotes, of IPv4 and of IPv6.
const QUOTES: (usize, usize) = (28, 88);

/// The outer headers of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outer {
    /// How it travels.
    pub encapsulation: Encapsulation,
    /// Where it comes from.
    pub source: IpAddr,
    /// The edge, of the family of the source.
    pub destination: IpAddr,
    /// The second edge. Only GUE has room for it.
    pub second: Option<IpAddr>,
    /// The port of GUE.
    pub port: u16,
    /// The hash of the flow, whose upper bits choose the source port of GUE.
    pub hash: u32,
}

impl Outer {
    /// Bytes of the outer headers.
    #[must_use]
    pub fn overhead(&self) -> usize {
        let ip = if self.destination.is_ipv4() { 20 } else { 40 };
        match (self.encapsulation, self.second) {
            (Encapsulation::Ipip, _) => ip,
            (Encapsulation::Gue, None) => ip + 12,
            (Encapsulation::Gue, Some(IpAddr::V4(_))) => ip + 20,
            (Encapsulation::Gue, Some(IpAddr::V6(_))) => ip + 32,
        }
    }
}

/// The frame with outer headers before its packet, which has so many bytes.
#[must_use]
pub fn wrap(frame: &[u8], length: u16, tos: u8, outer: &Outer) -> Vec<u8> {
    let (ethernet, packet) = frame.split_at(IP_OFFSET.min(frame.len()));
    let inner = if packet.first().is_some_and(|byte| byte >> 4 == 6) { IPV6 } else { IPIP };
    let mut gue = Vec::new();
    if outer.encapsulation == Encapsulation::Gue {
        let private = match outer.second {
            None => Vec::new(),
            Some(IpAddr::V4(second)) => [[SECOND, 4, 0, 0].as_slice(), &second.octets()].concat(),
            Some(IpAddr::V6(second)) => [[SECOND, 6, 0, 0].as_slice(), &second.octets()].concat(),
        };
        let source = FIRST_SOURCE | (outer.hash >> 16 & 0x3fff) as u16;
        for field in [source, outer.port, length.wrapping_add(12 + private.len() as u16), 0] {
            gue.extend(field.to_be_bytes());
        }
        gue.extend([(private.len() / 4) as u8, inner, 0, 0]);
        gue.extend(private);
    }
    let protocol = if gue.is_empty() { inner } else { UDP };
    let payload = length.wrapping_add(gue.len() as u16);
    // Routers mark no congestion that an edge would not see (RFC 6040, section 4.1).
    let header = ip_header(outer.source, outer.destination, protocol, payload, tos & 0xfc);
    let kind: [u8; 2] = if outer.destination.is_ipv4() { [8, 0] } else { [0x86, 0xdd] };
    let addresses = ethernet.get(..12).unwrap_or_default();
    [addresses, &kind, &header, &gue, packet].concat()
}

/// A header of IP, whose packet routers must not fragment.
fn ip_header(source: IpAddr, destination: IpAddr, protocol: u8, payload: u16, tos: u8) -> Vec<u8> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let [high, low] = payload.wrapping_add(20).to_be_bytes();
            let mut header = vec![0x45, tos, high, low, 0, 0, 0x40, 0, TTL, protocol, 0, 0];
            header.extend(source.octets());
            header.extend(destination.octets());
            let sum = checksum::full(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        (source, destination) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            let mut header = vec![0x60 | tos >> 4, tos << 4, 0, 0];
            header.extend(payload.to_be_bytes());
            header.extend([protocol, TTL]);
            header.extend(octets(source));
            header.extend(octets(destination));
            header
        }
    }
}

/// A packet that was in a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwrapped {
    /// The frame without the outer headers.
    pub frame: Vec<u8>,
    /// The second edge, if the balancer has named one.
    pub second: Option<IpAddr>,
}

/// Takes a packet out of its tunnel; `None` if it is in none. The outer header of IP is right, and has no options.
///
/// # Errors
/// It says that it is in a tunnel, and cannot be read.
pub fn unwrap(frame: &[u8], gue_port: u16) -> Result<Option<Unwrapped>, SteerReason> {
    let is_v4 = frame.get(IP_OFFSET).is_some_and(|byte| byte >> 4 == 4);
    let (payload, protocol) = if is_v4 { (IP_OFFSET + 20, 9) } else { (IP_OFFSET + 40, 6) };
    let Some(protocol) = frame.get(IP_OFFSET + protocol).copied() else { return Ok(None) };
    let is_fragment = is_v4 && word(frame, IP_OFFSET + 6).is_some_and(|fields| fields & 0x3fff != 0);
    let is_gue = protocol == UDP && !is_fragment && word(frame, payload + 2) == Some(gue_port);
    if !is_gue && !matches!(protocol, IPIP | IPV6) {
        return Ok(None);
    }
    if is_v4 && (frame.get(IP_OFFSET) != Some(&0x45) || is_fragment) {
        return Err(SteerReason::Tunnel);
    }
    let (start, inner, second) = if is_gue { read_gue(frame, payload)? } else { (payload, protocol, None) };
    // The shortest header of IP has 20 bytes.
    if frame.len() < start + 20 {
        return Err(SteerReason::Tunnel);
    }
    let kind: [u8; 2] = if inner == IPIP { [8, 0] } else { [0x86, 0xdd] };
    let addresses = frame.get(..12).unwrap_or_default();
    let packet = frame.get(start..).unwrap_or_default();
    Ok(Some(Unwrapped { frame: [addresses, &kind, packet].concat(), second }))
}

/// Reads GUE behind a header of IP: where the packet starts, its protocol, and the second edge.
fn read_gue(frame: &[u8], udp: usize) -> Result<(usize, u8, Option<IpAddr>), SteerReason> {
    let at = udp + 8;
    let wrong = SteerReason::Tunnel;
    let [words, protocol, flags @ ..]: [u8; 4] = bytes(frame, at).ok_or(wrong)?;
    if words & 0xe0 != 0 || flags != [0, 0] || !matches!(protocol, IPIP | IPV6) {
        return Err(wrong);
    }
    let words = usize::from(words & 31);
    let start = at + 4 + 4 * words;
    if words != 2 && words != 5 {
        return Ok((start, protocol, None));
    }
    let [kind, family, ..]: [u8; 8] = bytes(frame, at + 4).ok_or(wrong)?;
    if kind != SECOND {
        return Ok((start, protocol, None));
    }
    let second = match (words, family) {
        (2, 4) => bytes::<4>(frame, at + 8).map(IpAddr::from),
        (5, 6) => bytes::<16>(frame, at + 8).map(IpAddr::from),
        _ => None,
    };
    Ok((start, protocol, Some(second.ok_or(wrong)?)))
}

/// The answer to the client that its packet does not fit: from the address that the packet was for.
pub(super) fn too_big(frame: &[u8], client: IpAddr, own: IpAddr, mtu: u16) -> Option<Vec<u8>> {
    let quote = if own.is_ipv4() { QUOTES.0 } else { QUOTES.1 };
    let quoted = frame.get(IP_OFFSET..IP_OFFSET + quote)?;
    let kind: [u8; 2] = if own.is_ipv4() { [3, 4] } else { [2, 0] };
    let mut message = [kind.as_slice(), &[0; 4], &mtu.to_be_bytes(), quoted].concat();
    let protocol = if own.is_ipv4() { ICMP } else { ICMPV6 };
    let sum = if own.is_ipv4() { checksum::full(&message) } else { checksum::transport(own, client, ICMPV6, &message) };
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let header = ip_header(own, client, protocol, message.len() as u16, 0);
    let addresses = [frame.get(6..12)?, frame.get(..6)?, frame.get(12..14)?].concat();
    Some([addresses, header, message].concat())
}
