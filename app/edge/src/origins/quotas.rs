//! The quotas of one socket: which origin a request may go to, and when.
//!
//! The quotas come from the leading control (`steering`). Requests use them here without asking anybody.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sallyport_balance::Attempts;
use sallyport_model::{Capacity, MaxRps, OriginRef, SocketId, SocketRoute};
use sallyport_steer::{
    Amount,
    quota::{Applies, MAX_WAIT, SocketQuotas, Taken, Turn},
    report::{AssignedQuota, Candidate, ClassLoad, LoadReport, MAX_CANDIDATES, OriginLoad, Quota},
};
use tokio::sync::Notify;

use crate::origins::{
    affinity::AffinityHint,
    http::forwarding::Group,
    origin::{InFlight, Origin},
    pool::SocketPool,
    selection::Ordered,
};

/// How many requests of one socket may wait for a quota.
const MAX_WAITING: usize = 10_000;
/// How long a request waits for the first assignment.
const MAX_UNASSIGNED: Duration = Duration::from_secs(3);
/// The pause after which a refused client may try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The quotas that this edge has, of all sockets: also of those that have no origins here yet.
#[derive(Debug, Default)]
pub(crate) struct HeldQuotas {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    by_socket: HashMap<SocketId, Vec<OriginShare>>,
    valid_until: Duration,
}

impl HeldQuotas {
    /// Takes over the quotas of an assignment, which end at this time of the edge.
    pub(crate) fn set(&self, quotas: &[AssignedQuota], valid_until: Duration) {
        let mut by_socket = HashMap::<_, Vec<_>>::new();
        for quota in quotas {
            by_socket.entry(quota.socket).or_default().push((quota.origin, quota.plan, quota.quota));
        }
        *self.held.lock() = Held { by_socket, valid_until };
    }

    /// Sets when the quotas end.
    pub(crate) fn set_valid_until(&self, until: Duration) {
        self.held.lock().valid_until = until;
    }

    /// All quotas, and when they end.
    pub(crate) fn all(&self) -> (Vec<AssignedQuota>, Duration) {
        let held = self.held.lock();
        let assigned = |(socket, quotas): (&SocketId, &Vec<OriginShare>)| {
            let socket = *socket;
            let quota = |(origin, plan, quota): &OriginShare| AssignedQuota {
                socket,
                origin: *origin,
                plan: *plan,
                quota: *quota,
            };
            quotas.iter().map(quota).collect::<Vec<_>>()
        };
        (held.by_socket.iter().flat_map(assigned).collect(), held.valid_until)
    }

    /// The quotas of a socket that are valid now, and until when.
    fn of(&self, socket: SocketId, now: Duration) -> Option<(Vec<OriginShare>, Duration)> {
        let held = self.held.lock();
        let own = held.by_socket.get(&socket).filter(|_| now < held.valid_until)?;
        Some((own.clone(), held.valid_until))
    }

    /// Adds the quotas of sockets that are not among these to a report, so that they count as given.
    pub(crate) fn report_rest(&self, report: &mut LoadReport, reported: &[SocketId], now: Duration) {
        let held = self.held.lock();
        if now >= held.valid_until {
            return;
        }
        let rest = held.by_socket.iter().filter(|(socket, _)| !reported.contains(socket));
        report.origins.extend(rest.flat_map(|(socket, quotas)| {
            quotas.iter().map(|(origin, _, quota)| OriginLoad {
                socket: *socket,
                origin: *origin,
                sent: 0,
                done: 0,
                failed: 0,
                latency_us: 0,
                open: 0,
                quota: *quota,
            })
        }));
    }
}

/// The quotas of one socket.
#[derive(Debug)]
pub(crate) struct PoolQuotas {
    socket: SocketId,
    held: Arc<HeldQuotas>,
    /// The begin of the edge's time, from which the quotas count.
    started: Instant,
    is_limited: AtomicBool,
    /// Whether any quota bounds an origin. It changes with routes and assignments alone.
    is_bounded: AtomicBool,
    quotas: Mutex<SocketQuotas>,
    waiting: AtomicUsize,
    /// How many more waiting requests hear of the last free place, if those before them want another origin.
    passes: AtomicUsize,
    /// Notified when a place is free, and when an assignment comes.
    changed: Notify,
    /// Notified when requests wait.
    wanted: Arc<Notify>,
}

/// An origin with the planned part and all of its quota.
type OriginShare = (OriginRef, Amount, Quota);

/// The outcome of a choice by quotas.
pub(crate) enum QuotaChoice {
    /// The request may go to this origin.
    Chosen(InFlight),
    /// The socket has no origin that can take the request.
    NoOrigin,
    /// The origins have no room; another try may succeed after this time.
    Full(Duration),
}

/// A request in the queue of an origin; it leaves the queue when dropped.
struct Queued<'a> {
    quotas: &'a PoolQuotas,
    origin: OriginRef,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.quotas.quotas.lock().leave_queue(self.origin);
    }
}

/// A request at this edge. It is counted as demand from its first look at the quotas until dropped.
#[derive(Debug)]
struct Demand {
    quotas: Arc<PoolQuotas>,
    class: u64,
    /// Whether no attempt of the request was counted before.
    is_first: bool,
    is_counted: bool,
}

impl Demand {
    fn new(quotas: &Arc<PoolQuotas>, class: u64, is_first: bool) -> Self {
        Self { quotas: quotas.clone(), class, is_first, is_counted: false }
    }

    /// Counts the request, once.
    fn count(&mut self, quotas: &mut SocketQuotas) {
        if !std::mem::replace(&mut self.is_counted, true) {
            let count = quotas.class_mut(self.class);
            count.arrived += u64::from(self.is_first);
            count.open += 1;
        }
    }

    /// The same request, whose counting goes over.
    fn hand_over(&mut self) -> Self {
        let is_counted = std::mem::take(&mut self.is_counted);
        Self { quotas: self.quotas.clone(), class: self.class, is_first: self.is_first, is_counted }
    }

    fn end(&mut self, quotas: &mut SocketQuotas) {
        if std::mem::take(&mut self.is_counted) {
            let open = &mut quotas.class_mut(self.class).open;
            *open = open.saturating_sub(1);
        }
    }
}

impl Drop for Demand {
    fn drop(&mut self) {
        if self.is_counted {
            let quotas = self.quotas.clone();
            self.end(&mut quotas.quotas.lock());
        }
    }
}

/// A request at an origin with a quota; it counts as open until dropped.
#[derive(Debug)]
pub(crate) struct QuotaUse {
    demand: Demand,
    origin: OriginRef,
    began: Instant,
}

impl QuotaUse {
    /// Records the first answer of the origin.
    pub(crate) fn record_answer(&self, is_failed: bool) {
        let latency = self.began.elapsed();
        self.demand.quotas.quotas.lock().record_answer(self.origin, latency, is_failed);
    }
}

impl Drop for QuotaUse {
    fn drop(&mut self) {
        let pool = self.demand.quotas.clone();
        let mut quotas = pool.quotas.lock();
        quotas.record_end(self.origin);
        self.demand.end(&mut quotas);
        drop(quotas);
        pool.offer_place();
    }
}

/// The waiting requests of a socket are bounded; one less waits after the drop.
struct WaitingPlace<'a>(&'a AtomicUsize);

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PoolQuotas {
    /// No limits yet. The times of quotas count from `started`.
    pub(crate) fn new(socket: SocketId, started: Instant, held: Arc<HeldQuotas>, wanted: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            socket,
            held,
            started,
            is_limited: AtomicBool::new(false),
            is_bounded: AtomicBool::new(false),
            quotas: Mutex::default(),
            waiting: AtomicUsize::new(0),
            passes: AtomicUsize::new(0),
            changed: Notify::new(),
            wanted,
        })
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether any origin of the socket has a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Acquire)
    }

    /// Takes over which origins of the route have limits.
    pub(crate) fn set_route(&self, route: &SocketRoute) {
        let regions = route.settings.regions.values().map(|group| &group.capacity);
        let regions: Vec<_> = regions.filter(|capacity| !capacity.is_empty()).collect();
        let origins = route.capacities().map(|(origin, own)| (origin, initial_quota(own, &regions)));
        let origins: Vec<_> = origins.collect();
        let mut quotas = self.quotas.lock();
        let was_limited = quotas.is_limited();
        quotas.set_origins(&origins, self.now());
        // A socket that comes after its quotas takes them over.
        if let Some((own, valid_until)) = self.held.of(self.socket, self.now()).filter(|_| !was_limited) {
            quotas.assign(&own, Applies::Fully, self.now());
            quotas.set_valid_until(valid_until);
        }
        self.is_limited.store(quotas.is_limited(), Ordering::Release);
        self.is_bounded.store(quotas.is_bounded(), Ordering::Release);
        drop(quotas);
        self.changed.notify_waiters();
    }

    /// Takes over the assigned quotas, which end at this time of the edge. Returns whether any became less.
    pub(crate) fn assign(&self, assigned: &[OriginShare], applies: Applies, valid_until: Duration) -> bool {
        let mut quotas = self.quotas.lock();
        let is_less = quotas.assign(assigned, applies, self.now());
        quotas.set_valid_until(valid_until);
        self.is_bounded.store(quotas.is_bounded(), Ordering::Release);
        drop(quotas);
        self.changed.notify_waiters();
        is_less
    }

    /// Sets when the assigned quotas end.
    pub(crate) fn set_valid_until(&self, until: Duration) {
        self.quotas.lock().set_valid_until(until);
    }

    /// Takes a unit for one of these origins, and counts the request. A client that returns to an origin gets that one,
    /// if it has room now.
    fn take(
        &self,
        demand: &mut Demand,
        candidates: &[OriginRef],
        has_hinted: bool,
        (turn, deadline): Patience,
    ) -> Taken {
        let (mut quotas, now) = (self.quotas.lock(), self.now());
        demand.count(&mut quotas);
        let hinted = candidates.get(..1).filter(|_| has_hinted);
        let taken = match hinted.map(|hinted| (hinted, quotas.take(hinted, turn, now, now))) {
            Some((_, Taken::Now(at))) => Taken::Now(at),
            Some((hinted, Taken::Wait(..))) => {
                quotas.leave_queue(hinted[0]);
                quotas.take(candidates, turn, now, deadline)
            }
            Some((_, Taken::Busy | Taken::Unassigned | Taken::Shed)) | None => {
                quotas.take(candidates, turn, now, deadline)
            }
        };
        if let Taken::Now(at) = taken {
            quotas.record_sent(candidates[at]);
        }
        taken
    }

    /// Whether any quota bounds an origin now.
    fn is_bounded(&self) -> bool {
        self.is_bounded.load(Ordering::Acquire)
    }

    /// Tells a waiting request that a place is free.
    fn offer_place(&self) {
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting > 0 {
            self.passes.store(waiting, Ordering::Relaxed);
            self.changed.notify_one();
        }
    }

    /// Tells the next waiting request of a free place that this one cannot use, until all have heard.
    fn pass_place_on(&self) {
        if self.quotas.lock().has_free_place() {
            let less = |passes: usize| passes.checked_sub(1);
            if self.passes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
                self.changed.notify_one();
            }
        }
    }

    fn record_shed(&self, class: u64) {
        self.quotas.lock().class_mut(class).shed += 1;
    }

    /// Counts a request that waits; `None` if too many do.
    fn enter_waiting(&self) -> Option<WaitingPlace<'_>> {
        let place = WaitingPlace(&self.waiting);
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        (others < MAX_WAITING).then_some(place)
    }
}

/// What an origin may get before any assignment; `None`: it has no limit.
fn initial_quota(own: &Capacity, regions: &[&Capacity]) -> Option<Quota> {
    if own.is_empty() && regions.is_empty() {
        return None;
    }
    let mut all = std::iter::once(own).chain(regions.iter().copied());
    let has_rate = all.clone().any(|capacity| matches!(capacity.max_rps, Some(MaxRps::Declared(_))));
    let has_connections = all.any(|capacity| capacity.max_connections.is_some());
    Some(Quota { rate: has_rate.then_some(0), connections: has_connections.then_some(0) })
}

/// What a request asks the quotas for.
enum Asked {
    /// A unit of one of these origins, in this order.
    Bounded(Ordered, Vec<OriginRef>),
    /// Nothing more: the choice is made.
    Made(QuotaChoice),
}

/// Whether a request has waited, and until when it waits.
type Patience = (Turn, Duration);

impl SocketPool {
    /// Selects an origin of the group by the quotas of the socket, without waiting.
    pub(crate) fn try_choose_by_quota(
        &self,
        group: Group,
        tried: &mut Attempts<u64>,
        hint: &AffinityHint,
    ) -> QuotaChoice {
        let quotas = self.quotas();
        let mut demand = Demand::new(quotas, group.number(), tried.count() == 0);
        let (ordered, refs) = match self.ask(&mut demand, group, tried, hint) {
            Asked::Bounded(ordered, refs) => (ordered, refs),
            Asked::Made(choice) => return choice,
        };
        match quotas.take(&mut demand, &refs, ordered.has_hinted, (Turn::New, quotas.now())) {
            Taken::Now(at) => QuotaChoice::Chosen(taken(demand, &ordered.origins[at], tried)),
            Taken::Wait(at, _) => {
                quotas.quotas.lock().leave_queue(refs[at]);
                self.shed(group)
            }
            Taken::Busy | Taken::Unassigned | Taken::Shed => self.shed(group),
        }
    }

    /// Selects an origin of the group by the quotas of the socket. Waits for a while if none has room now.
    pub(crate) async fn choose_by_quota(
        &self,
        group: Group,
        tried: &mut Attempts<u64>,
        hint: &AffinityHint,
    ) -> QuotaChoice {
        let quotas = self.quotas();
        let mut demand = Demand::new(quotas, group.number(), tried.count() == 0);
        let (began, mut turn, mut place) = (quotas.now(), Turn::New, None);
        // The wait for a unit begins when there are quotas.
        let (mut since, mut is_woken) = (began, false);
        loop {
            // Registered before the look, so that no change is missed.
            let changed = quotas.changed.notified();
            let (ordered, refs) = match self.ask(&mut demand, group, tried, hint) {
                Asked::Bounded(ordered, refs) => (ordered, refs),
                Asked::Made(choice) => return choice,
            };
            let deadline = since + MAX_WAIT;
            let taken_unit = quotas.take(&mut demand, &refs, ordered.has_hinted, (turn, deadline));
            if let Taken::Now(at) = taken_unit {
                return QuotaChoice::Chosen(taken(demand, &ordered.origins[at], tried));
            }
            quotas.wanted.notify_one();
            if std::mem::take(&mut is_woken) {
                quotas.pass_place_on();
            }
            if place.is_none() {
                place = quotas.enter_waiting();
                if place.is_some() && taken_unit == Taken::Busy {
                    // Who ends from now on sees that this request waits; who ended before has left a place.
                    continue;
                }
            }
            let left = |until: Duration| until.saturating_sub(quotas.now());
            match taken_unit {
                Taken::Wait(at, until) => {
                    let queued = Queued { quotas, origin: refs[at] };
                    if place.is_none() {
                        return self.shed(group);
                    }
                    tokio::time::sleep(left(until)).await;
                    drop(queued);
                    turn = Turn::Waited;
                }
                Taken::Busy | Taken::Unassigned => {
                    let is_unassigned = taken_unit == Taken::Unassigned;
                    let until = if is_unassigned { began + MAX_UNASSIGNED } else { deadline };
                    if place.is_none() || tokio::time::timeout(left(until), changed).await.is_err() {
                        return self.shed(group);
                    }
                    is_woken = true;
                    if is_unassigned {
                        since = quotas.now();
                    }
                }
                Taken::Now(_) | Taken::Shed => return self.shed(group),
            }
        }
    }

    /// What a request of the group asks the quotas for: a unit of the origins that can take it. Without quotas, the choice
    /// is made at once.
    fn ask(&self, demand: &mut Demand, group: Group, tried: &mut Attempts<u64>, hint: &AffinityHint) -> Asked {
        let quotas = self.quotas();
        if !quotas.is_bounded() {
            return Asked::Made(self.choose_unbounded(demand, group, tried, hint));
        }
        let ordered = self.candidates(group, tried, hint);
        if ordered.origins.is_empty() {
            demand.count(&mut quotas.quotas.lock());
            return Asked::Made(QuotaChoice::NoOrigin);
        }
        let refs = refs_of(&ordered.origins);
        Asked::Bounded(ordered, refs)
    }

    /// Selects as if there were no limits, and counts what the origin gets: a limit is still to be learned.
    fn choose_unbounded(
        &self,
        demand: &mut Demand,
        group: Group,
        tried: &mut Attempts<u64>,
        hint: &AffinityHint,
    ) -> QuotaChoice {
        let chosen = self.choose(group, tried, hint);
        let mut quotas = self.quotas().quotas.lock();
        demand.count(&mut quotas);
        let Some(chosen) = chosen else { return QuotaChoice::NoOrigin };
        let origin = chosen.origin().handle().origin();
        quotas.record_sent(origin);
        drop(quotas);
        QuotaChoice::Chosen(chosen.with_quota(QuotaUse { demand: demand.hand_over(), origin, began: Instant::now() }))
    }

    fn shed(&self, group: Group) -> QuotaChoice {
        self.quotas().record_shed(group.number());
        QuotaChoice::Full(RETRY_AFTER)
    }

    /// Adds the socket's demand and loads to a report.
    pub(crate) fn report(&self, report: &mut LoadReport) {
        let socket = self.socket();
        let origins = self.origins();
        let mut groups: Vec<Group> = origins.iter().map(|origin| origin.health_state().group()).collect();
        groups.sort_unstable_by_key(|group| group.number());
        groups.dedup();
        let candidates: Vec<(Group, Vec<Candidate>)> =
            groups.into_iter().map(|group| (group, self.reported_candidates(group))).collect();
        let quotas = self.quotas().quotas.lock();
        for (group, candidates) in candidates {
            let class = group.number();
            let count = quotas.classes().find(|(known, _)| *known == class).map(|(_, count)| count).unwrap_or_default();
            let (arrived, shed, open) = (count.arrived, count.shed, count.open);
            report.classes.push(ClassLoad { socket, class, arrived, shed, open, candidates });
        }
        for (origin, quota, count) in quotas.limited() {
            report.origins.push(OriginLoad {
                socket,
                origin,
                sent: count.sent,
                done: count.done,
                failed: count.failed,
                latency_us: count.latency_us,
                open: count.open,
                quota,
            });
        }
    }

    /// The origins of a group as the edge sees them, each once.
    fn reported_candidates(&self, group: Group) -> Vec<Candidate> {
        let usable = self.candidates(group, &Attempts::default(), &AffinityHint::Any);
        let usable = usable.origins.into_iter().map(|origin| {
            let rtt = origin.handle().distance().map(|rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX));
            Candidate { origin: origin.handle().origin(), rtt_us: rtt, is_usable: !origin.health_state().is_ejected() }
        });
        usable.take(MAX_CANDIDATES).collect()
    }
}

fn refs_of(origins: &[Arc<Origin>]) -> Vec<OriginRef> {
    origins.iter().map(|origin| origin.handle().origin()).collect()
}

/// The request goes to this origin.
fn taken(demand: Demand, origin: &Arc<Origin>, tried: &mut Attempts<u64>) -> InFlight {
    let reference = origin.handle().origin();
    tried.record(origin.number());
    InFlight::enter(origin.clone()).with_quota(QuotaUse { demand, origin: reference, began: Instant::now() })
}

#[cfg(test)]
mod tests {
    use sallyport_model::CapacityName;

    use super::*;

    #[test]
    fn before_an_assignment_a_declared_limit_lets_nothing_pass_and_a_learned_one_all() {
        let rps = |rps| Capacity { max_rps: Some(rps), ..Capacity::default() };
        let (declared, learned) = (rps(MaxRps::Declared(5)), rps(MaxRps::Learned));
        assert_eq!(initial_quota(&Capacity::default(), &[]), None);
        assert_eq!(initial_quota(&declared, &[]), Some(Quota { rate: Some(0), connections: None }));
        assert_eq!(initial_quota(&learned, &[]), Some(Quota::default()));
        assert_eq!(initial_quota(&learned, &[&declared]), Some(Quota { rate: Some(0), connections: None }));
        let name: CapacityName = "db".parse().unwrap();
        let most = Capacity { max_connections: Some(5), shared: Some(name), ..Capacity::default() };
        assert_eq!(initial_quota(&most, &[]), Some(Quota { rate: None, connections: Some(0) }));
    }
}
