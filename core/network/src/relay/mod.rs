//! What becomes of a packet of a machine at its edge. Uses routes, names and policies.
//!
//! An edge is one hop between two machines, so it leaves the time to live as it is. [`Relay`] has no clock: each call
//! gets `now`.

mod flows;
mod lookup;
mod train;

use std::{net::IpAddr, time::Instant};

use ipnet::IpNet;
use sallyport_model::MachineId;
use sallyport_packet_model::parse::{IcmpMessage, Ip, Transport, parse_ip};
use sallyport_wire::{NetworkJoined, frame::VIRTIO_HEADER_BYTES, message::MAX_NETWORK_ROUTES};

use self::{
    flows::{Flows, Key},
    lookup::Lookup,
};
use crate::{
    name::Name,
    policy::{Decision, Flow, Policy},
    route::NetworkRoute,
};

/// The longest packet that is no train, and the longest segment of a train with its headers, in bytes. With what TLS
/// and IP add, such a packet fits into one of Ethernet.
pub const MTU_BYTES: u16 = 1_400;

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// The packet goes to this machine.
    Forward(MachineId),
    /// The packet ends here.
    Drop(DropReason<'a>),
}

/// Why a packet ends at the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason<'a> {
    /// The bytes are no packet, or their virtio header does not fit them.
    Malformed,
    /// The packet, or a segment of the train, has more than [`MTU_BYTES`].
    Oversize,
    /// The packet is for a group or for all: networks carry packets for one machine.
    Multicast,
    /// The source is no address of the machine, and lies behind none of its routes.
    Spoofed,
    /// No other machine has the destination.
    NoDestination,
    /// This rule denies the flow, or no rule allows it.
    Denied(Option<&'a Name>),
}

impl DropReason<'_> {
    /// The words of all reasons, as metrics have them.
    pub const WORDS: [&'static str; 6] = ["malformed", "oversize", "multicast", "spoofed", "no-destination", "denied"];

    /// The place of the reason's word in [`DropReason::WORDS`].
    #[must_use]
    pub fn place(self) -> usize {
        match self {
            Self::Malformed => 0,
            Self::Oversize => 1,
            Self::Multicast => 2,
            Self::Spoofed => 3,
            Self::NoDestination => 4,
            Self::Denied(_) => 5,
        }
    }
}

/// The rules of a network.
#[derive(Debug, Clone)]
enum Rules {
    /// No policy is set: each machine may talk to each other, and begin flows through an exit.
    None,
    /// What no rule allows is denied. Boxed, because a policy is large.
    Policy(Box<Policy>),
    /// The policy cannot be read: nothing is allowed.
    Unreadable,
}

impl Rules {
    /// Whether a flow may begin, and otherwise which rule denies it.
    fn decide(&self, lookup: &Lookup, flow: &Flow) -> Result<(), Option<&Name>> {
        match self {
            Self::None => lookup.member(flow.source).map(|_| ()).ok_or(None),
            Self::Unreadable => Err(None),
            Self::Policy(policy) => match policy.decide(flow) {
                decision if decision.is_allowed() => Ok(()),
                Decision::Rule(rule) => Err(Some(&rule.name)),
                Decision::Foreign | Decision::Default => Err(None),
            },
        }
    }
}

/// The relay of one network at one edge.
#[derive(Debug)]
pub struct Relay {
    lookup: Lookup,
    rules: Rules,
    flows: Flows,
}

impl Relay {
    /// A relay between the machines of this network.
    #[must_use]
    pub fn new(network: &NetworkRoute, now: Instant) -> Self {
        Self { lookup: Lookup::of(network), rules: rules_of(network), flows: Flows::new(now) }
    }

    /// Replaces the network. Flows that the new policy does not allow are over.
    pub fn set_network(&mut self, network: &NetworkRoute) {
        self.lookup = Lookup::of(network);
        self.rules = rules_of(network);
        let (lookup, rules) = (&self.lookup, &self.rules);
        self.flows.retain(|flow| {
            let ends = [flow.source, flow.destination];
            ends.into_iter().all(|end| lookup.owner(end).is_some()) && rules.decide(lookup, flow).is_ok()
        });
    }

    /// Decides about a parcel (a virtio header with its packet) of this machine.
    pub fn judge(&mut self, from: MachineId, parcel: &[u8], now: Instant) -> Verdict<'_> {
        let Some((virtio, packet)) = parcel.split_first_chunk::<VIRTIO_HEADER_BYTES>() else {
            return Verdict::Drop(DropReason::Malformed);
        };
        let Ok((ip, transport)) = parse_ip(packet) else { return Verdict::Drop(DropReason::Malformed) };
        if ip.total_bytes != packet.len() || matches!(transport, Transport::Malformed(_)) {
            return Verdict::Drop(DropReason::Malformed);
        }
        let Some(longest) = train::longest_packet(virtio, packet.len(), &ip, &transport) else {
            return Verdict::Drop(DropReason::Malformed);
        };
        if longest > usize::from(MTU_BYTES) {
            return Verdict::Drop(DropReason::Oversize);
        }
        if self.lookup.is_for_many(ip.destination) {
            return Verdict::Drop(DropReason::Multicast);
        }
        if self.lookup.owner(ip.source) != Some(from) {
            return Verdict::Drop(DropReason::Spoofed);
        }
        let to = match self.lookup.owner(ip.destination) {
            Some(to) if to != from => to,
            _ => return Verdict::Drop(DropReason::NoDestination),
        };
        match self.check_flow(from, &ip, &transport, now) {
            Ok(()) => Verdict::Forward(to),
            Err(rule) => Verdict::Drop(DropReason::Denied(rule)),
        }
    }

    /// Whether the packet belongs to an allowed flow, or begins one.
    fn check_flow(
        &mut self,
        from: MachineId,
        ip: &Ip,
        transport: &Transport,
        now: Instant,
    ) -> Result<(), Option<&Name>> {
        let mut ends = [ip.source, ip.destination].into_iter();
        if matches!(self.rules, Rules::None) && ends.all(|end| self.lookup.member(end).is_some()) {
            return Ok(());
        }
        if let Transport::Icmp(icmp) = transport
            && let IcmpMessage::Error(quoted) = icmp.message
        {
            // An error tells the sender of a packet about its flow, in either direction. It comes from the machine to
            // which the packet went.
            let key = Key::of_quoted(&quoted);
            let is_about_receiver = quoted.ip.source == ip.destination;
            let is_from_other_end = self.lookup.owner(quoted.ip.destination) == Some(from);
            if is_about_receiver && is_from_other_end && self.flows.has(&[key.reversed(), key], now) {
                return Ok(());
            }
        }
        let key = Key::of(ip, transport);
        // The ports are in the first fragment, which comes before the others.
        if *transport == Transport::LaterFragment {
            return if self.flows.has(&[key], now) { Ok(()) } else { Err(None) };
        }
        if !self.flows.has(&[key, key.reversed()], now) {
            self.rules.decide(&self.lookup, &key.flow())?;
            self.flows.insert(key, now);
        }
        if ip.fragment.is_some() {
            self.flows.insert(key.of_fragments(), now);
        }
        Ok(())
    }
}

fn rules_of(network: &NetworkRoute) -> Rules {
    match network.policy() {
        Ok(None) => Rules::None,
        Ok(Some(policy)) => Rules::Policy(Box::new(policy)),
        Err(_) => Rules::Unreadable,
    }
}

/// The place of a machine in its network, as the machine is told; `None` if the network has no such machine.
#[must_use]
pub fn place_of(network: &NetworkRoute, machine: MachineId) -> Option<NetworkJoined> {
    let own = network.machines.iter().find(|one| one.id == machine)?;
    let prefix = |address: &IpAddr| {
        let range = network.ranges.iter().find(|range| range.contains(address));
        let bits = range.map_or(IpNet::from(*address).max_prefix_len(), IpNet::prefix_len);
        IpNet::new(*address, bits).ok()
    };
    let others = network.machines.iter().filter(|one| one.id != machine);
    Some(NetworkJoined {
        network: network.name.to_string(),
        machine: own.name.to_string(),
        addresses: own.addresses.iter().filter_map(prefix).collect(),
        routes: others.flat_map(|one| one.routes.iter().copied()).take(MAX_NETWORK_ROUTES).collect(),
        mtu_bytes: MTU_BYTES,
    })
}
