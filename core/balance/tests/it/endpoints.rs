//! Endpoints of one origin: turns, clients that stay, rests after failures, and draining.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, Ipv4Addr},
    time::Instant,
};

use proptest::prelude::*;
use sallyport_balance::{
    Attempts, HashKey, MAX_ATTEMPTS, OriginId,
    endpoints::{EndpointState, Endpoints, FIRST_REST, MAX_ENDPOINTS, MAX_REST},
};

use crate::{Clock, millis};

fn id(number: u16) -> OriginId {
    HashKey::origin_id(&number.to_be_bytes())
}

fn ready(numbers: impl IntoIterator<Item = u16>) -> Vec<(OriginId, EndpointState)> {
    numbers.into_iter().map(|number| (id(number), EndpointState::Ready)).collect()
}

fn client(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0xc633_6400 + number).into()
}

fn choose(endpoints: &mut Endpoints, now: Instant) -> Option<OriginId> {
    endpoints.choose(client(1), &Attempts::new(), now)
}

fn key() -> HashKey {
    HashKey::new([9; 16])
}

#[test]
fn sixty_streams_over_three_endpoints_are_twenty_each() {
    let (mut endpoints, now) = (Endpoints::new(&ready(0..3), None).unwrap(), Instant::now());
    let mut counts = HashMap::new();
    for _ in 0..60 {
        *counts.entry(choose(&mut endpoints, now).unwrap()).or_insert(0) += 1;
    }
    assert_eq!((counts.len(), counts.values().all(|count| *count == 20)), (3, true), "{counts:?}");
}

#[test]
fn an_empty_pool_has_no_endpoint_and_a_large_one_is_refused() {
    let mut none = Endpoints::new(&[], Some(key())).unwrap();
    assert_eq!((choose(&mut none, Instant::now()), none.is_empty()), (None, true));
    assert_eq!(choose(&mut Endpoints::default(), Instant::now()), None);
    let most = u16::try_from(MAX_ENDPOINTS).unwrap();
    assert_eq!(Endpoints::new(&ready(0..most), None).unwrap().len(), MAX_ENDPOINTS);
    let error = Endpoints::new(&ready(0..=most), None).unwrap_err();
    assert_eq!(error.to_string(), "a service has at most 1024 endpoints, not 1025");
}

#[test]
fn a_failed_endpoint_rests_for_a_time_that_doubles() {
    let mut endpoints = Endpoints::new(&ready(0..2), None).unwrap();
    let mut clock = Clock::new();
    let mut rest = FIRST_REST;
    for _ in 0..8 {
        let now = clock.advance(millis(0));
        endpoints.failed(&id(0), now);
        let before_end = clock.advance(rest - millis(1));
        assert!(endpoints.is_resting(&id(0), before_end), "{rest:?}");
        assert!((0..4).all(|_| choose(&mut endpoints, before_end) == Some(id(1))));
        let end = clock.advance(millis(1));
        assert!(!endpoints.is_resting(&id(0), end), "{rest:?}");
        rest = (rest * 2).min(MAX_REST);
    }
    assert_eq!(rest, MAX_REST);
}

#[test]
fn the_last_endpoint_is_tried_all_the_same() {
    let (mut endpoints, now) = (Endpoints::new(&ready(0..3), None).unwrap(), Instant::now());
    (0..3).for_each(|number| endpoints.failed(&id(number), now));
    assert_eq!(
        (0..3).filter(|number| endpoints.is_resting(&id(*number), now)).count(),
        2,
        "the last one does not rest"
    );
    let mut tried = Attempts::new();
    let mut order = Vec::new();
    while let Some(next) = endpoints.choose(client(1), &tried, now) {
        assert!(tried.record(next));
        order.push(next);
    }
    assert_eq!(order.len(), 3, "resting ones come last, and they come");
    assert_eq!(order[0], id(2));
}

#[test]
fn draining_endpoints_get_streams_only_while_no_ready_one_does() {
    let mut endpoints =
        Endpoints::new(&[(id(0), EndpointState::Draining), (id(1), EndpointState::Ready)], None).unwrap();
    let now = Instant::now();
    assert!((0..10).all(|_| choose(&mut endpoints, now) == Some(id(1))));
    endpoints.failed(&id(1), now);
    assert_eq!(choose(&mut endpoints, now), Some(id(0)), "the ready one rests");
    let mut last = Endpoints::new(&[(id(0), EndpointState::Draining)], Some(key())).unwrap();
    assert_eq!(choose(&mut last, now), Some(id(0)), "there is no ready one");
}

#[test]
fn endpoints_that_stay_keep_their_turn_and_their_failures() {
    let now = Instant::now();
    let mut endpoints = Endpoints::new(&ready(0..4), None).unwrap();
    endpoints.failed(&id(2), now);
    let first = choose(&mut endpoints, now).unwrap();
    let mut next = Endpoints::new(&ready(0..5), None).unwrap().following(&endpoints);
    assert!(next.is_resting(&id(2), now));
    let mut seen = HashSet::from([first]);
    for _ in 0..3 {
        assert!(seen.insert(choose(&mut next, now).unwrap()), "the turn goes on behind the last choice");
    }
}

fn states() -> impl Strategy<Value = Vec<(u16, bool)>> {
    prop::collection::hash_map(0_u16..40, any::<bool>(), 0..24).prop_map(|map| map.into_iter().collect())
}

proptest! {
    /// Whatever fails: a choice is usable, the best kind that there is, and each endpoint comes once in a stream.
    #[test]
    fn a_choice_is_of_the_best_kind_that_is_left(
        states in states(), failed in prop::collection::vec(0_u16..40, 0..30), affine in any::<bool>(), from in 0_u32..50,
    ) {
        let given: Vec<_> = states
            .iter()
            .map(|(number, ready)| (id(*number), if *ready { EndpointState::Ready } else { EndpointState::Draining }))
            .collect();
        let mut endpoints = Endpoints::new(&given, affine.then(key)).unwrap();
        let now = Instant::now();
        failed.iter().for_each(|number| endpoints.failed(&id(*number), now));
        let mut tried = Attempts::new();
        let mut last_rank = 0;
        while let Some(chosen) = endpoints.choose(client(from), &tried, now) {
            let rank_of = |(one, state): &(OriginId, EndpointState)| {
                usize::from(*state == EndpointState::Draining) + 2 * usize::from(endpoints.is_resting(one, now))
            };
            let untried = given.iter().filter(|(one, _)| tried.may_try(one));
            let rank = given.iter().find(|(one, _)| *one == chosen).map(rank_of).unwrap();
            prop_assert_eq!(Some(rank), untried.map(rank_of).min());
            prop_assert!(rank >= last_rank);
            last_rank = rank;
            prop_assert!(tried.record(chosen), "twice");
        }
        prop_assert_eq!(tried.count(), given.len().min(MAX_ATTEMPTS));
    }

    /// However endpoints come and go, those that are ready all the time get the same number, give or take one for each
    /// change.
    #[test]
    fn turns_are_even_over_any_changes(changes in prop::collection::vec(states(), 1..6)) {
        let now = Instant::now();
        let mut endpoints = Endpoints::default();
        for states in &changes {
            let given: Vec<_> = states.iter().map(|(number, _)| (id(*number), EndpointState::Ready)).collect();
            endpoints = Endpoints::new(&given, None).unwrap().following(&endpoints);
            let mut counts: HashMap<OriginId, usize> = given.iter().map(|(one, _)| (*one, 0)).collect();
            for _ in 0..given.len() * 3 {
                *counts.get_mut(&choose(&mut endpoints, now).unwrap()).unwrap() += 1;
            }
            prop_assert!(counts.values().all(|count| *count == 3), "{:?}", counts);
        }
    }

    /// When an endpoint goes, nearly all clients of the others stay, and connectors with the same key agree.
    #[test]
    fn a_client_keeps_its_endpoint(count in 2_u16..20, gone in 0_u16..20) {
        let gone = gone % count;
        let now = Instant::now();
        let mut all = Endpoints::new(&ready(0..count), Some(key())).unwrap();
        let mut shuffled = Endpoints::new(&ready((0..count).rev()), Some(key())).unwrap();
        let mut fewer = Endpoints::new(&ready((0..count).filter(|one| *one != gone)), Some(key())).unwrap();
        let mut moved = 0;
        for number in 0..200 {
            let choice = |endpoints: &mut Endpoints| endpoints.choose(client(number), &Attempts::new(), now).unwrap();
            let (here, there) = (choice(&mut all), choice(&mut fewer));
            prop_assert_eq!(here, choice(&mut all));
            prop_assert_eq!(here, choice(&mut shuffled));
            prop_assert!(there != id(gone));
            moved += usize::from(here != id(gone) && here != there);
        }
        prop_assert!(moved <= 30, "{} of 200 clients moved without need", moved);
    }
}
