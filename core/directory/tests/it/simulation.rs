//! Random schedules. `DIRECTORY_SEED=N` repeats one schedule; `DIRECTORY_SCHEDULES=N` sets their number instead of
//! [`SCHEDULES`].

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Duration,
};

use sallyport_directory::{BEAT, SILENCE, TERM};

use crate::{
    begin, presence,
    world::{Weather, World},
};

const SCHEDULES: u64 = 2_000;
/// Time after all faults have ended until every reader is complete: a term for dead edges, two differing beats, and a
/// listing that may have to be repeated.
pub(crate) const HEALED: Duration = Duration::from_secs(12);
/// The step of simulated time, with some room.
pub(crate) const STEP: Duration = Duration::from_millis(60);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a whole number"))
}

/// Runs the schedules, or the selected ones.
pub(crate) fn each_schedule(one_of: u64, run: impl Fn(u64)) {
    let one = number("DIRECTORY_SEED");
    let count = number("DIRECTORY_SCHEDULES").unwrap_or(SCHEDULES / one_of);
    for seed in one.map_or(0..count, |seed| seed..seed + 1) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("the schedule of DIRECTORY_SEED={seed} failed");
            resume_unwind(panic);
        }
    }
}

/// The true state, from live edges.
fn truth(world: &World) -> BTreeMap<sallyport_model::EdgeId, BTreeSet<sallyport_model::TunnelId>> {
    let living = world.nodes.iter().enumerate().filter(|(_, node)| node.holder.is_some());
    living
        .map(|(at, node)| (World::id(at), node.tunnels.iter().map(|tunnel| presence(*tunnel, 0).tunnel).collect()))
        .collect()
}

fn something_happens(world: &mut World) {
    let edge = usize::try_from(world.dice.below(world.nodes.len() as u64)).unwrap();
    let at = usize::try_from(world.dice.below(world.listeners.len() as u64)).unwrap();
    match world.dice.below(20) {
        0 => world.kill(edge),
        1 => {
            world.kill(edge);
            world.start(edge);
        }
        2 if world.nodes[edge].holder.is_none() => world.start(edge),
        3 => {
            let has = world.nodes[edge].has_bus;
            world.set_node_bus(edge, !has);
        }
        4 => {
            let has = world.listeners[at].has_bus;
            world.set_listener_bus(at, !has);
        }
        _ => {
            let tunnel = u8::try_from(world.dice.below(12)).unwrap();
            world.toggle(edge, tunnel);
        }
    }
}

/// A dead edge is known no longer than its lease lasts after its last received beat.
fn no_ghosts(world: &World) {
    let delay = Duration::from_millis(world.weather.most_delay_ms);
    for listener in &world.listeners {
        let is_connected = listener.has_bus && listener.reader.stale_since(world.now).is_none();
        // A reader that was without the bus gives each edge one more term.
        if !is_connected || world.now < listener.since + TERM + STEP {
            continue;
        }
        for (at, node) in world.nodes.iter().enumerate() {
            if node.died.is_some_and(|died| world.now > died + TERM + SILENCE + delay + STEP) {
                assert!(!listener.known.contains_key(&World::id(at)), "edge {at} is dead");
            }
        }
    }
}

#[test]
fn after_any_loss_of_messages_every_edge_knows_every_tunnel() {
    each_schedule(1, |seed| {
        let mut world = World::new(seed, 3, 3, begin());
        world.weather = Weather {
            lost: world.dice.below(40),
            doubled: world.dice.below(40),
            failed: world.dice.below(40),
            most_delay_ms: world.dice.below(3) * world.dice.below(1_500),
        };
        for _ in 0..60 {
            something_happens(&mut world);
            let time = Duration::from_millis(20 + world.dice.below(900));
            world.run(time);
            no_ghosts(&world);
        }
        world.weather = Weather::default();
        (0..3).for_each(|at| world.set_node_bus(at, true));
        (0..3).for_each(|at| world.set_listener_bus(at, true));
        world.run(HEALED);
        let truth = truth(&world);
        for (at, listener) in world.listeners.iter().enumerate() {
            assert_eq!(listener.known, truth, "reader {at}");
        }
    });
}

#[test]
fn a_live_tunnel_is_known_to_all_connected_edges_within_the_time_that_messages_take() {
    each_schedule(1, |seed| {
        let mut world = World::new(seed, 3, 3, begin());
        let most_delay_ms = world.dice.below(200);
        // Duplicated and reordered, but not lost: reordered entries are known all the same.
        world.weather = Weather { doubled: 30, most_delay_ms, ..Weather::default() };
        world.run(BEAT + Duration::from_millis(most_delay_ms) + STEP);
        for _ in 0..40 {
            let (edge, tunnel) = (usize::try_from(world.dice.below(3)).unwrap(), world.dice.below(12));
            world.toggle(edge, u8::try_from(tunnel).unwrap());
            let away = usize::try_from(world.dice.below(3)).unwrap();
            if world.dice.percent(10) {
                world.set_listener_bus(away, !world.listeners[away].has_bus);
            }
            world.run(Duration::from_millis(most_delay_ms) + STEP);
            let truth = truth(&world);
            let settled = BEAT * 4 + Duration::from_millis(most_delay_ms) * 3;
            for listener in world.listeners.iter().filter(|listener| listener.has_bus) {
                if world.now > listener.since + settled {
                    assert_eq!(listener.known, truth);
                }
            }
        }
    });
}

#[test]
fn a_reader_without_the_bus_keeps_what_it_knew() {
    each_schedule(1, |seed| {
        let mut world = World::new(seed, 2, 2, begin());
        (0..5).for_each(|tunnel| world.toggle(usize::from(tunnel % 2), tunnel));
        world.run(BEAT * 2);
        let before = truth(&world);
        assert_eq!(world.listeners[0].known, before);
        world.set_listener_bus(0, false);
        world.kill(0);
        let away = Duration::from_secs(3 + world.dice.below(10));
        world.run(away);
        assert_eq!(world.listeners[0].known, before);
        assert!(world.listeners[0].reader.stale_since(world.now).is_some());
        world.set_listener_bus(0, true);
        world.run(HEALED);
        assert_eq!(world.listeners[0].known, truth(&world));
    });
}
