//! The configuration of a NAT.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddrV4},
    ops::RangeInclusive,
    time::Duration,
};

use ipnet::Ipv4Net;

use super::sessions::MAX_SESSIONS;
use crate::parse::{TCP, UDP};

/// The most addresses of a pool.
pub const MAX_POOL: usize = 4_096;
/// The most forwarded ports.
pub const MAX_FORWARDS: usize = 65_536;

/// Who may send to a mapping. The mapping itself is the same for all peers (RFC 4787, section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Filtering {
    /// Peers to whose address and port the inside has sent.
    #[default]
    PortRestricted,
    /// Every peer.
    EndpointIndependent,
}

/// An outside port that leads to an inside one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortForward {
    /// TCP or UDP.
    pub protocol: u8,
    /// Address and port outside.
    pub external: SocketAddrV4,
    /// Address and port inside.
    pub inside: SocketAddrV4,
}

/// How long a session lives without packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP that the inside has begun, before the handshake is done: 4 minutes (RFC 5382, REQ-5).
    pub tcp_transitory: Duration,
    /// TCP after the handshake: 2 hours and 4 minutes (RFC 5382, REQ-5).
    pub tcp_established: Duration,
    /// UDP: 5 minutes (RFC 4787, REQ-5).
    pub udp: Duration,
    /// Echo requests: 60 seconds (RFC 5508, REQ-1).
    pub icmp: Duration,
    /// What a stranger has begun, until the inside answers, and of TCP until the stranger answers too: 5 seconds. Nobody
    /// knows before whether the source is a real one.
    pub half_open: Duration,
    /// TCP after an end: 10 seconds.
    pub tcp_closing: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tcp_transitory: Duration::from_secs(240),
            tcp_established: Duration::from_secs(7_440),
            udp: Duration::from_secs(300),
            icmp: Duration::from_secs(60),
            half_open: Duration::from_secs(5),
            tcp_closing: Duration::from_secs(10),
        }
    }
}

/// The configuration of a NAT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatConfig {
    /// Networks whose sources are translated.
    pub inside: Vec<Ipv4Net>,
    /// Addresses outside. All mappings of one inside address have one of them (RFC 4787, REQ-2).
    pub pool: Vec<Ipv4Addr>,
    /// Ports of new mappings.
    pub ports: RangeInclusive<u16>,
    /// Who may send to a mapping.
    pub filtering: Filtering,
    /// Outside ports that lead inside.
    pub forwards: Vec<PortForward>,
    /// The most sessions of the NAT.
    pub max_sessions: usize,
    /// The most sessions that one inside address has begun, and the most that others have begun with it.
    pub max_sessions_per_user: usize,
    /// How long sessions live.
    pub timeouts: Timeouts,
    /// The seed of the choice of addresses and ports.
    pub seed: u32,
}

impl Default for NatConfig {
    fn default() -> Self {
        Self {
            inside: Vec::new(),
            pool: Vec::new(),
            ports: 1_024..=65_535,
            filtering: Filtering::default(),
            forwards: Vec::new(),
            max_sessions: 262_144,
            max_sessions_per_user: 4_096,
            timeouts: Timeouts::default(),
            seed: 0,
        }
    }
}

/// What is wrong with a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NatConfigError {
    /// Inside networks without an address outside.
    #[error("the NAT has inside networks but no address in its pool")]
    EmptyPool,
    /// Too many addresses.
    #[error("a pool has at most {MAX_POOL} addresses")]
    LargePool,
    /// An address of the pool is in an inside network.
    #[error("{0} of the pool is in an inside network")]
    PoolInside(Ipv4Addr),
    /// No ports.
    #[error("the range of ports is empty or begins with 0")]
    NoPorts,
    /// Too many forwarded ports.
    #[error("a NAT has at most {MAX_FORWARDS} forwarded ports")]
    ManyForwards,
    /// A forwarded port of neither TCP nor UDP, or port 0.
    #[error("the forwarded port {0} is not one of TCP or UDP, or is 0")]
    BadForward(SocketAddrV4),
    /// Two forwards have an end in common.
    #[error("{0} is forwarded twice")]
    SameForward(SocketAddrV4),
    /// The bounds of sessions are not sensible.
    #[error("the most sessions are between 1 and {MAX_SESSIONS}, those of a user too")]
    BadBounds,
}

impl NatConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), NatConfigError> {
        if self.pool.is_empty() && !self.inside.is_empty() {
            return Err(NatConfigError::EmptyPool);
        }
        if self.pool.len() > MAX_POOL {
            return Err(NatConfigError::LargePool);
        }
        if let Some(address) = self.pool.iter().find(|address| self.is_inside(**address)) {
            return Err(NatConfigError::PoolInside(*address));
        }
        if self.ports.is_empty() || *self.ports.start() == 0 {
            return Err(NatConfigError::NoPorts);
        }
        if ![self.max_sessions, self.max_sessions_per_user].iter().all(|most| (1..=MAX_SESSIONS).contains(most)) {
            return Err(NatConfigError::BadBounds);
        }
        if self.forwards.len() > MAX_FORWARDS {
            return Err(NatConfigError::ManyForwards);
        }
        let (mut external, mut inside) = (HashSet::new(), HashSet::new());
        for forward in &self.forwards {
            let is_known = matches!(forward.protocol, TCP | UDP);
            if !is_known || forward.external.port() == 0 || forward.inside.port() == 0 {
                return Err(NatConfigError::BadForward(forward.external));
            }
            for (seen, end) in [(&mut external, forward.external), (&mut inside, forward.inside)] {
                if !seen.insert((forward.protocol, end)) {
                    return Err(NatConfigError::SameForward(end));
                }
            }
        }
        Ok(())
    }

    /// Whether the address is in an inside network.
    #[must_use]
    pub fn is_inside(&self, address: Ipv4Addr) -> bool {
        self.inside.iter().any(|net| net.contains(&address))
    }

    /// Whether the NAT translates packets to this address.
    #[must_use]
    pub fn is_external(&self, address: Ipv4Addr) -> bool {
        self.pool.contains(&address) || self.forwards.iter().any(|forward| *forward.external.ip() == address)
    }
}
