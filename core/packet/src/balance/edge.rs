//! An edge behind balancers as a pure function: packet/bpf/decap.bpf.c.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    Arrival, Encapsulation, Outer, SteerReason,
    tunnel::{unwrap, wrap},
};
use crate::parse::{self, Flow, TCP, flow_hash};

/// An edge.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edge {
    /// Balancers whose packets are taken.
    pub balancers: BTreeSet<IpAddr>,
    /// Other edges.
    pub mates: BTreeSet<IpAddr>,
    /// Addresses that packets inside are for.
    pub addresses: BTreeSet<IpAddr>,
    /// This machine's own addresses.
    pub locals: BTreeSet<IpAddr>,
    /// The port of GUE.
    pub gue_port: u16,
    /// Whether packets go on to the second edge.
    pub has_second_chance: bool,
}

impl Edge {
    /// Takes a frame whose outer header of IP is right. `is_here` says whether a connection is this edge's. Returns the
    /// frame for the kernel or the second edge; of one that is dropped or left alone, the frame itself.
    pub fn take(&self, frame: &[u8], is_here: impl Fn(&Flow) -> bool) -> (SteerReason, Vec<u8>) {
        self.try_take(frame, is_here).unwrap_or_else(|reason| (reason, frame.to_vec()))
    }

    fn try_take(&self, frame: &[u8], is_here: impl Fn(&Flow) -> bool) -> Result<(SteerReason, Vec<u8>), SteerReason> {
        let ip = parse::parse(frame).ok().and_then(|packet| packet.ip).ok_or(SteerReason::NotVirtual)?;
        let unwrapped = unwrap(frame, self.gue_port);
        if matches!(unwrapped, Ok(None)) || !self.locals.contains(&ip.destination) {
            return Err(SteerReason::NotVirtual);
        }
        let is_balancer = self.balancers.contains(&ip.source);
        if !is_balancer && !self.mates.contains(&ip.source) {
            return Err(SteerReason::Stranger);
        }
        let unwrapped = unwrapped?.ok_or(SteerReason::NotVirtual)?;
        let inner = parse::parse(&unwrapped.frame).map_err(|_| SteerReason::Tunnel)?.ip.ok_or(SteerReason::Tunnel)?;
        if inner.has_router_options {
            return Err(SteerReason::Tunnel);
        }
        let arrival = Arrival::read(&unwrapped.frame)?;
        if !self.addresses.contains(&inner.destination) {
            return Err(SteerReason::NoAddress);
        }
        let may_go_on = is_balancer && self.has_second_chance && arrival.flow.protocol == TCP;
        let second = unwrapped.second.filter(|second| {
            may_go_on && !arrival.is_fragment && !arrival.is_new() && second.is_ipv4() == ip.source.is_ipv4()
        });
        let second = second.filter(|second| self.mates.contains(second) && !self.balancers.contains(second));
        match second {
            Some(second) if !is_here(&arrival.flow) => {
                let outer = Outer {
                    encapsulation: Encapsulation::Gue,
                    source: ip.destination,
                    destination: second,
                    second: None,
                    port: self.gue_port,
                    // The program takes the lower bits here.
                    hash: flow_hash(&arrival.flow, 0) << 16,
                };
                let sent = wrap(&unwrapped.frame, arrival.length, arrival.tos, &outer);
                Ok((SteerReason::SecondChance, sent))
            }
            _ => Ok((SteerReason::Decapsulated, unwrapped.frame)),
        }
    }
}
