//! Tests of Maglev hashing: the spread of clients, and the effect of removing an origin.

use std::{collections::HashMap, net::IpAddr};

use proptest::prelude::*;
use sallyport_balance::{
    HashKey, OriginId, Weight,
    maglev::{LARGE_TABLE_SLOTS, MAX_ORIGINS, Maglev, SMALL_TABLE_SLOTS},
};

const SLOTS: u64 = LARGE_TABLE_SLOTS as u64;

fn key() -> HashKey {
    HashKey::new(*b"a secret of ours")
}

fn id(number: u16) -> OriginId {
    let mut id = [0x5a; 16];
    id[..2].copy_from_slice(&number.to_be_bytes());
    id
}

fn pool(weights: &[u16]) -> Vec<(OriginId, Weight)> {
    weights.iter().zip(0..).map(|(weight, number)| (id(number), Weight::new(*weight).unwrap())).collect()
}

fn table(weights: &[u16]) -> Maglev {
    Maglev::new(&key(), &pool(weights)).unwrap()
}

/// The slots of each origin.
fn shares(table: &Maglev) -> HashMap<OriginId, usize> {
    let mut shares = HashMap::new();
    for slot in 0..table.slot_count() as u64 {
        *shares.entry(*table.lookup(slot).unwrap()).or_default() += 1;
    }
    shares
}

#[test]
fn slots_are_shared_evenly() {
    for count in [1, 2, 3, 7, 40, 41, 250] {
        let table = table(&vec![1; count]);
        let even = table.slot_count() as f64 / count as f64;
        let shares = shares(&table);
        assert_eq!(shares.len(), count);
        for share in shares.values() {
            // Each origin takes a slot in every round: shares differ by one.
            assert!((*share as f64 - even).abs() <= 1.0, "{count} origins: {share} slots, not {even}");
        }
    }
}

#[test]
fn slots_are_shared_by_weight() {
    for weights in [&[3, 1][..], &[5, 3, 2], &[256, 1], &[100, 50, 50, 1, 0], &[2; 30]] {
        let table = table(weights);
        let total: u32 = weights.iter().map(|weight| u32::from(*weight)).sum();
        let shares = shares(&table);
        for (weight, number) in weights.iter().zip(0..) {
            let expected = table.slot_count() as f64 * f64::from(*weight) / f64::from(total);
            let share = shares.get(&id(number)).copied().unwrap_or(0) as f64;
            assert!((share - expected).abs() <= 2.0, "{weights:?}: {share} slots, not {expected}");
        }
    }
}

#[test]
fn clients_are_shared_within_two_percent() {
    let (key, table) = (key(), table(&[1; 5]));
    let mut served: HashMap<OriginId, u32> = HashMap::new();
    for client in 0u32..200_000 {
        let address = IpAddr::from((0x0a00_0000 + client).to_be_bytes());
        *served.entry(*table.lookup(key.client(address)).unwrap()).or_default() += 1;
    }
    for count in served.values() {
        assert!((39_200..=40_800).contains(count), "{served:?}");
    }
}

#[test]
fn the_size_follows_from_the_pool() {
    assert_eq!(table(&[]).slot_count(), 0);
    assert_eq!(table(&[1]).slot_count(), SMALL_TABLE_SLOTS);
    assert_eq!(table(&[1; 40]).slot_count(), SMALL_TABLE_SLOTS);
    assert_eq!(table(&[1; 41]).slot_count(), LARGE_TABLE_SLOTS);
    assert_eq!(table(&[7; 40]).slot_count(), SMALL_TABLE_SLOTS);
    assert_eq!(table(&[256, 1]).slot_count(), LARGE_TABLE_SLOTS);
    for size in [SMALL_TABLE_SLOTS, LARGE_TABLE_SLOTS] {
        assert!((2..size).take_while(|n| n * n <= size).all(|n| size % n != 0), "{size} is a prime");
    }
    let error = Maglev::new(&key(), &pool(&vec![1; MAX_ORIGINS + 1])).unwrap_err();
    assert_eq!(error.count, MAX_ORIGINS + 1);
    assert!(Maglev::new(&key(), &pool(&vec![1; MAX_ORIGINS])).is_ok());
}

#[test]
fn an_empty_table_finds_no_origin() {
    for table in [table(&[]), table(&[0, 0])] {
        assert!(table.is_empty() && table.lookup(7).is_none() && table.lookup_usable(7, |_| true).is_none());
    }
}

#[test]
fn the_order_does_not_matter_and_twice_is_once() {
    let mut given = pool(&[1, 2, 3, 4]);
    let table = Maglev::new(&key(), &given).unwrap();
    given.reverse();
    given.push(given[0]);
    let other = Maglev::new(&key(), &given).unwrap();
    assert!((0..SLOTS).all(|slot| table.lookup(slot) == other.lookup(slot)));
    let foreign = Maglev::new(&HashKey::new([0; 16]), &given).unwrap();
    let same = (0..SLOTS).filter(|slot| table.lookup(*slot) == foreign.lookup(*slot)).count();
    assert!(same < LARGE_TABLE_SLOTS / 2, "without the secret the table cannot be predicted: {same} alike");
}

#[test]
fn the_slots_of_a_lost_origin_are_shared_out() {
    let table = table(&[1; 5]);
    let gone = id(2);
    let mut moved: HashMap<OriginId, usize> = HashMap::new();
    for slot in 0..table.slot_count() as u64 {
        let before = *table.lookup(slot).unwrap();
        let now = *table.lookup_usable(slot, |origin| *origin != gone).unwrap();
        assert_ne!(now, gone);
        if before == gone {
            *moved.entry(now).or_default() += 1;
        } else {
            assert_eq!(now, before, "no other slot moves");
        }
    }
    assert_eq!(moved.len(), 4);
    assert!(moved.values().all(|count| (150..260).contains(count)), "{moved:?} of about 819");
    assert_eq!(table.lookup_usable(9, |_| false), None);
    let large = self::table(&[1; 250]);
    for hash in 0..1_000 {
        assert_eq!(large.lookup_usable(hash * 77, |origin| *origin == id(113)), Some(&id(113)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Without one of N origins, its clients move, and few others: one or two percent on average, as in the paper for
    /// tables with a hundred slots for each. A single key may have six.
    #[test]
    fn few_move_when_one_goes(secret in any::<[u8; 16]>(), count in 2u16..40, gone in any::<prop::sample::Index>()) {
        let key = HashKey::new(secret);
        let gone = id(u16::try_from(gone.index(usize::from(count))).unwrap());
        let all: Vec<_> = (0..count).map(|number| (id(number), Weight::ONE)).collect();
        let rest: Vec<_> = all.iter().copied().filter(|(id, _)| *id != gone).collect();
        let (before, after) = (Maglev::new(&key, &all).unwrap(), Maglev::new(&key, &rest).unwrap());
        let (mut others, mut moved) = (0u32, 0u32);
        for slot in 0..before.slot_count() as u64 {
            if before.lookup(slot) == Some(&gone) {
                prop_assert_ne!(after.lookup(slot), Some(&gone));
            } else {
                others += 1;
                moved += u32::from(before.lookup(slot) != after.lookup(slot));
            }
        }
        prop_assert!(f64::from(moved) <= f64::from(others) * 0.1, "{moved} of {others} moved");
    }

    #[test]
    fn every_found_origin_is_usable(hash in any::<u64>(), usable in any::<u32>(), count in 1u16..32) {
        let table = table(&vec![1; usize::from(count)]);
        let is_usable = |id: &OriginId| usable >> u16::from_be_bytes([id[0], id[1]]) & 1 == 1;
        match table.lookup_usable(hash, is_usable) {
            Some(origin) => prop_assert!(is_usable(origin)),
            None => prop_assert!((0..count).all(|number| !is_usable(&id(number)))),
        }
        if table.lookup(hash).is_some_and(is_usable) {
            prop_assert_eq!(table.lookup_usable(hash, is_usable), table.lookup(hash));
        }
    }
}
