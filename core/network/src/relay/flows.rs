//! The flows that a policy has allowed, so that answers and ICMP errors pass.

use std::{
    collections::HashSet,
    mem,
    net::IpAddr,
    time::{Duration, Instant},
};

use sallyport_packet_model::parse::{Icmp, IcmpMessage, Ip, Quoted, Transport};

use crate::policy::{Flow, TCP};

/// The most flows of a table that are new or were used lately. As many older ones may be kept beside them.
const MAX_FLOWS: usize = 32_768;
/// A flow of TCP without packets is forgotten after one to two of these.
const TCP_IDLE: Duration = Duration::from_hours(1);
/// Any other flow without packets is forgotten after one to two of these.
const OTHER_IDLE: Duration = Duration::from_secs(60);

/// A flow in the direction of its first packet. Port numbers are 0 for protocols without ports; an echo request has its
/// identifier in the first one, an echo reply in the second one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    ports: (u16, u16),
    /// Whether this stands for later fragments, which have no ports.
    is_of_fragments: bool,
}

impl Key {
    pub(super) fn of(ip: &Ip, transport: &Transport) -> Self {
        let ports = match transport {
            Transport::Tcp(tcp) => (tcp.source, tcp.destination),
            Transport::Udp(udp) => (udp.source, udp.destination),
            Transport::Icmp(Icmp { message: IcmpMessage::EchoRequest(identifier), .. }) => (*identifier, 0),
            Transport::Icmp(Icmp { message: IcmpMessage::EchoReply(identifier), .. }) => (0, *identifier),
            Transport::Icmp(_) | Transport::LaterFragment | Transport::Other | Transport::Malformed(_) => (0, 0),
        };
        let is_of_fragments = *transport == Transport::LaterFragment;
        Self { source: ip.source, destination: ip.destination, protocol: ip.protocol, ports, is_of_fragments }
    }

    /// The flow of the packet that an ICMP error quotes.
    pub(super) fn of_quoted(quoted: &Quoted) -> Self {
        let Ip { source, destination, protocol, .. } = quoted.ip;
        let ports = (quoted.source, quoted.destination);
        Self { source, destination, protocol, ports, is_of_fragments: false }
    }

    /// The later fragments of the same flow.
    pub(super) fn of_fragments(self) -> Self {
        Self { ports: (0, 0), is_of_fragments: true, ..self }
    }

    pub(super) fn reversed(self) -> Self {
        Self { source: self.destination, destination: self.source, ports: (self.ports.1, self.ports.0), ..self }
    }

    /// The flow as policies see it.
    pub(super) fn flow(&self) -> Flow {
        let port = match self.protocol {
            TCP | crate::policy::UDP => self.ports.1,
            _ => 0,
        };
        Flow { source: self.source, destination: self.destination, protocol: self.protocol, port }
    }
}

/// Flows in two generations: a period after its last packet, a flow is in the older one, and a period later it is gone.
/// So the table needs no search for what is old, and its size has a bound.
#[derive(Debug)]
struct Table {
    young: HashSet<Key>,
    old: HashSet<Key>,
    turned: Instant,
    period: Duration,
}

impl Table {
    fn new(period: Duration, now: Instant) -> Self {
        Self { young: HashSet::new(), old: HashSet::new(), turned: now, period }
    }

    fn has(&mut self, key: &Key, now: Instant) -> bool {
        self.turn(now);
        if self.young.contains(key) {
            return true;
        }
        if self.old.remove(key) {
            self.insert(*key, now);
            return true;
        }
        false
    }

    fn insert(&mut self, key: Key, now: Instant) {
        self.turn(now);
        if self.young.len() >= MAX_FLOWS {
            self.old = mem::take(&mut self.young);
            self.turned = now;
        }
        self.young.insert(key);
    }

    fn turn(&mut self, now: Instant) {
        let age = now.saturating_duration_since(self.turned);
        if age < self.period {
            return;
        }
        self.old = mem::take(&mut self.young);
        if age >= 2 * self.period {
            self.old.clear();
        }
        self.turned = now;
    }
}

/// The allowed flows of a network.
#[derive(Debug)]
pub(super) struct Flows {
    tcp: Table,
    other: Table,
}

impl Flows {
    pub(super) fn new(now: Instant) -> Self {
        Self { tcp: Table::new(TCP_IDLE, now), other: Table::new(OTHER_IDLE, now) }
    }

    /// Whether one of these flows is allowed, which then counts as used.
    pub(super) fn has(&mut self, keys: &[Key], now: Instant) -> bool {
        keys.iter().any(|key| self.table(key).has(key, now))
    }

    pub(super) fn insert(&mut self, key: Key, now: Instant) {
        self.table(&key).insert(key, now);
    }

    /// Keeps the flows for which this holds. Later fragments wait for their next first one.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&Flow) -> bool) {
        for table in [&mut self.tcp, &mut self.other] {
            for flows in [&mut table.young, &mut table.old] {
                flows.retain(|key| !key.is_of_fragments && is_kept(&key.flow()));
            }
        }
    }

    fn table(&mut self, key: &Key) -> &mut Table {
        if key.protocol == TCP && !key.is_of_fragments { &mut self.tcp } else { &mut self.other }
    }
}
