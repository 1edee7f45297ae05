//! Edges, requests and origins in virtual time. A policy decides where each request goes.
//!
//! Every policy of a run meets the same random arrivals. An origin serves requests one after the other at its real
//! speed, so what is too much waits there.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use super::{
    Arrivals,
    measure::Measure,
    policy::{Asking, Choice, Policy},
    scenario::{Change, DAY, Setting, WAVE},
};
use crate::chance::Chance;

/// How often messages, clocks and plans are looked at.
pub(super) const STEP: Duration = Duration::from_millis(40);
/// How long an idle origin takes.
pub(super) const SERVICE: Duration = Duration::from_millis(8);
/// The longest queue of an origin; a request beyond it fails.
const MAX_QUEUE: Duration = Duration::from_secs(2);
/// How often a request asks again when all connections are taken, and how many times.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
const MAX_BUSY: u32 = 10;
/// The least and the greatest part of demand that latency leaves.
const LEAST_DEMAND: f64 = 0.2;
/// How many answers the latency that clients feel is averaged over.
const FELT_ANSWERS: f64 = 50.0;

/// An edge at this time.
#[derive(Debug, Clone)]
pub(super) struct EdgeNow {
    pub(super) is_there: bool,
    /// The demand, as a factor.
    pub(super) factor: f64,
    /// The edge that its clients use.
    pub(super) served_by: usize,
    /// The mean latency that its clients feel, in microseconds.
    felt_us: f64,
    /// That at the start.
    usual_us: f64,
    chance: Chance,
    /// What even arrivals have collected towards the next one.
    credit: f64,
}

/// An origin at this time.
#[derive(Debug, Clone)]
pub(super) struct OriginNow {
    pub(super) is_there: bool,
    /// What it can carry: requests per second, or connections.
    pub(super) capacity: f64,
    /// What it really serves, in requests per second.
    pub(super) speed: f64,
    pub(super) open: u32,
    free_at: Duration,
}

/// What policies may see. Only the optimum looks at more than its own measurements.
#[derive(Debug)]
pub(super) struct State<'a> {
    pub(super) setting: &'a Setting,
    pub(super) now: Duration,
    pub(super) edges: Vec<EdgeNow>,
    pub(super) origins: Vec<OriginNow>,
    /// The number of changes so far.
    pub(super) changes: usize,
}

impl State<'_> {
    /// What comes in at an edge on average, in requests per second, with the clients of edges that are away.
    pub(super) fn demand(&self, edge: usize) -> f64 {
        let from = (0..self.edges.len()).filter(|from| self.edges[*from].served_by == edge);
        from.map(|from| self.own_demand(from)).sum()
    }

    fn own_demand(&self, edge: usize) -> f64 {
        let (setting, now) = (&self.setting.edges[edge], &self.edges[edge]);
        let wave = if self.setting.has_waves {
            let turn = self.now.as_secs_f64() / DAY + setting.region as f64 / self.origins.len() as f64;
            1.0 + WAVE * (turn * std::f64::consts::TAU).sin()
        } else {
            1.0
        };
        let felt = (now.usual_us / now.felt_us.max(1.0)).powf(self.setting.elasticity);
        setting.demand * now.factor * wave * felt.clamp(LEAST_DEMAND, 1.0)
    }

    /// The round trip between an edge and an origin.
    pub(super) fn rtt(&self, edge: usize, origin: usize) -> Duration {
        Duration::from_secs_f64(self.setting.edges[edge].rtts[origin] / 1_000.0)
    }

    /// The origins that can be reached, nearest first.
    pub(super) fn near(&self, edge: usize) -> Vec<usize> {
        let rtts = &self.setting.edges[edge].rtts;
        let mut near: Vec<usize> = (0..self.origins.len()).filter(|origin| self.origins[*origin].is_there).collect();
        near.sort_by(|one, other| rtts[*one].total_cmp(&rtts[*other]));
        near
    }

    /// What an origin can carry, in requests per second, or in connections of mean length that begin per second.
    pub(super) fn rate(&self, origin: usize) -> f64 {
        let hold = self.setting.hold.map_or(1.0, |(least, most)| f64::midpoint(least, most));
        self.origins[origin].capacity / hold
    }

    /// What all origins can carry together, in the same unit.
    pub(super) fn capacity(&self) -> f64 {
        (0..self.origins.len()).filter(|origin| self.origins[*origin].is_there).map(|origin| self.rate(origin)).sum()
    }
}

/// A request. Times are those of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    /// The edge whose client it is.
    home: usize,
    edge: usize,
    origin: usize,
    came: Duration,
    /// When this attempt came.
    since: Duration,
    /// The origin in whose queue it waits.
    waits: Option<usize>,
    attempt: u32,
    /// How many times it found all connections taken.
    busy: u32,
    /// Whether the edge does not know it yet.
    is_new: bool,
    mark: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// The next possible arrival at an edge.
    Arrival(usize),
    /// A request asks again.
    Again(Request),
    /// A request reaches the origin.
    Reach(Request),
    /// The answer reaches the edge; whether it failed.
    Answer(Request, Duration, bool),
    /// The connection ends.
    End(Request),
}

/// One policy in one world.
pub(super) struct World<'a> {
    state: State<'a>,
    policy: &'a mut dyn Policy,
    measure: &'a mut Measure,
    queue: BinaryHeap<Reverse<(Duration, u64, Happening)>>,
    count: u64,
    /// For the pauses before requests come back, and the ends of connections.
    chance: Chance,
}

impl<'a> World<'a> {
    pub(super) fn new(setting: &'a Setting, seed: u64, policy: &'a mut dyn Policy, measure: &'a mut Measure) -> Self {
        let edges = setting.edges.iter().enumerate().map(|(at, edge)| {
            let nearest = edge.rtts.iter().copied().fold(f64::INFINITY, f64::min);
            let usual_us = nearest * 1_000.0 + SERVICE.as_micros() as f64;
            let chance = Chance::of_purpose(seed, 100 + at as u64);
            EdgeNow { is_there: true, factor: 1.0, served_by: at, felt_us: usual_us, usual_us, chance, credit: 0.5 }
        });
        let origins = setting.origins.iter().map(|origin| OriginNow {
            is_there: true,
            capacity: origin.capacity,
            speed: origin.speed,
            open: 0,
            free_at: Duration::ZERO,
        });
        let (edges, origins) = (edges.collect(), origins.collect());
        let state = State { setting, now: Duration::ZERO, edges, origins, changes: 0 };
        let chance = Chance::of_purpose(seed, 2);
        let mut world = Self { state, policy, measure, queue: BinaryHeap::new(), count: 0, chance };
        (0..setting.edges.len()).for_each(|edge| world.plan_arrival(edge));
        world
    }

    /// Runs to the end.
    pub(super) fn run(mut self) {
        let end = Duration::from_secs(self.state.setting.seconds);
        let mut changes = self.state.setting.changes.iter().peekable();
        let mut step = Duration::ZERO;
        while step < end {
            while let Some(Reverse((at, _, happening))) = self.queue.peek().copied().filter(|next| next.0.0 < step) {
                self.queue.pop();
                self.state.now = at;
                self.happen(happening);
            }
            self.state.now = step;
            while let Some((_, change)) = changes.next_if(|(at, _)| *at <= step) {
                self.change(*change);
            }
            self.policy.step(&self.state);
            self.measure.step(&self.state, self.policy);
            step += STEP;
        }
    }

    fn change(&mut self, change: Change) {
        let setting = self.state.setting;
        self.state.changes += 1;
        match change {
            Change::Demand(factor) => self.state.edges.iter_mut().step_by(3).for_each(|edge| edge.factor = factor),
            Change::Origin(origin, is_there) => self.state.origins[origin].is_there = is_there,
            Change::Region(region, is_there) => {
                for (edge, of) in self.state.edges.iter_mut().zip(&setting.edges) {
                    edge.is_there = if of.region == region { is_there } else { edge.is_there };
                }
                for (origin, of) in self.state.origins.iter_mut().zip(&setting.origins) {
                    origin.is_there = if of.region == region { is_there } else { origin.is_there };
                }
                for (at, of) in setting.edges.iter().enumerate() {
                    let mut near = [at].into_iter().chain(of.neighbours.iter().copied());
                    let served_by = near.find(|edge| self.state.edges[*edge].is_there);
                    self.state.edges[at].served_by = served_by.unwrap_or(at);
                }
            }
            Change::Speed(origin, factor) => {
                self.state.origins[origin].speed = setting.origins[origin].speed * factor;
                if setting.is_learned {
                    self.state.origins[origin].capacity = setting.origins[origin].capacity * factor;
                }
            }
            Change::Limits(factor) => {
                for (origin, of) in self.state.origins.iter_mut().zip(&setting.origins) {
                    origin.capacity = (of.capacity * factor).round();
                }
            }
        }
    }

    fn at(&mut self, at: Duration, happening: Happening) {
        self.count += 1;
        self.queue.push(Reverse((at, self.count, happening)));
    }

    fn plan_arrival(&mut self, home: usize) {
        let peak = self.state.setting.peak(home);
        let gap = match self.state.setting.arrivals {
            Arrivals::Random => self.state.edges[home].chance.gap(),
            Arrivals::Even => 1.0,
        };
        self.at(self.state.now + Duration::from_secs_f64(gap / peak), Happening::Arrival(home));
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrival(home) => self.arrive(home),
            Happening::Again(request) => self.choose(request),
            Happening::Reach(request) => self.reach(request),
            Happening::Answer(request, sent, is_failed) => self.answer(request, sent, is_failed),
            Happening::End(request) => {
                let open = &mut self.state.origins[request.origin].open;
                *open = open.saturating_sub(1);
                self.policy.handle_end(request.edge, request.origin);
            }
        }
    }

    /// A possible arrival: as many of them are real as the demand is of its peak.
    fn arrive(&mut self, home: usize) {
        self.plan_arrival(home);
        let part = self.state.own_demand(home) / self.state.setting.peak(home);
        let edge = &mut self.state.edges[home];
        let (thinned, mark) = (edge.chance.fraction(), (edge.chance.next() >> 32) as u32);
        let is_real = match self.state.setting.arrivals {
            Arrivals::Random => thinned < part,
            Arrivals::Even => {
                edge.credit += part;
                let is_real = edge.credit >= 1.0;
                edge.credit -= f64::from(u8::from(is_real));
                is_real
            }
        };
        let served_by = edge.served_by;
        if is_real && self.state.edges[served_by].is_there {
            let came = self.state.now;
            self.choose(Request {
                home,
                edge: served_by,
                origin: 0,
                came,
                since: came,
                waits: None,
                attempt: 0,
                busy: 0,
                is_new: true,
                mark,
            });
        }
    }

    fn choose(&mut self, mut request: Request) {
        if !self.state.edges[request.edge].is_there {
            self.refused(request);
            return;
        }
        let Request { edge, mark, since, waits, .. } = request;
        if request.is_new {
            request.is_new = false;
            self.measure.arrived(self.state.now);
            self.policy.handle_arrival(edge);
        }
        match self.policy.choose(&self.state, Asking { edge, mark, since, waited: waits }) {
            Choice::Now(origin) => self.send(Request { origin, ..request }),
            Choice::Wait(origin, at) => self.at(at, Happening::Again(Request { waits: Some(origin), ..request })),
            Choice::Busy if request.busy < MAX_BUSY => {
                let again = Request { busy: request.busy + 1, waits: None, ..request };
                self.at(self.state.now + BUSY_PAUSE, Happening::Again(again));
            }
            Choice::Busy | Choice::Refuse => {
                self.policy.handle_refused(request.edge);
                self.refused(request);
            }
        }
    }

    fn refused(&mut self, request: Request) {
        self.measure.refused(self.state.now);
        if request.attempt < self.state.setting.max_retries {
            let pause = Duration::from_secs_f64(self.chance.between(0.5, 2.0));
            let (edge, since) = (self.state.edges[request.home].served_by, self.state.now + pause);
            let attempt = request.attempt + 1;
            let again = Request { edge, since, attempt, waits: None, busy: 0, is_new: true, ..request };
            self.at(since, Happening::Again(again));
        }
    }

    fn send(&mut self, request: Request) {
        self.policy.handle_sent(request.edge, request.origin);
        let half = self.state.rtt(request.edge, request.origin) / 2;
        self.at(self.state.now + half, Happening::Reach(request));
    }

    fn reach(&mut self, request: Request) {
        let now = self.state.now;
        let sent = now - self.state.rtt(request.edge, request.origin) / 2;
        let half = now - sent;
        let has_hold = self.state.setting.hold.is_some();
        let origin = &mut self.state.origins[request.origin];
        if !origin.is_there {
            self.at(now + half, Happening::Answer(request, sent, true));
            return;
        }
        self.measure.reached(request.origin, now);
        if has_hold {
            origin.open += 1;
            self.at(now + SERVICE + half, Happening::Answer(request, sent, false));
            return;
        }
        let begins = origin.free_at.max(now);
        if begins - now > MAX_QUEUE {
            self.at(now + half, Happening::Answer(request, sent, true));
            return;
        }
        origin.free_at = begins + Duration::from_secs_f64(1.0 / origin.speed);
        let done = begins + SERVICE;
        self.at(done + half, Happening::Answer(request, sent, false));
    }

    fn answer(&mut self, request: Request, sent: Duration, is_failed: bool) {
        let now = self.state.now;
        self.policy.handle_answer(request.edge, request.origin, now - sent, is_failed);
        let home = &mut self.state.edges[request.home];
        let felt = (now - request.came).as_micros() as f64;
        home.felt_us += (felt - home.felt_us) / FELT_ANSWERS;
        if is_failed {
            self.policy.handle_end(request.edge, request.origin);
            self.refused(request);
            return;
        }
        self.measure.answered(now - request.came, now);
        match self.state.setting.hold {
            None => self.policy.handle_end(request.edge, request.origin),
            Some((least, most)) => {
                let until = now + Duration::from_secs_f64(self.chance.between(least, most));
                self.at(until, Happening::End(request));
            }
        }
    }
}
