//! AMX: a tile of 16 queries times a tile of 16 rows.
//!
//! Rust has no stable intrinsics for tiles, so this module has the two pieces of assembly: the call that asks the
//! kernel for tiles, and the product of a block. No tile keeps a value from one piece to the next.

use std::arch::{
    asm,
    x86_64::{__cpuid_count, _mm512_cmpgt_epi32_mask, _mm512_set1_epi32},
};

use sallyport_hashmatch::{
    Filter, GROUP_QUERIES, Hash, PREFIX_BYTES, Pair,
    quads::{self, BLOCK_GROUPS, Group, QUADS, ROWS},
};

use crate::vnni::{is_supported, load, push};

/// The groups of rows for which sums are computed at once: their sums fit the first cache of a core.
const GROUPS: usize = 32;

/// The sums of 16 queries (outer) and 16 rows (inner), for each group of rows.
type Sums = [[[i32; ROWS]; GROUP_QUERIES]; GROUPS];

/// The shapes of tiles: palette 1, and for each tile the bytes of a row and the rows.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Tiles 0 and 1 have sums, 2 and 3 quads of rows, 4 prefixes of queries.
#[expect(clippy::cast_possible_truncation, reason = "all are below 65")]
static CONFIG: TileConfig = TileConfig {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, PREFIX_BYTES as u16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [
        GROUP_QUERIES as u8,
        GROUP_QUERIES as u8,
        QUADS as u8,
        QUADS as u8,
        GROUP_QUERIES as u8,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    ],
};

/// The prefixes of 16 queries, and the norms on which their bounds depend.
struct Queries {
    prefixes: [[u8; PREFIX_BYTES]; GROUP_QUERIES],
    norms: [i32; GROUP_QUERIES],
}

/// The filter.
pub(crate) struct Amx {
    groups: Vec<Group>,
    queries: Vec<Queries>,
}

impl Amx {
    /// The filter of these rows; `None` if the processor lacks AMX, or the kernel does not permit it.
    pub(crate) fn new(rows: &[Hash]) -> Option<Self> {
        is_permitted().then(|| Self { groups: quads::groups(rows), queries: Vec::new() })
    }
}

impl Filter for Amx {
    fn name(&self) -> &'static str {
        "amx"
    }

    fn set_queries(&mut self, queries: &[Hash]) {
        self.queries = queries
            .chunks(GROUP_QUERIES)
            .map(|group| {
                let mut prefixes = [[0; PREFIX_BYTES]; GROUP_QUERIES];
                for (prefix, query) in prefixes.iter_mut().zip(group) {
                    prefix.copy_from_slice(&query[..PREFIX_BYTES]);
                }
                Queries { prefixes, norms: prefixes.each_ref().map(quads::norm) }
            })
            .collect();
    }

    fn find(&self, block: usize, group: usize, limits: &[u32], pairs: &mut Vec<Pair>) {
        let queries = &self.queries[group];
        let first = block * BLOCK_GROUPS;
        let first_pair = pairs.len();
        let mut sums: Box<Sums> = Box::new([[[0; ROWS]; GROUP_QUERIES]; GROUPS]);
        for half in 0..BLOCK_GROUPS / GROUPS {
            let first = first + half * GROUPS;
            let Some((rows, _)) = self.groups[first..].split_first_chunk::<GROUPS>() else { continue };
            #[expect(unsafe_code, reason = "`new` makes a filter only where AMX is there and permitted")]
            unsafe {
                multiply(rows, &queries.prefixes, &mut sums);
                scan(&sums, &queries.norms, limits, |group, query, mask| push(pairs, query, first + group, mask));
            }
        }
        pairs[first_pair..].sort_unstable();
    }
}

/// Whether the processor has AMX for bytes, and the kernel lets this process use it.
fn is_permitted() -> bool {
    /// Leaf 7 of CPUID, register EDX: AMX-TILE and AMX-INT8.
    const AMX: u32 = 1 << 24 | 1 << 25;
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    const XFEATURE_XTILEDATA: i64 = 18;
    if !is_supported() || __cpuid_count(7, 0).edx & AMX != AMX {
        return false;
    }
    let refusal: i64;
    #[expect(unsafe_code, reason = "the call takes two numbers, and touches no memory of the process")]
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => refusal,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    refusal == 0
}

/// Computes the sums of 16 queries with the rows of all groups: `sums = starts + queries x quads`.
///
/// # Safety
/// The processor has AMX for bytes, and the kernel permits it.
#[expect(unsafe_code, reason = "its caller must know that there is AMX")]
unsafe fn multiply(rows: &[Group; GROUPS], queries: &[[u8; PREFIX_BYTES]; GROUP_QUERIES], sums: &mut Sums) {
    const { assert!(size_of::<Group>() == 448 && GROUPS.is_multiple_of(2) && size_of::<TileConfig>() == 64) }
    // SAFETY: the loop reads GROUPS groups of 448 bytes from `rows`, and writes as many tiles of 1,024 bytes to `sums`:
    // both arrays have exactly this size. The queries are 16 rows of 24 bytes. All tiles are released at the end.
    unsafe {
        asm!(
            "ldtilecfg [{config}]",
            "tileloadd tmm4, [{queries} + {query_bytes} * 1]",
            "2:",
            // The starts are one row of 64 bytes, which a distance of zero repeats for all queries.
            "tileloadd tmm0, [{rows} + {zero} * 1]",
            "tileloadd tmm2, [{rows} + {line} * 1 + 64]",
            "tdpbusd tmm0, tmm4, tmm2",
            "tileloadd tmm1, [{rows} + {zero} * 1 + 448]",
            "tileloadd tmm3, [{rows} + {line} * 1 + 512]",
            "tdpbusd tmm1, tmm4, tmm3",
            "tilestored [{sums} + {line} * 1], tmm0",
            "tilestored [{sums} + {line} * 1 + 1024], tmm1",
            "add {rows}, 896",
            "add {sums}, 2048",
            "dec {left}",
            "jnz 2b",
            "tilerelease",
            config = in(reg) &raw const CONFIG,
            queries = in(reg) queries.as_ptr(),
            query_bytes = in(reg) PREFIX_BYTES,
            zero = in(reg) 0_usize,
            line = in(reg) 64_usize,
            rows = inout(reg) rows.as_ptr() => _,
            sums = inout(reg) sums.as_mut_ptr() => _,
            left = inout(reg) GROUPS / 2 => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _,
            options(nostack),
        );
    }
}

/// Calls `found` with each group and query that has a sum above its bound, and a mask with a bit for each row.
#[target_feature(enable = "avx512f")]
fn scan(sums: &Sums, norms: &[i32; GROUP_QUERIES], limits: &[u32], mut found: impl FnMut(usize, u8, u16)) {
    let mut bounds = [_mm512_set1_epi32(i32::MAX); GROUP_QUERIES];
    for (bound, (norm, limit)) in bounds.iter_mut().zip(norms.iter().zip(limits)) {
        *bound = _mm512_set1_epi32(quads::bound(*norm, *limit));
    }
    for (at, group) in sums.iter().enumerate() {
        for (query, (sums, bound)) in (0..).zip(group.iter().zip(&bounds)) {
            let mask = _mm512_cmpgt_epi32_mask(load(sums), *bound);
            if mask != 0 {
                found(at, query, mask);
            }
        }
    }
}
