//! Sets of addresses, as sorted ranges. Uses no other room.

mod address;
mod ranges;

pub use address::Address;
pub use ranges::Ranges;
pub(crate) use ranges::{Repeats, repeats};

/// Addresses of both families.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressSet {
    /// The IPv4 addresses.
    pub v4: Ranges<u32>,
    /// The IPv6 addresses.
    pub v6: Ranges<u128>,
}

impl AddressSet {
    /// What this set or the other has.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self { v4: self.v4.union(&other.v4), v6: self.v6.union(&other.v6) }
    }

    /// What both sets have.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self { v4: self.v4.intersection(&other.v4), v6: self.v6.intersection(&other.v6) }
    }

    /// What this set has and the other lacks.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self { v4: self.v4.difference(&other.v4), v6: self.v6.difference(&other.v6) }
    }

    /// The fewest prefixes that have exactly these addresses, in order, IPv4 first.
    pub fn prefixes(&self) -> impl Iterator<Item = String> + '_ {
        self.v4.prefix_texts().chain(self.v6.prefix_texts())
    }
}
