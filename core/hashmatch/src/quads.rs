//! The layout of prefixes for instructions that add products of four bytes, and what they compute.
//!
//! The squared distance of a row `a` and a query `b` is `|a|^2 + |b|^2 - 2ab`. The instructions multiply unsigned bytes
//! with signed ones, so rows are stored as `a - 128`: `ab = (a - 128)b + 128 sum(b)`. Each sum begins with
//! `-|a|^2 / 2`, rounded up. The distance is below a limit only if the sum is above the [`bound`] of the query.

use crate::{
    hash::Hash,
    search::{BLOCK_ROWS, PREFIX_BYTES},
};

/// The rows of a group, as many as a register has sums of 32 bits.
pub const ROWS: usize = 16;
/// The quads of a prefix: four bytes each.
pub const QUADS: usize = PREFIX_BYTES / 4;
/// The groups of a block.
pub const BLOCK_GROUPS: usize = BLOCK_ROWS / ROWS;

/// The prefixes of 16 rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Group {
    /// What the sum of each row begins with.
    pub starts: [i32; ROWS],
    /// For each quad, four bytes of each row.
    pub quads: [[[i8; 4]; ROWS]; QUADS],
}

impl Group {
    /// A group without rows: no sum is above a bound.
    const EMPTY: Self = Self { starts: [i32::MIN / 2; ROWS], quads: [[[0; 4]; ROWS]; QUADS] };

    /// The sums of a query's prefix: what an instruction computes, for processors without it.
    #[must_use]
    pub fn sums(&self, query: &[u8; PREFIX_BYTES]) -> [i32; ROWS] {
        let mut sums = self.starts;
        for (quad, bytes) in self.quads.iter().zip(query.chunks_exact(4)) {
            for (sum, row) in sums.iter_mut().zip(quad) {
                *sum += row.iter().zip(bytes).map(|(row, query)| i32::from(*row) * i32::from(*query)).sum::<i32>();
            }
        }
        sums
    }
}

/// The groups of all rows, filled up to whole blocks.
#[must_use]
pub fn groups(rows: &[Hash]) -> Vec<Group> {
    let mut groups = vec![Group::EMPTY; rows.len().div_ceil(BLOCK_ROWS) * BLOCK_GROUPS];
    for (at, row) in rows.iter().enumerate() {
        let (group, place) = (&mut groups[at / ROWS], at % ROWS);
        let norm: i32 = row[..PREFIX_BYTES].iter().map(|byte| i32::from(*byte).pow(2)).sum();
        group.starts[place] = -(norm / 2);
        for (quad, bytes) in group.quads.iter_mut().zip(row[..PREFIX_BYTES].chunks_exact(4)) {
            quad[place] = std::array::from_fn(|at| bytes[at].wrapping_sub(128).cast_signed());
        }
    }
    groups
}

/// What of a query its bound depends on: `|b|^2 - 256 sum(b)`.
#[must_use]
pub fn norm(query: &[u8; PREFIX_BYTES]) -> i32 {
    query.iter().map(|byte| i32::from(*byte) * (i32::from(*byte) - 256)).sum()
}

/// The bound of a query for a limit: all sums of rows with a squared distance below the limit are above it.
#[must_use]
pub fn bound(norm: i32, limit: u32) -> i32 {
    let least = norm + 1 - i32::try_from(limit).unwrap_or(i32::MAX / 2);
    // Half of it, rounded up, less one.
    (least + 1).div_euclid(2) - 1
}
