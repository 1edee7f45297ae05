//! The balancer as a pure function of tables, connections and a frame: packet/bpf/balance.bpf.c.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use super::{
    Arrival, EdgeState, Egress, Outer, Slot, Sources, Tables, Target,
    arrival::quic_server,
    slots::POOL_SLOTS,
    tunnel::{self, too_big, wrap},
};
use crate::parse::{Flow, TCP, Tcp, UDP, flow_hash, parse};

/// Seconds after which a flow of UDP without packets may go to another edge.
pub const UDP_IDLE_SECONDS: u32 = 60;
/// Bytes of a header of UDP.
const UDP_BYTES: usize = 8;

/// What became of a packet: the names are those of `Reason` in io/xdp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the sentences of io/xdp are the documentation")]
pub enum SteerReason {
    Balanced,
    BalancedPair,
    Slice,
    Site,
    TooBigSent,
    SecondChance,
    Decapsulated,
    NotVirtual,
    NoService,
    NoEdge,
    SliceFree,
    SliceFragment,
    FragmentDropped,
    TooBigDropped,
    Stranger,
    Tunnel,
    SiteLoop,
    NoAddress,
    Limit,
    Truncated,
    Malformed,
}

impl SteerReason {
    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::BalancedPair => "balanced-pair",
            Self::Slice => "slice",
            Self::Site => "site",
            Self::TooBigSent => "too-big-sent",
            Self::SecondChance => "second-chance",
            Self::Decapsulated => "decapsulated",
            Self::NotVirtual => "not-virtual",
            Self::NoService => "no-service",
            Self::NoEdge => "no-edge",
            Self::SliceFree => "slice-free",
            Self::SliceFragment => "slice-fragment",
            Self::FragmentDropped => "fragment-dropped",
            Self::TooBigDropped => "too-big-dropped",
            Self::Stranger => "stranger",
            Self::Tunnel => "tunnel",
            Self::SiteLoop => "site-loop",
            Self::NoAddress => "no-address",
            Self::Limit => "limit",
            Self::Truncated => "truncated",
            Self::Malformed => "malformed",
        }
    }
}

/// What became of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steered {
    /// Why.
    pub reason: SteerReason,
    /// The number of the target.
    pub target: Option<u16>,
    /// The number of the second edge.
    pub second: Option<u16>,
    /// The frame as it leaves, with the addresses of the link as they came; `None` if it is not sent.
    pub frame: Option<Vec<u8>>,
}

/// A connection that is remembered.
#[derive(Debug, Clone, Copy)]
struct Connection {
    target: u16,
    generation: u16,
    seen: u32,
    /// The last use, for the oldest goes first.
    turn: u64,
}

/// A balancer.
#[derive(Debug, Clone)]
pub struct Steering {
    tables: Tables,
    connections: HashMap<Flow, Connection>,
    sources: Sources,
    most: usize,
    turn: u64,
}

/// Where a packet goes.
#[derive(Debug, Clone, Copy, Default)]
struct Choice {
    target: u16,
    second: u16,
}

impl Steering {
    /// A balancer that remembers at most so many connections.
    #[must_use]
    pub fn new(tables: Tables, most: usize) -> Self {
        Self { tables, connections: HashMap::new(), sources: Sources::default(), most, turn: 0 }
    }

    /// Takes other tables. Connections stay.
    pub fn set_tables(&mut self, tables: Tables) {
        self.tables = tables;
    }

    /// How many connections are remembered.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Steers a frame without tags, whose header of IP is right and has no options. `now` is the monotonic clock, and
    /// `mtu` that of the way to every target.
    pub fn steer(&mut self, frame: &[u8], now: Duration, mtu: u16) -> Steered {
        let mut choice = Choice::default();
        let mut packet = frame.to_vec();
        let chosen = self.take_of_site(frame).and_then(|of_site| {
            let is_of_site = of_site.is_some();
            packet = of_site.unwrap_or_else(|| frame.to_vec());
            let arrival = Arrival::read(&packet).map_err(|reason| match is_of_site || self.is_shared(&packet) {
                true => reason,
                // What is for this machine is the kernel's, whatever is in it.
                false => SteerReason::NotVirtual,
            })?;
            let reason = self.choose(&packet, &arrival, is_of_site, now, &mut choice)?;
            Ok((arrival, reason))
        });
        let number = |number: u16| Some(number).filter(|number| *number != 0);
        let steered =
            |reason, frame| Steered { reason, target: number(choice.target), second: number(choice.second), frame };
        match chosen {
            Ok((arrival, reason)) => match self.send(&packet, &arrival, choice, mtu) {
                Ok(sent) => steered(reason, Some(sent)),
                Err((reason, sent)) => steered(reason, sent),
            },
            Err(reason) => steered(reason, None),
        }
    }

    /// Whether the destination is a virtual address, or an egress address.
    fn is_shared(&self, frame: &[u8]) -> bool {
        let ip = parse(frame).ok().and_then(|packet| packet.ip);
        ip.is_some_and(|ip| {
            self.tables.virtuals.contains_key(&(ip.destination, 0)) || self.tables.egress.contains_key(&ip.destination)
        })
    }

    /// The packet in the tunnel of another site, if it is one.
    fn take_of_site(&self, frame: &[u8]) -> Result<Option<Vec<u8>>, SteerReason> {
        let settings = &self.tables.settings;
        let Ok(outer) = Arrival::read(frame) else { return Ok(None) };
        let is_own = match outer.flow.destination {
            IpAddr::V4(address) => settings.source.0 == Some(address),
            IpAddr::V6(address) => settings.source.1 == Some(address),
        };
        let is_tunnel = matches!(outer.flow.protocol, tunnel::IPIP | tunnel::IPV6)
            || outer.flow.protocol == UDP && outer.flow.destination_port == settings.gue_port;
        if !is_own || !is_tunnel || outer.is_error {
            return Ok(None);
        }
        if !self.tables.peers.contains(&outer.flow.source) {
            return Err(SteerReason::Stranger);
        }
        let Some(unwrapped) = tunnel::unwrap(frame, settings.gue_port)? else { return Ok(None) };
        let inner = parse(&unwrapped.frame).ok().and_then(|packet| packet.ip);
        inner.filter(|ip| !ip.has_router_options).map(|_| Some(unwrapped.frame)).ok_or(SteerReason::Tunnel)
    }

    fn choose(
        &mut self,
        frame: &[u8],
        arrival: &Arrival,
        is_of_site: bool,
        now: Duration,
        choice: &mut Choice,
    ) -> Result<SteerReason, SteerReason> {
        let has_ports = matches!(arrival.flow.protocol, TCP | UDP);
        let address = arrival.flow.destination;
        let protocol = if has_ports { arrival.flow.protocol } else { 0 };
        if !is_of_site {
            if self.tables.virtuals.contains_key(&(address, protocol)) {
                if !self.sources.admit(arrival, &self.tables.settings.limits, now) {
                    return Err(SteerReason::Limit);
                }
                return self.choose_edge(frame, arrival, protocol, now.as_secs() as u32, choice);
            }
            if self.tables.virtuals.contains_key(&(address, 0)) {
                return Err(SteerReason::NoService);
            }
        }
        self.choose_machine(arrival, is_of_site, choice)
    }

    fn choose_edge(
        &mut self,
        frame: &[u8],
        arrival: &Arrival,
        protocol: u8,
        seconds: u32,
        choice: &mut Choice,
    ) -> Result<SteerReason, SteerReason> {
        let is_pair = arrival.is_fragment || arrival.is_echo;
        if arrival.is_fragment && !self.tables.settings.takes_fragments {
            return Err(SteerReason::FragmentDropped);
        }
        let ranges = self.tables.virtuals.get(&(arrival.flow.destination, protocol)).ok_or(SteerReason::NoService)?;
        let range = match (is_pair, protocol) {
            (true, _) => ranges.first(),
            (false, 0) => None,
            (false, _) => ranges.iter().find(|range| range.has(arrival.flow.destination_port)),
        };
        let range = *range.ok_or(SteerReason::NoService)?;
        let hash = flow_hash(&arrival.flow, self.tables.settings.seed);
        let slots = self.tables.pools.get(usize::from(range.pool));
        let Slot { first, second } =
            slots.and_then(|slots| slots.get(hash as usize % POOL_SLOTS)).copied().unwrap_or_default();
        *choice = Choice { target: first, second };
        if range.is_quic && !is_pair && !arrival.is_error {
            let datagram = frame.get(arrival.payload + UDP_BYTES..).unwrap_or_default();
            let server = quic_server(datagram, self.tables.settings.quic_config);
            let server = server.and_then(|server| self.tables.servers.get(&server)).copied();
            if let Some(server) = server.filter(|server| self.usable(*server).is_some()) {
                *choice = Choice { target: server, second: 0 };
                return Ok(SteerReason::Balanced);
            }
        }
        if self.tables.settings.has_connections && !is_pair && choice.target != 0 {
            self.remember(arrival, seconds, choice);
        }
        match (choice.target, is_pair) {
            (0, _) => Err(SteerReason::NoEdge),
            (_, true) => Ok(SteerReason::BalancedPair),
            (_, false) => Ok(SteerReason::Balanced),
        }
    }

    /// Asks the table of connections, and keeps it. Flows stay where they are as long as that edge takes packets.
    fn remember(&mut self, arrival: &Arrival, seconds: u32, choice: &mut Choice) {
        let is_udp = arrival.flow.protocol == UDP;
        self.turn += 1;
        let turn = self.turn;
        if let Some(found) = self.connections.get(&arrival.flow).copied() {
            let is_idle = is_udp && seconds.wrapping_sub(found.seen) > UDP_IDLE_SECONDS;
            let is_same = self.usable(found.target).is_some_and(|target| target.generation == found.generation);
            if is_same && !arrival.is_new() && !is_idle {
                if found.target != choice.target {
                    *choice = Choice { target: found.target, second: choice.target };
                }
                if let Some(found) = self.connections.get_mut(&arrival.flow) {
                    found.turn = turn;
                    if is_udp && !arrival.is_error {
                        found.seen = seconds;
                    }
                }
                return;
            }
            if arrival.is_new() && found.target != choice.target {
                self.connections.remove(&arrival.flow);
            }
        }
        // A flood of SYN fills no table, and an end needs no memory.
        if arrival.is_new() || arrival.is_error || !is_udp && arrival.flags & Tcp::RST != 0 {
            return;
        }
        let Some(generation) = self.tables.targets.get(&choice.target).map(|target| target.generation) else { return };
        if self.connections.len() >= self.most && !self.connections.contains_key(&arrival.flow) {
            let oldest = self.connections.iter().min_by_key(|entry| entry.1.turn).map(|entry| *entry.0);
            oldest.map(|oldest| self.connections.remove(&oldest));
        }
        self.connections.insert(arrival.flow, Connection { target: choice.target, generation, seen: seconds, turn });
    }

    fn choose_machine(
        &self,
        arrival: &Arrival,
        is_of_site: bool,
        choice: &mut Choice,
    ) -> Result<SteerReason, SteerReason> {
        let elsewhere = if is_of_site { SteerReason::NoService } else { SteerReason::NotVirtual };
        match self.tables.egress.get(&arrival.flow.destination) {
            None => Err(elsewhere),
            Some(Egress::Site(_)) if is_of_site => Err(SteerReason::SiteLoop),
            Some(Egress::Site(target)) => {
                choice.target = *target;
                Ok(SteerReason::Site)
            }
            Some(Egress::Slices(_)) if arrival.is_fragment => Err(SteerReason::SliceFragment),
            Some(Egress::Slices(slices)) => match super::slice_of(arrival.flow.destination_port) {
                0 => Err(elsewhere),
                _ => {
                    let owner = slices.owner(arrival.flow.destination_port).ok_or(SteerReason::SliceFree)?;
                    choice.target = owner as u16 + 1;
                    Ok(SteerReason::Slice)
                }
            },
        }
    }

    /// The target of a number, if packets may go there.
    fn usable(&self, number: u16) -> Option<&Target> {
        self.tables.targets.get(&number).filter(|target| target.state != EdgeState::Down)
    }

    /// The encapsulated frame, or the answer to one that does not fit.
    fn send(
        &self,
        frame: &[u8],
        arrival: &Arrival,
        choice: Choice,
        mtu: u16,
    ) -> Result<Vec<u8>, (SteerReason, Option<Vec<u8>>)> {
        let settings = &self.tables.settings;
        let none = (SteerReason::NoEdge, None);
        let target = self.usable(choice.target).ok_or(none.clone())?;
        let source = match target.address {
            IpAddr::V4(_) => settings.source.0.map(IpAddr::from),
            IpAddr::V6(_) => settings.source.1.map(IpAddr::from),
        };
        let names_second = settings.has_second_chance && !arrival.is_fragment && choice.second != choice.target;
        let second = names_second.then(|| self.usable(choice.second)).flatten();
        let outer = Outer {
            encapsulation: settings.encapsulation,
            source: source.ok_or(none)?,
            destination: target.address,
            second: second.map(|second| second.address),
            port: settings.gue_port,
            hash: flow_hash(&arrival.flow, settings.seed),
        };
        let overhead = outer.overhead();
        if usize::from(arrival.length) + overhead <= usize::from(mtu) {
            return Ok(wrap(frame, arrival.length, arrival.tos, &outer));
        }
        let answer = match arrival.is_error || arrival.is_later_fragment {
            true => None,
            false => too_big(frame, arrival.flow.source, arrival.flow.destination, mtu.saturating_sub(overhead as u16)),
        };
        match answer {
            Some(answer) => Err((SteerReason::TooBigSent, Some(answer))),
            None => Err((SteerReason::TooBigDropped, None)),
        }
    }
}
