//! The best way of an article about hashes of 144 bytes, to compare with: columns of bytes, and sums that saturate.
//!
//! The first 32 bytes of 16 rows stand side by side. The squared distances in these dimensions are summed up in 16 bits
//! for all 16 rows at once. The compiler turns the loops into AVX2.

use sallyport_hashmatch::{BLOCK_ROWS, Filter, GROUP_QUERIES, Hash, Pair};

/// The rows that are compared at once.
const ROWS: usize = 16;
/// The bytes of a hash that are compared.
const COLUMNS: usize = 32;

/// The first bytes of 16 rows, column by column.
type Group = [[u8; ROWS]; COLUMNS];

/// The filter.
pub(crate) struct Columns {
    row_count: usize,
    groups: Vec<Group>,
    queries: Vec<[u8; COLUMNS]>,
}

impl Columns {
    /// The filter of these rows; `None` if the processor lacks AVX2.
    pub(crate) fn new(rows: &[Hash]) -> Option<Self> {
        if !std::arch::is_x86_feature_detected!("avx2") {
            return None;
        }
        let group = |rows: &[Hash]| {
            std::array::from_fn(|column| std::array::from_fn(|lane| rows.get(lane).map_or(0, |row| row[column])))
        };
        Some(Self { row_count: rows.len(), groups: rows.chunks(ROWS).map(group).collect(), queries: Vec::new() })
    }
}

impl Filter for Columns {
    fn name(&self) -> &'static str {
        "columns"
    }

    fn set_queries(&mut self, queries: &[Hash]) {
        self.queries = queries.iter().map(|query| std::array::from_fn(|at| query[at])).collect();
    }

    fn find(&self, block: usize, group: usize, limits: &[u32], pairs: &mut Vec<Pair>) {
        let first = block * (BLOCK_ROWS / ROWS);
        let groups = &self.groups[first..self.groups.len().min(first + BLOCK_ROWS / ROWS)];
        let queries = &self.queries[group * GROUP_QUERIES..];
        for (at, (query, limit)) in (0..).zip(queries.iter().zip(limits)) {
            let found = |group: usize, sums: &[u16; ROWS], most: u16| {
                let first_row = (first + group) * ROWS;
                let lanes = sums.iter().enumerate().filter(|(_, sum)| **sum <= most);
                let rows = lanes.map(|(lane, _)| first_row + lane).filter(|row| *row < self.row_count);
                pairs.extend(rows.filter_map(|row| Some((at, u32::try_from(row).ok()?))));
            };
            // A saturated sum may be of any greater distance, so it passes a limit that needs more than 16 bits.
            let Some(most) = limit.checked_sub(1).map(|most| u16::try_from(most).unwrap_or(u16::MAX)) else { continue };
            #[expect(unsafe_code, reason = "`new` makes a filter only where the processor has AVX2")]
            unsafe {
                scan(groups, query, most, found);
            }
        }
    }
}

/// Calls `found` with each group that has a sum of at most `most`.
#[target_feature(enable = "avx2")]
fn scan(groups: &[Group], query: &[u8; COLUMNS], most: u16, mut found: impl FnMut(usize, &[u16; ROWS], u16)) {
    for (at, group) in groups.iter().enumerate() {
        let mut sums = [0_u16; ROWS];
        for (column, value) in group.iter().zip(query) {
            for (sum, byte) in sums.iter_mut().zip(column) {
                // The square of a difference of bytes fits 16 bits, whatever its sign.
                let difference = u16::from(*byte).wrapping_sub(u16::from(*value));
                *sum = sum.saturating_add(difference.wrapping_mul(difference));
            }
        }
        if sums.iter().any(|sum| *sum <= most) {
            found(at, &sums, most);
        }
    }
}
