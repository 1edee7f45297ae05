//! The forwarding table of both families.

use std::{collections::HashMap, net::IpAddr};

use ipnet::IpNet;

use super::{Cells, Dir24, Entry, NextHop, NextHops, PrefixTable, RouteError, Trie6};
use crate::layout::{
    FIB4_BLOCK_CELLS, FIB4_FIRST_CELLS, FIB6_FIRST_CELLS, FIB6_NODE_CELLS, GROUP_SLOTS, NEXT_HOP_CELLS,
};

/// The arrays of a forwarding table, all zeros.
#[derive(Debug)]
pub struct Storage<C> {
    /// `fib4_first`.
    pub fib4_first: C,
    /// `fib4_second`.
    pub fib4_second: C,
    /// `fib6_first`.
    pub fib6_first: C,
    /// `fib6_nodes`.
    pub fib6_nodes: C,
    /// `next_hops`.
    pub next_hops: C,
    /// `group_slots`.
    pub group_slots: C,
}

impl Storage<Vec<u32>> {
    /// Arrays in memory for so many blocks of IPv4, nodes of IPv6, next hops and groups.
    #[must_use]
    pub fn in_memory(blocks: usize, nodes: usize, next_hops: usize, groups: usize) -> Self {
        Self {
            fib4_first: vec![0; FIB4_FIRST_CELLS],
            fib4_second: vec![0; blocks * FIB4_BLOCK_CELLS],
            fib6_first: vec![0; FIB6_FIRST_CELLS],
            fib6_nodes: vec![0; nodes * FIB6_NODE_CELLS],
            next_hops: vec![0; next_hops * NEXT_HOP_CELLS],
            group_slots: vec![0; groups * GROUP_SLOTS],
        }
    }
}

/// A forwarding table: prefixes in the arrays that a program reads, and once more as a [`PrefixTable`], from which
/// changes follow.
#[derive(Debug, Clone)]
pub struct Fib<C> {
    dir24: Dir24<C>,
    trie6: Trie6<C>,
    next_hops: NextHops<C>,
    routes4: PrefixTable,
    routes6: PrefixTable,
    /// Prefixes of each next hop.
    users: HashMap<u32, usize>,
}

/// The result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Length of the longest prefix.
    pub length: u8,
    /// The number that the prefix has: perhaps that of a group.
    pub route: u32,
    /// The number of the next hop, which is no group.
    pub number: u32,
    /// The next hop, which is no group.
    pub next_hop: NextHop,
}

impl<C: Cells> Fib<C> {
    /// An empty table.
    #[must_use]
    pub fn new(storage: Storage<C>) -> Self {
        Self {
            dir24: Dir24::new(storage.fib4_first, storage.fib4_second),
            trie6: Trie6::new(storage.fib6_first, storage.fib6_nodes),
            next_hops: NextHops::new(storage.next_hops, storage.group_slots),
            routes4: PrefixTable::default(),
            routes6: PrefixTable::default(),
            users: HashMap::new(),
        }
    }

    /// Adds a prefix, or changes its next hop. Returns the former one.
    ///
    /// # Errors
    /// The next hop does not exist, or the table is full. Nothing has changed then.
    pub fn add(&mut self, prefix: IpNet, next_hop: u32) -> Result<Option<u32>, RouteError> {
        self.next_hops.get(next_hop).ok_or(RouteError::UnknownNextHop(next_hop))?;
        let cell = Entry::Route { length: prefix.prefix_len(), next_hop }.encode();
        let former = match prefix {
            IpNet::V4(net) => {
                self.dir24.add(net, cell)?;
                self.routes4.add(prefix, next_hop)
            }
            IpNet::V6(net) => {
                self.trie6.add(net, cell)?;
                self.routes6.add(prefix, next_hop)
            }
        };
        *self.users.entry(next_hop).or_default() += 1;
        if let Some(former) = former {
            self.release(former);
        }
        Ok(former)
    }

    /// Removes a prefix. Returns its next hop.
    ///
    /// # Errors
    /// The prefix has no route.
    pub fn withdraw(&mut self, prefix: IpNet) -> Result<u32, RouteError> {
        let table = if matches!(prefix, IpNet::V4(_)) { &mut self.routes4 } else { &mut self.routes6 };
        let former = table.withdraw(prefix).ok_or(RouteError::NoRoute(prefix))?;
        // The default route has a cell of its own.
        let covering = table.covering(prefix).filter(|(length, _)| *length != 0);
        let cell = covering.map_or(Entry::None, |(length, next_hop)| Entry::Route { length, next_hop }).encode();
        match prefix {
            IpNet::V4(net) => self.dir24.withdraw(net, cell),
            IpNet::V6(net) => self.trie6.withdraw(net, cell),
        }
        self.release(former);
        Ok(former)
    }

    /// Removes a next hop that no route and no group has.
    ///
    /// # Errors
    /// The next hop does not exist, or is in use.
    pub fn remove_next_hop(&mut self, number: u32) -> Result<(), RouteError> {
        match self.users.get(&number) {
            Some(count) => Err(RouteError::InUse(number, *count)),
            None => self.next_hops.remove(number),
        }
    }

    /// Looks an address up. The hash is that of the flow: see [`flow_hash`](crate::parse::flow_hash).
    #[must_use]
    pub fn lookup(&self, address: IpAddr, hash: u32) -> Option<Found> {
        let cell = match address {
            IpAddr::V4(address) => self.dir24.lookup(address),
            IpAddr::V6(address) => self.trie6.lookup(address),
        };
        let Entry::Route { length, next_hop: route } = Entry::decode(cell) else { return None };
        let (number, next_hop) = self.next_hops.resolve(route, hash)?;
        Some(Found { length, route, number, next_hop })
    }

    /// The next hops and groups.
    #[must_use]
    pub fn next_hops(&self) -> &NextHops<C> {
        &self.next_hops
    }

    /// The next hops and groups, to add and to replace.
    pub fn next_hops_mut(&mut self) -> &mut NextHops<C> {
        &mut self.next_hops
    }

    /// The prefixes of IPv4.
    #[must_use]
    pub fn routes4(&self) -> &PrefixTable {
        &self.routes4
    }

    /// The prefixes of IPv6.
    #[must_use]
    pub fn routes6(&self) -> &PrefixTable {
        &self.routes6
    }

    /// Blocks of IPv4 and nodes of IPv6 in use.
    #[must_use]
    pub fn blocks_and_nodes(&self) -> (usize, usize) {
        (self.dir24.blocks(), self.trie6.nodes())
    }

    /// Lets blocks and nodes that the table has left be used again. The caller has waited until no reader can be there.
    pub fn reuse(&mut self) {
        self.dir24.reuse();
        self.trie6.reuse();
        self.next_hops.reuse();
    }

    fn release(&mut self, number: u32) {
        if let Some(count) = self.users.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(&number);
            }
        }
    }
}
