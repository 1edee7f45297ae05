//! Mappings, sessions and their bounds.

use std::{
    collections::{HashMap, VecDeque},
    net::{Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use super::config::NatConfig;
use crate::{
    forward::{DropReason, PassReason, Verdict},
    layout::NAT_PORT_TRIES,
    parse::{Connection, ICMP, TCP, Tcp, mix_words},
};

/// The most sessions that a NAT can be given.
pub const MAX_SESSIONS: usize = 16_777_216;
/// The most events that wait for the log of sessions. The oldest are lost first.
pub const MAX_EVENTS: usize = 65_536;

/// An end of a flow. The port of an echo message is its identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// TCP, UDP or ICMP.
    pub protocol: u8,
    /// Address.
    pub address: Ipv4Addr,
    /// Port or identifier.
    pub port: u16,
}

/// Where a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// No connection: UDP and ICMP.
    Datagrams,
    /// A connection was begun, or a stranger has sent a datagram that the inside has not answered.
    Opening,
    /// The other side has answered.
    Answered,
    /// The handshake is done.
    Established,
    /// Both sides have ended the connection, or one has reset it.
    Closing,
}

/// A session: an inside endpoint and one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// The endpoint inside.
    pub inside: Endpoint,
    /// The same endpoint as peers see it.
    pub external: Endpoint,
    /// The peer. Of an echo, the port is 0.
    pub remote: SocketAddrV4,
    /// Where the session is.
    pub state: SessionState,
    /// Whether the inside sent the first packet.
    pub is_outbound: bool,
    /// When the session ends without further packets.
    pub expires: Duration,
}

/// An entry for the log of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A session began.
    Began(Session),
    /// A session ended.
    Ended(Session),
}

#[derive(Debug, Clone, Copy)]
struct Mapping {
    external: Endpoint,
    sessions: usize,
    is_forward: bool,
    expires: Duration,
}

/// The tables of a NAT. A key of a session is the inside endpoint and the peer.
#[derive(Debug, Clone, Default)]
pub(super) struct Sessions {
    mappings: HashMap<Endpoint, Mapping>,
    externals: HashMap<Endpoint, Endpoint>,
    sessions: HashMap<(Endpoint, SocketAddrV4), Session>,
    connections: HashMap<(Endpoint, SocketAddrV4), Connection>,
    /// Sessions of an inside address: those that it has begun, and those of strangers.
    users: HashMap<(Ipv4Addr, bool), usize>,
    events: VecDeque<Event>,
    lost_events: u64,
}

impl Sessions {
    pub(super) fn new(config: &NatConfig) -> Self {
        let mut sessions = Self::default();
        for forward in &config.forwards {
            let end = |end: SocketAddrV4| Endpoint { protocol: forward.protocol, address: *end.ip(), port: end.port() };
            let (inside, external) = (end(forward.inside), end(forward.external));
            let mapping = Mapping { external, sessions: 0, is_forward: true, expires: Duration::MAX };
            sessions.mappings.insert(inside, mapping);
            sessions.externals.insert(external, inside);
        }
        sessions
    }

    /// The inside endpoint of an external one whose mapping lives, and whether it is a forwarded port.
    pub(super) fn inside_of(&self, external: Endpoint, now: Duration) -> Option<(Endpoint, bool)> {
        let inside = self.externals.get(&external)?;
        let mapping = self.mappings.get(inside).filter(|mapping| mapping.expires > now)?;
        Some((*inside, mapping.is_forward))
    }

    pub(super) fn is_forwarded(&self, inside: Endpoint) -> bool {
        self.mappings.get(&inside).is_some_and(|mapping| mapping.is_forward)
    }

    pub(super) fn live(&self, inside: Endpoint, remote: SocketAddrV4, now: Duration) -> Option<&Session> {
        self.sessions.get(&(inside, remote)).filter(|session| session.expires > now)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    pub(super) fn count(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn of_user(&self, address: Ipv4Addr, is_outbound: bool) -> usize {
        self.users.get(&(address, is_outbound)).copied().unwrap_or(0)
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn lost_events(&self) -> u64 {
        self.lost_events
    }

    /// Begins a session, with a new mapping if the endpoint has none.
    pub(super) fn begin(
        &mut self,
        config: &NatConfig,
        inside: Endpoint,
        remote: SocketAddrV4,
        is_outbound: bool,
        tcp: Option<Tcp>,
        now: Duration,
    ) -> Result<(), Verdict> {
        if self.sessions.get(&(inside, remote)).is_some_and(|session| session.expires <= now) {
            self.end(inside, remote);
        }
        let is_full = self.sessions.len() >= config.max_sessions
            || self.of_user(inside.address, is_outbound) >= config.max_sessions_per_user;
        if is_full {
            return Err(Verdict::Drop(DropReason::NatSessionsExhausted));
        }
        let external = match self.mappings.get(&inside) {
            Some(mapping) => mapping.external,
            // The kernel has seen the beginning of this connection, if anybody has.
            None if tcp.is_some_and(|tcp| tcp.flags & Tcp::SYN == 0) => {
                return Err(Verdict::Pass(PassReason::NatNoMapping));
            }
            None => self.map(config, inside).ok_or(Verdict::Drop(DropReason::NatPortsExhausted))?,
        };
        // What a stranger begins is not known to be wanted before the inside answers.
        let is_opening = inside.protocol == TCP || !is_outbound;
        let state = if is_opening { SessionState::Opening } else { SessionState::Datagrams };
        let session = Session { inside, external, remote, state, is_outbound, expires: now };
        self.sessions.insert((inside, remote), session);
        *self.users.entry((inside.address, is_outbound)).or_default() += 1;
        if let Some(mapping) = self.mappings.get_mut(&inside) {
            mapping.sessions += 1;
        }
        self.record(Event::Began(session));
        Ok(())
    }

    /// Counts a packet in: the state of TCP, and the new end of the session. Returns the session.
    pub(super) fn refresh(
        &mut self,
        config: &NatConfig,
        key: (Endpoint, SocketAddrV4),
        tcp: Option<Tcp>,
        from_inside: bool,
        now: Duration,
    ) -> Option<Session> {
        let session = self.sessions.get_mut(&key)?;
        if let Some(tcp) = tcp {
            let connection = self.connections.entry(key).or_default();
            session.state = next_state(session.state, connection, &tcp, from_inside == session.is_outbound);
        } else if session.state == SessionState::Opening && from_inside != session.is_outbound {
            session.state = SessionState::Datagrams;
        }
        let timeouts = &config.timeouts;
        let lifetime = match session.state {
            SessionState::Datagrams if key.0.protocol == ICMP => timeouts.icmp,
            SessionState::Datagrams => timeouts.udp,
            SessionState::Established => timeouts.tcp_established,
            SessionState::Opening | SessionState::Answered if !session.is_outbound => timeouts.half_open,
            SessionState::Opening | SessionState::Answered => timeouts.tcp_transitory,
            SessionState::Closing => timeouts.tcp_closing,
        };
        session.expires = now + lifetime;
        let session = *session;
        if let Some(mapping) = self.mappings.get_mut(&key.0) {
            mapping.expires = mapping.expires.max(session.expires);
        }
        Some(session)
    }

    /// Ends every session whose time is over.
    pub(super) fn expire(&mut self, now: Duration) -> usize {
        let over = self.sessions.iter().filter(|(_, session)| session.expires <= now);
        let mut over: Vec<_> = over.map(|(key, _)| *key).collect();
        over.sort_unstable();
        for (inside, remote) in &over {
            self.end(*inside, *remote);
        }
        over.len()
    }

    fn end(&mut self, inside: Endpoint, remote: SocketAddrV4) {
        let Some(session) = self.sessions.remove(&(inside, remote)) else { return };
        self.connections.remove(&(inside, remote));
        let user = (inside.address, session.is_outbound);
        if let Some(count) = self.users.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(&user);
            }
        }
        if let Some(mapping) = self.mappings.get_mut(&inside) {
            mapping.sessions -= 1;
            if mapping.sessions == 0 && !mapping.is_forward {
                self.externals.remove(&mapping.external);
                self.mappings.remove(&inside);
            }
        }
        self.record(Event::Ended(session));
    }

    /// A free external endpoint: the pool's address of the user, and first the user's own port. Then ports from a hash
    /// on, [`NAT_PORT_TRIES`] at most.
    fn map(&mut self, config: &NatConfig, inside: Endpoint) -> Option<Endpoint> {
        let bits = inside.address.to_bits();
        let pool = u32::try_from(config.pool.len()).ok().filter(|count| *count != 0)?;
        let address = *config.pool.get((mix_words(&[bits], config.seed) % pool) as usize)?;
        let (first, last) = (u32::from(*config.ports.start()), u32::from(*config.ports.end()));
        let count = (last + 1).checked_sub(first).filter(|count| *count != 0)?;
        let words = [bits, u32::from(inside.port) << 8 | u32::from(inside.protocol)];
        let hash = mix_words(&words, config.seed) % count;
        let own = Some(inside.port).filter(|port| config.ports.contains(port));
        let others = (1..=count.min(NAT_PORT_TRIES)).map(|index| first + (hash + index) % count);
        let ports = own.into_iter().chain(others.filter_map(|port| u16::try_from(port).ok()));
        let external = ports
            .map(|port| Endpoint { protocol: inside.protocol, address, port })
            .find(|external| !self.externals.contains_key(external))?;
        let mapping = Mapping { external, sessions: 0, is_forward: false, expires: Duration::ZERO };
        self.mappings.insert(inside, mapping);
        self.externals.insert(external, inside);
        Some(external)
    }

    fn record(&mut self, event: Event) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
            self.lost_events += 1;
        }
        self.events.push_back(event);
    }
}

/// The state of a connection after a packet, sent by the side that began the session or by the other one.
fn next_state(state: SessionState, connection: &mut Connection, tcp: &Tcp, by_initiator: bool) -> SessionState {
    let is_syn = tcp.flags & Tcp::SYN != 0;
    let state = match state {
        SessionState::Closing if is_syn && by_initiator => {
            *connection = Connection::default();
            SessionState::Opening
        }
        state => state,
    };
    let has_ended = connection.count_in(tcp, by_initiator);
    match state {
        _ if has_ended => SessionState::Closing,
        // Of a stranger.
        state if tcp.flags & Tcp::RST != 0 => state,
        SessionState::Opening if !by_initiator => SessionState::Answered,
        SessionState::Answered if by_initiator && !is_syn => SessionState::Established,
        state => state,
    }
}
