//! The filter for every processor.

use crate::{
    hash::{Hash, part},
    search::{BLOCK_ROWS, Filter, GROUP_QUERIES, PREFIX_BYTES, Pair},
};

/// Compares prefixes one by one.
#[derive(Debug, Clone)]
pub struct Scalar {
    rows: Vec<[u8; PREFIX_BYTES]>,
    queries: Vec<[u8; PREFIX_BYTES]>,
}

impl Scalar {
    /// The filter of these rows.
    #[must_use]
    pub fn new(rows: &[Hash]) -> Self {
        Self { rows: rows.iter().map(prefix).collect(), queries: Vec::new() }
    }
}

/// The bytes that filters compare.
fn prefix(hash: &Hash) -> [u8; PREFIX_BYTES] {
    std::array::from_fn(|at| hash[at])
}

impl Filter for Scalar {
    fn name(&self) -> &'static str {
        "scalar"
    }

    fn set_queries(&mut self, queries: &[Hash]) {
        self.queries = queries.iter().map(prefix).collect();
    }

    fn find(&self, block: usize, group: usize, limits: &[u32], pairs: &mut Vec<Pair>) {
        let first = block * BLOCK_ROWS;
        let rows = &self.rows[first..self.rows.len().min(first + BLOCK_ROWS)];
        let queries = &self.queries[group * GROUP_QUERIES..];
        for (at, (query, limit)) in (0..).zip(queries.iter().zip(limits)) {
            for (row, bytes) in (first..).zip(rows) {
                if part(query, bytes) < *limit {
                    pairs.push((at, u32::try_from(row).unwrap_or(u32::MAX)));
                }
            }
        }
    }
}
