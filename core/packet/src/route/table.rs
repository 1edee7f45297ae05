//! Prefixes with their next hops, and the longest match, without cleverness: the oracle of the fast tables.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The prefixes of one family: for each length a map from the prefix to the number of its next hop. Addresses are
/// numbers of 128 bits; an IPv4 address has the upper 32.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefixTable {
    lengths: BTreeMap<u8, HashMap<u128, u32>>,
}

impl PrefixTable {
    /// Adds a prefix; returns its former next hop.
    pub fn add(&mut self, prefix: IpNet, next_hop: u32) -> Option<u32> {
        let (bits, length) = parts(prefix);
        self.lengths.entry(length).or_default().insert(bits, next_hop)
    }

    /// Removes a prefix; returns its next hop.
    pub fn withdraw(&mut self, prefix: IpNet) -> Option<u32> {
        let (bits, length) = parts(prefix);
        let prefixes = self.lengths.get_mut(&length)?;
        let next_hop = prefixes.remove(&bits);
        if prefixes.is_empty() {
            self.lengths.remove(&length);
        }
        next_hop
    }

    /// The next hop of exactly this prefix.
    #[must_use]
    pub fn get(&self, prefix: IpNet) -> Option<u32> {
        let (bits, length) = parts(prefix);
        self.lengths.get(&length)?.get(&bits).copied()
    }

    /// The longest prefix with this address: its length and next hop.
    #[must_use]
    pub fn lookup(&self, address: IpAddr) -> Option<(u8, u32)> {
        self.longest(address_bits(address), 129)
    }

    /// The longest prefix that has all of this one, and is shorter.
    #[must_use]
    pub fn covering(&self, prefix: IpNet) -> Option<(u8, u32)> {
        let (bits, length) = parts(prefix);
        self.longest(bits, length)
    }

    /// Number of prefixes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lengths.values().map(HashMap::len).sum()
    }

    /// Every prefix with its next hop, short ones first. IPv4 if `is_ipv4`.
    pub fn prefixes(&self, is_ipv4: bool) -> impl Iterator<Item = (IpNet, u32)> {
        self.lengths.iter().flat_map(move |(length, prefixes)| {
            prefixes.iter().filter_map(move |(bits, next_hop)| Some((net(*bits, *length, is_ipv4)?, *next_hop)))
        })
    }

    fn longest(&self, bits: u128, below: u8) -> Option<(u8, u32)> {
        self.lengths
            .range(..below)
            .rev()
            .find_map(|(length, prefixes)| Some((*length, *prefixes.get(&masked(bits, *length))?)))
    }
}

pub(super) fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

pub(super) fn parts(prefix: IpNet) -> (u128, u8) {
    (address_bits(prefix.network()), prefix.prefix_len())
}

pub(super) fn masked(bits: u128, length: u8) -> u128 {
    match length {
        0 => 0,
        length => bits & u128::MAX << (128 - u32::from(length)),
    }
}

fn net(bits: u128, length: u8, is_ipv4: bool) -> Option<IpNet> {
    if is_ipv4 {
        Ipv4Net::new(Ipv4Addr::from_bits((bits >> 96) as u32), length).ok().map(IpNet::V4)
    } else {
        Ipv6Net::new(Ipv6Addr::from_bits(bits), length).ok().map(IpNet::V6)
    }
}
