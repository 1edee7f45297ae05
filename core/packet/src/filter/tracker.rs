//! The flows that a policy knows.

use std::{collections::HashMap, time::Duration};

use crate::parse::{Connection, Flow, Fragments, IcmpMessage, Packet, Quoted, TCP, Tcp, Transport};

/// The most flows that a tracker can be given.
pub const MAX_FLOWS: usize = 16_777_216;

/// The state of a packet's flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FlowState {
    /// The other side has not answered yet.
    New,
    /// The other side has answered.
    Established,
    /// An ICMP error about a known flow.
    Related,
    /// The packet can begin no flow, and belongs to none.
    Invalid,
    /// A fragment after the first one: its ports are not known.
    Untracked,
}

/// How long a flow is known without packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP without an answer, and after an end.
    pub tcp_transitory: Duration,
    /// TCP with an answer.
    pub tcp_established: Duration,
    /// Other protocols without an answer.
    pub unanswered: Duration,
    /// Other protocols with an answer.
    pub answered: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tcp_transitory: Duration::from_secs(240),
            tcp_established: Duration::from_secs(7_440),
            unanswered: Duration::from_secs(30),
            answered: Duration::from_secs(180),
        }
    }
}

/// Too many flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} flows are known, and no more can be")]
pub struct TrackerFull(usize);

#[derive(Debug, Clone, Copy)]
struct Tracked {
    is_answered: bool,
    is_closing: bool,
    connection: Connection,
    expires: Duration,
}

/// The known flows, each by the direction of its first packet. Time is that since any fixed moment.
#[derive(Debug, Clone)]
pub struct Tracker {
    flows: HashMap<Flow, Tracked>,
    fragments: Fragments<()>,
    max_flows: usize,
    timeouts: Timeouts,
    is_loose: bool,
}

impl Tracker {
    /// A tracker that knows no flow. With `is_loose`, a flow of TCP may begin in its middle, as after a restart.
    #[must_use]
    pub fn new(max_flows: usize, timeouts: Timeouts, is_loose: bool) -> Self {
        let fragments = Fragments::default();
        Self { flows: HashMap::new(), fragments, max_flows: max_flows.min(MAX_FLOWS), timeouts, is_loose }
    }

    /// The state of the packet's flow.
    #[must_use]
    pub fn state(&self, packet: &Packet, now: Duration) -> FlowState {
        let (Some(ip), Some(flow)) = (packet.ip, flow_of(packet)) else { return FlowState::Invalid };
        if is_later(packet) {
            return FlowState::Untracked;
        }
        if let Some(quoted) = quoted(packet) {
            let flow = quoted_flow(&quoted);
            // An error goes to the sender of the packet that it quotes.
            let is_known = flow.source == ip.destination && self.find(flow, now).is_some();
            return if is_known { FlowState::Related } else { FlowState::Invalid };
        }
        match self.find(flow, now) {
            Some((_, tracked, is_reply)) if is_reply || tracked.is_answered => FlowState::Established,
            Some(_) => FlowState::New,
            None if self.may_begin(packet) => FlowState::New,
            None => FlowState::Invalid,
        }
    }

    /// Whether the first fragment of a later one's packet was accepted.
    #[must_use]
    pub fn has_first_of(&self, packet: &Packet, now: Duration) -> bool {
        self.fragments.recall(packet, now).is_some()
    }

    /// Keeps that a first fragment was accepted.
    pub(super) fn remember(&mut self, packet: &Packet, now: Duration) {
        self.fragments.remember(packet, (), now);
    }

    /// Makes the flow of an accepted packet known, or renews it. Errors and later fragments change nothing.
    ///
    /// # Errors
    /// Too many flows are known.
    pub fn track(&mut self, packet: &Packet, now: Duration) -> Result<(), TrackerFull> {
        let Some(flow) = flow_of(packet).filter(|_| !is_later(packet) && quoted(packet).is_none()) else {
            return Ok(());
        };
        let known = self.find(flow, now).map(|(key, tracked, is_reply)| (key, *tracked, is_reply));
        let (key, mut tracked, is_reply) = match known {
            Some(known) => known,
            None if !self.may_begin(packet) => return Ok(()),
            None => {
                if self.flows.len() >= self.max_flows && !self.flows.contains_key(&flow) {
                    return Err(TrackerFull(self.flows.len()));
                }
                // The end of a former flow with the same ends.
                self.flows.remove(&flow.reversed());
                let connection = Connection::default();
                (flow, Tracked { is_answered: false, is_closing: false, connection, expires: now }, false)
            }
        };
        tracked.is_answered |= is_reply;
        if let Transport::Tcp(tcp) = packet.transport {
            if tcp.flags & Tcp::SYN != 0 && !is_reply && tracked.is_closing {
                tracked.connection = Connection::default();
                (tracked.is_closing, tracked.is_answered) = (false, false);
            }
            tracked.is_closing |= tracked.connection.count_in(&tcp, !is_reply);
        }
        let lifetime = match (flow.protocol == TCP, tracked.is_answered) {
            (true, true) if !tracked.is_closing => self.timeouts.tcp_established,
            (true, _) => self.timeouts.tcp_transitory,
            (false, true) => self.timeouts.answered,
            (false, false) => self.timeouts.unanswered,
        };
        tracked.expires = now + lifetime;
        self.flows.insert(key, tracked);
        Ok(())
    }

    /// Forgets flows whose time is over. Returns their number.
    pub fn expire(&mut self, now: Duration) -> usize {
        let before = self.flows.len();
        self.flows.retain(|_, tracked| tracked.expires > now);
        before - self.flows.len()
    }

    /// Number of known flows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.flows.len()
    }

    /// The known flow, and whether the packet is in the other direction than the first one.
    fn find(&self, flow: Flow, now: Duration) -> Option<(Flow, &Tracked, bool)> {
        let find = |key: Flow, is_reply| {
            let tracked = self.flows.get(&key).filter(|tracked| tracked.expires > now)?;
            Some((key, tracked, is_reply))
        };
        find(flow, false).or_else(|| find(flow.reversed(), true))
    }

    fn may_begin(&self, packet: &Packet) -> bool {
        match packet.transport {
            Transport::Tcp(tcp) => {
                let kind = tcp.flags & (Tcp::SYN | Tcp::ACK | Tcp::FIN | Tcp::RST);
                kind == Tcp::SYN || (self.is_loose && kind == Tcp::ACK)
            }
            Transport::Icmp(icmp) => matches!(icmp.message, IcmpMessage::EchoRequest(_)),
            Transport::Udp(_) | Transport::Other => true,
            Transport::LaterFragment | Transport::Malformed(_) => false,
        }
    }
}

/// Whether the flow of the packet has the ports that the packet has.
pub(super) fn has_ports(packet: &Packet) -> bool {
    matches!(packet.transport, Transport::Tcp(_) | Transport::Udp(_))
}

/// The flow of a packet. A first fragment has the ports of its packet.
pub(super) fn flow_of(packet: &Packet) -> Option<Flow> {
    let ip = packet.ip.map(|ip| crate::parse::Ip { fragment: None, ..ip });
    Flow::of(&Packet { ip, ..*packet })
}

/// Whether the packet is a fragment after the first one.
pub(super) fn is_later(packet: &Packet) -> bool {
    packet.ip.and_then(|ip| ip.fragment).is_some_and(|fragment| fragment.offset != 0)
}

fn quoted(packet: &Packet) -> Option<Quoted> {
    match packet.transport {
        Transport::Icmp(icmp) => match icmp.message {
            IcmpMessage::Error(quoted) => Some(quoted),
            _ => None,
        },
        _ => None,
    }
}

fn quoted_flow(quoted: &Quoted) -> Flow {
    Flow {
        source: quoted.ip.source,
        destination: quoted.ip.destination,
        protocol: quoted.ip.protocol,
        source_port: quoted.source,
        destination_port: quoted.destination,
    }
}
