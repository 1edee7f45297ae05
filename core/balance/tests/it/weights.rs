//! Tests of the spread of requests by weight.

use proptest::{collection::vec, prelude::*};
use sallyport_balance::{MAX_WEIGHT, Rotation, Weight};

#[derive(Debug, Clone, Copy)]
struct Origin {
    key: u32,
    load: u32,
    weight: u16,
}

fn origins(weights: &[u16]) -> Vec<Origin> {
    weights.iter().zip(1..).map(|(weight, key)| Origin { key, load: 0, weight: *weight }).collect()
}

fn choose(rotation: &mut Rotation<u32>, origins: &[Origin]) -> Option<usize> {
    rotation.choose_weighted(origins, |o| o.key, |o| o.load, |o| Weight::new(o.weight).unwrap(), |_| true)
}

fn served(rotation: &mut Rotation<u32>, origins: &[Origin], requests: usize) -> Vec<usize> {
    let mut served = vec![0; origins.len()];
    for _ in 0..requests {
        served[choose(rotation, origins).unwrap()] += 1;
    }
    served
}

#[test]
fn twenty_requests_go_by_weight() {
    assert_eq!(served(&mut Rotation::new(), &origins(&[1; 4]), 20), [5; 4]);
    assert_eq!(served(&mut Rotation::new(), &origins(&[7; 4]), 20), [5; 4]);
    assert_eq!(served(&mut Rotation::new(), &origins(&[3, 1]), 20), [15, 5]);
    assert_eq!(served(&mut Rotation::new(), &origins(&[1, 3]), 20), [5, 15]);
    assert_eq!(served(&mut Rotation::new(), &origins(&[5, 3, 2]), 20), [10, 6, 4]);
}

#[test]
fn twenty_requests_at_once_go_by_weight() {
    let (mut rotation, mut origins) = (Rotation::new(), origins(&[3, 1]));
    for _ in 0..20 {
        let index = choose(&mut rotation, &origins).unwrap();
        origins[index].load += 1;
    }
    assert_eq!(origins.iter().map(|origin| origin.load).collect::<Vec<_>>(), [15, 5]);
}

#[test]
fn retries_do_not_change_whose_turn_it_is() {
    let (mut rotation, origins) = (Rotation::new(), origins(&[3, 1]));
    let mut served = [0; 2];
    for _ in 0..20 {
        let index = choose(&mut rotation, &origins).unwrap();
        served[index] += 1;
        let weight = |origin: &Origin| Weight::new(origin.weight).unwrap();
        let other = rotation.choose_weighted(&origins, |o| o.key, |_| 0, weight, |o| o.key != origins[index].key);
        assert_eq!(other, Some(1 - index));
    }
    assert_eq!(served, [15, 5]);
}

#[test]
fn turns_are_smooth() {
    let (mut rotation, origins) = (Rotation::new(), origins(&[5, 1, 1]));
    let turns: Vec<_> = (0..14).map(|_| choose(&mut rotation, &origins).unwrap()).collect();
    assert_eq!(turns[..7], [0, 0, 1, 0, 2, 0, 0], "nginx's example: the light ones in between");
    assert_eq!(turns[..7], turns[7..]);
}

#[test]
fn weight_zero_takes_nothing_new() {
    let (mut rotation, mut pool) = (Rotation::new(), origins(&[1, 0, 2]));
    assert_eq!(served(&mut rotation, &pool, 9), [3, 0, 6]);
    pool[2].weight = 0;
    assert_eq!(served(&mut rotation, &pool, 4), [4, 0, 0]);
    pool[0].weight = 0;
    assert_eq!(choose(&mut rotation, &pool), None, "all are drained");
    assert_eq!(choose(&mut rotation, &[]), None);
    let unusable = rotation.choose_weighted(&origins(&[1, 3]), |o| o.key, |_| 0, |_| Weight::ONE, |_| false);
    assert_eq!(unusable, None);
}

#[test]
fn a_loaded_one_is_passed_over_for_its_weight() {
    let (mut rotation, mut origins) = (Rotation::new(), origins(&[4, 1]));
    origins[0].load = 3;
    origins[1].load = 1;
    assert_eq!(choose(&mut rotation, &origins), Some(0), "three of four is less than one of one");
    origins[0].load = 5;
    assert_eq!(choose(&mut rotation, &origins), Some(1), "five of four is more");
}

#[test]
fn weights_are_bounded() {
    assert_eq!("3".parse::<Weight>().map(Weight::get), Ok(3));
    assert_eq!(Weight::new(MAX_WEIGHT).map(Weight::get), Ok(MAX_WEIGHT));
    assert_eq!(Weight::default(), Weight::ONE);
    assert_eq!(Weight::new(3).unwrap().to_string(), "3");
    for text in ["", "1001", "-1", "1.5", "65536"] {
        let error = text.parse::<Weight>().unwrap_err().to_string();
        assert!(error.contains("a whole number from 0 to 1000"), "{error}");
    }
}

proptest! {
    /// In every round of as many requests as the sum of weights, each origin gets as many as its weight.
    #[test]
    fn a_round_is_shared_exactly(weights in vec(0u16..=20, 1..8), rounds in 1usize..4) {
        let (mut rotation, origins) = (Rotation::new(), origins(&weights));
        let total: usize = weights.iter().map(|weight| usize::from(*weight)).sum();
        prop_assume!(total > 0);
        for _ in 0..rounds {
            let served = served(&mut rotation, &origins, total);
            let expected: Vec<usize> = weights.iter().map(|weight| usize::from(*weight)).collect();
            // Equal weights take turns one by one.
            prop_assert_eq!(served, expected);
        }
    }

    /// Origins of equal weight are treated as by `choose`, whatever their loads.
    #[test]
    fn equal_weights_are_no_weights(loads in vec(0u32..4, 1..8), weight in 1u16..=MAX_WEIGHT, turns in 1usize..20) {
        let (mut weighted, mut plain) = (Rotation::new(), Rotation::new());
        let pool: Vec<_> = loads.iter().zip(1..).map(|(load, key)| Origin { key, load: *load, weight }).collect();
        for _ in 0..turns {
            let expected = plain.choose(&pool, |o| o.key, |o| o.load, |_| true);
            prop_assert_eq!(choose(&mut weighted, &pool), expected);
        }
    }

    /// No origin with a lower load for its weight is skipped, also while origins come, go and change their weight.
    #[test]
    fn the_least_loaded_for_its_weight_is_taken(
        pools in vec(vec((0u32..30, 0u32..6, 0u16..5), 1..8), 1..20),
    ) {
        let mut rotation = Rotation::new();
        for pool in pools {
            let mut pool: Vec<_> = pool.into_iter().map(|(key, load, weight)| Origin { key, load, weight }).collect();
            pool.sort_by_key(|origin| origin.key);
            pool.dedup_by_key(|origin| origin.key);
            let chosen = choose(&mut rotation, &pool).map(|index| pool[index]);
            prop_assert_eq!(chosen.is_some(), pool.iter().any(|origin| origin.weight > 0));
            let Some(chosen) = chosen else { continue };
            prop_assert!(chosen.weight > 0);
            for other in pool.iter().filter(|other| other.weight > 0) {
                prop_assert!(chosen.load * u32::from(other.weight) <= other.load * u32::from(chosen.weight));
            }
        }
    }
}
