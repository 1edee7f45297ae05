//! A frame as one line, in the words of tcpdump.

use std::{fmt::Write as _, net::Ipv4Addr};

use super::Glance;
use crate::parse::{ICMP, ICMPV6, Ip, Mac, TCP, Tcp, UDP, word};

const ETHERTYPE_ARP: u16 = 0x0806;

/// The frame from IP on, as tcpdump prints it. `length` is that on the wire; the end of the frame may be missing.
#[must_use]
pub fn line(frame: &[u8], length: u32) -> String {
    let Some(glance) = Glance::of(frame) else { return format!("[|ether], length {length}") };
    let mut line = String::new();
    for tag in [glance.ethernet.tags.outer, glance.ethernet.tags.inner].into_iter().flatten() {
        let _ = write!(line, "vlan {tag}, ");
    }
    let family = if glance.is_v6() { "IP6" } else { "IP" };
    match &glance.ip {
        Some(ip) => line += &format!("{family} {}", packet(frame, &glance, ip)),
        None if glance.is_v4() || glance.is_v6() => line += &format!("{family} [|ip], length {length}"),
        None if glance.ethernet.ether_type == ETHERTYPE_ARP => line += &arp(frame, glance.ethernet.bytes),
        None => {
            let _ = write!(line, "ethertype 0x{:04x}, length {length}", glance.ethernet.ether_type);
        }
    }
    line
}

/// The link layer of the frame, as tcpdump prints it by `-e`.
#[must_use]
pub fn link(frame: &[u8], length: u32) -> String {
    let Some(glance) = Glance::of(frame) else { return String::new() };
    let mac = |bytes: Mac| bytes.map(|byte| format!("{byte:02x}")).join(":");
    let ethernet = glance.ethernet;
    format!("{} > {}, length {length}: ", mac(ethernet.source), mac(ethernet.destination))
}

fn packet(frame: &[u8], glance: &Glance, ip: &Ip) -> String {
    let end = |port: Option<u16>| port.map(|port| format!(".{port}")).unwrap_or_default();
    let (from, to) = (glance.ports.map(|ports| ports.0), glance.ports.map(|ports| ports.1));
    let mut line = format!("{}{} > {}{}: ", ip.source, end(from), ip.destination, end(to));
    line += &body(frame, ip);
    let _ = write!(line, ", ttl {}", ip.hop_limit);
    line
}

fn body(frame: &[u8], ip: &Ip) -> String {
    let payload = ip.payload();
    let bytes = ip.total_bytes.saturating_sub(ip.header_bytes);
    if let Some(fragment) = ip.fragment {
        let more = if fragment.has_more { "more follow" } else { "the last" };
        return format!("fragment at {} ({more}), {}, length {bytes}", fragment.offset, protocol(ip.protocol));
    }
    match ip.protocol {
        TCP => tcp(frame, payload, bytes),
        UDP => match word(frame, payload + 4) {
            Some(length) => format!("UDP, length {}", length.saturating_sub(8)),
            None => format!("[|udp], length {bytes}"),
        },
        ICMP | ICMPV6 => icmp(frame, ip, bytes),
        other => format!("{}, length {bytes}", protocol(other)),
    }
}

fn tcp(frame: &[u8], at: usize, bytes: usize) -> String {
    let (Some(header), Some(window)) = (frame.get(at..at + 20), word(frame, at + 14)) else {
        return format!("[|tcp], length {bytes}");
    };
    let number = |at: usize| header[at..at + 4].iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    let letters = [(Tcp::SYN, 'S'), (Tcp::FIN, 'F'), (Tcp::RST, 'R'), (8, 'P'), (32, 'U'), (64, 'E'), (128, 'W')];
    let mut flags: String =
        letters.iter().filter(|(bit, _)| header[13] & bit != 0).map(|(_, letter)| *letter).collect();
    if header[13] & Tcp::ACK != 0 {
        flags.push('.');
    }
    if flags.is_empty() {
        flags = "none".to_owned();
    }
    let payload = bytes.saturating_sub(usize::from(header[12] >> 4) * 4);
    let sequence = number(4);
    let mut line = format!("Flags [{flags}], seq {sequence}");
    if payload > 0 {
        let _ = write!(line, ":{}", sequence.wrapping_add(payload as u32));
    }
    if header[13] & Tcp::ACK != 0 {
        let _ = write!(line, ", ack {}", number(8));
    }
    let _ = write!(line, ", win {window}, length {payload}");
    line
}

fn icmp(frame: &[u8], ip: &Ip, bytes: usize) -> String {
    let at = ip.payload();
    let (Some(kind), Some(code)) = (frame.get(at), frame.get(at + 1)) else {
        return format!("[|icmp], length {bytes}");
    };
    let (identifier, sequence) = (word(frame, at + 4).unwrap_or_default(), word(frame, at + 6).unwrap_or_default());
    let echo = |what: &str| format!("echo {what}, id {identifier}, seq {sequence}");
    let said = match (ip.protocol, kind, code) {
        (ICMP, 8, _) | (ICMPV6, 128, _) => echo("request"),
        (ICMP, 0, _) | (ICMPV6, 129, _) => echo("reply"),
        (ICMP, 3, 0) => "net unreachable".to_owned(),
        (ICMP, 3, 1) => "host unreachable".to_owned(),
        (ICMP, 3, 3) | (ICMPV6, 1, 4) => "port unreachable".to_owned(),
        (ICMP, 3, 4) => format!("need to frag (mtu {sequence})"),
        (ICMP, 3, 13) | (ICMPV6, 1, 1) => "administratively prohibited".to_owned(),
        (ICMPV6, 1, _) => "destination unreachable".to_owned(),
        (ICMPV6, 2, _) => format!("packet too big (mtu {})", u32::from(identifier) << 16 | u32::from(sequence)),
        (ICMP, 11, _) | (ICMPV6, 3, _) => "time exceeded".to_owned(),
        (ICMPV6, 133, _) => "router solicitation".to_owned(),
        (ICMPV6, 134, _) => "router advertisement".to_owned(),
        (ICMPV6, 135, _) => "neighbor solicitation".to_owned(),
        (ICMPV6, 136, _) => "neighbor advertisement".to_owned(),
        (_, kind, code) => format!("type {kind}, code {code}"),
    };
    format!("{} {said}, length {bytes}", if ip.protocol == ICMP { "ICMP" } else { "ICMP6" })
}

fn arp(frame: &[u8], at: usize) -> String {
    let address =
        |offset: usize| frame.get(at + offset..at + offset + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    match (word(frame, at + 6), address(14), address(24)) {
        (Some(1), Some(from), Some(to)) => {
            format!("ARP, Request who-has {} tell {}", Ipv4Addr::from(to), Ipv4Addr::from(from))
        }
        (Some(2), Some(from), Some(_)) => format!("ARP, Reply {}", Ipv4Addr::from(from)),
        (Some(other), ..) => format!("ARP, operation {other}"),
        _ => "[|arp]".to_owned(),
    }
}

fn protocol(number: u8) -> String {
    match number {
        4 => "IPIP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        41 => "IP6".to_owned(),
        47 => "GRE".to_owned(),
        50 => "ESP".to_owned(),
        132 => "SCTP".to_owned(),
        other => format!("ip-proto-{other}"),
    }
}
