//! AVX-512 VNNI: sums of products of four bytes, for 16 rows at once.

use std::arch::x86_64::{__m512i, _mm512_cmpgt_epi32_mask, _mm512_dpbusd_epi32, _mm512_loadu_si512, _mm512_set1_epi32};

use sallyport_hashmatch::{
    Filter, GROUP_QUERIES, Hash, PREFIX_BYTES, Pair,
    quads::{self, BLOCK_GROUPS, Group, QUADS, ROWS},
};

/// The filter.
pub(crate) struct Vnni {
    groups: Vec<Group>,
    queries: Vec<Query>,
}

/// The quads of a query, and the norm on which its bound depends.
struct Query {
    quads: [i32; QUADS],
    norm: i32,
}

/// Whether the processor has these instructions.
pub(crate) fn is_supported() -> bool {
    std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512vnni")
}

impl Vnni {
    /// The filter of these rows; `None` if the processor lacks AVX-512 VNNI.
    pub(crate) fn new(rows: &[Hash]) -> Option<Self> {
        is_supported().then(|| Self { groups: quads::groups(rows), queries: Vec::new() })
    }
}

impl Filter for Vnni {
    fn name(&self) -> &'static str {
        "vnni"
    }

    fn set_queries(&mut self, queries: &[Hash]) {
        self.queries = queries
            .iter()
            .map(|query| {
                let prefix: [u8; PREFIX_BYTES] = std::array::from_fn(|at| query[at]);
                let quad = |at: usize| i32::from_le_bytes(std::array::from_fn(|byte| prefix[4 * at + byte]));
                Query { quads: std::array::from_fn(quad), norm: quads::norm(&prefix) }
            })
            .collect();
    }

    fn find(&self, block: usize, group: usize, limits: &[u32], pairs: &mut Vec<Pair>) {
        let first = block * BLOCK_GROUPS;
        let queries = &self.queries[group * GROUP_QUERIES..];
        for (at, (query, limit)) in (0..).zip(queries.iter().zip(limits)) {
            let found = |row_group: usize, mask: u16| push(pairs, at, first + row_group, mask);
            #[expect(unsafe_code, reason = "`new` makes a filter only where the processor has these instructions")]
            unsafe {
                scan(&self.groups[first..first + BLOCK_GROUPS], query, quads::bound(query.norm, *limit), found);
            }
        }
    }
}

/// Appends the pairs of a query and the rows of a group that have their bit in the mask.
pub(crate) fn push(pairs: &mut Vec<Pair>, query: u8, group: usize, mask: u16) {
    let rows = (0..ROWS).filter(|place| mask & (1 << place) != 0).map(|place| group * ROWS + place);
    pairs.extend(rows.filter_map(|row| Some((query, u32::try_from(row).ok()?))));
}

/// Calls `found` with each group in which a sum is above the bound, and a mask with a bit for each row.
#[target_feature(enable = "avx512f,avx512vnni")]
fn scan(rows: &[Group], query: &Query, bound: i32, mut found: impl FnMut(usize, u16)) {
    let quads = query.quads.map(|quad| _mm512_set1_epi32(quad));
    let bound = _mm512_set1_epi32(bound);
    for (at, group) in rows.iter().enumerate() {
        let mut sums = load(&group.starts);
        for (row, query) in group.quads.iter().zip(quads) {
            sums = _mm512_dpbusd_epi32(sums, query, load(row));
        }
        let mask = _mm512_cmpgt_epi32_mask(sums, bound);
        if mask != 0 {
            found(at, mask);
        }
    }
}

/// Loads a line of a group: 16 sums, or four bytes of 16 rows.
#[target_feature(enable = "avx512f")]
pub(crate) fn load<T: Copy>(line: &[T; ROWS]) -> __m512i {
    const { assert!(size_of::<[T; ROWS]>() == 64) }
    #[expect(unsafe_code, reason = "the line has 64 bytes; `loadu` needs no alignment")]
    unsafe {
        _mm512_loadu_si512(std::ptr::from_ref(line).cast())
    }
}
