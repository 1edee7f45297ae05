//! The rates and stalls that the association is built for. The clock is virtual, so the figures are exact.

use std::time::Duration;

use sallyport_multipath::{Config, PathId};

use crate::{
    simulator::{CONNECTOR, Link, Stream, World, ms},
    tcp::Tcp,
};

const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn describe(world: &World) -> String {
    world.ends[CONNECTOR]
        .paths()
        .map(|path| format!("{path:?} {:?}\n", world.ends[CONNECTOR].path_stats(path)))
        .chain([format!("{:?}\n", world.ends[CONNECTOR].counts()), format!("{:?}", world.ends[1].counts())])
        .collect()
}

/// Mbit/s of datagrams between the third and the tenth second.
fn goodput(links: &[Link]) -> (f64, World) {
    let mut world = World::new(Config::default(), links);
    let mut stream = Stream::new(1400, None);
    world.run(SECOND * 3, &mut stream);
    stream.restart();
    world.run(SECOND * 7, &mut stream);
    (stream.mbits(SECOND * 7), world)
}

#[test]
fn three_equal_links_carry_nearly_the_sum() {
    let (mbits, world) = goodput(&[Link::new(100.0, 10); 3]);
    assert!(mbits >= 270.0, "{mbits}\n{}", describe(&world));
}

#[test]
fn one_link_is_filled() {
    let (mbits, world) = goodput(&[Link::new(100.0, 10)]);
    assert!(mbits >= 91.0, "{mbits}\n{}", describe(&world));
}

#[test]
fn links_of_rates_far_apart_carry_nearly_the_sum() {
    let (mbits, world) = goodput(&[Link::new(1.0, 20), Link::new(100.0, 20)]);
    assert!(mbits >= 91.0, "{mbits}\n{}", describe(&world));
}

fn uneven(loss: f64) -> Vec<Link> {
    [5, 20, 40].map(|delay| Link { loss, ..Link::new(100.0, delay) }).to_vec()
}

/// Mbit/s of one TCP connection between the fourth and the fourteenth second.
fn tcp_goodput(loss: f64) -> (f64, World) {
    let mut world = World::new(Config::default(), &uneven(loss));
    let mut tcp = Tcp::default();
    world.run(SECOND * 4, &mut tcp);
    let before = tcp.delivered_bytes;
    world.run(SECOND * 10, &mut tcp);
    ((tcp.delivered_bytes - before) as f64 * 8.0 / 1e7, world)
}

#[test]
fn tcp_over_uneven_links_carries_far_more_than_one_link() {
    for (loss, least) in [(0.0, 230.0), (0.005, 200.0)] {
        let (mbits, world) = tcp_goodput(loss);
        assert!(mbits >= least, "{loss}: {mbits}\n{}", describe(&world));
    }
}

#[test]
fn udp_offered_at_four_fifths_arrives() {
    for loss in [0.0, 0.005] {
        let mut world = World::new(Config::default(), &uneven(loss));
        let mut stream = Stream::new(1400, Some(240e6));
        world.run(SECOND * 2, &mut stream);
        stream.restart();
        world.run(SECOND * 8, &mut stream);
        let mbits = stream.mbits(SECOND * 8);
        let lost = 1.0 - stream.received as f64 / stream.offered as f64;
        assert!(mbits >= 235.0 && lost < 0.01, "{mbits} {lost}\n{}", describe(&world));
    }
}

#[test]
fn a_silent_black_hole_stalls_for_less_than_200_ms() {
    for path in 0..3u16 {
        let mut world = World::new(Config::default(), &uneven(0.0));
        let mut stream = Stream::new(1000, Some(150e6));
        world.run(SECOND * 3, &mut stream);
        stream.restart();
        world.link(path).is_up = false;
        world.run(SECOND * 3, &mut stream);
        assert!(stream.stall < ms(200), "path {path}: {:?}\n{}", stream.stall, describe(&world));
        let lost = stream.offered.saturating_sub(stream.received);
        assert!(lost * 1000 < stream.offered * 50, "path {path}: {lost} of {}", stream.offered);
        world.link(path).is_up = true;
        world.run(SECOND * 3, &mut stream);
        let stats = world.ends[CONNECTOR].path_stats(PathId(path)).unwrap();
        assert_eq!(stats.state, sallyport_multipath::PathState::Active, "{stats:?}");
    }
}
