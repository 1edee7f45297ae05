//! A frame for a question about a flow.

use std::net::IpAddr;

use crate::{
    checksum,
    parse::{
        ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_SERVICE, ETHERTYPE_VLAN, Flow, ICMP, ICMPV6, Mac, TCP, Tags, UDP,
    },
};

/// The most bytes of an IP packet that is built.
pub const MAX_SAMPLE_BYTES: usize = 9_216;

/// A question: what happens to this packet?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Addresses, protocol and ports. An ICMP packet is an echo request with the source port as its identifier.
    pub flow: Flow,
    /// The VLANs by which the packet comes.
    pub tags: Tags,
    /// The flags of TCP.
    pub tcp_flags: u8,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// Bytes of the IP packet: at least its headers, at most [`MAX_SAMPLE_BYTES`].
    pub bytes: usize,
}

/// A frame for the question, to this hardware address. `None` if the addresses are of two families.
#[must_use]
pub fn sample(question: &Question, destination: Mac) -> Option<Vec<u8>> {
    let flow = &question.flow;
    let header_bytes = match (flow.source, flow.destination) {
        (IpAddr::V4(_), IpAddr::V4(_)) => 20,
        (IpAddr::V6(_), IpAddr::V6(_)) => 40,
        _ => return None,
    };
    let wanted = question.bytes.min(MAX_SAMPLE_BYTES).saturating_sub(header_bytes);
    let segment = segment(question, wanted);
    let mut frame = destination.to_vec();
    frame.extend_from_slice(&[2, 0, 0, 0, 0, 0]);
    if let Some(outer) = question.tags.outer {
        let kind = if question.tags.inner.is_some() { ETHERTYPE_SERVICE } else { ETHERTYPE_VLAN };
        frame.extend_from_slice(&kind.to_be_bytes());
        frame.extend_from_slice(&outer.to_be_bytes());
    }
    if let Some(inner) = question.tags.inner {
        frame.extend_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
        frame.extend_from_slice(&inner.to_be_bytes());
    }
    let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = [0; 20];
            header[0] = 0x45;
            header[2..4].copy_from_slice(&length(header_bytes + segment.len()));
            header[8] = question.hop_limit;
            header[9] = flow.protocol;
            header[12..16].copy_from_slice(&source.octets());
            header[16..].copy_from_slice(&destination.octets());
            let sum = checksum::full(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
            frame.extend_from_slice(&header);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = [0; 40];
            header[0] = 0x60;
            header[4..6].copy_from_slice(&length(segment.len()));
            header[6] = flow.protocol;
            header[7] = question.hop_limit;
            header[8..24].copy_from_slice(&source.octets());
            header[24..].copy_from_slice(&destination.octets());
            frame.extend_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
            frame.extend_from_slice(&header);
        }
        _ => return None,
    }
    frame.extend_from_slice(&segment);
    Some(frame)
}

fn segment(question: &Question, wanted: usize) -> Vec<u8> {
    let flow = &question.flow;
    let ports = [flow.source_port.to_be_bytes(), flow.destination_port.to_be_bytes()].concat();
    let (mut segment, field) = match flow.protocol {
        TCP => {
            let mut header = [ports.as_slice(), &[0; 16]].concat();
            (header[12], header[13], header[14]) = (0x50, question.tcp_flags, 0x20);
            (header, Some(16))
        }
        UDP => ([ports.as_slice(), &[0; 4]].concat(), Some(6)),
        ICMP | ICMPV6 => {
            let kind = if flow.protocol == ICMP { 8 } else { 128 };
            ([&[kind, 0, 0, 0], &ports[..2], &[0, 1]].concat(), Some(2))
        }
        _ => (Vec::new(), None),
    };
    segment.resize(wanted.max(segment.len()), 0);
    if flow.protocol == UDP {
        let length = u16::try_from(segment.len()).unwrap_or(u16::MAX);
        segment[4..6].copy_from_slice(&length.to_be_bytes());
    }
    if let Some(field) = field {
        let sum = match flow.protocol {
            ICMP => checksum::full(&segment),
            protocol => checksum::transport(flow.source, flow.destination, protocol, &segment),
        };
        let sum = if sum == 0 && flow.protocol == UDP { u16::MAX } else { sum };
        segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
    segment
}
