use std::{collections::BTreeMap, time::Duration};

use sallyport_model::{AccountId, Capacity, EdgeId, MaxRps, OriginRef, SocketId, TunnelId};

use super::*;
use crate::{
    PER_UNIT,
    delta::ReportDelta,
    quota::{Applies, AssignmentFollower, SocketQuotas, Taken, Turn},
    report::{Candidate, ClassLoad, MAX_ENTRIES, OriginLoad, Quota},
};

const SECOND: Duration = Duration::from_secs(1);

fn origin(id: u8) -> OriginRef {
    TunnelId::from_random([id; 16]).into()
}

fn socket_id(id: u8) -> SocketId {
    SocketId::from_random([id; 16])
}

fn edge_id(id: u8) -> EdgeId {
    EdgeId::from_random([id; 16])
}

fn rps(rps: u32) -> Capacity {
    Capacity { max_rps: Some(MaxRps::Declared(rps)), ..Capacity::default() }
}

fn at_region(region: &str, capacity: Capacity) -> SteeredOrigin {
    SteeredOrigin { region: Some(region.parse().unwrap()), weight: 100, capacity }
}

fn socket(id: u8, origins: impl IntoIterator<Item = (u8, SteeredOrigin)>) -> SteeredSocket {
    SteeredSocket {
        id: socket_id(id),
        account: AccountId::from_random([1; 16]),
        origins: origins.into_iter().map(|(id, settings)| (origin(id), settings)).collect(),
        regions: BTreeMap::new(),
    }
}

/// An edge with one class for each socket.
struct Edge {
    id: EdgeId,
    follower: AssignmentFollower,
    delta: ReportDelta,
    sockets: BTreeMap<SocketId, SocketQuotas>,
    /// The round trip to each origin in milliseconds.
    rtts: BTreeMap<OriginRef, u64>,
    /// Requests per second.
    demand: BTreeMap<SocketId, u64>,
    owed: BTreeMap<SocketId, u64>,
    unreachable: Vec<EdgeId>,
    waiting: Vec<Waiting>,
}

/// A request that waits: until when, for which of its candidates, and since when.
type Waiting = (Duration, SocketId, Vec<OriginRef>, usize, Duration);

mod leaders;

/// Edges, origins and planners in virtual time.
struct World {
    now: Duration,
    sockets: Vec<SteeredSocket>,
    edges: Vec<Edge>,
    planners: Vec<Planner>,
    /// Requests that each origin got in the last second.
    served: BTreeMap<(SocketId, OriginRef), u64>,
    shed: u64,
    seed: u64,
    /// Percent of lost messages.
    loss: u64,
    /// The edge whose messages the bus does not carry.
    cut_off: Option<usize>,
}

impl World {
    fn new(sockets: Vec<SteeredSocket>, rtts: &[&[(u8, u64)]]) -> Self {
        let edges = rtts.iter().enumerate().map(|(at, rtts)| {
            let id = edge_id(u8::try_from(at).unwrap());
            let quotas = sockets.iter().map(|socket| {
                let mut quotas = SocketQuotas::default();
                let limited = socket.origins.keys();
                let limited = limited.map(|origin| (*origin, socket.is_limited(*origin).then_some(Quota::NOTHING)));
                quotas.set_origins(&limited.collect::<Vec<_>>(), Duration::ZERO);
                (socket.id, quotas)
            });
            Edge {
                id,
                follower: AssignmentFollower::new(id, 1),
                delta: ReportDelta::default(),
                sockets: quotas.collect(),
                rtts: rtts.iter().map(|(id, ms)| (origin(*id), *ms)).collect(),
                demand: BTreeMap::new(),
                owed: BTreeMap::new(),
                unreachable: Vec::new(),
                waiting: Vec::new(),
            }
        });
        let mut world = Self {
            now: Duration::ZERO,
            edges: edges.collect(),
            planners: Vec::new(),
            served: BTreeMap::new(),
            shed: 0,
            seed: 1,
            loss: 0,
            cut_off: None,
            sockets,
        };
        let planner = world.planner(1);
        world.planners.push(planner);
        world
    }

    fn planner(&self, term: u64) -> Planner {
        let mut planner = Planner::default();
        planner.set_sockets(self.sockets.clone());
        let info =
            |at: usize| EdgeInfo { name: format!("e{at}").parse().unwrap(), region: format!("r{at}").parse().unwrap() };
        planner.set_edges(self.edges.iter().enumerate().map(|(at, edge)| (edge.id, info(at))).collect());
        planner.lead(term, self.now);
        planner
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn is_lost(&mut self) -> bool {
        self.random(100) < self.loss
    }

    /// One second: requests, reports, plans. `is_there` says which edges work.
    fn second(&mut self, is_there: impl Fn(usize) -> bool) {
        self.served.clear();
        self.shed = 0;
        let start = self.now;
        for step in 0..100 {
            self.now = start + Duration::from_millis(10 * step);
            for at in 0..self.edges.len() {
                if is_there(at) {
                    self.requests(at);
                }
            }
        }
        self.now = start + SECOND;
        for at in 0..self.edges.len() {
            if is_there(at) {
                self.report(at);
            }
        }
        self.plan(&is_there);
    }

    fn requests(&mut self, at: usize) {
        let (now, edge) = (self.now, &mut self.edges[at]);
        if let Some(until) = edge.follower.valid_until() {
            edge.sockets.values_mut().for_each(|quotas| quotas.set_valid_until(until));
        }
        for (socket, demand) in &edge.demand {
            let owed = edge.owed.entry(*socket).or_default();
            *owed += demand;
            while *owed >= 100 {
                *owed -= 100;
                let quotas = edge.sockets.get_mut(socket).unwrap();
                let mut near: Vec<_> = edge.rtts.iter().map(|(origin, rtt)| (*rtt, *origin)).collect();
                near.sort_unstable();
                let own = self.sockets.iter().find(|known| known.id == *socket).unwrap();
                let near: Vec<_> = near
                    .into_iter()
                    .map(|(_, origin)| origin)
                    .filter(|origin| own.origins.contains_key(origin))
                    .collect();
                quotas.class_mut(0).arrived += 1;
                Self::ask(
                    quotas,
                    (*socket, now),
                    near,
                    Turn::New,
                    (&mut edge.waiting, &mut self.served, &mut self.shed),
                    now,
                );
            }
        }
        for (when, socket, near, at, began) in std::mem::take(&mut edge.waiting) {
            if when > now {
                edge.waiting.push((when, socket, near, at, began));
                continue;
            }
            let quotas = edge.sockets.get_mut(&socket).unwrap();
            quotas.leave_queue(near[at]);
            Self::ask(
                quotas,
                (socket, now),
                near,
                Turn::Waited,
                (&mut edge.waiting, &mut self.served, &mut self.shed),
                began,
            );
        }
    }

    fn ask(
        quotas: &mut SocketQuotas,
        (socket, now): (SocketId, Duration),
        near: Vec<OriginRef>,
        turn: Turn,
        (waiting, served, shed): (&mut Vec<Waiting>, &mut BTreeMap<(SocketId, OriginRef), u64>, &mut u64),
        began: Duration,
    ) {
        match quotas.take(&near, turn, now, began + SECOND) {
            Taken::Now(at) => {
                quotas.record_sent(near[at]);
                quotas.record_answer(near[at], Duration::from_millis(5), false);
                quotas.record_end(near[at]);
                *served.entry((socket, near[at])).or_default() += 1;
            }
            Taken::Wait(at, when) => waiting.push((when, socket, near, at, began)),
            Taken::Busy | Taken::Unassigned | Taken::Shed => {
                quotas.class_mut(0).shed += 1;
                *shed += 1;
            }
        }
    }

    fn report(&mut self, at: usize) {
        let now = self.now;
        let edge = &mut self.edges[at];
        if !edge.follower.is_valid(now) {
            for quotas in edge.sockets.values_mut() {
                quotas.assign(&[], Applies::Fully, now);
            }
        }
        let mut report = edge.follower.begin_report(now);
        report.unreachable.clone_from(&edge.unreachable);
        for (socket, quotas) in &edge.sockets {
            let own = self.sockets.iter().find(|known| known.id == *socket).unwrap();
            let candidates = edge.rtts.iter().filter(|(origin, _)| own.origins.contains_key(origin));
            let candidates =
                candidates.map(|(origin, ms)| Candidate { origin: *origin, rtt_us: Some(ms * 1_000), is_usable: true });
            let candidates: Vec<_> = candidates.collect();
            for (class, count) in quotas.classes() {
                let candidates = candidates.clone();
                let (arrived, shed, open) = (count.arrived, count.shed, count.open);
                report.classes.push(ClassLoad { socket: *socket, class, arrived, shed, open, candidates });
            }
            for (origin, quota, count) in quotas.limited() {
                let OriginCount { sent, done, failed, latency_us, open } = count;
                report.origins.push(OriginLoad {
                    socket: *socket,
                    origin,
                    sent,
                    done,
                    failed,
                    latency_us,
                    open,
                    quota,
                });
            }
        }
        edge.delta.shorten(&mut report, edge.follower.known_base(now));
        for planner in 0..self.planners.len() {
            if !self.is_lost() && self.cut_off != Some(at) {
                let _ = self.planners[planner].handle_report(&report, self.now);
            }
        }
    }

    fn plan(&mut self, is_there: &impl Fn(usize) -> bool) {
        for planner in 0..self.planners.len() {
            for assignment in self.planners[planner].tick(self.now) {
                let at = self.edges.iter().position(|edge| edge.id == assignment.edge).unwrap();
                if self.is_lost() || !is_there(at) || self.cut_off == Some(at) {
                    continue;
                }
                let now = self.now;
                let edge = &mut self.edges[at];
                if let Ok(applies) = edge.follower.handle_assignment(&assignment) {
                    for (socket, quotas) in &mut edge.sockets {
                        let own = assignment.quotas.iter().filter(|quota| quota.socket == *socket);
                        let own: Vec<_> = own.map(|quota| (quota.origin, quota.plan, quota.quota)).collect();
                        quotas.assign(&own, applies, now);
                    }
                }
            }
        }
    }

    /// What all edges may send to an origin now.
    fn quotas(&self, socket: SocketId, origin: OriginRef) -> u64 {
        let of_edge = |edge: &Edge| {
            let quotas = &edge.sockets[&socket];
            quotas.limited().find(|(of, ..)| *of == origin).map_or(0, |(_, quota, _)| quota.rate.unwrap_or(u64::MAX))
        };
        self.edges.iter().filter(|edge| edge.follower.is_valid(self.now)).map(of_edge).fold(0, u64::saturating_add)
    }

    fn seconds(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.second(|_| true);
        }
    }

    fn words(&self, socket: u8) -> Vec<String> {
        let view = self.planners[0].view(socket_id(socket), self.now).unwrap();
        explain(&view, &|origin| origin.to_string())
    }

    fn demand(&mut self, at: usize, socket: u8, demand: u64) {
        self.edges[at].demand.insert(socket_id(socket), demand);
    }

    fn of(&self, socket: u8, id: u8) -> u64 {
        self.served.get(&(socket_id(socket), origin(id))).copied().unwrap_or_default()
    }
}

use crate::quota::OriginCount;

/// Two regions with an edge and an origin each, 84 ms apart.
fn two_regions() -> World {
    let origins = [(1, at_region("eu", rps(200))), (2, at_region("us", rps(200)))];
    World::new(vec![socket(1, origins)], &[&[(1, 5), (2, 84)], &[(1, 84), (2, 5)]])
}

#[test]
fn what_is_beyond_the_nearest_origin_goes_to_the_next_one() {
    let mut world = two_regions();
    world.demand(0, 1, 150);
    world.demand(1, 1, 50);
    world.seconds(5);
    assert_eq!((world.of(1, 1), world.of(1, 2), world.shed), (150, 50, 0));
    world.demand(0, 1, 280);
    world.seconds(1);
    assert!(world.shed <= 80, "the spare part is there at once: {}", world.shed);
    world.seconds(4);
    world.second(|_| true);
    assert_eq!(world.shed, 0);
    assert!(world.of(1, 1) <= 205 && world.of(1, 1) >= 195 && world.of(1, 2) <= 140, "{:?}", world.served);
    let words = world.words(1);
    assert!(words.contains(&"eu is at 200 of 200 rps".to_owned()), "{words:?}");
    let spilled = words.iter().find(|words| words.contains("goes to us, 84 ms away, because eu is full"));
    assert!(spilled.is_some_and(|words| words.starts_with("28 % of e0")), "{words:?}");
    // More than all can carry: the rest is refused, and nobody gets more than the limit.
    world.demand(1, 1, 300);
    world.seconds(8);
    assert!(world.of(1, 1) <= 205 && world.of(1, 2) <= 205 && world.shed >= 170, "{:?} {}", world.served, world.shed);
    assert_eq!(world.planners[0].gap_ppm(), 0);
}

#[test]
fn the_quotas_of_a_dead_edge_are_given_to_others_once_nobody_reaches_it() {
    let origins = [(1, at_region("eu", rps(300)))];
    let mut world = World::new(vec![socket(1, origins)], &[&[(1, 5)], &[(1, 50)], &[(1, 90)]]);
    (0..3).for_each(|at| world.demand(at, 1, 100));
    world.seconds(5);
    assert_eq!((world.of(1, 1), world.shed), (300, 0));
    world.demand(1, 1, 200);
    let dead = edge_id(0);
    for second in 0..30 {
        world.second(|at| at != 0);
        if second > 5 {
            world.edges[1..].iter_mut().for_each(|edge| edge.unreachable = vec![dead]);
        }
        if second < 12 {
            assert!(world.of(1, 1) <= 205, "the dead edge may still use its part");
        }
    }
    world.second(|at| at != 0);
    assert!(world.of(1, 1) >= 295 && world.shed <= 5, "{:?} {}", world.served, world.shed);
}

#[test]
fn sockets_share_a_capacity_fairly() {
    let shared = |rps: u32| Capacity { shared: Some("db".parse().unwrap()), ..self::rps(rps) };
    let sockets = vec![socket(1, [(1, at_region("eu", shared(300)))]), socket(2, [(2, at_region("eu", shared(200)))])];
    let mut world = World::new(sockets, &[&[(1, 5), (2, 5)]]);
    world.demand(0, 1, 50);
    world.demand(0, 2, 1_000);
    world.seconds(8);
    assert!(world.of(1, 1) >= 49, "{:?}", world.served);
    assert!(
        world.of(1, 1) + world.of(2, 2) <= 206 && world.of(2, 2) >= 140,
        "the lowest limit counts: {:?}",
        world.served
    );
    world.demand(0, 1, 1_000);
    world.seconds(8);
    assert!(world.of(1, 1).abs_diff(world.of(2, 2)) <= 6, "{:?}", world.served);
}

#[test]
fn a_socket_with_room_elsewhere_takes_nothing_from_the_fair_shares_of_a_capacity() {
    let shared = |rps: u32| Capacity { shared: Some("db".parse().unwrap()), ..self::rps(rps) };
    let sockets = vec![
        socket(1, [(1, at_region("eu", shared(90)))]),
        socket(2, [(2, at_region("us", shared(90)))]),
        socket(3, [(3, at_region("eu", shared(90))), (4, at_region("eu", Capacity::default()))]),
    ];
    let mut world = World::new(sockets, &[&[(1, 5), (2, 6), (3, 5), (4, 5)]]);
    world.demand(0, 1, 300);
    world.demand(0, 2, 20);
    world.seconds(10);
    assert!(world.of(2, 2) >= 19, "{:?} {}", world.served, world.shed);
}

#[test]
fn a_dial_and_a_weight_bound_the_plan_until_nothing_else_can_serve() {
    let origins = [(1, at_region("eu", rps(200))), (2, at_region("us", rps(200)))];
    let mut one = socket(1, origins);
    one.regions.insert("eu".parse().unwrap(), SteeredRegion { dial: 20, capacity: Capacity::default() });
    let mut world = World::new(vec![one], &[&[(1, 5), (2, 84)]]);
    world.demand(0, 1, 100);
    world.seconds(6);
    assert!(world.of(1, 1).abs_diff(20) <= 3, "{:?}", world.served);
    world.demand(0, 1, 300);
    world.seconds(6);
    assert!(world.of(1, 2) >= 195 && world.shed == 0, "{:?} {}", world.served, world.shed);
    let weighted = |weight, capacity| SteeredOrigin { weight, ..at_region("eu", capacity) };
    let origins = [(1, weighted(300, rps(200))), (2, weighted(100, rps(200))), (3, weighted(0, rps(200)))];
    let mut world = World::new(vec![socket(1, origins)], &[&[(1, 5), (2, 5), (3, 1)]]);
    world.demand(0, 1, 100);
    world.seconds(6);
    assert!(world.of(1, 1).abs_diff(75) <= 4 && world.of(1, 3) == 0, "{:?}", world.served);
}

#[test]
fn a_region_has_a_limit_of_its_own() {
    let origins = [1, 2].map(|id| (id, at_region("eu", Capacity::default())));
    let mut one = socket(1, origins.into_iter().chain([(3, at_region("us", Capacity::default()))]));
    one.regions.insert("eu".parse().unwrap(), SteeredRegion { dial: 100, capacity: rps(100) });
    let mut world = World::new(vec![one], &[&[(1, 5), (2, 5), (3, 84)]]);
    world.demand(0, 1, 300);
    world.seconds(6);
    assert!(world.of(1, 1) + world.of(1, 2) <= 103 && world.of(1, 3) >= 195, "{:?}", world.served);
    let words = world.words(1);
    let why = ", because the region eu is at 100 of 100 rps";
    assert!(
        words.iter().any(|words| words.starts_with("66 % of e0 goes to us, 84 ms") && words.ends_with(why)),
        "{words:?}"
    );
}

#[test]
fn words_name_the_shared_capacity_that_is_full_and_not_the_origin() {
    let shared = |rps: u32| Capacity { shared: Some("db".parse().unwrap()), ..self::rps(rps) };
    let near = socket(1, [(1, at_region("eu", shared(200))), (3, at_region("us", rps(900)))]);
    let sockets = vec![near, socket(2, [(2, at_region("eu", shared(200)))])];
    let mut world = World::new(sockets, &[&[(1, 5), (2, 5), (3, 84)]]);
    world.demand(0, 1, 300);
    world.demand(0, 2, 100);
    world.seconds(8);
    let words = world.words(1);
    let why = ", because the shared capacity db is at 200 of 200 rps";
    assert!(words.iter().any(|words| words.contains(" goes to us, 84 ms") && words.ends_with(why)), "{words:?}");
    world.demand(0, 2, 0);
    world.seconds(8);
    let words = world.words(1);
    assert!(words.iter().any(|words| words.ends_with(", because eu is full")), "by its own limit: {words:?}");
}

#[test]
fn an_edge_that_claims_a_huge_demand_does_not_starve_others() {
    let origins = [(1, at_region("eu", rps(200)))];
    let mut world = World::new(vec![socket(1, origins)], &[&[(1, 1)], &[(1, 50)]]);
    (0..2).for_each(|at| world.demand(at, 1, 80));
    world.seconds(10);
    world.demand(0, 1, 100_000);
    world.seconds(60);
    world.second(|_| true);
    let other = world.edges[1].sockets[&socket_id(1)].limited().next().unwrap();
    assert!(other.1.rate >= Some(80 * PER_UNIT), "{other:?}");
}

#[test]
fn a_crowd_at_an_edge_that_had_little_gets_all_that_is_free() {
    let mut world = World::new(vec![socket(1, [(1, at_region("eu", rps(300)))])], &[&[(1, 5)], &[(1, 50)]]);
    world.demand(0, 1, 10);
    world.demand(1, 1, 10);
    world.seconds(20);
    world.demand(0, 1, 250);
    world.seconds(4);
    assert!(world.shed <= 6 && world.of(1, 1) >= 255, "{:?} {}", world.served, world.shed);
}

#[test]
fn forged_old_and_foreign_reports_are_refused() {
    let mut world = two_regions();
    world.demand(0, 1, 100);
    world.seconds(3);
    let now = world.now;
    let mut report = world.edges[0].follower.begin_report(now);
    let planner = &mut world.planners[0];
    report.edge = edge_id(77);
    assert_eq!(planner.handle_report(&report, now), Err(ReportRefused::UnknownEdge));
    report.edge = edge_id(0);
    assert_eq!(planner.handle_report(&report, now), Ok(()));
    assert_eq!(planner.handle_report(&report, now), Err(ReportRefused::Old), "a replay");
    report.epoch = 0;
    assert_eq!(planner.handle_report(&report, now), Err(ReportRefused::Old), "an earlier run");
    (report.epoch, report.number, report.is_last) = (1, report.number + 1, true);
    assert_eq!(planner.handle_report(&report, now), Ok(()));
    (report.number, report.is_last) = (report.number - 1, false);
    assert_eq!(planner.handle_report(&report, now), Err(ReportRefused::Old), "a replay after the last report");
    report.epoch = 2;
    assert_eq!(planner.handle_report(&report, now), Ok(()), "the edge is back");
}

#[test]
fn reports_of_changes_need_a_whole_one_and_never_add_up_without_bound() {
    let mut world = two_regions();
    let (now, mut planner) = (world.now, world.planner(1));
    let follower = &mut world.edges[0].follower;
    let mut report = follower.begin_report(now);
    report.base = 1;
    assert_eq!(planner.handle_report(&report, now), Err(ReportRefused::NoBase));
    planner.handle_report(&follower.begin_report(now), now).unwrap();
    for number in 0..4_u64 {
        let mut report = follower.begin_report(now);
        report.base = 2;
        report.classes = (0..MAX_ENTRIES as u64)
            .map(|class| ClassLoad {
                socket: socket_id(1),
                class: number << 32 | class,
                arrived: 1,
                shed: 0,
                open: 0,
                candidates: Vec::new(),
            })
            .collect();
        planner.handle_report(&report, now).unwrap();
        assert_eq!(planner.edges[&edge_id(0)].classes.len(), MAX_ENTRIES);
    }
    report.base = 9;
    report.number = 99;
    assert_eq!(planner.handle_report(&report, now), Err(ReportRefused::NoBase));
}

#[test]
fn connections_are_planned_too() {
    let most = |most| Capacity { max_connections: Some(most), ..Capacity::default() };
    let origins = [(1, at_region("eu", most(10))), (2, at_region("us", most(10)))];
    let mut world = World::new(vec![socket(1, origins)], &[&[(1, 5), (2, 84)], &[(1, 84), (2, 5)]]);
    world.demand(0, 1, 10);
    world.seconds(4);
    let sum = |id: u8| -> u32 {
        let quota = |edge: &Edge| {
            let mut limited = edge.sockets[&socket_id(1)].limited();
            limited.find(|(of, ..)| *of == origin(id)).and_then(|(_, quota, _)| quota.connections).unwrap()
        };
        world.edges.iter().map(quota).sum()
    };
    assert!((9..=10).contains(&sum(1)) && (9..=10).contains(&sum(2)), "{} {}", sum(1), sum(2));
}

#[test]
fn fewer_connections_than_edges_go_to_the_edges_that_want_them() {
    let most = Capacity { max_connections: Some(2), ..Capacity::default() };
    let mut world = World::new(vec![socket(1, [(1, at_region("eu", most))])], &[&[(1, 5)], &[(1, 50)], &[(1, 90)]]);
    world.demand(1, 1, 10);
    world.seconds(6);
    world.second(|_| true);
    assert_eq!(world.shed, 0, "{:?}", world.served);
}

#[test]
fn a_shared_capacity_takes_its_part_of_the_limit_of_its_region() {
    let shared = Capacity { shared: Some("db".parse().unwrap()), ..rps(500) };
    let mut one = socket(1, [(1, at_region("eu", shared)), (2, at_region("eu", Capacity::default()))]);
    one.regions.insert("eu".parse().unwrap(), SteeredRegion { dial: 100, capacity: rps(60) });
    let mut world = World::new(vec![one], &[&[(1, 5), (2, 5)]]);
    world.demand(0, 1, 200);
    world.seconds(6);
    assert!(world.of(1, 1) + world.of(1, 2) <= 63, "{:?}", world.served);
}

#[test]
fn an_edge_that_claims_more_than_it_got_locks_nothing() {
    let mut world = two_regions();
    (0..2).for_each(|at| world.demand(at, 1, 80));
    world.seconds(5);
    let now = world.now;
    let mut report = world.edges[1].follower.begin_report(now);
    for (id, origin) in [(1, origin(1)), (1, origin(2))] {
        let quota = Quota { rate: Some(u64::MAX), connections: None };
        let (sent, done, failed, latency_us, open) = (0, 0, 0, 0, 0);
        report.origins.push(OriginLoad { socket: socket_id(id), origin, sent, done, failed, latency_us, open, quota });
    }
    world.planners[0].handle_report(&report, now).unwrap();
    let place = Place::Origin(Leaf { socket: socket_id(1), origin: origin(1) });
    let (granted, capacity) = world.planners[0].granted(&place, Dimension::Rate).unwrap();
    assert!(granted <= capacity, "{granted} of {capacity}");
}

#[test]
fn an_edge_that_acknowledges_nothing_locks_no_more_than_it_was_sent() {
    let mut world = World::new(vec![socket(1, [(1, at_region("eu", rps(90)))])], &[&[(1, 5)], &[(1, 50)]]);
    (0..2).for_each(|at| world.demand(at, 1, 40));
    world.seconds(6);
    // One edge is in the hands of an attacker, who answers nothing and begins run after run.
    let hostile = edge_id(1);
    world.cut_off = Some(1);
    world.demand(0, 1, 80);
    for number in 0..12_u64 {
        let mut report = AssignmentFollower::new(hostile, 2 + number / 4).begin_report(world.now);
        report.number = 1 + number;
        report.term = if number < 6 { 1 } else { 0 };
        let quota = Quota { rate: Some(1 << 40), connections: None };
        report.origins = vec![OriginLoad {
            socket: socket_id(1),
            origin: origin(1),
            sent: 0,
            done: 0,
            failed: 0,
            latency_us: 0,
            open: 0,
            quota,
        }];
        world.planners[0].handle_report(&report, world.now).unwrap();
        world.demand(1, 1, 0);
        world.second(|at| at == 0);
    }
    assert!(world.of(1, 1) >= 40, "{:?} {}", world.served, world.shed);
    let place = Place::Origin(Leaf { socket: socket_id(1), origin: origin(1) });
    let (granted, capacity) = world.planners[0].granted(&place, Dimension::Rate).unwrap();
    assert!(granted <= capacity, "{granted} of {capacity}");
}

#[test]
fn another_plan_can_be_looked_at() {
    let mut world = two_regions();
    world.demand(0, 1, 100);
    world.seconds(5);
    let what_if = WhatIf { demands: [((socket_id(1), edge_id(0)), 500 * PER_UNIT)].into(), ..WhatIf::default() };
    let now = world.now;
    let before = world.planners[0].view(socket_id(1), now);
    let view = world.planners[0].preview(socket_id(1), &what_if, now).unwrap();
    assert_eq!(view.edges[0].shed, 100 * PER_UNIT);
    assert_eq!(world.planners[0].view(socket_id(1), now), before, "it has no effect");
    assert!(world.planners[0].preview(socket_id(9), &what_if, now).is_none());
}

#[test]
fn quotas_do_not_grow_back_before_a_smaller_capacity_is_acknowledged() {
    let origins = |limit| [(1, at_region("r0", rps(limit)))];
    let mut world = World::new(vec![socket(1, origins(300))], &[&[(1, 5)], &[(1, 50)]]);
    (0..2).for_each(|at| world.demand(at, 1, 140));
    world.seconds(5);
    world.planners[0].set_sockets(vec![socket(1, origins(120))]);
    let mut least = BTreeMap::new();
    for number in 0..6 {
        // Demand moves to and fro, and no assignment arrives.
        let (one, other) = if number % 2 == 0 { (40, 160) } else { (160, 40) };
        world.demand(0, 1, one);
        world.demand(1, 1, other);
        for _ in 0..100 {
            world.now += Duration::from_millis(10);
            (0..2).for_each(|at| world.requests(at));
        }
        (0..2).for_each(|at| world.report(at));
        for assignment in world.planners[0].tick(world.now) {
            let rate = assignment.quotas.first().and_then(|quota| quota.quota.rate).unwrap_or_default();
            let least = least.entry(assignment.edge).or_insert(rate);
            assert!(rate <= *least, "{number}: {rate} after {least}");
            *least = rate;
        }
    }
    assert!(least.values().sum::<u64>() <= 120 * PER_UNIT);
}
