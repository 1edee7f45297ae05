//! Random schedules in which the process of an edge is replaced.

use std::{collections::BTreeSet, time::Duration};

use sallyport_directory::BEAT;

use crate::{
    begin, presence,
    simulation::each_schedule,
    world::{Weather, World},
};

#[test]
fn readers_do_not_notice_another_process_taking_an_edge_over() {
    each_schedule(1, |seed| {
        let mut world = World::new(seed, 2, 3, begin());
        let most_delay_ms = world.dice.below(150);
        world.weather = Weather { doubled: 30, most_delay_ms, ..Weather::default() };
        for _ in 0..5 {
            let tunnel = u8::try_from(world.dice.below(12)).unwrap();
            world.toggle(0, tunnel);
        }
        world.run(BEAT * 4);
        let same = world.nodes[0].tunnels.clone();
        let ids: BTreeSet<_> = same.iter().map(|tunnel| presence(*tunnel, 0).tunnel).collect();
        let is_seen = |world: &World| {
            for listener in &world.listeners {
                assert_eq!(listener.known.get(&World::id(0)), Some(&ids));
            }
        };
        for _ in 0..3 {
            let silent = Duration::from_millis(world.dice.below(2_500));
            world.take_over(0, silent, is_seen);
            for _ in 0..100 {
                world.run(Duration::from_millis(20));
                is_seen(&world);
            }
        }
    });
}
