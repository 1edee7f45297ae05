//! Sets against a model: a bit for each address of a small space.

use proptest::prelude::*;
use sallyport_prefixes::Ranges;

/// The addresses of the model.
const SPACE: u32 = 256;

fn model(ranges: &Ranges<u32>) -> Vec<bool> {
    let mut has = vec![false; SPACE as usize];
    for (first, last) in ranges.ranges() {
        for address in *first..=*last {
            assert!(!has[address as usize], "{address} is in two ranges");
            has[address as usize] = true;
        }
    }
    for pair in ranges.ranges().windows(2) {
        assert!(pair[0].1 + 1 < pair[1].0, "no gap between {pair:?}");
    }
    has
}

fn set() -> impl Strategy<Value = Ranges<u32>> {
    let block = (0..SPACE, 0..24_u32).prop_map(|(first, more)| (first, (first + more).min(SPACE - 1)));
    prop::collection::vec(block, 0..12).prop_map(Ranges::new)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn sets_are_what_the_model_says(one in set(), other in set()) {
        let (a, b) = (model(&one), model(&other));
        let both = |of: fn(bool, bool) -> bool| a.iter().zip(&b).map(|(a, b)| of(*a, *b)).collect::<Vec<_>>();
        prop_assert_eq!(model(&one.union(&other)), both(|a, b| a || b));
        prop_assert_eq!(model(&one.intersection(&other)), both(|a, b| a && b));
        prop_assert_eq!(model(&one.difference(&other)), both(|a, b| a && !b));
        prop_assert_eq!(one.size(), a.iter().filter(|has| **has).count() as u128);
    }

    #[test]
    fn prefixes_are_the_set_and_none_can_be_joined(one in set()) {
        let prefixes: Vec<_> = one.prefixes().collect();
        let blocks = prefixes.iter().map(|(first, length)| (*first, first + ((1_u64 << (32 - length)) - 1) as u32));
        prop_assert_eq!(Ranges::new(blocks.collect()), one);
        for pair in prefixes.windows(2) {
            let [(first, length), (next, next_length)] = pair else { unreachable!() };
            let are_halves = length == next_length && first ^ next == 1 << (32 - length);
            prop_assert!(!are_halves, "{pair:?} are one prefix");
        }
    }
}

#[test]
fn the_ends_of_both_families_are_exact() {
    let all = Ranges::new(vec![(0, u32::MAX)]);
    assert_eq!(all.prefix_texts().collect::<Vec<_>>(), ["0.0.0.0/0"]);
    let inner = Ranges::new(vec![(1, u32::MAX - 1)]);
    assert_eq!(all.difference(&inner).ranges(), [(0, 0), (u32::MAX, u32::MAX)]);
    assert_eq!((inner.size(), inner.prefixes().count()), ((1 << 32) - 2, 62));
    let all = Ranges::new(vec![(0, u128::MAX >> 1), ((u128::MAX >> 1) + 1, u128::MAX)]);
    assert_eq!(all.prefix_texts().collect::<Vec<_>>(), ["::/0"]);
    assert!(all.difference(&all).is_empty());
    assert_eq!(Ranges::<u128>::default().difference(&all).ranges(), []);
}
