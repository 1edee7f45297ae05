//! One leader after the other, and two at once.

use proptest::prelude::*;

use super::*;

#[test]
fn a_new_leader_gives_nothing_away_that_an_unheard_edge_may_have() {
    let origins = [(1, at_region("eu", rps(300)))];
    let mut world = World::new(vec![socket(1, origins)], &[&[(1, 5)], &[(1, 50)], &[(1, 90)]]);
    (0..3).for_each(|at| world.demand(at, 1, 100));
    world.seconds(5);
    let holders = world.planners[0].holders();
    assert_eq!(holders.len(), 3);
    // The bus loses one edge, which reaches the others and is reached; and another control takes the lead.
    world.cut_off = Some(0);
    let mut planner = world.planner(2);
    planner.set_former_holders(holders.clone(), world.now);
    world.planners = vec![planner];
    world.demand(1, 1, 200);
    for second in 0..90 {
        let began = world.now;
        world.second(|_| true);
        world.edges[0].follower.handle_reach(began, 2, 2);
        let quotas = world.quotas(socket_id(1), origin(1));
        assert!(quotas <= 300 * PER_UNIT && world.of(1, 1) <= 306, "second {second}: {quotas} {:?}", world.served);
    }
    // Its report comes through another edge, and what is left grows.
    world.demand(0, 1, 10);
    world.cut_off = None;
    world.seconds(8);
    assert!(world.shed <= 20 && world.of(1, 1) >= 290, "{:?} {}", world.served, world.shed);

    // An edge that nobody reaches is gone.
    let mut planner = world.planner(3);
    let info = EdgeInfo { name: "e9".parse().unwrap(), region: "r9".parse().unwrap() };
    planner.set_former_holders([(edge_id(9), info)].into_iter().chain(holders).collect(), world.now);
    world.planners = vec![planner];
    world.demand(0, 1, 100);
    world.demand(1, 1, 20);
    world.edges.iter_mut().for_each(|edge| edge.unreachable = vec![edge_id(9)]);
    world.seconds(20);
    assert!(world.of(1, 1) >= 215 && world.planners[0].holders().len() == 3, "{:?}", world.served);
}

#[test]
fn a_leader_that_hears_nobody_for_long_forgets_nobody() {
    let mut world = World::new(vec![socket(1, [(1, at_region("eu", rps(300)))])], &[&[(1, 5)], &[(1, 50)]]);
    (0..2).for_each(|at| world.demand(at, 1, 150));
    world.seconds(6);
    for _ in 0..1_000 {
        let began = world.now;
        world.now += SECOND;
        world.edges.iter_mut().for_each(|edge| edge.follower.handle_reach(began, 1, 1));
        world.planners[0].tick(world.now);
    }
    // The bus is back for one of them first.
    world.demand(0, 1, 300);
    world.cut_off = Some(1);
    for second in 0..20 {
        let began = world.now;
        world.second(|_| true);
        world.edges[1].follower.handle_reach(began, 1, 1);
        assert!(world.quotas(socket_id(1), origin(1)) <= 300 * PER_UNIT, "second {second}");
    }
    assert_eq!(world.planners[0].holders().len(), 2);
}

#[test]
fn a_term_that_no_leader_has_stops_nobody() {
    let mut world = two_regions();
    world.demand(0, 1, 280);
    world.seconds(5);
    let mut planner = world.planner(2);
    planner.set_sockets(world.sockets.clone());
    let of = |world: &mut World, at: usize, term| {
        let now = world.now;
        LoadReport { term, assignment: 0, ..world.edges[at].follower.begin_report(now) }
    };
    let reports = [of(&mut world, 0, 2), of(&mut world, 1, 7)];
    for report in &reports {
        planner.handle_report(report, world.now).unwrap();
    }
    let asked_at = world.now + SECOND;
    assert!(!planner.may_grow(asked_at), "a later leader may be there");
    assert_eq!(planner.lost_term(asked_at), None);
    planner.confirm(asked_at);
    assert!(planner.may_grow(asked_at), "the store says that there is none");
    assert_eq!(planner.lost_term(asked_at), Some(7), "the store was restored");
    let absurd = LoadReport { term: u64::MAX, ..of(&mut world, 1, 0) };
    planner.handle_report(&absurd, asked_at).unwrap();
    planner.confirm(asked_at + SECOND);
    assert!(planner.may_grow(asked_at) && planner.lost_term(asked_at).is_none());
    let mut planner = world.planner(2);
    let same = LoadReport { assignment: 40, ..of(&mut world, 0, 2) };
    planner.handle_report(&same, world.now).unwrap();
    planner.confirm(asked_at);
    assert_eq!(planner.lost_term(asked_at), Some(2), "the store has lost the own term, too");
}

#[test]
fn quotas_stay_while_the_leader_is_away_and_a_new_leader_takes_over() {
    let mut world = two_regions();
    world.demand(0, 1, 280);
    world.demand(1, 1, 50);
    world.seconds(5);
    world.planners.clear();
    for _ in 0..60 {
        let began = world.now;
        world.second(|_| true);
        world.edges.iter_mut().for_each(|edge| edge.follower.handle_reach(began, 1, 1));
        assert!(world.shed == 0 && world.of(1, 1) <= 205, "{:?} {}", world.served, world.shed);
    }
    let planner = world.planner(2);
    world.planners.push(planner);
    world.demand(0, 1, 50);
    world.demand(1, 1, 280);
    world.seconds(5);
    world.second(|_| true);
    assert_eq!(world.shed, 0);
    assert!(world.of(1, 2) <= 205 && world.of(1, 2) >= 195, "{:?}", world.served);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Messages are lost, the bus loses an edge, two controls lead at once, another one begins to lead, demand jumps,
    /// edges pause and come back.
    #[test]
    fn quotas_are_never_more_than_the_capacity(seed in any::<u64>(), loss in 0_u64..60) {
        let origins = [(1, at_region("r0", rps(200))), (2, at_region("r1", rps(150))), (3, at_region("r2", rps(90)))];
        let rtts: [&[(u8, u64)]; 3] = [&[(1, 5), (2, 84), (3, 150)], &[(1, 84), (2, 5), (3, 90)], &[(1, 150), (2, 90), (3, 5)]];
        let mut world = World::new(vec![socket(1, origins)], &rtts);
        (world.seed, world.loss) = (seed, loss);
        let limits = [(1, 200), (2, 150), (3, 90)];
        let mut paused = usize::MAX;
        for second in 0..110_u64 {
            if second == 20 {
                // Both lead; edges follow the later one.
                let mut planner = world.planner(2);
                planner.set_former_holders(world.planners[0].holders(), world.now);
                world.planners.push(planner);
            }
            if second == 40 {
                world.planners.remove(0);
            }
            if second == 55 {
                let mut planner = world.planner(3);
                planner.set_former_holders(world.planners[0].holders(), world.now);
                world.planners = vec![planner];
            }
            if second % 7 == 0 {
                world.cut_off = Some(world.random(6) as usize);
            }
            if world.random(5) == 0 {
                let (at, demand) = (world.random(3) as usize, world.random(400));
                world.demand(at, 1, demand);
            }
            if second % 8 == 0 {
                paused = world.random(6) as usize;
            }
            let began = world.now;
            world.second(|at| at != paused);
            if let Some(at) = world.cut_off.filter(|at| *at < 3 && *at != paused) {
                world.edges[at].follower.handle_reach(began, 2, 2);
            }
            for (id, limit) in limits {
                let quotas = world.quotas(socket_id(1), origin(id));
                prop_assert!(quotas <= limit * PER_UNIT, "second {second}: {quotas} for {limit}");
                prop_assert!(world.of(1, id) <= limit + 12, "second {second}: {} for {limit}", world.of(1, id));
            }
        }
    }
}
