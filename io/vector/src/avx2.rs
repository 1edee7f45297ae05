//! AVX2: sums of absolute differences.
//!
//! In 24 dimensions, the sum of absolute differences `s` and the squared distance `d` obey `s^2 <= 24 d`, by the
//! inequality of Cauchy and Schwarz. So a pair with a greater sum is too far. One instruction adds eight differences
//! for each of four rows.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_cmpgt_epi16, _mm256_load_si256, _mm256_movemask_epi8, _mm256_packus_epi32,
    _mm256_sad_epu8, _mm256_set1_epi16, _mm256_set1_epi64x,
};

use sallyport_hashmatch::{BLOCK_ROWS, Filter, GROUP_QUERIES, Hash, PREFIX_BYTES, Pair};

/// The rows that are compared at once.
const ROWS: usize = 16;
/// The bytes that one instruction adds.
const PART_BYTES: usize = 8;
const PARTS: usize = PREFIX_BYTES / PART_BYTES;

/// Eight bytes of each of four rows.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Four([[u8; PART_BYTES]; 4]);

/// The prefixes of 16 rows.
type Group = [[Four; 4]; PARTS];

/// The filter.
pub(crate) struct Avx2 {
    row_count: usize,
    groups: Vec<Group>,
    queries: Vec<[i64; PARTS]>,
}

impl Avx2 {
    /// The filter of these rows; `None` if the processor lacks AVX2.
    pub(crate) fn new(rows: &[Hash]) -> Option<Self> {
        if !std::arch::is_x86_feature_detected!("avx2") {
            return None;
        }
        let mut groups = vec![[[Four([[0; PART_BYTES]; 4]); 4]; PARTS]; rows.len().div_ceil(ROWS)];
        for (at, row) in rows.iter().enumerate() {
            let place = at % ROWS;
            // Where the packed sums have this row.
            let (vector, lane) = (place % 8 / 2, place / 8 * 2 + place % 2);
            for (part, bytes) in groups[at / ROWS].iter_mut().zip(row.chunks_exact(PART_BYTES)) {
                part[vector].0[lane].copy_from_slice(bytes);
            }
        }
        Some(Self { row_count: rows.len(), groups, queries: Vec::new() })
    }
}

impl Filter for Avx2 {
    fn name(&self) -> &'static str {
        "avx2"
    }

    fn set_queries(&mut self, queries: &[Hash]) {
        let part =
            |query: &Hash, at: usize| i64::from_le_bytes(std::array::from_fn(|byte| query[at * PART_BYTES + byte]));
        self.queries = queries.iter().map(|query| std::array::from_fn(|at| part(query, at))).collect();
    }

    fn find(&self, block: usize, group: usize, limits: &[u32], pairs: &mut Vec<Pair>) {
        let first = block * (BLOCK_ROWS / ROWS);
        let rows = &self.groups[first..self.groups.len().min(first + BLOCK_ROWS / ROWS)];
        let queries = &self.queries[group * GROUP_QUERIES..];
        for (at, (query, limit)) in (0..).zip(queries.iter().zip(limits)) {
            let found = |row_group: usize, mask: u32| {
                let first_row = (first + row_group) * ROWS;
                let places = (0..ROWS).filter(|place| mask & (1 << (2 * place)) != 0);
                let rows = places.map(|place| first_row + place).filter(|row| *row < self.row_count);
                pairs.extend(rows.filter_map(|row| Some((at, u32::try_from(row).ok()?))));
            };
            #[expect(unsafe_code, reason = "`new` makes a filter only where the processor has AVX2")]
            unsafe {
                scan(rows, query, bound(*limit), found);
            }
        }
    }
}

/// The sum of absolute differences from which the squared distance is not below the limit.
fn bound(limit: u32) -> i16 {
    let Some(most) = limit.checked_sub(1) else { return 0 };
    let dimensions = u32::try_from(PREFIX_BYTES).unwrap_or(u32::MAX);
    i16::try_from(dimensions.saturating_mul(most).isqrt() + 1).unwrap_or(i16::MAX)
}

/// Calls `found` with each group in which a sum is below the bound, and a mask with two bits for each row.
#[target_feature(enable = "avx2")]
fn scan(rows: &[Group], query: &[i64; PARTS], bound: i16, mut found: impl FnMut(usize, u32)) {
    let query = query.map(|part| _mm256_set1_epi64x(part));
    let bound = _mm256_set1_epi16(bound);
    for (at, group) in rows.iter().enumerate() {
        let mut sums = [_mm256_set1_epi64x(0); 4];
        for (vector, sum) in sums.iter_mut().enumerate() {
            *sum = _mm256_sad_epu8(load(&group[0][vector]), query[0]);
            for part in 1..PARTS {
                *sum = _mm256_add_epi64(*sum, _mm256_sad_epu8(load(&group[part][vector]), query[part]));
            }
        }
        let halves = [_mm256_packus_epi32(sums[0], sums[1]), _mm256_packus_epi32(sums[2], sums[3])];
        let packed = _mm256_packus_epi32(halves[0], halves[1]);
        let mask = _mm256_movemask_epi8(_mm256_cmpgt_epi16(bound, packed));
        if mask != 0 {
            found(at, mask.cast_unsigned());
        }
    }
}

#[target_feature(enable = "avx2")]
fn load(rows: &Four) -> __m256i {
    #[expect(unsafe_code, reason = "a Four has 32 bytes, and is aligned to 32")]
    unsafe {
        _mm256_load_si256(std::ptr::from_ref(rows).cast())
    }
}
