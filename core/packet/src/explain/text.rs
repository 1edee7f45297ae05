//! The sentences.

use std::{
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;

use super::Path;
use crate::{
    filter::{Action, Decision, Facts, FlowState, Policy},
    forward::{Step, Verdict},
    nat::Direction,
    parse::{Flow, ICMP, ICMPV6, IcmpMessage, Mac, Packet, TCP, Transport, UDP},
    route::{Cells, Found, NextHop},
};

fn packet(packet: &Packet, interface: &str) -> String {
    let (Some(flow), Some(ip)) = (Flow::of(packet), packet.ip) else { return format!("no IP packet by {interface}") };
    let mut text = protocol(flow.protocol);
    if let Transport::Icmp(icmp) = packet.transport {
        text.push_str(match icmp.message {
            IcmpMessage::EchoRequest(_) => " echo request",
            IcmpMessage::EchoReply(_) => " echo reply",
            IcmpMessage::Error(_) => " error",
            IcmpMessage::Other => " message",
        });
    }
    if ip.fragment.is_some() {
        text.push_str(" fragment");
    }
    let ends = format!(
        "{} to {}",
        end(&flow, flow.source, flow.source_port),
        end(&flow, flow.destination, flow.destination_port)
    );
    let mut text =
        format!("{text} from {ends}, {} bytes, hop limit {}, comes by {interface}", ip.total_bytes, ip.hop_limit);
    if let Transport::Malformed(malformed) = packet.transport {
        let _ = write!(text, "; {malformed}");
    }
    text
}

pub(super) fn translation(direction: Direction, before: &Packet, after: &Packet) -> Vec<String> {
    let (Some(before), Some(after)) = (Flow::of(before), Flow::of(after)) else { return Vec::new() };
    let source = || format!("the NAT replaces the source by {}", end(&after, after.source, after.source_port));
    let destination =
        || format!("the NAT replaces the destination by {}", end(&after, after.destination, after.destination_port));
    match direction {
        Direction::Untouched => Vec::new(),
        Direction::Outbound => vec![source()],
        Direction::Inbound => vec![destination()],
        Direction::Hairpin => {
            let peer = end(&before, before.destination, before.destination_port);
            vec![format!("{peer} is an outside address of the inside"), source(), destination()]
        }
    }
}

pub(super) fn step<C: Cells>(path: &Path<'_, C>, step: &Step, incoming: Option<u32>) -> Option<String> {
    match step {
        Step::CameBy(_) => None,
        Step::Parsed(packet) => Some(self::packet(packet, &incoming.map(path.name).unwrap_or_default())),
        Step::ReversePath { source, found: None } => Some(format!("no route leads back to {source}")),
        Step::ReversePath { source, found: Some(found) } => {
            Some(format!("{} leads back to {source} {}", prefix(*source, found.length), hop(path, found.next_hop)))
        }
        Step::Route { destination, found: None, .. } => Some(format!("no prefix has {destination}")),
        Step::Route { destination, found: Some(found), hash } => Some(route(path, found, *hash, *destination)),
        Step::Neighbor { interface, address, mac } => {
            let name = (path.name)(*interface);
            Some(match mac {
                Some(found) => {
                    format!("the neighbor {address} on {name} has the hardware address {}", self::mac(*found))
                }
                None => format!("the hardware address of {address} on {name} is not known"),
            })
        }
    }
}

fn route<C: Cells>(path: &Path<'_, C>, found: &Found, hash: u32, destination: IpAddr) -> String {
    let next_hops = path.router.fib.next_hops();
    let prefix = prefix(destination, found.length);
    let mut text = format!("the longest prefix with {destination} is {prefix}, {}", hop(path, found.next_hop));
    if let Some(NextHop::Group(group)) = next_hops.get(found.route) {
        let members = next_hops.members(group);
        let total: u32 = members.iter().map(|member| u32::from(member.weight)).sum();
        let own = members.iter().find(|member| member.next_hop == found.number);
        let weight = own.map_or(0, |member| member.weight);
        let _ = write!(text, ", chosen among {} by the hash {hash:#010x} (weight {weight} of {total})", members.len());
    }
    text
}

/// The rules before the deciding one, each with its difference, and the deciding one.
pub(super) fn decision(policy: &Policy, facts: &Facts, decision: Decision) -> Vec<String> {
    let mut lines = vec![format!("the flow is {}", state(facts.state))];
    let mismatches =
        policy.mismatches(facts).map(|(rule, mismatch)| format!("rule {:?} does not match: {mismatch}", rule.name));
    lines.extend(mismatches);
    let verb = match decision.action {
        Action::Accept => "accepts",
        Action::Drop => "drops",
        Action::Reject => "rejects",
    };
    lines.push(match decision.rule.and_then(|index| Some((index, policy.rules().get(index)?))) {
        Some((index, rule)) => format!("rule {:?}, number {}, {verb} the packet", rule.name, index + 1),
        None => format!("no rule matches, and the default {verb} the packet"),
    });
    lines
}

pub(super) fn verdict(verdict: Verdict, name: &dyn Fn(u32) -> String) -> String {
    match verdict {
        Verdict::Forward { port } => format!("the packet leaves by {}", name(port)),
        Verdict::Drop(reason) => format!("the packet is dropped: {reason}"),
        Verdict::Pass(reason) => format!("the kernel gets the packet: {reason}"),
    }
}

fn hop<C: Cells>(path: &Path<'_, C>, next_hop: NextHop) -> String {
    match next_hop {
        NextHop::Forward { interface, gateway: Some(gateway) } => {
            format!("by {gateway} on {}", (path.name)(interface))
        }
        NextHop::Forward { interface, gateway: None } => format!("directly on {}", (path.name)(interface)),
        NextHop::Local => "to this machine".to_owned(),
        NextHop::BlackHole => "a black hole".to_owned(),
        NextHop::Prohibit => "a prohibit route".to_owned(),
        NextHop::Unreachable => "an unreachable route".to_owned(),
        NextHop::Group(group) => format!("by group {group}"),
    }
}

fn state(state: FlowState) -> &'static str {
    match state {
        FlowState::New => "new",
        FlowState::Established => "established",
        FlowState::Related => "related to a known one",
        FlowState::Invalid => "invalid: the packet can begin none, and belongs to none",
        FlowState::Untracked => "not tracked: the packet is a fragment",
    }
}

fn protocol(number: u8) -> String {
    match number {
        TCP => "TCP".to_owned(),
        UDP => "UDP".to_owned(),
        ICMP => "ICMP".to_owned(),
        ICMPV6 => "ICMPv6".to_owned(),
        number => format!("protocol {number}"),
    }
}

fn end(flow: &Flow, address: IpAddr, port: u16) -> String {
    match (flow.protocol, port) {
        (TCP | UDP, 1..) => SocketAddr::new(address, port).to_string(),
        (ICMP | ICMPV6, 1..) => format!("{address} (identifier {port})"),
        _ => address.to_string(),
    }
}

fn prefix(address: IpAddr, length: u8) -> String {
    IpNet::new(address, length).map_or_else(|_| address.to_string(), |net| net.trunc().to_string())
}

fn mac(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
