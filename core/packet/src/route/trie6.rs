//! A trie for IPv6: an array for the first 16 bits, then nodes of four bits. A node with one way is left out.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use super::{
    Cells, RouteError,
    cells::Numbers,
    entry::{node, rank},
    table::masked,
};
use crate::layout::{
    ENTRY_NODE, FIB6_DEFAULT, FIB6_FIRST_BITS, FIB6_MAX_STEPS, FIB6_NODE_CELLS, FIB6_STRIDE, NODE_DEPTH, NODE_ENTRIES,
    NODE_FALLBACK, NODE_PREFIX,
};

const FAN_OUT: usize = 1 << FIB6_STRIDE;
/// A prefix needs one node for itself, and one where its way parts from another's.
const MAX_NEW_NODES: usize = 2;

/// The table of IPv6.
#[derive(Debug, Clone)]
pub struct Trie6<C> {
    first: C,
    nodes: C,
    numbers: Numbers,
}

/// A cell that has an entry.
#[derive(Debug, Clone, Copy)]
enum Slot {
    First(usize),
    Node(usize),
}

impl<C: Cells> Trie6<C> {
    /// An empty table over arrays of zeros: [`crate::layout`] says how large they are.
    #[must_use]
    pub fn new(first: C, nodes: C) -> Self {
        let numbers = Numbers::new(nodes.count() / FIB6_NODE_CELLS);
        Self { first, nodes, numbers }
    }

    /// Writes a prefix with its cell. Longer prefixes keep their cells.
    ///
    /// # Errors
    /// There are fewer than two free nodes, and the prefix has no node yet. Nothing has changed then.
    pub fn add(&mut self, prefix: Ipv6Net, cell: u32) -> Result<(), RouteError> {
        let (bits, length) = (prefix.network().to_bits(), prefix.prefix_len());
        if length == 0 {
            self.first.set(FIB6_DEFAULT, cell);
            return Ok(());
        }
        if length <= FIB6_FIRST_BITS {
            for index in first_cells(bits, length) {
                self.cover(Slot::First(index), cell);
            }
            return Ok(());
        }
        let target = depth_of(length - 1);
        if self.numbers.available() < MAX_NEW_NODES && !self.has_node(bits, target) {
            return Err(RouteError::TableFull);
        }
        let mut slot = first_slot(bits);
        loop {
            let at = self.get(slot);
            let number = match node(at) {
                None => self.insert(slot, bits, target, at, None)?,
                Some(number) => {
                    let depth = self.depth(number);
                    let way = self.prefix(number);
                    let common = (bits ^ way).leading_zeros() as u8;
                    let part = if common < depth { depth_of(common) } else { depth };
                    let wanted = part.min(target);
                    if wanted < depth {
                        let fallback = self.nodes.get(header(number) + NODE_FALLBACK);
                        self.insert(slot, bits, wanted, fallback, Some((number, way)))?
                    } else {
                        number
                    }
                }
            };
            let depth = self.depth(number);
            if depth == target {
                for index in entries(number, bits, depth, length) {
                    self.cover(Slot::Node(index), cell);
                }
                return Ok(());
            }
            slot = entry_slot(number, bits, depth);
        }
    }

    /// Removes a prefix: `covering` is the cell of the longest shorter prefix around it, or 0. The default route does
    /// not count as covering.
    pub fn withdraw(&mut self, prefix: Ipv6Net, covering: u32) {
        let (bits, length) = (prefix.network().to_bits(), prefix.prefix_len());
        let removed = u32::from(length) + 1;
        if length == 0 {
            self.first.set(FIB6_DEFAULT, 0);
            return;
        }
        if length <= FIB6_FIRST_BITS {
            for index in first_cells(bits, length) {
                self.uncover(Slot::First(index), removed, covering);
            }
            return;
        }
        let target = depth_of(length - 1);
        let mut way = Vec::new();
        let mut slot = first_slot(bits);
        while let Some(number) = node(self.get(slot)) {
            let depth = self.depth(number);
            if depth > target || masked(bits, depth) != self.prefix(number) {
                return;
            }
            way.push((slot, number));
            if depth == target {
                for index in entries(number, bits, depth, length) {
                    self.uncover(Slot::Node(index), removed, covering);
                }
                break;
            }
            slot = entry_slot(number, bits, depth);
        }
        for (slot, number) in way.into_iter().rev() {
            self.leave_out(slot, number);
        }
    }

    /// The cell of an address: 0 without a route.
    #[must_use]
    pub fn lookup(&self, address: Ipv6Addr) -> u32 {
        let bits = address.to_bits();
        let mut cell = self.get(first_slot(bits));
        for _ in 0..FIB6_MAX_STEPS {
            let Some(number) = node(cell) else { break };
            let depth = self.depth(number);
            if masked(bits, depth) != self.prefix(number) {
                cell = self.nodes.get(header(number) + NODE_FALLBACK);
                break;
            }
            cell = self.get(entry_slot(number, bits, depth));
        }
        if cell == 0 { self.first.get(FIB6_DEFAULT) } else { cell }
    }

    /// Number of nodes in use.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.numbers.used()
    }

    /// Lets nodes that the table has left be used again. The caller has waited until no reader can be in one.
    pub fn reuse(&mut self) {
        self.numbers.reuse();
    }

    /// Whether the prefix has its node already, and needs none.
    fn has_node(&self, bits: u128, target: u8) -> bool {
        let mut slot = first_slot(bits);
        while let Some(number) = node(self.get(slot)) {
            let depth = self.depth(number);
            if depth > target || masked(bits, depth) != self.prefix(number) {
                return false;
            }
            if depth == target {
                return true;
            }
            slot = entry_slot(number, bits, depth);
        }
        false
    }

    /// Puts a new node before what the slot has. The lookups of all addresses stay the same.
    fn insert(
        &mut self,
        slot: Slot,
        bits: u128,
        depth: u8,
        fallback: u32,
        below: Option<(u32, u128)>,
    ) -> Result<u32, RouteError> {
        let number = self.numbers.take().ok_or(RouteError::TableFull)?;
        let start = header(number);
        let prefix = masked(bits, depth);
        self.nodes.set(start + NODE_DEPTH, u32::from(depth));
        self.nodes.set(start + NODE_FALLBACK, fallback);
        for (index, shift) in [96, 64, 32, 0].into_iter().enumerate() {
            self.nodes.set(start + NODE_PREFIX + index, (prefix >> shift & 0xffff_ffff) as u32);
        }
        for index in 0..FAN_OUT {
            self.nodes.set(start + NODE_ENTRIES + index, fallback);
        }
        if let Some((child, way)) = below {
            self.set(entry_slot(number, way, depth), ENTRY_NODE | child);
        }
        self.set(slot, ENTRY_NODE | number);
        Ok(number)
    }

    /// Removes a node that decides nothing: all its entries are its fallback, but one at most, which is a node with the
    /// same fallback.
    fn leave_out(&mut self, slot: Slot, number: u32) {
        let start = header(number);
        let fallback = self.nodes.get(start + NODE_FALLBACK);
        let mut rest =
            (0..FAN_OUT).map(|index| self.nodes.get(start + NODE_ENTRIES + index)).filter(|e| *e != fallback);
        let heir = match (rest.next(), rest.next()) {
            (None, _) => fallback,
            (Some(only), None) => match node(only) {
                Some(child) if self.nodes.get(header(child) + NODE_FALLBACK) == fallback => only,
                _ => return,
            },
            _ => return,
        };
        self.set(slot, heir);
        self.numbers.leave(number);
    }

    /// Writes the cell wherever no longer prefix is, also below.
    fn cover(&mut self, slot: Slot, cell: u32) {
        let at = self.get(slot);
        match node(at) {
            Some(number) => self.cells_of(number).for_each(|index| self.cover(Slot::Node(index), cell)),
            None if rank(at) <= rank(cell) => self.set(slot, cell),
            None => {}
        }
    }

    fn uncover(&mut self, slot: Slot, removed: u32, covering: u32) {
        let at = self.get(slot);
        match node(at) {
            Some(number) => {
                self.cells_of(number).for_each(|index| self.uncover(Slot::Node(index), removed, covering));
            }
            None if rank(at) == removed => self.set(slot, covering),
            None => {}
        }
    }

    /// The cells of a node with entries: the fallback and the 16 entries.
    fn cells_of(&self, number: u32) -> impl Iterator<Item = usize> + use<C> {
        let start = header(number);
        std::iter::once(start + NODE_FALLBACK).chain(start + NODE_ENTRIES..start + NODE_ENTRIES + FAN_OUT)
    }

    fn depth(&self, number: u32) -> u8 {
        // The last node has the depth 124.
        self.nodes.get(header(number) + NODE_DEPTH) as u8
    }

    fn prefix(&self, number: u32) -> u128 {
        let start = header(number) + NODE_PREFIX;
        (start..start + 4).fold(0, |bits, index| bits << 32 | u128::from(self.nodes.get(index)))
    }

    fn get(&self, slot: Slot) -> u32 {
        match slot {
            Slot::First(index) => self.first.get(index),
            Slot::Node(index) => self.nodes.get(index),
        }
    }

    fn set(&mut self, slot: Slot, cell: u32) {
        match slot {
            Slot::First(index) => self.first.set(index, cell),
            Slot::Node(index) => self.nodes.set(index, cell),
        }
    }
}

/// The depth of the node that decides this bit.
fn depth_of(bit: u8) -> u8 {
    bit / FIB6_STRIDE * FIB6_STRIDE
}

fn first_slot(bits: u128) -> Slot {
    Slot::First((bits >> (128 - u32::from(FIB6_FIRST_BITS))) as usize)
}

fn first_cells(bits: u128, length: u8) -> std::ops::Range<usize> {
    let start = (bits >> (128 - u32::from(FIB6_FIRST_BITS))) as usize;
    start..start + (1 << (FIB6_FIRST_BITS - length))
}

fn header(number: u32) -> usize {
    number as usize * FIB6_NODE_CELLS
}

fn entry_slot(number: u32, bits: u128, depth: u8) -> Slot {
    let four_bits = (bits >> (128 - u32::from(depth + FIB6_STRIDE))) as usize % FAN_OUT;
    Slot::Node(header(number) + NODE_ENTRIES + four_bits)
}

/// The entries of a node that belong to a prefix.
fn entries(number: u32, bits: u128, depth: u8, length: u8) -> std::ops::Range<usize> {
    let four_bits = (bits >> (128 - u32::from(depth + FIB6_STRIDE))) as usize % FAN_OUT;
    let start = header(number) + NODE_ENTRIES + four_bits;
    start..start + (1 << (depth + FIB6_STRIDE - length))
}
