//! The sums and bounds of the layout never lose a pair.

use proptest::prelude::*;
use sallyport_hashmatch::{BLOCK_ROWS, HASH_BYTES, Hash, PREFIX_BYTES, quads};

fn prefix() -> impl Strategy<Value = [u8; PREFIX_BYTES]> {
    prop_oneof![any::<[u8; PREFIX_BYTES]>(), any::<u8>().prop_map(|byte| [byte; PREFIX_BYTES])]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn a_sum_is_above_its_bound_if_the_distance_is_below_the_limit(row in prefix(), query in prefix(), more in -3_i64..4) {
        let squared: u32 = row.iter().zip(&query).map(|(a, b)| u32::from(a.abs_diff(*b)).pow(2)).sum();
        let limit = u32::try_from((i64::from(squared) + more).max(0)).unwrap();
        let mut hash: Hash = [0; HASH_BYTES];
        hash[..PREFIX_BYTES].copy_from_slice(&row);
        let rows = [[7; HASH_BYTES], hash];
        let sums = quads::groups(&rows)[0].sums(&query);
        let is_found = sums[1] > quads::bound(quads::norm(&query), limit);
        prop_assert!(is_found || squared >= limit, "{squared} is below {limit}");
        // Rounding lets through at most the next two distances.
        prop_assert!(!is_found || squared < limit + 2, "{squared} is far above {limit}");
    }
}

#[test]
fn places_without_a_row_are_never_found() {
    let groups = quads::groups(&[[0; HASH_BYTES]]);
    assert_eq!(groups.len() * quads::ROWS, BLOCK_ROWS, "whole blocks");
    let query = [0; PREFIX_BYTES];
    let bound = quads::bound(quads::norm(&query), 9_363_601);
    let found = groups.iter().flat_map(|group| group.sums(&query)).filter(|sum| *sum > bound).count();
    assert_eq!(found, 1);
    assert_eq!(quads::groups(&[]), []);
}
