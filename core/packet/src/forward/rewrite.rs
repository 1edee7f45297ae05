//! The frame that leaves.

use super::Interface;
use crate::{
    checksum::Change,
    parse::{ETHERTYPE_SERVICE, ETHERTYPE_VLAN, Mac, Packet, word},
};

/// The frame for a neighbor: new addresses, the tags of the interface, one hop less. One tag has the type 802.1Q; of
/// two, the outer has 802.1ad. A tag keeps the priority of the outer one that came. Everything from the IP header on stays at its place behind
/// the Ethernet header, padding too. The packet has an IP header and a hop limit above 1.
#[must_use]
pub fn rewrite(frame: &[u8], packet: &Packet, out: &Interface, neighbor: Mac) -> Vec<u8> {
    let mut result = Vec::with_capacity(frame.len() + 8);
    result.extend_from_slice(&neighbor);
    result.extend_from_slice(&out.mac);
    // Priority and drop eligibility; a new tag has 0.
    let priority = packet.ethernet.tags.outer.and_then(|_| word(frame, 14)).unwrap_or_default() & 0xf000;
    if let Some(outer) = out.tags.outer {
        let kind = if out.tags.inner.is_some() { ETHERTYPE_SERVICE } else { ETHERTYPE_VLAN };
        result.extend_from_slice(&kind.to_be_bytes());
        result.extend_from_slice(&(priority | outer).to_be_bytes());
    }
    if let Some(inner) = out.tags.inner {
        result.extend_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
        result.extend_from_slice(&inner.to_be_bytes());
    }
    result.extend_from_slice(&packet.ethernet.ether_type.to_be_bytes());
    let ip = result.len();
    result.extend_from_slice(frame.get(packet.ethernet.bytes..).unwrap_or_default());
    let is_ipv4 = packet.ip.is_some_and(|header| header.source.is_ipv4());
    decrement(&mut result, ip, is_ipv4);
    result
}

/// One hop less, with the checksum of IPv4 changed accordingly.
fn decrement(frame: &mut [u8], ip: usize, is_ipv4: bool) {
    if !is_ipv4 {
        if let Some(hop_limit) = frame.get_mut(ip + 7) {
            *hop_limit = hop_limit.saturating_sub(1);
        }
        return;
    }
    let (Some(old), Some(checksum)) = (word(frame, ip + 8), word(frame, ip + 10)) else { return };
    let new = old.saturating_sub(0x0100);
    let checksum = Change::new().word(old, new).apply(checksum);
    if let Some(fields) = frame.get_mut(ip + 8..ip + 12) {
        fields[..2].copy_from_slice(&new.to_be_bytes());
        fields[2..].copy_from_slice(&checksum.to_be_bytes());
    }
}
