//! DIR-24-8 for IPv4 (Gupta, Lin, McKeown: "Routing Lookups in Hardware at Memory Access Speeds", 1998): one read for
//! prefixes of up to 24 bits, two for longer ones.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::{
    Cells, RouteError,
    cells::Numbers,
    entry::{node, rank},
};
use crate::layout::{ENTRY_LENGTH_SHIFT, ENTRY_NODE, FIB4_BLOCK_CELLS, FIB4_DEFAULT};

/// The table of IPv4. An entry has the length of its prefix, so that a change touches the cells of its prefix alone.
#[derive(Debug, Clone)]
pub struct Dir24<C> {
    first: C,
    second: C,
    blocks: Numbers,
}

impl<C: Cells> Dir24<C> {
    /// An empty table over arrays of zeros: [`crate::layout`] says how large they are.
    #[must_use]
    pub fn new(first: C, second: C) -> Self {
        let blocks = Numbers::new(second.count() / FIB4_BLOCK_CELLS);
        Self { first, second, blocks }
    }

    /// Writes a prefix with its cell. Longer prefixes keep their cells.
    ///
    /// # Errors
    /// There is no free block. Nothing has changed then.
    pub fn add(&mut self, prefix: Ipv4Net, cell: u32) -> Result<(), RouteError> {
        let (bits, length) = (prefix.network().to_bits(), prefix.prefix_len());
        if length == 0 {
            self.first.set(FIB4_DEFAULT, cell);
        } else if length <= 24 {
            let start = (bits >> 8) as usize;
            for index in start..start + (1 << (24 - length)) {
                match node(self.first.get(index)) {
                    Some(block) => self.cover(block_cells(block), cell),
                    None => cover(&mut self.first, index, cell),
                }
            }
        } else {
            let index = (bits >> 8) as usize;
            let block = match node(self.first.get(index)) {
                Some(block) => block,
                None => self.begin_block(index)?,
            };
            let start = block_cells(block).start + (bits & 0xff) as usize;
            self.cover(start..start + (1 << (32 - length)), cell);
        }
        Ok(())
    }

    /// Removes a prefix: `covering` is the cell of the longest shorter prefix around it, or 0. The default route does
    /// not count as covering.
    pub fn withdraw(&mut self, prefix: Ipv4Net, covering: u32) {
        let (bits, length) = (prefix.network().to_bits(), prefix.prefix_len());
        let removed = u32::from(length) + 1;
        if length == 0 {
            self.first.set(FIB4_DEFAULT, 0);
        } else if length <= 24 {
            let start = (bits >> 8) as usize;
            for index in start..start + (1 << (24 - length)) {
                match node(self.first.get(index)) {
                    Some(block) => self.uncover(block_cells(block), removed, covering),
                    None if rank(self.first.get(index)) == removed => self.first.set(index, covering),
                    None => {}
                }
            }
        } else {
            let index = (bits >> 8) as usize;
            let Some(block) = node(self.first.get(index)) else { return };
            let start = block_cells(block).start + (bits & 0xff) as usize;
            self.uncover(start..start + (1 << (32 - length)), removed, covering);
            self.end_block(index, block);
        }
    }

    /// The cell of an address: 0 without a route.
    #[must_use]
    pub fn lookup(&self, address: Ipv4Addr) -> u32 {
        let bits = address.to_bits();
        let cell = self.first.get((bits >> 8) as usize);
        let cell = match node(cell) {
            Some(block) => self.second.get(block_cells(block).start + (bits & 0xff) as usize),
            None => cell,
        };
        if cell == 0 { self.first.get(FIB4_DEFAULT) } else { cell }
    }

    /// Number of blocks in use.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks.used()
    }

    /// Lets blocks that the table has left be used again. The caller has waited until no reader can be in one.
    pub fn reuse(&mut self) {
        self.blocks.reuse();
    }

    fn begin_block(&mut self, index: usize) -> Result<u32, RouteError> {
        let block = self.blocks.take().ok_or(RouteError::TableFull)?;
        let former = self.first.get(index);
        for cell in block_cells(block) {
            self.second.set(cell, former);
        }
        self.first.set(index, ENTRY_NODE | block);
        Ok(block)
    }

    /// A block with one entry of up to 24 bits is not needed.
    fn end_block(&mut self, index: usize, block: u32) {
        let mut cells = block_cells(block);
        let cell = self.second.get(cells.start);
        if rank(cell) <= 25 && cells.all(|index| self.second.get(index) == cell) {
            self.first.set(index, cell);
            self.blocks.leave(block);
        }
    }

    fn cover(&mut self, cells: std::ops::Range<usize>, cell: u32) {
        for index in cells {
            cover(&mut self.second, index, cell);
        }
    }

    fn uncover(&mut self, cells: std::ops::Range<usize>, removed: u32, covering: u32) {
        for index in cells {
            if self.second.get(index) >> ENTRY_LENGTH_SHIFT == removed {
                self.second.set(index, covering);
            }
        }
    }
}

fn cover<C: Cells>(cells: &mut C, index: usize, cell: u32) {
    if rank(cells.get(index)) <= rank(cell) {
        cells.set(index, cell);
    }
}

fn block_cells(block: u32) -> std::ops::Range<usize> {
    let start = block as usize * FIB4_BLOCK_CELLS;
    start..start + FIB4_BLOCK_CELLS
}
