//! An edge's side: which origin a request may go to by the quotas of the edge. May use `report`.
//!
//! A [`SocketQuotas`] has the quotas of one socket. A request takes a unit of the origin whose plan is most behind. Once
//! the plan is used up, it takes the unplanned rest, nearest origin first. Otherwise it waits, within a bound, for the
//! first origin that has a unit again.
//! An [`AssignmentFollower`] decides which assignments apply, and until when.

mod bucket;
mod follower;

use std::{collections::BTreeMap, time::Duration};

use sallyport_model::OriginRef;

pub use follower::{Applies, AssignmentFollower, Refused};

use crate::{Amount, report::Quota};
use bucket::Bucket;

/// How much earlier than evenly a unit may be taken: requests do not come evenly.
const TOLERANCE: Duration = Duration::from_millis(25);
/// The longest wait for a unit.
pub const MAX_WAIT: Duration = Duration::from_secs(1);
/// The most classes of a socket that are counted; further ones count as the last.
const MAX_CLASSES: usize = 256;

/// The quotas of one origin, and what it got.
#[derive(Debug, Clone)]
struct OriginQuota {
    origin: OriginRef,
    /// Whether the origin has a limit. Without one, no quota is needed.
    is_limited: bool,
    /// Whether an assignment has named the origin.
    is_assigned: bool,
    plan: Bucket,
    total: Bucket,
    quota: Quota,
    count: OriginCount,
    /// Requests that wait for a unit.
    waiting: u32,
}

/// What an origin got from this edge, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OriginCount {
    /// Requests sent.
    pub sent: u64,
    /// Requests that ended.
    pub done: u64,
    /// Requests that failed, of those that ended.
    pub failed: u64,
    /// The sum of the times to the answers, in microseconds.
    pub latency_us: u64,
    /// Requests that run now.
    pub open: u32,
}

/// Demand of one class, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassCount {
    /// Requests that came.
    pub arrived: u64,
    /// Requests that were refused for lack of a quota.
    pub shed: u64,
    /// Requests that run or wait now.
    pub open: u32,
}

/// The answer to a request for a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The request may go to this candidate now. The unit is taken.
    Now(usize),
    /// The request waits for a unit of this candidate, and asks again at this time. It has a place in the queue, which
    /// [`SocketQuotas::leave_queue`] gives back.
    Wait(usize, Duration),
    /// Every candidate with a rate has as many requests as it may have at once. To be tried again when one ends.
    Busy,
    /// No assignment has come for any candidate yet. To be tried again when one comes.
    Unassigned,
    /// No unit in time.
    Shed,
}

/// Whether a request has waited already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It has just come, and goes behind those that wait.
    New,
    /// It has waited, and given its place in the queue back.
    Waited,
}

/// The quotas of one socket at one edge.
#[derive(Debug, Clone, Default)]
pub struct SocketQuotas {
    /// Sorted by origin.
    origins: Vec<OriginQuota>,
    classes: BTreeMap<u64, ClassCount>,
    /// When the assigned quotas end.
    valid_until: Option<Duration>,
}

impl SocketQuotas {
    /// Sets the origins of the socket: for each, what it may get before any assignment; `None`: it has no limit.
    /// Assigned quotas and counts of the origins that stay are kept.
    pub fn set_origins(&mut self, origins: &[(OriginRef, Option<Quota>)], now: Duration) {
        let former = std::mem::take(&mut self.origins);
        self.origins = origins
            .iter()
            .map(|(origin, initial)| {
                let kept = former.iter().find(|former| former.origin == *origin).cloned();
                let mut entry = kept.unwrap_or_else(|| OriginQuota::new(*origin, now));
                entry.is_limited = initial.is_some();
                match initial {
                    None => entry.set(0, Quota::default(), now),
                    Some(initial) if !entry.is_assigned => entry.set(0, *initial, now),
                    Some(_) => {}
                }
                entry.is_assigned &= initial.is_some();
                entry
            })
            .collect();
        self.origins.sort_by_key(|entry| entry.origin);
        self.origins.dedup_by_key(|entry| entry.origin);
    }

    /// Takes over the assigned quotas. A limited origin that is not named gets nothing; if it was never named, a first
    /// quota is still to come. Returns whether any quota became noticeably less.
    pub fn assign(&mut self, quotas: &[(OriginRef, Amount, Quota)], applies: Applies, now: Duration) -> bool {
        let mut is_less = false;
        for entry in self.origins.iter_mut().filter(|entry| entry.is_limited) {
            let named = quotas.iter().find(|(origin, ..)| *origin == entry.origin);
            let (plan, quota) = named.map_or((0, Quota::NOTHING), |(_, plan, quota)| (*plan, *quota));
            if applies == Applies::Shrinking {
                let quota = quota.min(&entry.quota);
                is_less |= quota.is_less_than(&entry.quota);
                entry.set(plan.min(entry.plan.rate()), quota, now);
            } else if named.is_some() || entry.is_assigned {
                is_less |= quota.is_less_than(&entry.quota);
                entry.set(plan, quota, now);
                entry.is_assigned = true;
            }
        }
        is_less
    }

    /// Sets when the assigned quotas end. Checked with every request, since a process may have been paused.
    pub fn set_valid_until(&mut self, until: Duration) {
        self.valid_until = Some(until);
    }

    /// Whether any origin has a quota that bounds it now. A learned limit bounds nothing until it is known.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let is_bound = |quota: &Quota| quota.rate.is_some() || quota.connections.is_some();
        self.origins.iter().any(|entry| entry.is_limited && is_bound(&entry.quota))
    }

    /// Whether an origin whose requests at once are bounded could have another one.
    #[must_use]
    pub fn has_free_place(&self) -> bool {
        let is_free = |entry: &OriginQuota| entry.quota.connections.is_some_and(|most| entry.count.open < most);
        self.origins.iter().any(|entry| entry.is_limited && is_free(entry))
    }

    /// Whether any origin has a limit.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.origins.iter().any(|entry| entry.is_limited)
    }

    /// Takes a unit of one of these candidates, nearest first, or waits for one until the deadline. A candidate that is
    /// not an origin of the socket has no limit.
    pub fn take(&mut self, candidates: &[OriginRef], turn: Turn, now: Duration, deadline: Duration) -> Taken {
        if self.valid_until.is_some_and(|until| now >= until) {
            self.assign(&[], Applies::Fully, now);
        }
        let places: Vec<Option<usize>> = candidates.iter().map(|origin| self.place(*origin)).collect();
        let entry = |at: usize| places[at].map(|place| &self.origins[place]);
        let all = 0..candidates.len();
        let has_slot = |at: &usize| entry(*at).is_none_or(OriginQuota::has_slot);
        let has_unit = |at: &usize| entry(*at).is_none_or(|entry| entry.has_unit(turn, now));
        let ready: Vec<usize> = all.clone().filter(has_slot).filter(has_unit).collect();
        let planned = ready.iter().filter_map(|at| Some((*at, entry(*at)?.planned_at(now)?)));
        let chosen = planned.min_by_key(|(_, planned_at)| *planned_at).map(|(at, _)| at);
        if let Some(at) = chosen.or_else(|| ready.first().copied()) {
            self.charge(places[at], now);
            return Taken::Now(at);
        }
        let next = |at: usize| Some((at, entry(at)?.next_for_waiter(now)?));
        let first = all.clone().filter(has_slot).filter_map(next).min_by_key(|(_, next)| *next);
        match first {
            Some((at, next)) if next <= deadline.min(now + MAX_WAIT) => {
                if let Some(place) = places[at] {
                    self.origins[place].waiting += 1;
                }
                Taken::Wait(at, next)
            }
            Some(_) => Taken::Shed,
            None if all.clone().any(|at| entry(at).is_some_and(|entry| !entry.is_assigned)) => Taken::Unassigned,
            None if all.clone().any(|at| entry(at).is_some_and(OriginQuota::is_full)) => Taken::Busy,
            None => Taken::Shed,
        }
    }

    /// Gives the place of a request in the queue of an origin back, before it asks again or leaves.
    pub fn leave_queue(&mut self, origin: OriginRef) {
        if let Some(place) = self.place(origin) {
            let waiting = &mut self.origins[place].waiting;
            *waiting = waiting.saturating_sub(1);
        }
    }

    /// Records that a request was sent to the origin.
    pub fn record_sent(&mut self, origin: OriginRef) {
        if let Some(place) = self.place(origin) {
            let count = &mut self.origins[place].count;
            count.sent += 1;
            count.open += 1;
        }
    }

    /// Records the first answer of the origin to a request, after this time.
    pub fn record_answer(&mut self, origin: OriginRef, latency: Duration, is_failed: bool) {
        if let Some(place) = self.place(origin) {
            let count = &mut self.origins[place].count;
            count.done += 1;
            count.failed += u64::from(is_failed);
            count.latency_us += u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).min(3_600_000_000);
        }
    }

    /// Records that a request has ended.
    pub fn record_end(&mut self, origin: OriginRef) {
        if let Some(place) = self.place(origin) {
            let open = &mut self.origins[place].count.open;
            *open = open.saturating_sub(1);
        }
    }

    /// The counters of a class.
    pub fn class_mut(&mut self, class: u64) -> &mut ClassCount {
        let is_new = !self.classes.contains_key(&class);
        let last = self.classes.last_key_value().map(|(class, _)| *class);
        let class = last.filter(|_| is_new && self.classes.len() >= MAX_CLASSES).unwrap_or(class);
        self.classes.entry(class).or_default()
    }

    /// The classes with their counters.
    pub fn classes(&self) -> impl Iterator<Item = (u64, ClassCount)> {
        self.classes.iter().map(|(class, count)| (*class, *count))
    }

    /// The limited origins with their quotas and counters.
    pub fn limited(&self) -> impl Iterator<Item = (OriginRef, Quota, OriginCount)> {
        let limited = self.origins.iter().filter(|entry| entry.is_limited);
        limited.map(|entry| (entry.origin, entry.quota, entry.count))
    }

    /// The planned part of the rate of an origin.
    #[must_use]
    pub fn plan(&self, origin: OriginRef) -> Amount {
        self.place(origin).map_or(0, |place| self.origins[place].plan.rate())
    }

    fn place(&self, origin: OriginRef) -> Option<usize> {
        self.origins.binary_search_by_key(&origin, |entry| entry.origin).ok()
    }

    fn charge(&mut self, place: Option<usize>, now: Duration) {
        let Some(place) = place else { return };
        let entry = &mut self.origins[place];
        if entry.planned_at(now).is_some() {
            entry.plan.take(now);
        }
        entry.total.take(now);
    }
}

impl OriginQuota {
    fn new(origin: OriginRef, now: Duration) -> Self {
        Self {
            origin,
            is_limited: false,
            is_assigned: false,
            plan: Bucket::new(now),
            total: Bucket::new(now),
            quota: Quota::default(),
            count: OriginCount::default(),
            waiting: 0,
        }
    }

    fn set(&mut self, plan: Amount, quota: Quota, now: Duration) {
        self.plan.set_rate(plan, now);
        self.total.set_rate(quota.rate.unwrap_or_default(), now);
        self.quota = quota;
    }

    fn has_slot(&self) -> bool {
        self.quota.connections.is_none_or(|most| self.count.open < most)
    }

    /// Whether the origin has a rate, and all its places are taken.
    fn is_full(&self) -> bool {
        self.quota.rate != Some(0) && self.quota.connections.is_some_and(|most| self.count.open >= most)
    }

    /// Whether there is a unit now. A new request leaves it to those that wait, unless it would be lost: the unit may
    /// have come earlier than they were told.
    fn has_unit(&self, turn: Turn, now: Duration) -> bool {
        let is_behind = turn == Turn::New && self.waiting > 0;
        let tolerance = if is_behind { Duration::ZERO } else { TOLERANCE };
        self.quota.rate.is_none() || self.total.next(tolerance).is_some_and(|next| next <= now)
    }

    /// When there will be a unit for another waiting request.
    fn next_for_waiter(&self, now: Duration) -> Option<Duration> {
        let next = self.total.next(TOLERANCE)?.max(now);
        Some(next.saturating_add(self.total.period()?.saturating_mul(self.waiting)))
    }

    /// When the next planned unit is due, if it is.
    fn planned_at(&self, now: Duration) -> Option<Duration> {
        let is_due = self.plan.next(TOLERANCE).is_some_and(|next| next <= now);
        is_due.then(|| self.plan.paid_at())
    }
}

#[cfg(test)]
mod tests;
