//! Prefixes that edges announce.

use std::net::IpAddr;

use ipnet::IpNet;
use sallyport_model::RegionName;
use serde::{Deserialize, Serialize};

use super::Community;

/// The most service addresses of a prefix.
pub const MAX_SERVICE_ADDRESSES: usize = 16;
/// The shortest and the longest prefix that is announced: IPv4, then IPv6.
const LENGTHS: [(u8, u8); 2] = [(8, 32), (16, 128)];

/// A prefix that edges announce, with the addresses at which they serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnycastPrefix {
    /// The prefix, without bits after its length.
    pub net: IpNet,
    /// The addresses in it that edges have while they announce it.
    pub addresses: Vec<IpAddr>,
    /// The regions that announce it; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<RegionName>,
    /// Communities that each announcement has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub communities: Vec<Community>,
    /// How many regions announce it at least: those do not withdraw it for a shared cause.
    pub min_sites: u16,
}

/// The prefixes that an operator permits. Each announced prefix is one of them, or within one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowList(pub Vec<IpNet>);

/// Why a prefix is not announced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// No permission.
    #[error("{0} is not within a prefix of --anycast-allow")]
    NotAllowed(IpNet),
    /// Bits after the length.
    #[error("{0} has bits after its length: use {1}")]
    HostBits(IpNet, IpNet),
    /// Too short, such as the default route, or of IPv6 and too short.
    #[error("{0} is too short: a prefix has at least {1} bits")]
    TooShort(IpNet, u8),
    /// An address range that nobody announces.
    #[error("{0} overlaps {1}, which is for {2}")]
    Bogon(IpNet, IpNet, &'static str),
    /// No address.
    #[error("{0} has no service address: name one to {MAX_SERVICE_ADDRESSES}")]
    NoAddress(IpNet),
    /// Too many addresses.
    #[error("{0} has more than {MAX_SERVICE_ADDRESSES} service addresses")]
    TooManyAddresses(IpNet),
    /// An address of elsewhere.
    #[error("{1} is not within {0}")]
    AddressOutside(IpNet, IpAddr),
    /// An address that no host has.
    #[error("{1} is the network or broadcast address of {0}")]
    NotAHost(IpNet, IpAddr),
}

/// Ranges that are never announced, with their use (RFC 6890, RFC 5735, RFC 8190). Private and documentation ranges are
/// left out: laboratories use them, and the allow-list is what decides about them.
const BOGONS: [(&str, &str); 11] = [
    ("0.0.0.0/8", "this network"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local addresses"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved addresses"),
    ("::/8", "loopback, unspecified and mapped addresses"),
    ("64:ff9b::/96", "translation"),
    ("100::/64", "discarded packets"),
    ("fe80::/10", "link-local addresses"),
    ("fec0::/10", "site-local addresses"),
    ("ff00::/8", "multicast"),
];

impl AnycastPrefix {
    /// Whether the edges of this region announce it.
    #[must_use]
    pub fn is_for(&self, region: Option<&RegionName>) -> bool {
        self.regions.is_empty() || region.is_some_and(|region| self.regions.contains(region))
    }

    /// Checks the prefix and its addresses.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self, allowed: &AllowList) -> Result<(), PrefixError> {
        let net = self.net;
        if net.trunc() != net {
            return Err(PrefixError::HostBits(net, net.trunc()));
        }
        let (shortest, _) = LENGTHS[usize::from(matches!(net, IpNet::V6(_)))];
        if net.prefix_len() < shortest {
            return Err(PrefixError::TooShort(net, shortest));
        }
        for (range, used_for) in BOGONS {
            let range: IpNet = range.parse().expect("a range");
            if range.contains(&net) || net.contains(&range) {
                return Err(PrefixError::Bogon(net, range, used_for));
            }
        }
        if !allowed.0.iter().any(|allowed| allowed.contains(&net)) {
            return Err(PrefixError::NotAllowed(net));
        }
        match self.addresses.len() {
            0 => return Err(PrefixError::NoAddress(net)),
            1..=MAX_SERVICE_ADDRESSES => {}
            _ => return Err(PrefixError::TooManyAddresses(net)),
        }
        for address in &self.addresses {
            if !net.contains(address) {
                return Err(PrefixError::AddressOutside(net, *address));
            }
            let is_edge = *address == net.network() || (address.is_ipv4() && *address == net.broadcast());
            if net.prefix_len() + 1 < net.max_prefix_len() && is_edge {
                return Err(PrefixError::NotAHost(net, *address));
            }
        }
        Ok(())
    }
}
