//! Neighbours: routers with which edges speak BGP.

use std::{fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{Community, Place};

/// The most times that the own number is prepended.
pub const MAX_PREPEND: u8 = 10;
/// The longest password of a session, in bytes (RFC 2385 has no limit; Linux takes 80).
const MAX_PASSWORD_BYTES: usize = 80;
const MAX_COMMUNITIES: usize = 32;
/// The range of BFD intervals, in milliseconds.
const BFD_MS: std::ops::RangeInclusive<u32> = 10..=10_000;

/// What the neighbour is to this installation (RFC 9234), said from its side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerRole {
    /// The neighbour carries traffic to everybody.
    Provider,
    /// The neighbour carries traffic to its own customers.
    Peer,
    /// A route server of an exchange.
    RouteServer,
    /// The neighbour is served by this installation.
    Customer,
}

/// How BFD watches a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BfdTimers {
    /// How often packets are sent and expected, in milliseconds.
    pub interval_ms: u32,
    /// After how many missing packets the neighbour is down.
    pub multiplier: u8,
}

impl Default for BfdTimers {
    fn default() -> Self {
        Self { interval_ms: 100, multiplier: 3 }
    }
}

/// A neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The name: a small letter, then small letters, digits and `-`; at most 32.
    pub name: String,
    /// Which edges speak with it.
    pub place: Place,
    /// Its address.
    pub address: IpAddr,
    /// Its autonomous system.
    pub remote_as: u32,
    /// The autonomous system of the edge.
    pub local_as: u32,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<PeerRole>,
    /// The password of the session (TCP MD5, RFC 2385).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// How many hops away it is. One hop, the default, is guarded by GTSM (RFC 5082).
    pub hops: u8,
    /// How BFD watches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd: Option<BfdTimers>,
    /// The most routes that it may send before its session ends.
    pub max_prefixes: u32,
    /// Communities of announcements to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub communities: Vec<Community>,
    /// Communities of deprioritised announcements to it, beside GRACEFUL_SHUTDOWN.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drain_communities: Vec<Community>,
    /// How often the own number is prepended.
    #[serde(default)]
    pub prepend: u8,
    /// The neighbour sends the routes to no other network.
    #[serde(default)]
    pub is_no_export: bool,
}

/// Why a neighbour is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The name.
    #[error("{0:?} is no name of a neighbour: use a small letter, then small letters, digits and -; at most 32")]
    Name(String),
    /// A number of an autonomous system.
    #[error("{0} is no number of an autonomous system that may speak BGP")]
    As(u32),
    /// The address.
    #[error("{0} is not the address of one router")]
    Address(IpAddr),
    /// The password.
    #[error("a password has 1 to {MAX_PASSWORD_BYTES} printable ASCII characters other than quotes and backslashes")]
    Password,
    /// The hops.
    #[error("a neighbour is 1 to 254 hops away")]
    Hops,
    /// BFD.
    #[error("BFD has an interval of 10 to 10000 ms, and a multiplier of 2 to 50")]
    Bfd,
    /// BFD over hops: BIRD needs the own address for it.
    #[error("BFD watches neighbours that are one hop away")]
    BfdHops,
    /// The limit of routes.
    #[error("a neighbour may send 1 to 10000000 routes")]
    MaxPrefixes,
    /// Prepending.
    #[error("the own number is prepended at most {MAX_PREPEND} times")]
    Prepend,
    /// Communities.
    #[error("a neighbour has at most {MAX_COMMUNITIES} communities of each kind")]
    Communities,
}

impl Peer {
    /// Checks the neighbour. What passes is safe in a configuration of BIRD.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), PeerError> {
        let is_name = self.name.len() <= 32
            && self.name.starts_with(|first: char| first.is_ascii_lowercase())
            && self.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if !is_name {
            return Err(PeerError::Name(self.name.chars().take(64).collect()));
        }
        for number in [self.remote_as, self.local_as] {
            // Reserved by RFC 7607, RFC 6793 and RFC 7300.
            if [0, 23_456, 65_535, u32::MAX].contains(&number) {
                return Err(PeerError::As(number));
            }
        }
        let is_router = match self.address {
            IpAddr::V4(address) => !(address.is_multicast() || address.is_broadcast()),
            // A link-local address is no address without an interface.
            IpAddr::V6(address) => {
                !(address.is_multicast() || address.is_unicast_link_local()) && address.to_ipv4_mapped().is_none()
            }
        };
        if self.address.is_unspecified() || !is_router {
            return Err(PeerError::Address(self.address));
        }
        let is_safe = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
        if let Some(password) = &self.password
            && (password.is_empty() || password.len() > MAX_PASSWORD_BYTES || !password.bytes().all(is_safe))
        {
            return Err(PeerError::Password);
        }
        if !(1..=254).contains(&self.hops) {
            return Err(PeerError::Hops);
        }
        if let Some(bfd) = self.bfd
            && !(BFD_MS.contains(&bfd.interval_ms) && (2..=50).contains(&bfd.multiplier))
        {
            return Err(PeerError::Bfd);
        }
        if self.bfd.is_some() && self.hops > 1 {
            return Err(PeerError::BfdHops);
        }
        if !(1..=10_000_000).contains(&self.max_prefixes) {
            return Err(PeerError::MaxPrefixes);
        }
        if self.prepend > MAX_PREPEND {
            return Err(PeerError::Prepend);
        }
        if self.communities.len() > MAX_COMMUNITIES || self.drain_communities.len() > MAX_COMMUNITIES {
            return Err(PeerError::Communities);
        }
        Ok(())
    }
}

impl PeerRole {
    /// The role as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Peer => "peer",
            Self::RouteServer => "route-server",
            Self::Customer => "customer",
        }
    }
}

impl fmt::Display for PeerRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PeerRole {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Provider, Self::Peer, Self::RouteServer, Self::Customer]
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no role: use provider, peer, route-server or customer"))
    }
}
