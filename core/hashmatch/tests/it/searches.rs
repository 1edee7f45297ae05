//! The search with the scalar filter finds what the reference finds. `io/vector` runs the same cases.

use proptest::prelude::*;
use sallyport_hashmatch::{Filter, HASH_BYTES, Hash, Match, Scalar, Threshold, distance, nearest, parse, search};

/// Rows, and queries near and far from them. Steps of bytes are few, so that distances repeat.
pub(crate) fn case() -> impl Strategy<Value = (Vec<Hash>, Vec<Hash>, Threshold)> {
    let hash =
        |spread: u8| prop::collection::vec(0..=spread, HASH_BYTES).prop_map(|bytes| Hash::try_from(bytes).unwrap());
    let hashes = move |most| {
        prop_oneof![Just(1_u8), Just(24), Just(255)]
            .prop_flat_map(move |spread| prop::collection::vec(hash(spread), 0..most))
    };
    let moved = (any::<prop::sample::Index>(), 0..HASH_BYTES, any::<u8>());
    let threshold =
        prop_oneof![Just(0_u16), 0..300_u16, Just(3_060)].prop_map(|text| text.to_string().parse().unwrap());
    (hashes(60), hashes(40), prop::collection::vec(moved, 0..20), threshold).prop_map(
        |(rows, mut queries, moved, threshold)| {
            for (row, at, byte) in moved.into_iter().filter(|_| !rows.is_empty()) {
                let mut query = *row.get(&rows);
                query[at] = byte;
                queries.push(query);
            }
            (rows, queries, threshold)
        },
    )
}

/// Asserts that a filter finds what the reference finds.
pub(crate) fn check(filter: &mut dyn Filter, rows: &[Hash], queries: &[Hash], threshold: Threshold) {
    let expected: Vec<_> = queries.iter().map(|query| nearest(rows, query, threshold)).collect();
    assert_eq!(search(rows, filter, queries, threshold), expected, "{}", filter.name());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_scalar_filter_finds_what_the_reference_finds((rows, queries, threshold) in case()) {
        check(&mut Scalar::new(&rows), &rows, &queries, threshold);
    }
}

#[test]
fn the_first_of_equal_rows_matches_and_the_threshold_belongs_to_it() {
    let row = |byte: u8| [byte; HASH_BYTES];
    let rows = [row(10), row(0), row(0)];
    let found = |query: &Hash, threshold: &str| {
        search(&rows, &mut Scalar::new(&rows), &[*query], threshold.parse().unwrap())[0]
    };
    assert_eq!(found(&row(0), "0"), Some(Match { row: 1, squared: 0 }));
    // 144 times 18 squared is 216 squared.
    assert_eq!(found(&row(28), "216"), Some(Match { row: 0, squared: 46_656 }));
    assert_eq!(found(&row(28), "215"), None);
    assert_eq!(
        (distance(&row(0), &row(255)), search(&[], &mut Scalar::new(&[]), &rows, Threshold::MAX)),
        (9_363_600, vec![None; 3])
    );
}

#[test]
fn a_hash_and_a_threshold_that_are_none_are_refused() {
    let good = "0aF".repeat(96);
    assert_eq!(parse(&good).unwrap()[..3], [0x0a, 0xf0, 0xaf]);
    for (text, says) in [
        (good[1..].to_owned(), "288 hexadecimal digits, and this has 287"),
        (good.replacen('F', "g", 1), "character 3"),
        (format!("{}é", &good[2..]), "character 287"),
        (String::new(), "this has 0"),
    ] {
        assert!(parse(&text).unwrap_err().to_string().contains(says), "{text}");
    }
    for text in ["", "-1", "3061", "220.5", "far"] {
        assert!(text.parse::<Threshold>().unwrap_err().to_string().contains("from 0 to 3060"), "{text}");
    }
}
