//! Links with faults: they flap, move, reorder, lose long packets, and the clock jumps.

use std::time::Duration;

use proptest::prelude::*;
use sallyport_multipath::{Config, PathId, PathSettings, PathState};

use crate::{
    simulator::{CONNECTOR, EDGE, Link, Stream, World, ms},
    targets::describe,
};

const SECOND: Duration = Duration::from_secs(1);

/// An association whose receiver waits so long that nothing is given up.
fn patient() -> Config {
    Config { reorder_wait: SECOND * 600, ..Config::default() }
}

fn two_links() -> [Link; 2] {
    [Link::new(20.0, 5), Link::new(20.0, 15)]
}

/// Lets the links rest until all that was sent has arrived.
fn drain(world: &mut World, stream: &mut Stream) {
    stream.rate = Some(1.0);
    stream.next_at = Some(world.now + SECOND * 3600);
    for _ in 0..60 {
        world.run(SECOND, stream);
        if world.ends[EDGE].counts().delivered_datagrams == world.ends[CONNECTOR].counts().sent_datagrams {
            return;
        }
    }
    panic!("not all arrived\n{}", describe(world));
}

#[test]
fn links_that_flap_do_not_stop_the_others() {
    let mut world = World::new(Config::default(), &two_links());
    let mut stream = Stream::new(1000, Some(8e6));
    world.run(SECOND, &mut stream);
    stream.restart();
    for round in 0..20u16 {
        world.link(0).is_up = round % 2 == 1;
        world.run(ms(150 + 20 * u64::from(round)), &mut stream);
    }
    world.link(0).is_up = true;
    assert!(stream.stall < ms(200), "{:?}\n{}", stream.stall, describe(&world));
    drain(&mut world, &mut stream);
}

#[test]
fn links_may_swap_their_addresses() {
    let mut world = World::new(Config::default(), &two_links());
    let mut stream = Stream::new(1000, Some(20e6));
    for (first, second) in [(0, 1), (1, 0), (7, 7), (0, 1)] {
        world.run(SECOND, &mut stream);
        stream.stall = Duration::ZERO;
        (world.link(0).address, world.link(1).address) = (Some(first), Some(second));
    }
    world.run(SECOND, &mut stream);
    assert!(stream.stall < ms(200), "{:?}\n{}", stream.stall, describe(&world));
    drain(&mut world, &mut stream);
}

#[test]
fn a_path_survives_a_nat_that_rebinds() {
    let mut world = World::new(Config::default(), &[Link::new(20.0, 15)]);
    let mut stream = Stream::new(1000, Some(10e6));
    for port in 10..16 {
        world.run(SECOND, &mut stream);
        world.link(0).address = Some(port);
    }
    world.run(SECOND, &mut stream);
    assert!(world.ends[EDGE].is_validated(PathId(0)));
    assert!(stream.stall < ms(200), "{:?}\n{}", stream.stall, describe(&world));
    drain(&mut world, &mut stream);
}

#[test]
fn a_path_that_loses_long_packets_gets_a_smaller_mtu() {
    for max_payload in [1200, 1300, 1400] {
        let mut world = World::new(patient(), &[Link::new(20.0, 15)]);
        let mut stream = Stream::new(1400, Some(10e6));
        world.run(SECOND * 2, &mut stream);
        let mtu = |world: &World| usize::from(world.ends[CONNECTOR].path_stats(PathId(0)).unwrap().mtu);
        assert_eq!(mtu(&world), 1472);
        world.link(0).max_payload = max_payload;
        stream.restart();
        world.run(SECOND * 3, &mut stream);
        assert!(stream.stall < ms(400), "{max_payload} {:?}\n{}", stream.stall, describe(&world));
        assert!((max_payload - 16..=max_payload).contains(&mtu(&world)), "{max_payload}: {}", mtu(&world));
        drain(&mut world, &mut stream);
    }
}

#[test]
fn an_overflowing_queue_does_not_make_the_mtu_smaller() {
    let mut world = World::new(Config::default(), &[Link { queue_bytes: 30_000, ..Link::new(20.0, 40) }]);
    let mut stream = Stream::new(1400, None);
    for _ in 0..80 {
        world.run(ms(50), &mut stream);
        let stats = world.ends[CONNECTOR].path_stats(PathId(0)).unwrap();
        assert!(stats.mtu == 1472 || stats.lost_packets == 0, "{}", describe(&world));
    }
    assert!(world.ends[CONNECTOR].path_stats(PathId(0)).unwrap().lost_packets > 10, "the queue never overflowed");
}

#[test]
fn a_link_that_reorders_by_100_ms_keeps_its_rate() {
    let mut world = World::new(Config::default(), &[Link { jitter: ms(100), ..Link::new(20.0, 10) }]);
    let mut stream = Stream::new(1000, Some(10e6));
    world.run(SECOND * 5, &mut stream);
    stream.restart();
    world.run(SECOND * 5, &mut stream);
    let mbits = stream.mbits(SECOND * 5);
    assert!(mbits > 9.8, "{mbits}\n{}", describe(&world));
    let stats = world.ends[CONNECTOR].path_stats(PathId(0)).unwrap();
    assert!(stats.state == PathState::Active && stats.mtu == 1472, "{stats:?}");
}

#[test]
fn a_metered_link_carries_while_it_is_the_last_one() {
    let mut world = World::new(Config::default(), &[Link::new(20.0, 5)]);
    let metered = world.add(Link::new(20.0, 20), PathSettings { is_metered: true, ..PathSettings::default() });
    let mut stream = Stream::new(1000, Some(8e6));
    let sent = |world: &World| world.ends[CONNECTOR].path_stats(metered).unwrap().sent_bytes;
    world.run(SECOND * 3, &mut stream);
    assert!(sent(&world) < 10_000, "{} bytes that cost", sent(&world));
    world.link(0).is_up = false;
    stream.restart();
    world.run(SECOND * 3, &mut stream);
    assert!(stream.stall < ms(200), "{:?}\n{}", stream.stall, describe(&world));
    assert!(sent(&world) > 2_500_000, "{}", describe(&world));
    world.link(0).is_up = true;
    world.run(SECOND * 2, &mut stream);
    let before = sent(&world);
    world.run(SECOND * 3, &mut stream);
    assert!(sent(&world) - before < 10_000, "{} bytes that cost", sent(&world) - before);
}

#[test]
fn doubled_and_corrupted_packets_change_nothing() {
    let links = two_links().map(|link| Link { doubled: 0.05, corrupted: 0.02, loss: 0.02, ..link });
    let mut world = World::new(patient(), &links);
    world.nonces = Some(std::collections::HashSet::new());
    let mut stream = Stream::new(1000, Some(8e6));
    world.run(SECOND * 4, &mut stream);
    drain(&mut world, &mut stream);
    let counts = world.ends[EDGE].counts();
    assert!(counts.refused_replayed > 50 && counts.refused_unsealed + counts.refused_foreign > 20, "{counts:?}");
    assert_eq!(counts.refused_malformed, 0);
}

#[test]
fn an_association_outlives_a_long_sleep_of_the_machine() {
    let mut world = World::new(Config::default(), &two_links());
    let mut stream = Stream::new(1000, Some(8e6));
    for _ in 0..3 {
        world.run(SECOND, &mut stream);
        world.now += SECOND * 3600;
        stream.next_at = Some(world.now);
    }
    world.run(SECOND, &mut stream);
    stream.restart();
    world.run(SECOND * 2, &mut stream);
    assert!(stream.mbits(SECOND * 2) > 7.8, "{}\n{}", stream.mbits(SECOND * 2), describe(&world));
    for path in 0..2 {
        assert_eq!(world.ends[CONNECTOR].path_stats(PathId(path)).unwrap().state, PathState::Active);
    }
}

/// Something that happens to a link.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Down,
    Up,
    Loss(u8),
    Jitter(u8),
    MaxPayload(u16),
    Rate(u16),
    Address(u16),
    Available(bool),
    Removed,
    Added,
    Sleep(u16),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Down),
        Just(Fault::Up),
        (0..50u8).prop_map(Fault::Loss),
        (0..150u8).prop_map(Fault::Jitter),
        (1200..1480u16).prop_map(Fault::MaxPayload),
        (1..100u16).prop_map(Fault::Rate),
        (0..6u16).prop_map(Fault::Address),
        any::<bool>().prop_map(Fault::Available),
        Just(Fault::Removed),
        Just(Fault::Added),
        (1..4000u16).prop_map(Fault::Sleep),
    ]
}

fn befall(world: &mut World, path: u16, fault: Fault) {
    let now = world.now;
    let path = PathId(path);
    match fault {
        Fault::Added if world.links.len() < 8 => drop(world.add(Link::new(10.0, 10), PathSettings::default())),
        Fault::Removed => world.ends[CONNECTOR].remove_path(path, now),
        Fault::Available(is_available) => {
            world.ends[CONNECTOR].set_path(path, PathSettings { is_available, ..PathSettings::default() }, now);
        }
        Fault::Sleep(millis) => world.now += ms(millis.into()),
        _ => {}
    }
    let Some(link) = world.links.get_mut(&path) else { return };
    match fault {
        Fault::Down => link.is_up = false,
        Fault::Up => link.is_up = true,
        Fault::Loss(percent) => link.loss = f64::from(percent) / 100.0,
        Fault::Jitter(millis) => link.jitter = ms(millis.into()),
        Fault::MaxPayload(bytes) => link.max_payload = bytes.into(),
        Fault::Rate(tenths) => link.rate = f64::from(tenths) * 1e5,
        Fault::Address(address) => link.address = Some(address),
        Fault::Available(_) | Fault::Removed | Fault::Added | Fault::Sleep(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever befalls the links: once one of them works, all has arrived, once and in order.
    #[test]
    fn every_datagram_arrives_once_and_in_order(
        faults in prop::collection::vec((0..4u16, 20..400u64, fault()), 1..16),
        bytes in prop_oneof![Just(100usize), Just(1000), Just(4000)],
        seed in any::<u64>(),
    ) {
        let links = [Link::new(10.0, 5), Link::new(10.0, 20), Link::new(1.0, 60)];
        let mut world = World::new(patient(), &links.map(|link| Link { doubled: 0.01, corrupted: 0.01, ..link }));
        world.random.0 = seed;
        world.clock_jitter = ms(3);
        let mut stream = Stream::new(bytes, Some(2e6));
        for (path, millis, fault) in faults {
            world.run(ms(millis), &mut stream);
            befall(&mut world, path, fault);
            stream.next_at = stream.next_at.map(|at| at.max(world.now));
        }
        for link in world.links.values_mut() {
            *link = Link { address: link.address, ..Link::new(10.0, 10) };
        }
        world.add(Link { address: Some(99), ..Link::new(10.0, 10) }, PathSettings::default());
        drain(&mut world, &mut stream);
    }
}
