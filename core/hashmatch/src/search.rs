//! The search: a filter finds pairs, and their distances decide.
//!
//! Rows are taken in blocks that stay in the cache of a core while all queries of the batch pass.

use crate::hash::{Hash, Threshold, distance, distance_below};

/// The bytes of a hash that a filter compares.
pub const PREFIX_BYTES: usize = 24;
/// The rows of a block.
pub const BLOCK_ROWS: usize = 1_024;
/// The queries of a group.
pub const GROUP_QUERIES: usize = 16;
/// The queries of a batch, at most. More queries are more batches.
pub const MAX_BATCH_QUERIES: usize = 4_096;

/// A query of a group, by its place in the group, and a row of the index.
pub type Pair = (u8, u32);

/// Finds the pairs that may be near.
pub trait Filter {
    /// What the filter computes with, such as `scalar` or `avx2`.
    fn name(&self) -> &'static str;

    /// Takes the queries of the next batch, at most [`MAX_BATCH_QUERIES`].
    fn set_queries(&mut self, queries: &[Hash]);

    /// Appends the pairs of a block of rows and a group of queries that may be near. `limits` has a squared distance
    /// for each query of the group.
    ///
    /// Each pair with a distance below its limit is there. Pairs of a query are in the order of their rows.
    fn find(&self, block: usize, group: usize, limits: &[u32], pairs: &mut Vec<Pair>);
}

/// The nearest row of a query; of rows at the same distance, the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// The number of the row, from 0.
    pub row: u32,
    /// The squared distance.
    pub squared: u32,
}

/// The nearest row within the threshold for each query. The filter must be of the same rows.
#[must_use]
pub fn search(
    rows: &[Hash],
    filter: &mut (impl Filter + ?Sized),
    queries: &[Hash],
    threshold: Threshold,
) -> Vec<Option<Match>> {
    let mut matches = Vec::with_capacity(queries.len());
    for batch in queries.chunks(MAX_BATCH_QUERIES) {
        filter.set_queries(batch);
        let mut limits = vec![threshold.limit(); batch.len()];
        let mut nearest = vec![None; batch.len()];
        let mut pairs = Vec::new();
        for block in 0..rows.len().div_ceil(BLOCK_ROWS) {
            for (group, limits) in limits.chunks_mut(GROUP_QUERIES).enumerate() {
                pairs.clear();
                filter.find(block, group, limits, &mut pairs);
                for (query, row) in &pairs {
                    let in_group = usize::from(*query);
                    let at = group * GROUP_QUERIES + in_group;
                    if let Some(squared) = distance_below(&batch[at], &rows[*row as usize], limits[in_group]) {
                        limits[in_group] = squared;
                        nearest[at] = Some(Match { row: *row, squared });
                    }
                }
            }
        }
        matches.append(&mut nearest);
    }
    matches
}

/// The nearest row of one query within the threshold, by comparing with each: the reference.
#[must_use]
pub fn nearest(rows: &[Hash], query: &Hash, threshold: Threshold) -> Option<Match> {
    let distances = (0..).zip(rows).map(|(row, hash)| Match { row, squared: distance(query, hash) });
    distances.filter(|found| found.squared < threshold.limit()).min_by_key(|found| found.squared)
}
