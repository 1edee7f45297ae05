//! What changed between two sets.

use serde::Serialize;

use super::{Price, units};
use crate::set::{Address, AddressSet, Ranges};

/// The prefixes of a change that are listed, at most.
pub const MAX_LISTED_PREFIXES: usize = 100_000;

/// What changed in one family: IPv4 in addresses, IPv6 in networks of 64 bits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FamilyDifference {
    /// What was held before.
    pub before: u64,
    /// What is held after.
    pub after: u64,
    /// What came.
    pub added: u64,
    /// What went.
    pub removed: u64,
    /// The first [`MAX_LISTED_PREFIXES`] prefixes that came.
    pub added_prefixes: Vec<String>,
    /// The first [`MAX_LISTED_PREFIXES`] prefixes that went.
    pub removed_prefixes: Vec<String>,
}

/// What changed between two sets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The IPv4 addresses.
    pub ipv4: FamilyDifference,
    /// The IPv6 addresses.
    pub ipv6: FamilyDifference,
    /// The value of the IPv4 addresses after, less that before, if a price is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

impl Difference {
    /// Compares two sets.
    #[must_use]
    pub fn new(old: &AddressSet, new: &AddressSet, price: Option<Price>) -> Self {
        let (ipv4, ipv6) = (family(&old.v4, &new.v4), family(&old.v6, &new.v6));
        let value = price.map(|price| price.of(ipv4.after) - price.of(ipv4.before));
        Self { ipv4, ipv6, value }
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [&self.ipv4, &self.ipv6].iter().all(|family| family.added == 0 && family.removed == 0)
    }
}

fn family<A: Address>(old: &Ranges<A>, new: &Ranges<A>) -> FamilyDifference {
    let (added, removed) = (new.difference(old), old.difference(new));
    let listed = |ranges: &Ranges<A>| ranges.prefix_texts().take(MAX_LISTED_PREFIXES).collect();
    FamilyDifference {
        before: units(old),
        after: units(new),
        added: units(&added),
        removed: units(&removed),
        added_prefixes: listed(&added),
        removed_prefixes: listed(&removed),
    }
}
