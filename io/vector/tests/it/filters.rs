//! Each filter against the reference.

use proptest::prelude::*;
use sallyport_hashmatch::{BLOCK_ROWS, HASH_BYTES, Hash, MAX_BATCH_QUERIES, Threshold, search};
use sallyport_vector::{Instructions, columns, fastest};

use crate::searches::{case, check};

/// The instructions of this processor; what it lacks is printed.
fn supported() -> Vec<Instructions> {
    let (there, lacking): (Vec<_>, Vec<_>) =
        Instructions::ALL.into_iter().partition(|instructions| instructions.filter(&[]).is_some());
    println!("not tested, because this processor lacks them: {lacking:?}");
    there
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn each_filter_finds_what_the_reference_finds((rows, queries, threshold) in case()) {
        for instructions in supported() {
            check(&mut *instructions.filter(&rows).unwrap(), &rows, &queries, threshold);
        }
        if let Some(mut filter) = columns(&rows) {
            check(&mut *filter, &rows, &queries, threshold);
        }
    }
}

/// Bytes that are the same each time: SplitMix64.
fn hashes(seed: u64, count: usize) -> Vec<Hash> {
    let mut state = seed;
    let mut byte = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).to_le_bytes()[3]
    };
    (0..count).map(|_| [0; HASH_BYTES].map(|_: u8| byte())).collect()
}

#[test]
fn blocks_groups_and_batches_that_are_not_full_lose_nothing() {
    let rows = hashes(1, 2 * BLOCK_ROWS + 37);
    let mut queries = hashes(2, 21);
    queries.extend(rows.iter().step_by(97).map(|row| {
        let mut near = *row;
        near[100] ^= 0x55;
        near.swap(0, 30);
        near
    }));
    for threshold in ["0", "220", "1500", "3060"] {
        for instructions in supported() {
            let mut filter = instructions.filter(&rows).unwrap();
            check(&mut *filter, &rows, &queries, threshold.parse().unwrap());
            assert_eq!(filter.name(), instructions.name());
        }
        if let Some(mut filter) = columns(&rows) {
            check(&mut *filter, &rows, &queries, threshold.parse().unwrap());
        }
    }
}

#[test]
fn more_queries_than_a_batch_are_answered_in_their_order() {
    let rows = hashes(3, 40);
    let queries: Vec<Hash> = rows.iter().cycle().take(MAX_BATCH_QUERIES + 33).copied().collect();
    let found = search(&rows, &mut *fastest(&rows), &queries, Threshold::default());
    let rows_of: Vec<_> = found.iter().map(|found| found.unwrap().row as usize).collect();
    assert_eq!(rows_of, (0..40).cycle().take(MAX_BATCH_QUERIES + 33).collect::<Vec<_>>());
}
