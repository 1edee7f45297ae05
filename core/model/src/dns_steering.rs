//! Which region the name server answers whom: what control publishes to edges.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::RegionName;

/// The most networks that are steered.
pub const MAX_STEERED_NETWORKS: usize = 100_000;
/// The most resolvers whose clients are steered.
pub const MAX_STEERED_RESOLVERS: usize = 20_000;
/// The most regions.
pub const MAX_STEERED_REGIONS: usize = 64;
/// The most regions of a ranking.
pub const MAX_RANKED_REGIONS: usize = 8;
/// The most addresses of a region, or of the whole installation.
pub const MAX_STEERED_ADDRESSES: usize = 16;
/// Number of parts with networks and resolvers. Part 0 comes before them.
pub const STEERING_PARTS: u8 = 48;
/// The most networks and resolvers of one part, so that a part is shorter than 512 KiB.
pub const MAX_NETWORKS_OF_PART: usize = 5_000;

/// The greatest number of bits of a client's address that are used: of IPv4, and of IPv6.
pub const CLIENT_BITS: (u8, u8) = (24, 56);

/// What an operator has set for a region, and the addresses at which all of its edges serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsRegion {
    /// How much of what comes to the region stays there, in percent: the dial of the operator.
    #[serde(default = "all", skip_serializing_if = "is_all")]
    pub dial: u8,
    /// How much of that stays while the region has too much load, in percent.
    #[serde(default = "all", skip_serializing_if = "is_all")]
    pub share: u8,
    /// Its anycast addresses. None: the addresses of its edges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
}

fn all() -> u8 {
    100
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_all(percent: &u8) -> bool {
    *percent == 100
}

impl Default for DnsRegion {
    fn default() -> Self {
        Self { dial: 100, share: 100, addresses: Vec::new() }
    }
}

/// What an operator has set for the name server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsSettings {
    /// Dials and shares of regions, without their addresses.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub regions: BTreeMap<RegionName, DnsRegion>,
    /// Clients are answered the anycast addresses, in place of those of edges.
    #[serde(default)]
    pub has_anycast: bool,
}

/// A part of what steers the name server, with a bound on its length. Each part can be read without the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsSteeringPart {
    /// Its number. Part 0 has what holds for the whole installation, the others have networks and resolvers.
    pub part: u8,
    /// The regions with settings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub regions: BTreeMap<RegionName, DnsRegion>,
    /// The addresses for clients of which nothing is known. None: those of all edges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub global: Vec<IpAddr>,
    /// The names of the regions in the rankings of this part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<RegionName>,
    /// Rankings: places in `names`, the best region first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rankings: Vec<Vec<u8>>,
    /// Networks of clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<SteeredNetwork>,
    /// Resolvers, with a ranking for their clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolvers: Vec<SteeredResolver>,
}

/// A network of clients: its prefix, the place of its ranking, and its weight among others, such as its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteeredNetwork(pub IpNet, pub u16, pub u32);

/// A resolver: its address, the place of the ranking for its clients, and its weight among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteeredResolver(pub IpAddr, pub u16, pub u32);
