//! Tests of the even spread of requests.

use std::collections::HashMap;

use proptest::{collection::vec, prelude::*};
use sallyport_balance::{Attempts, MAX_ATTEMPTS, Rotation};

/// A candidate: its key and its load.
#[derive(Debug, Clone, Copy)]
struct Origin {
    key: u32,
    load: u32,
}

fn origins(count: u32) -> Vec<Origin> {
    (0..count).map(|key| Origin { key: key * 10, load: 0 }).collect()
}

fn choose(rotation: &mut Rotation<u32>, origins: &[Origin]) -> Option<usize> {
    rotation.choose(origins, |origin| origin.key, |origin| origin.load, |_| true)
}

#[test]
fn twenty_requests_over_four_idle_origins_are_five_each() {
    let (mut rotation, origins) = (Rotation::new(), origins(4));
    let mut served = [0; 4];
    for _ in 0..20 {
        served[choose(&mut rotation, &origins).unwrap()] += 1;
    }
    assert_eq!(served, [5; 4]);
}

#[test]
fn twenty_requests_at_once_are_five_each() {
    // Each request lasts until all have started.
    let (mut rotation, mut origins) = (Rotation::new(), origins(4));
    for _ in 0..20 {
        let index = choose(&mut rotation, &origins).unwrap();
        origins[index].load += 1;
    }
    assert!(origins.iter().all(|origin| origin.load == 5), "{origins:?}");

    // A choice before the loads of others are known still gets another origin.
    let (mut rotation, origins) = (Rotation::new(), self::origins(4));
    let chosen: Vec<_> = (0..4).filter_map(|_| choose(&mut rotation, &origins)).collect();
    assert_eq!(chosen, [0, 1, 2, 3]);
}

#[test]
fn the_least_loaded_is_taken_until_the_others_are_even() {
    let (mut rotation, mut origins) = (Rotation::new(), origins(3));
    origins[0].load = 6;
    origins[2].load = 3;
    let mut taken = Vec::new();
    for _ in 0..9 {
        let index = choose(&mut rotation, &origins).unwrap();
        origins[index].load += 1;
        taken.push(index);
    }
    assert_eq!(taken[..3], [1, 1, 1], "the idle one first");
    assert!(!taken.contains(&0), "the loaded one not at all");
    assert_eq!(origins.iter().map(|origin| origin.load).collect::<Vec<_>>(), [6, 6, 6]);
}

#[test]
fn what_is_not_usable_is_not_chosen() {
    let (mut rotation, origins) = (Rotation::new(), origins(3));
    assert_eq!(rotation.choose(&origins, |o| o.key, |_| 0, |o| o.key == 10), Some(1));
    assert_eq!(rotation.choose(&origins, |o| o.key, |_| 0, |o| o.key == 10), Some(1));
    assert_eq!(rotation.choose(&origins, |o| o.key, |_| 0, |_| false), None);
    assert_eq!(choose(&mut rotation, &[]), None);
    assert_eq!(choose(&mut rotation, &origins), Some(2), "the turn goes on where it was");
}

#[test]
fn a_retry_goes_to_another_origin_until_none_is_left() {
    let (mut rotation, origins) = (Rotation::new(), origins(3));
    let mut attempts = Attempts::new();
    let mut tried = Vec::new();
    while let Some(index) = rotation.choose(&origins, |o| o.key, |_| 0, |o| attempts.may_try(&o.key)) {
        assert!(attempts.record(origins[index].key));
        tried.push(index);
    }
    assert_eq!(tried, [0, 1, 2]);
    assert!(!attempts.is_exhausted());

    let (mut attempts, many) = (Attempts::new(), self::origins(50));
    while let Some(index) = rotation.choose(&many, |o| o.key, |_| 0, |o| attempts.may_try(&o.key)) {
        assert!(attempts.record(many[index].key));
    }
    assert_eq!(attempts.count(), MAX_ATTEMPTS);
}

/// Events of a pool.
#[derive(Debug, Clone)]
enum Event {
    Request,
    Arrive(u32),
    Leave(prop::sample::Index),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => Just(Event::Request),
        1 => (0u32..2_000).prop_map(Event::Arrive),
        1 => any::<prop::sample::Index>().prop_map(Event::Leave),
    ]
}

#[test]
fn the_number_of_checked_origins_does_not_grow_with_the_pool_while_an_origin_is_idle() {
    for count in [1, 64, 1_000] {
        let (mut rotation, pool, asked) = (Rotation::new(), origins(count), std::cell::Cell::new(0));
        for turn in 0..3 * count {
            let usable = |_: &Origin| {
                asked.set(asked.get() + 1);
                true
            };
            let chosen = rotation.choose(&pool, |o| o.key, |_| 0, usable);
            assert_eq!(chosen, Some((turn % count) as usize));
        }
        assert_eq!(asked.get(), 3 * count);
    }
}

proptest! {
    #[test]
    fn equal_loads_are_never_more_than_one_apart(count in 1u32..12, requests in 0usize..200) {
        let (mut rotation, origins) = (Rotation::new(), origins(count));
        let mut served = vec![0u32; origins.len()];
        for _ in 0..requests {
            served[choose(&mut rotation, &origins).unwrap()] += 1;
            prop_assert!(served.iter().max().unwrap() - served.iter().min().unwrap() <= 1, "{served:?}");
        }
    }

    #[test]
    fn origins_that_stay_get_even_shares_while_others_come_and_go(events in vec(event(), 0..300)) {
        let mut rotation = Rotation::new();
        let mut pool = origins(3);
        let stays: Vec<u32> = pool.iter().map(|origin| origin.key).collect();
        let mut served: HashMap<u32, u32> = stays.iter().map(|key| (*key, 0)).collect();
        for event in events {
            match event {
                Event::Request => {
                    let chosen = pool[choose(&mut rotation, &pool).unwrap()].key;
                    *served.entry(chosen).or_default() += 1;
                }
                Event::Arrive(key) if pool.iter().all(|origin| origin.key != key) => {
                    let at = pool.partition_point(|origin| origin.key < key);
                    pool.insert(at, Origin { key, load: 0 });
                }
                Event::Leave(index) => {
                    let index = index.index(pool.len());
                    if !stays.contains(&pool[index].key) {
                        pool.remove(index);
                    }
                }
                Event::Arrive(_) => {}
            }
            let counts: Vec<u32> = stays.iter().map(|key| served[key]).collect();
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        }
    }

    /// The usable candidate with the least load, and among several the next one up from the last choice.
    #[test]
    fn ties_go_to_the_next_in_the_ring(pools in vec(vec((0u32..30, 0u32..3, any::<bool>()), 0..8), 1..20)) {
        let (mut rotation, mut last) = (Rotation::new(), None);
        for mut pool in pools {
            pool.sort_by_key(|(key, ..)| *key);
            pool.dedup_by_key(|(key, ..)| *key);
            let may = pool.iter().filter(|(.., usable)| *usable);
            let expected = may.min_by_key(|(key, load, _)| (*load, last.is_some_and(|last| *key <= last), *key));
            let chosen = rotation.choose(&pool, |(key, ..)| *key, |(_, load, _)| *load, |(.., usable)| *usable);
            prop_assert_eq!(chosen.map(|index| &pool[index]), expected);
            last = expected.map(|(key, ..)| *key).or(last);
        }
    }

    #[test]
    fn no_less_loaded_origin_is_passed_over(
        loads in vec(0u32..5, 1..10), usable in vec(any::<bool>(), 10), turns in 1usize..20
    ) {
        let mut rotation = Rotation::new();
        let pool: Vec<_> = loads.iter().zip(0..).map(|(load, key)| Origin { key, load: *load }).collect();
        let may = |origin: &Origin| usable[origin.key as usize];
        for _ in 0..turns {
            let best = pool.iter().filter(|origin| may(origin)).map(|origin| origin.load).min();
            let chosen = rotation.choose(&pool, |o| o.key, |o| o.load, may).map(|index| pool[index]);
            prop_assert_eq!(chosen.map(|origin| origin.load), best);
            prop_assert!(chosen.is_none_or(|origin| may(&origin)));
        }
    }

    #[test]
    fn loads_that_come_and_go_stay_level(durations in vec(1usize..30, 1..200)) {
        let (mut rotation, mut pool) = (Rotation::new(), origins(5));
        let mut running: Vec<(usize, usize)> = Vec::new();
        for (now, duration) in durations.into_iter().enumerate() {
            running.retain(|(index, until)| {
                if *until <= now {
                    pool[*index].load -= 1;
                }
                *until > now
            });
            let least = pool.iter().map(|origin| origin.load).min().unwrap();
            let index = choose(&mut rotation, &pool).unwrap();
            prop_assert_eq!(pool[index].load, least);
            pool[index].load += 1;
            running.push((index, now + duration));
        }
    }
}
