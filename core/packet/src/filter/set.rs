//! Sets of prefixes.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::route::PrefixTable;

/// The most prefixes of a set.
pub const MAX_SET_PREFIXES: usize = 1_000_000;

/// Prefixes of both families.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressSet {
    v4: PrefixTable,
    v6: PrefixTable,
}

impl AddressSet {
    /// Adds a prefix. Returns whether it is new.
    pub fn insert(&mut self, prefix: IpNet) -> bool {
        self.table(prefix).add(prefix, 0).is_none()
    }

    /// Removes a prefix. Returns whether it was there.
    pub fn remove(&mut self, prefix: IpNet) -> bool {
        self.table(prefix).withdraw(prefix).is_some()
    }

    /// Whether a prefix has the address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let table = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        table.lookup(address).is_some()
    }

    /// The prefixes, IPv4 first.
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        self.v4.prefixes(true).chain(self.v6.prefixes(false)).map(|(prefix, _)| prefix)
    }

    /// Number of prefixes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.v4.count() + self.v6.count()
    }

    fn table(&mut self, prefix: IpNet) -> &mut PrefixTable {
        match prefix {
            IpNet::V4(_) => &mut self.v4,
            IpNet::V6(_) => &mut self.v6,
        }
    }
}

impl FromIterator<IpNet> for AddressSet {
    fn from_iter<I: IntoIterator<Item = IpNet>>(prefixes: I) -> Self {
        let mut set = Self::default();
        for prefix in prefixes {
            set.insert(prefix);
        }
        set
    }
}
