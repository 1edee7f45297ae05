//! Chooses a region for who asks.

use std::net::IpAddr;

use sallyport_model::{CLIENT_BITS, RegionName, is_private};

use super::{
    networks::{Leaf, mask},
    table::{SteeringTable, top_bits},
};
use crate::query::ClientSubnet;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asking {
    /// The address of the resolver.
    pub resolver: IpAddr,
    /// The network of its client, if the resolver names it.
    pub subnet: Option<ClientSubnet>,
}

/// What a choice rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChoiceReason {
    /// What was measured for the network of the client, which the resolver names.
    Subnet,
    /// What was measured for the clients of the resolver.
    Resolver,
    /// What was measured for the network of the resolver.
    Network,
    /// Nothing: the addresses are those for everybody.
    Global,
}

/// Number of reasons.
pub const REASONS: usize = ChoiceReason::ALL.len();

impl ChoiceReason {
    /// All reasons, in the order of [`ChoiceReason::index`].
    pub const ALL: [Self; 4] = [Self::Subnet, Self::Resolver, Self::Network, Self::Global];

    /// The place of the reason among all, for arrays of counters.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The label of the reason in metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Subnet => "subnet",
            Self::Resolver => "resolver",
            Self::Network => "network",
            Self::Global => "global",
        }
    }
}

/// What was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The place of the region among the names of the table. `None`: the addresses for everybody.
    pub region: Option<u8>,
    /// The place of the best region that has edges now, which a dial or a share may have passed by.
    pub nearest: Option<u8>,
    /// What it rests on.
    pub reason: ChoiceReason,
    /// For how many bits of the client's network it holds (RFC 7871). 0: it does not depend on the client.
    pub scope: u8,
}

/// How much of what comes to a region stays there, in parts of 10,000: its dial by its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep(u16);

impl Keep {
    /// A dial and a share, both in percent.
    #[must_use]
    pub fn new(dial: u8, share: u8) -> Self {
        Self(u16::from(dial.min(100)) * u16::from(share.min(100)))
    }
}

impl Default for Keep {
    fn default() -> Self {
        Self::new(100, 100)
    }
}

/// The bits of the client's network that count, their number, and whether they are of IPv4. `None`: nobody can be at
/// such an address, or the client wants to stay unknown.
#[must_use]
pub fn believed_network(subnet: &ClientSubnet) -> Option<(u128, u8, bool)> {
    let is_family = match subnet.address {
        IpAddr::V4(_) => subnet.family == 1,
        // A mapped address is not how a resolver names a client of IPv4.
        IpAddr::V6(six) => subnet.family == 2 && six.to_ipv4_mapped().is_none(),
    };
    let is_nobody = match subnet.address {
        IpAddr::V4(four) => four.octets()[0] == 0 || four.octets()[0] >= 224,
        IpAddr::V6(six) => six.is_multicast(),
    };
    if subnet.prefix == 0 || !is_family || is_nobody || is_private(subnet.address) {
        return None;
    }
    let (bits, is_v4) = top_bits(subnet.address);
    let len = subnet.prefix.min(if is_v4 { CLIENT_BITS.0 } else { CLIENT_BITS.1 });
    Some((bits & mask(len), len, is_v4))
}

impl SteeringTable {
    /// The ranking of regions on which a choice rests.
    #[must_use]
    pub fn ranking(&self, asking: &Asking, reason: ChoiceReason) -> Vec<&RegionName> {
        let leaf = match reason {
            ChoiceReason::Subnet => {
                let network = asking.subnet.as_ref().and_then(believed_network);
                network.and_then(|(bits, len, is_v4)| self.network(bits, len, is_v4).leaf)
            }
            ChoiceReason::Resolver => self.resolver(asking.resolver),
            ChoiceReason::Network => own_network(self, asking.resolver),
            ChoiceReason::Global => None,
        };
        let places = leaf.map(|leaf| self.regions(leaf)).unwrap_or_default();
        places.iter().filter_map(|place| self.names().get(usize::from(*place))).collect()
    }
}

/// What was measured for the network of the resolver itself.
fn own_network(table: &SteeringTable, resolver: IpAddr) -> Option<Leaf> {
    let (bits, is_v4) = top_bits(resolver);
    let len = if is_v4 { CLIENT_BITS.0 } else { CLIENT_BITS.1 };
    table.network(bits & mask(len), len, is_v4).leaf
}

/// Chooses a region. `keep` says how much stays in the region at this place of the table's names; `None`: the region
/// has no edges now.
pub fn choose(table: &SteeringTable, asking: &Asking, keep: impl Fn(u8) -> Option<Keep>) -> Choice {
    let picked = |leaf: Leaf, reason, scope| {
        let (region, nearest) = pick(table.regions(leaf), leaf.position, &keep)?;
        Some(Choice { region: Some(region), nearest: Some(nearest), reason, scope })
    };
    let mut scope = 0;
    if let Some((bits, len, is_v4)) = asking.subnet.as_ref().and_then(believed_network) {
        let found = table.network(bits, len, is_v4);
        scope = found.scope;
        if let Some(choice) = found.leaf.and_then(|leaf| picked(leaf, ChoiceReason::Subnet, scope)) {
            return choice;
        }
    }
    if let Some(choice) = table.resolver(asking.resolver).and_then(|leaf| picked(leaf, ChoiceReason::Resolver, scope)) {
        return choice;
    }
    own_network(table, asking.resolver).and_then(|leaf| picked(leaf, ChoiceReason::Network, scope)).unwrap_or(Choice {
        region: None,
        nearest: None,
        reason: ChoiceReason::Global,
        scope,
    })
}

/// The region of a ranking at this position, and the nearest one. Each region keeps its part of what comes to it; the
/// last one keeps the rest. A region that keeps nothing is used while no other one can be.
fn pick(ranking: &[u8], position: u32, keep: impl Fn(u8) -> Option<Keep>) -> Option<(u8, u8)> {
    let there = || ranking.iter().filter_map(|region| Some((*region, u64::from(keep(*region)?.0))));
    let (nearest, _) = there().next()?;
    let Some((last, _)) = there().filter(|(_, keep)| *keep > 0).last() else { return Some((nearest, nearest)) };
    let (mut passed, mut rest) = (0_u64, 1_u64 << 32);
    for (region, keep) in there().filter(|(_, keep)| *keep > 0) {
        let kept = rest * keep / 10_000;
        if region == last || u64::from(position) < passed + kept {
            return Some((region, nearest));
        }
        (passed, rest) = (passed + kept, rest - kept);
    }
    Some((last, nearest))
}
