//! The connector's choice of edges: step by step, and in random schedules.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use proptest::prelude::*;
use sallyport_model::{EdgeName, RegionName};
use sallyport_wire::{
    EdgePlace,
    edge_selector::{EdgeSelector, MAX_REDUNDANCY, PATIENCE, Target, Welcomed},
};

fn name(text: &str) -> EdgeName {
    text.parse().unwrap()
}

fn region_of(edge: &str) -> RegionName {
    edge.rsplit_once('-').unwrap().0.parse().unwrap()
}

fn place(edge: &str) -> EdgePlace {
    EdgePlace { name: name(edge), region: region_of(edge), addresses: vec!["192.0.2.1:443".parse().unwrap()] }
}

fn list(edges: &[&str]) -> Vec<EdgePlace> {
    edges.iter().map(|edge| place(edge)).collect()
}

/// A connector's side that follows each instruction at once.
struct Run {
    places: EdgeSelector,
    now: Instant,
    slots: BTreeMap<u64, Option<String>>,
    count: u64,
}

impl Run {
    fn new(wanted: usize, known: &[&str]) -> Self {
        let places = EdgeSelector::new(wanted, None, list(known), 7);
        Self { places, now: Instant::now(), slots: BTreeMap::new(), count: 0 }
    }

    /// The next attempt, and its edge.
    fn dial(&mut self) -> Option<(u64, Option<String>)> {
        self.count += 1;
        let target = self.places.dial(self.count, self.now)?;
        self.slots.insert(self.count, None);
        Some((self.count, target.edge().map(ToString::to_string)))
    }

    fn dial_edge(&mut self) -> (u64, String) {
        let (number, edge) = self.dial().expect("somewhere to dial");
        (number, edge.expect("an edge that is known"))
    }

    /// The edge answers, lists other edges, and takes the tunnels.
    fn up(&mut self, number: u64, edge: &str, others: &[&str]) {
        let stays = self.places.handle_welcome(number, Some(name(edge)), Some(region_of(edge)), self.now, 0);
        assert_eq!(stays, Welcomed::Stay);
        self.places.handle_edges(number, list(others), false);
        self.places.handle_holding(number);
        self.slots.insert(number, Some(edge.to_owned()));
    }

    /// Attaches to the given edge and to one more of its own choice.
    fn two(edge: &str, others: &[&str]) -> (Self, u64, (u64, String)) {
        let mut run = Self::new(2, &[]);
        let (first, given) = run.dial().unwrap();
        assert_eq!(given, None, "the address that was given comes first");
        assert_eq!(run.dial(), None, "which edge that is is waited for");
        run.up(first, edge, others);
        let second = run.dial_edge();
        let all: Vec<&str> = others.iter().copied().chain([edge]).filter(|name| *name != second.1).collect();
        run.up(second.0, &second.1, &all);
        assert_eq!((run.dial(), run.places.release(run.now)), (None, None), "that is all");
        (run, first, second)
    }
}

#[test]
fn one_edge_that_is_alone_is_dialed_again_and_again_with_growing_waits() {
    let mut run = Run::new(2, &[]);
    let mut waits = Vec::new();
    for _ in 0..9 {
        let (number, _) = run.dial().unwrap();
        run.places.handle_lost(number, run.now, u64::MAX / 3);
        assert_eq!(run.dial(), None);
        let at = run.places.poll_timeout(run.now).unwrap();
        waits.push(at - run.now);
        run.now = at;
    }
    assert!(waits[0] <= Duration::from_millis(250) && waits.iter().all(|wait| *wait <= Duration::from_secs(30)));
    let (number, _) = run.dial().unwrap();
    assert_eq!(run.places.handle_welcome(number, None, None, run.now, 0), Welcomed::Stay);
    run.places.handle_holding(number);
    assert_eq!((run.dial(), run.places.poll_timeout(run.now), run.places.is_holding()), (None, None, true));
    run.places.handle_lost(number, run.now, 0);
    assert_eq!(run.places.poll_timeout(run.now), Some(run.now + Duration::from_millis(125)), "it begins anew");
}

#[test]
fn the_second_edge_is_of_another_region_and_connectors_spread() {
    let (run, _, (_, second)) = Run::two("eu-1", &["eu-2", "us-1"]);
    assert_eq!((second.as_str(), run.places.home()), ("us-1", Some(&region_of("eu-1"))));
    let chosen: BTreeSet<_> = (0..40)
        .map(|seed| {
            let mut places = EdgeSelector::new(2, None, Vec::new(), seed);
            places.dial(1, run.now).unwrap();
            places.handle_welcome(1, Some(name("eu-1")), Some(region_of("eu-1")), run.now, 0);
            places.handle_edges(1, list(&["us-1", "us-2", "us-3", "eu-2"]), false);
            places.dial(2, run.now).unwrap().edge().unwrap().to_string()
        })
        .collect();
    assert_eq!(chosen.into_iter().collect::<Vec<_>>(), ["us-1", "us-2", "us-3"]);
}

#[test]
fn an_edge_that_is_lost_is_replaced_at_once_by_one_that_is_known() {
    let (mut run, first, _) = Run::two("eu-1", &["eu-2", "us-1"]);
    run.places.handle_lost(first, run.now, 0);
    let (number, edge) = run.dial_edge();
    assert_eq!(edge, "eu-2", "the origin's region, which no edge covers now");
    // The second edge is dead too. The lost edge is tried when its time has come, and no edge before.
    run.places.handle_lost(number, run.now, 0);
    assert_eq!(run.dial(), None);
    run.now = run.places.poll_timeout(run.now).unwrap();
    assert!(run.dial_edge().1.starts_with("eu"));
}

#[test]
fn when_all_are_lost_every_listed_edge_is_tried_and_the_given_address_at_last() {
    let (mut run, first, (second, lost)) = Run::two("eu-1", &["eu-2", "us-1", "us-2"]);
    run.now += Duration::from_secs(3_600);
    run.places.handle_lost(first, run.now, 0);
    run.places.handle_lost(second, run.now, 0);
    let mut tried = Vec::new();
    while let Some((number, edge)) = run.dial() {
        tried.push(edge.unwrap_or_default());
        run.places.handle_lost(number, run.now, 0);
        assert!(tried.len() < 9);
    }
    tried.sort();
    let other = if lost == "us-1" { "us-2" } else { "us-1" };
    assert_eq!(tried, ["eu-2", other], "those that were lost a moment ago come later");
    run.now += Duration::from_millis(125);
    assert!(run.dial().is_some());
}

#[test]
fn an_edge_that_left_the_list_is_tried_as_the_last_resort() {
    let (mut run, first, (second, _)) = Run::two("eu-1", &["us-1"]);
    run.places.handle_lost(first, run.now, 0);
    run.places.handle_edges(second, list(&["us-2"]), false);
    let (third, edge) = run.dial_edge();
    run.places.handle_lost(third, run.now, 0);
    assert_eq!((edge.as_str(), run.dial()), ("us-2", None));
    run.now += Duration::from_millis(125);
    run.places.handle_lost(second, run.now, 0);
    let mut tried = Vec::new();
    while let Some((number, edge)) = run.dial() {
        tried.push(edge.unwrap_or_default());
        run.places.handle_lost(number, run.now, 0);
    }
    assert_eq!(tried, ["us-2", "", "eu-1"], "what is known, the address that was given, what was known once");
}

#[test]
fn an_edge_that_does_not_answer_is_waited_for_beside_another() {
    let mut run = Run::new(2, &["us-1"]);
    run.dial().unwrap();
    assert_eq!((run.dial(), run.places.poll_timeout(run.now)), (None, Some(run.now + PATIENCE)));
    run.now += PATIENCE;
    let (number, edge) = run.dial_edge();
    assert_eq!((edge.as_str(), run.dial()), ("us-1", None));
    run.up(number, "us-1", &["eu-1"]);
    assert_eq!(run.dial_edge().1, "eu-1");
}

#[test]
fn two_sessions_of_one_connector_never_meet_at_one_edge() {
    let (mut run, first, (second, _)) = Run::two("eu-1", &["us-1"]);
    run.places.handle_lost(first, run.now, 0);
    run.now += Duration::from_secs(1);
    // The address of eu-1 leads to us-1 from here on.
    let (number, _) = run.dial_edge();
    let answer = run.places.handle_welcome(number, Some(name("us-1")), Some(region_of("us-1")), run.now, 0);
    assert_eq!((answer, run.dial()), (Welcomed::Twice, None), "and it is not tried in a loop");
    assert!(run.places.is_holding() && run.slots.contains_key(&second));
}

#[test]
fn an_edge_that_is_emptied_is_left_when_there_is_another_and_not_before() {
    let (mut run, first, _) = Run::two("eu-1", &["us-1"]);
    run.places.handle_edges(first, list(&["us-1", "eu-2"]), true);
    assert_eq!(run.places.release(run.now), None, "there is one to be taken in its place");
    let (number, edge) = run.dial_edge();
    assert_eq!((edge.as_str(), run.places.release(run.now)), ("eu-2", None));
    run.up(number, "eu-2", &["us-1"]);
    assert_eq!((run.places.release(run.now), run.places.release(run.now)), (Some(first), None));
    // With only one session, the session stays.
    let mut run = Run::new(2, &[]);
    let (only, _) = run.dial().unwrap();
    run.up(only, "eu-1", &[]);
    run.places.handle_edges(only, Vec::new(), true);
    assert_eq!(run.places.release(run.now), None);
    run.places.handle_edges(only, list(&["us-1"]), true);
    let (other, _) = run.dial_edge();
    run.up(other, "us-1", &[]);
    assert_eq!(run.places.release(run.now), Some(only), "one is better than none, and there is no third");
}

#[test]
fn a_better_region_is_moved_to_when_it_comes_back() {
    let (mut run, first, (second, _)) = Run::two("eu-1", &["us-1"]);
    run.places.handle_edges(second, list(&["us-2"]), false);
    run.places.handle_lost(first, run.now, 0);
    let (third, edge) = run.dial_edge();
    run.up(third, "us-2", &["us-1"]);
    assert_eq!((edge.as_str(), run.dial()), ("us-2", None));
    run.now += Duration::from_secs(60);
    run.places.handle_edges(second, list(&["us-2", "eu-1"]), false);
    let (back, edge) = run.dial_edge();
    assert_eq!(edge, "eu-1");
    run.up(back, "eu-1", &["us-1", "us-2"]);
    assert_eq!(run.places.release(run.now), Some(third), "two of one region are one too many");
    assert_eq!((run.dial(), run.places.release(run.now)), (None, None));
}

#[test]
fn the_successor_of_an_edge_that_goes_away_is_dialed_at_once() {
    let (mut run, first, (second, edge)) = Run::two("eu-1", &["us-1"]);
    run.places.handle_gone_away(second, true, run.now, 0);
    assert_eq!(run.dial_edge().1, edge);
    run.places.handle_gone_away(first, false, run.now, 0);
    assert_eq!(run.dial(), None, "a session that never worked has no such hurry");
}

/// Events of the simulated edges.
#[derive(Debug, Clone)]
enum Step {
    /// An edge fails or comes back.
    Turn(usize),
    /// An edge is drained or undrained.
    Drain(usize),
    /// The current lists of edges reach the connector's sessions.
    Tell,
    Pass(u16),
}

const EDGES: [&str; 6] = ["eu-1", "eu-2", "us-1", "us-2", "asia-1", "asia-2"];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..EDGES.len()).prop_map(Step::Turn),
        1 => (0..EDGES.len()).prop_map(Step::Drain),
        2 => Just(Step::Tell),
        3 => (1..5_000_u16).prop_map(Step::Pass),
    ]
}

/// Edges that fail and recover, and one connector.
struct World {
    places: EdgeSelector,
    now: Instant,
    alive: [bool; 6],
    drained: [bool; 6],
    /// The edge of each slot; `None` while its address cannot be reached.
    slots: BTreeMap<u64, Option<usize>>,
    count: u64,
    wanted: usize,
}

impl World {
    fn announced(&self, by: usize) -> Vec<EdgePlace> {
        let serving = (0..EDGES.len()).filter(|edge| *edge != by && self.alive[*edge] && !self.drained[*edge]);
        serving.map(|edge| place(EDGES[edge])).collect()
    }

    fn good(&self) -> Vec<usize> {
        self.slots.values().flatten().copied().filter(|edge| self.alive[*edge]).collect()
    }

    /// Runs everything that can be done now; answers arrive at once.
    fn settle(&mut self, random: u64) {
        for _ in 0..64 {
            self.count += 1;
            if let Some(target) = self.places.dial(self.count, self.now) {
                let to = match target {
                    // The name resolves to the first running edge, and to none when all are down.
                    Target::Given => (0..EDGES.len()).find(|edge| self.alive[*edge]),
                    Target::Edge(place) => EDGES.iter().position(|edge| name(edge) == place.name),
                };
                let Some(edge) = to.filter(|edge| self.alive[*edge]) else {
                    self.places.handle_lost(self.count, self.now, random);
                    continue;
                };
                let (called, region) = (Some(name(EDGES[edge])), Some(region_of(EDGES[edge])));
                let is_held = self.slots.values().any(|chosen| *chosen == Some(edge));
                match self.places.handle_welcome(self.count, called, region, self.now, random) {
                    Welcomed::Twice => assert!(is_held),
                    Welcomed::Stay => {
                        assert!(!is_held, "two sessions at {}", EDGES[edge]);
                        self.places.handle_edges(self.count, self.announced(edge), self.drained[edge]);
                        self.places.handle_holding(self.count);
                        self.slots.insert(self.count, Some(edge));
                    }
                }
                assert!(self.slots.len() <= self.wanted + 3);
                continue;
            }
            let Some(released) = self.places.release(self.now) else { return };
            self.slots.remove(&released).expect("what is let go of was there");
            assert!(!self.good().is_empty(), "the last one is never let go of");
        }
        panic!("it never comes to rest");
    }

    fn take(&mut self, step: &Step, random: u64) {
        match *step {
            Step::Turn(edge) => {
                self.alive[edge] = !self.alive[edge];
                self.drained[edge] = false;
                let lost: Vec<u64> =
                    self.slots.iter().filter(|(_, chosen)| **chosen == Some(edge)).map(|(number, _)| *number).collect();
                for number in lost {
                    self.slots.remove(&number);
                    self.places.handle_lost(number, self.now, random);
                }
            }
            Step::Drain(edge) => self.drained[edge] = !self.drained[edge] && self.alive[edge],
            Step::Tell => {}
            Step::Pass(ms) => self.now += Duration::from_millis(u64::from(ms)),
        }
        if matches!(step, Step::Tell) {
            let chosen: Vec<(u64, usize)> = self.slots.iter().filter_map(|(n, edge)| Some((*n, (*edge)?))).collect();
            for (number, edge) in chosen {
                self.places.handle_edges(number, self.announced(edge), self.drained[edge]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Invariants: never two sessions at one edge, never zero sessions by choice, never a storm of attempts. After a
    /// quiet time, the tunnels are at the wanted number of edges, in different regions, and none of them is drained.
    #[test]
    fn in_the_end_tunnels_are_held_where_they_should(
        wanted in 1..=MAX_REDUNDANCY,
        seed in any::<u64>(),
        random in any::<u64>(),
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut world = World {
            places: EdgeSelector::new(wanted, None, Vec::new(), seed),
            now: Instant::now(),
            alive: [true; 6],
            drained: [false; 6],
            slots: BTreeMap::new(),
            count: 0,
            wanted,
        };
        world.settle(random);
        for step in &steps {
            world.take(step, random);
            world.settle(random);
        }
        let serving: Vec<usize> = (0..EDGES.len()).filter(|edge| world.alive[*edge] && !world.drained[*edge]).collect();
        for _ in 0..12 {
            world.take(&Step::Pass(30_000), random);
            world.take(&Step::Tell, random);
            world.settle(random);
        }
        let chosen: Vec<usize> = world.good();
        let regions = |edges: &[usize]| edges.iter().map(|edge| region_of(EDGES[*edge])).collect::<BTreeSet<_>>();
        if serving.is_empty() {
            return Ok(());
        }
        prop_assert_eq!(chosen.len(), wanted.min(serving.len()), "{:?} of {:?}", chosen, serving);
        prop_assert!(chosen.iter().all(|edge| serving.contains(edge)), "{:?} of {:?}", chosen, serving);
        prop_assert_eq!(regions(&chosen).len(), wanted.min(regions(&serving).len()), "{:?} of {:?}", chosen, serving);
        let home = world.places.home().cloned();
        if let Some(home) = home && regions(&serving).contains(&home) && wanted > 1 {
            prop_assert!(regions(&chosen).contains(&home), "{:?} of {:?}: {}", chosen, serving, home);
        }
    }
}
