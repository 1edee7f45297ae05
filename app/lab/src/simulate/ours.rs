//! The steering of Sallyport in a world: the real planner and the real quotas, with messages between them.

use std::{collections::BTreeMap, time::Duration};

use sallyport_model::{AccountId, Capacity, EdgeId, MaxRps, OriginRef, SocketId, TunnelId};
use sallyport_steer::{
    PER_UNIT, REPORT_PERIOD,
    delta::ReportDelta,
    plan::{EdgeInfo, Planner, SteeredOrigin, SteeredSocket},
    quota::{Applies, AssignmentFollower, MAX_WAIT, SocketQuotas, Taken, Turn},
    report::{Candidate, ClassLoad, LoadReport, OriginLoad, Quota, QuotaAssignment},
};

use super::{
    Impairments,
    policy::{Asking, Choice, Planned, Policy},
    world::State,
};
use crate::chance::Chance;

/// How often the leader plans, and the shortest time between two plans.
const PLAN_PERIOD: Duration = Duration::from_millis(500);
const MIN_PLAN_PERIOD: Duration = Duration::from_millis(100);
/// The shortest time between two reports, and how many in a row come early because requests wait.
const MIN_REPORT_PERIOD: Duration = Duration::from_millis(150);
const MAX_HURRIED: u32 = 4;
/// How long a message takes without impairments.
const ON_THE_WAY: Duration = Duration::from_millis(40);
/// How much later some messages come with `reorder`.
const REORDER_MS: (u64, u64) = (0, 3_000);
/// How much a clock is off, and how much too fast one runs.
const SKEW_S: (u64, u64) = (0, 100_000);
const FAST: f64 = 1.01;
/// The least step of time that a waiting request makes.
const TICK: Duration = Duration::from_micros(10);
/// When the leader falls silent after the first change: quotas have shrunk then, and are about to grow elsewhere.
const SILENT_AFTER: Duration = Duration::from_millis(2_200);
/// The same moment in a scenario without changes.
const SILENT_AT: Duration = Duration::from_secs(60);
/// How much later another control leads, how much later the first one speaks again, and how much later it notices.
pub(super) const TAKEN_OVER_AFTER: Duration = Duration::from_secs(8);
const AGAIN_AFTER: Duration = Duration::from_secs(9);
const NOTICED_AFTER: Duration = Duration::from_secs(14);

/// The clock of an edge.
#[derive(Debug, Clone, Copy)]
struct Clock {
    offset: Duration,
    rate: f64,
}

impl Clock {
    fn local(self, now: Duration) -> Duration {
        self.offset + now.mul_f64(self.rate)
    }

    fn global(self, local: Duration) -> Duration {
        local.saturating_sub(self.offset).div_f64(self.rate)
    }
}

struct OurEdge {
    id: EdgeId,
    epoch: u64,
    clock: Clock,
    follower: AssignmentFollower,
    delta: ReportDelta,
    quotas: SocketQuotas,
    /// When the last report left, and when the next one is due.
    reported_at: Duration,
    next_report: Duration,
    /// The term of the last assignment.
    term: u64,
    /// Whether the leader waits for a report: it is new, or a quota became less.
    has_given_back: bool,
    /// Whether requests wait, and how many reports in a row came early for that.
    has_waiting: bool,
    hurried: u32,
    unreachable: Vec<EdgeId>,
    is_there: bool,
}

struct Leader {
    planner: Planner,
    planned_at: Duration,
    next_plan: Duration,
    has_urgent_report: bool,
    changes: usize,
    /// Whether the last plan counted with every edge.
    is_whole: bool,
}

impl OurEdge {
    /// Whether a report leaves now, and whether it is urgent.
    fn due_report(&mut self, now: Duration) -> Option<bool> {
        let is_hurried = self.has_waiting && self.hurried < MAX_HURRIED;
        let is_urgent = self.has_given_back || is_hurried;
        if now < self.next_report && !(is_urgent && now >= self.reported_at + MIN_REPORT_PERIOD) {
            return None;
        }
        // Where requests wait for long, more reports change nothing.
        self.hurried = if !is_urgent { 0 } else { self.hurried + u32::from(is_hurried) };
        (self.has_given_back, self.has_waiting) = (false, self.has_waiting && !is_hurried);
        (self.reported_at, self.next_report) = (now, now + REPORT_PERIOD);
        Some(is_urgent)
    }
}

impl Leader {
    fn is_due(&self, now: Duration) -> bool {
        now >= self.next_plan || self.has_urgent_report && now >= self.planned_at + MIN_PLAN_PERIOD
    }

    fn begin_plan(&mut self, now: Duration) {
        if now >= self.next_plan {
            self.next_plan = now + PLAN_PERIOD;
        }
        (self.planned_at, self.has_urgent_report) = (now, false);
    }
}

enum Message {
    Report(Box<LoadReport>, usize),
    Assignment(Box<QuotaAssignment>, usize),
}

/// Planner, quotas and messages.
pub(super) struct Ours {
    impairments: Impairments,
    chance: Chance,
    socket: SocketId,
    origins: Vec<OriginRef>,
    edges: Vec<OurEdge>,
    leaders: Vec<Leader>,
    mail: BTreeMap<(Duration, u64), Message>,
    sent: u64,
    /// When the first leader falls silent.
    silent_at: Option<Duration>,
}

impl Ours {
    pub(super) fn new(state: &super::scenario::Setting, seed: u64, impairments: Impairments) -> Self {
        let mut chance = Chance::of_purpose(seed, 3);
        let byte = |at: usize| [u8::try_from(at + 1).unwrap_or(u8::MAX); 16];
        let origins: Vec<OriginRef> =
            (0..state.origins.len()).map(|at| TunnelId::from_random(byte(at)).into()).collect();
        let edges = (0..state.edges.len()).map(|at| {
            let offset = if impairments.has_skew { chance.within(SKEW_S) } else { 0 };
            let is_fast = impairments.has_skew && chance.below(2) == 0;
            let id = EdgeId::from_random(byte(at));
            OurEdge {
                id,
                epoch: 1,
                clock: Clock { offset: Duration::from_secs(offset), rate: if is_fast { FAST } else { 1.0 } },
                follower: AssignmentFollower::new(id, 1),
                delta: ReportDelta::default(),
                quotas: SocketQuotas::default(),
                reported_at: Duration::ZERO,
                term: 0,
                has_given_back: false,
                has_waiting: false,
                hurried: 0,
                next_report: REPORT_PERIOD.mul_f64(chance.fraction()),
                unreachable: Vec::new(),
                is_there: true,
            }
        });
        let first = state.changes.first().map(|(at, _)| *at + SILENT_AFTER);
        let mut ours = Self {
            impairments,
            socket: SocketId::from_random([1; 16]),
            origins,
            edges: edges.collect(),
            leaders: Vec::new(),
            mail: BTreeMap::new(),
            sent: 0,
            silent_at: impairments.has_failover.then(|| first.unwrap_or(SILENT_AT)),
            chance,
        };
        (0..ours.edges.len()).for_each(|edge| ours.begin(edge, Duration::ZERO));
        ours
    }

    /// Begins the run of an edge.
    fn begin(&mut self, at: usize, now: Duration) {
        let edge = &mut self.edges[at];
        edge.follower = AssignmentFollower::new(edge.id, edge.epoch);
        edge.delta = ReportDelta::default();
        edge.quotas = SocketQuotas::default();
        let origins: Vec<_> = self.origins.iter().map(|origin| (*origin, Some(Quota::NOTHING))).collect();
        edge.quotas.set_origins(&origins, edge.clock.local(now));
        edge.unreachable.clear();
        (edge.has_given_back, edge.has_waiting, edge.hurried) = (false, false, 0);
    }

    /// The socket as control has it.
    fn steered(&self, state: &State<'_>) -> SteeredSocket {
        let origin = |(at, origin): (usize, &OriginRef)| {
            let most = state.origins[at].capacity as u32;
            let capacity = match (state.setting.is_learned, state.setting.hold) {
                (true, _) => Capacity { max_rps: Some(MaxRps::Learned), ..Capacity::default() },
                (false, Some(_)) => Capacity { max_connections: Some(most), ..Capacity::default() },
                (false, None) => Capacity { max_rps: Some(MaxRps::Declared(most)), ..Capacity::default() },
            };
            let region = format!("r{}", state.setting.origins[at].region).parse().ok();
            (*origin, SteeredOrigin { region, weight: 100, capacity })
        };
        SteeredSocket {
            id: self.socket,
            account: AccountId::from_random([1; 16]),
            origins: self.origins.iter().enumerate().map(origin).collect(),
            regions: BTreeMap::new(),
        }
    }

    fn add_leader(&mut self, state: &State<'_>, term: u64) {
        let mut planner = Planner::default();
        planner.set_sockets(vec![self.steered(state)]);
        let info = |(at, edge): (usize, &OurEdge)| {
            let name = format!("e{at}").parse().ok()?;
            let region = format!("r{}", state.setting.edges[at].region).parse().ok()?;
            Some((edge.id, EdgeInfo { name, region }))
        };
        planner.set_edges(self.edges.iter().enumerate().filter_map(info).collect());
        planner.lead(term, state.now);
        if let Some(former) = self.leaders.last() {
            planner.set_former_holders(former.planner.holders(), state.now);
        }
        self.leaders.push(Leader {
            planner,
            planned_at: state.now,
            next_plan: state.now + PLAN_PERIOD,
            has_urgent_report: false,
            changes: state.changes,
            is_whole: false,
        });
    }

    /// Whether a leader works at this time.
    fn is_working(&self, leader: usize, now: Duration) -> bool {
        let Some(silent_at) = self.silent_at else { return true };
        leader > 0 || now < silent_at || now >= silent_at + AGAIN_AFTER
    }

    fn send(&mut self, message: Message, now: Duration) {
        if self.chance.below(100) < self.impairments.loss_percent as usize {
            return;
        }
        let late = if matches!(message, Message::Report(..)) { self.impairments.delay } else { Duration::ZERO };
        let turned = if self.impairments.has_reorder { self.chance.within(REORDER_MS) } else { 0 };
        self.sent += 1;
        let at = now + ON_THE_WAY + late + Duration::from_millis(turned);
        self.mail.insert((at, self.sent), message);
    }

    fn deliver(&mut self, message: Message, state: &State<'_>) {
        match message {
            Message::Report(report, leader) => {
                if self.is_working(leader, state.now)
                    && let Some(leader) = self.leaders.get_mut(leader)
                {
                    // An old report changes nothing.
                    let _ = leader.planner.handle_report(&report, state.now);
                    leader.has_urgent_report |= report.is_urgent;
                }
            }
            Message::Assignment(assignment, at) => {
                let reach: Vec<EdgeId> = self.edges.iter().filter(|edge| edge.is_there).map(|edge| edge.id).collect();
                let edge = &mut self.edges[at];
                if !edge.is_there {
                    return;
                }
                if let Ok(applies) = edge.follower.handle_assignment(&assignment) {
                    let own = assignment.quotas.iter().map(|quota| (quota.origin, quota.plan, quota.quota));
                    let is_less = edge.quotas.assign(&own.collect::<Vec<_>>(), applies, edge.clock.local(state.now));
                    let is_first = std::mem::replace(&mut edge.term, assignment.term) != assignment.term;
                    edge.has_given_back |= is_first || is_less;
                    keep_valid(edge);
                    let is_out = |suspect: &&EdgeId| !reach.contains(suspect);
                    edge.unreachable = assignment.suspects.iter().filter(is_out).copied().collect();
                }
            }
        }
    }

    fn report(&mut self, at: usize, is_urgent: bool, state: &State<'_>) {
        let edge = &mut self.edges[at];
        let mut report = edge.follower.begin_report(edge.clock.local(state.now));
        report.is_urgent = is_urgent;
        report.unreachable.clone_from(&edge.unreachable);
        let candidates = self.origins.iter().enumerate().map(|(origin, of)| Candidate {
            origin: *of,
            rtt_us: u64::try_from(state.rtt(at, origin).as_micros()).ok(),
            is_usable: state.origins[origin].is_there,
        });
        let candidates: Vec<_> = candidates.collect();
        for (class, count) in edge.quotas.classes() {
            report.classes.push(ClassLoad {
                socket: self.socket,
                class,
                arrived: count.arrived,
                shed: count.shed,
                open: count.open,
                candidates: candidates.clone(),
            });
        }
        for (origin, quota, count) in edge.quotas.limited() {
            report.origins.push(OriginLoad {
                socket: self.socket,
                origin,
                sent: count.sent,
                done: count.done,
                failed: count.failed,
                latency_us: count.latency_us,
                open: count.open,
                quota,
            });
        }
        edge.delta.shorten(&mut report, edge.follower.known_base(edge.clock.local(state.now)));
        for leader in 0..self.leaders.len() {
            self.send(Message::Report(Box::new(report.clone()), leader), state.now);
        }
    }

    /// Ends and begins the runs of edges, checks who is reached, and gives up quotas that are not valid any more.
    fn keep_edges(&mut self, state: &State<'_>) {
        let now = state.now;
        let there = state.edges.iter().filter(|edge| edge.is_there).count();
        for at in 0..self.edges.len() {
            let is_there = state.edges[at].is_there;
            if is_there && !self.edges[at].is_there {
                self.edges[at].epoch += 1;
                self.edges[at].next_report = now;
                self.begin(at, now);
            }
            let others = self.edges.len() - 1;
            let edge = &mut self.edges[at];
            edge.is_there = is_there;
            if !is_there {
                continue;
            }
            let local = edge.clock.local(now);
            if edge.follower.poll_check(local) {
                edge.follower.handle_reach(local, there - 1, others);
            }
            keep_valid(edge);
            if !edge.follower.is_valid(local) {
                edge.quotas.assign(&[], Applies::Fully, local);
            }
            if let Some(is_urgent) = edge.due_report(now) {
                self.report(at, is_urgent, state);
            }
        }
    }

    fn keep_leaders(&mut self, state: &State<'_>) {
        let now = state.now;
        if self.leaders.is_empty() {
            self.add_leader(state, 1);
        }
        if let Some(silent_at) = self.silent_at {
            if self.leaders.len() == 1 && now >= silent_at + TAKEN_OVER_AFTER {
                self.add_leader(state, 2);
            }
            if now >= silent_at + NOTICED_AFTER {
                self.leaders[0].planner.follow();
            }
        }
        for at in 0..self.leaders.len() {
            if !self.leaders[at].is_due(now) || !self.is_working(at, now) {
                continue;
            }
            if self.leaders[at].changes != state.changes {
                let socket = self.steered(state);
                self.leaders[at].planner.set_sockets(vec![socket]);
                self.leaders[at].changes = state.changes;
            }
            let leader = &mut self.leaders[at];
            leader.begin_plan(now);
            let assignments = leader.planner.tick(now);
            let heard = leader.planner.view(self.socket, now).map_or(0, |view| {
                let heard = view.edges.iter().filter(|edge| edge.is_heard).count();
                if heard == view.edges.len() { heard } else { 0 }
            });
            leader.is_whole = heard > 0 && heard >= state.edges.iter().filter(|edge| edge.is_there).count();
            for assignment in assignments {
                if let Some(edge) = self.edges.iter().position(|edge| edge.id == assignment.edge) {
                    self.send(Message::Assignment(Box::new(assignment), edge), now);
                }
            }
        }
    }

    /// The leader whose plan counts.
    fn leader(&self) -> Option<(usize, &Leader)> {
        self.leaders.iter().enumerate().max_by_key(|(_, leader)| leader.planner.term())
    }

    fn valid(&self, now: Duration) -> impl Iterator<Item = &OurEdge> {
        self.edges.iter().filter(move |edge| edge.is_there && edge.follower.is_valid(edge.clock.local(now)))
    }
}

/// Tells the quotas when they end.
fn keep_valid(edge: &mut OurEdge) {
    if let Some(until) = edge.follower.valid_until() {
        edge.quotas.set_valid_until(until);
    }
}

impl Policy for Ours {
    fn choose(&mut self, state: &State<'_>, asking: Asking) -> Choice {
        let edge = asking.edge;
        let near = state.near(edge);
        let origins: Vec<OriginRef> = near.iter().map(|origin| self.origins[*origin]).collect();
        let edge = &mut self.edges[edge];
        let turn = match asking.waited {
            None => Turn::New,
            Some(origin) => {
                edge.quotas.leave_queue(self.origins[origin]);
                Turn::Waited
            }
        };
        let deadline = edge.clock.local(asking.since) + MAX_WAIT;
        let taken = edge.quotas.take(&origins, turn, edge.clock.local(state.now), deadline);
        edge.has_waiting |= !matches!(taken, Taken::Now(_));
        match taken {
            Taken::Now(at) => Choice::Now(near[at]),
            Taken::Wait(at, when) => Choice::Wait(near[at], edge.clock.global(when).max(state.now) + TICK),
            Taken::Busy | Taken::Unassigned => Choice::Busy,
            Taken::Shed => Choice::Refuse,
        }
    }

    fn step(&mut self, state: &State<'_>) {
        let due: Vec<_> = self.mail.extract_if(..=(state.now, u64::MAX), |_, _| true).collect();
        for (_, message) in due {
            self.deliver(message, state);
        }
        self.keep_edges(state);
        self.keep_leaders(state);
    }

    fn in_force(&self, state: &State<'_>) -> Vec<f64> {
        let of_origin = |origin: &OriginRef| {
            self.valid(state.now).map(|edge| edge.quotas.plan(*origin) as f64 / PER_UNIT as f64).sum()
        };
        self.origins.iter().map(of_origin).collect()
    }

    fn planned(&self, state: &State<'_>) -> Option<Planned> {
        if state.setting.hold.is_some() {
            return None;
        }
        let (number, leader) = self.leader()?;
        let view = leader.planner.view(self.socket, state.now)?;
        // What silent edges have is reserved, and a leader that is away plans nothing.
        if !leader.is_whole {
            return None;
        }
        if leader.changes != state.changes || !self.is_working(number, state.now) {
            return None;
        }
        let of_edge = |edge: &OurEdge| {
            let shares = view.edges.iter().find(|known| known.edge == edge.id).map(|known| &known.shares);
            let planned = |origin: &OriginRef| {
                let share = shares.and_then(|shares| shares.iter().find(|share| share.origin == *origin));
                share.map_or(0, |share| share.planned)
            };
            self.origins.iter().map(planned).collect()
        };
        let capacity = |origin: &OriginRef| {
            view.origins.iter().find(|known| known.origin == *origin).and_then(|known| known.capacity)
        };
        Some(Planned {
            flows: self.edges.iter().map(of_edge).collect(),
            capacities: self.origins.iter().map(capacity).collect(),
        })
    }

    fn leases(&self, state: &State<'_>) -> Option<Vec<f64>> {
        let mut sums = vec![0.0; self.origins.len()];
        for edge in self.valid(state.now) {
            for (at, (_, quota, _)) in edge.quotas.limited().enumerate() {
                sums[at] += match state.setting.hold {
                    Some(_) => quota.connections.map_or(f64::INFINITY, f64::from),
                    None => quota.rate.map_or(f64::INFINITY, |rate| rate as f64 / PER_UNIT as f64),
                };
            }
        }
        Some(sums)
    }

    fn handle_arrival(&mut self, edge: usize) {
        let count = self.edges[edge].quotas.class_mut(0);
        count.arrived += 1;
        count.open += 1;
    }

    fn handle_refused(&mut self, edge: usize) {
        let count = self.edges[edge].quotas.class_mut(0);
        count.shed += 1;
        count.open = count.open.saturating_sub(1);
    }

    fn handle_sent(&mut self, edge: usize, origin: usize) {
        self.edges[edge].quotas.record_sent(self.origins[origin]);
    }

    fn handle_answer(&mut self, edge: usize, origin: usize, latency: Duration, is_failed: bool) {
        self.edges[edge].quotas.record_answer(self.origins[origin], latency, is_failed);
    }

    fn handle_end(&mut self, edge: usize, origin: usize) {
        self.edges[edge].quotas.record_end(self.origins[origin]);
        let count = self.edges[edge].quotas.class_mut(0);
        count.open = count.open.saturating_sub(1);
    }
}
