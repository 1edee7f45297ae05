//! The edge's legs of one session: the idle ones, and how many there should be.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sallyport_shards::ShardId;
use sallyport_wire::LegDemand;

use crate::{leg::Leg, leg_stream::LegHome, life::LegRegistry, mux::now};

/// After how long legs that were asked for and did not come are forgotten.
const REQUEST_FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// The legs of one session at the edge.
pub(crate) struct LegPool {
    /// All of them, busy and idle.
    pub(crate) registry: Arc<LegRegistry>,
    max_legs: usize,
    inner: Mutex<Inner>,
}

struct Inner {
    /// The most recently used one is the last.
    idle: Vec<Leg>,
    demand: LegDemand,
    requested: usize,
    requested_at: Instant,
}

impl LegPool {
    pub(crate) fn new(ready_legs: usize, max_legs: usize) -> Self {
        let demand = LegDemand::new(ready_legs, max_legs);
        Self {
            registry: Arc::default(),
            max_legs,
            inner: Mutex::new(Inner { idle: Vec::new(), demand, requested: 0, requested_at: now() }),
        }
    }

    pub(crate) fn max_legs(&self) -> usize {
        self.max_legs
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn idle_count(&self) -> usize {
        self.lock().idle.len()
    }

    /// The connector opens its first legs by itself when a tunnel is attached.
    pub(crate) fn expect_first_legs(&self) {
        let mut inner = self.lock();
        inner.requested = usize::from(inner.demand.at_start());
        inner.requested_at = now();
    }

    /// An idle leg for a new stream, when there is one, from the caller's shard if that has one, and how many more to ask
    /// the connector for.
    pub(crate) fn take(&self) -> (Option<Leg>, u16) {
        let mut dead = Vec::new();
        let mut inner = self.lock();
        let mut leg = None;
        let here = ShardId::here();
        while let Some(last) = inner.idle.len().checked_sub(1) {
            let nearest = inner.idle.iter().rposition(|leg| leg.shard() == here).unwrap_or(last);
            let mut candidate = inner.idle.remove(nearest);
            if candidate.is_alive() {
                leg = Some(candidate);
                break;
            }
            dead.push(candidate);
        }
        let idle_before = inner.idle.len() + usize::from(leg.is_some());
        let open_total = self.registry.len().saturating_sub(dead.len());
        let now = inner.forget_old_requests();
        let requested = inner.requested;
        let ask = inner.demand.on_open(idle_before, open_total, requested, now);
        inner.ask(ask, now);
        drop(inner);
        (leg, ask)
    }

    /// A leg joined.
    pub(crate) fn joined(&self, leg: Leg) {
        let mut inner = self.lock();
        inner.requested = inner.requested.saturating_sub(1);
        inner.idle.push(leg);
    }

    /// Closes legs that died or that are too many; says how many to ask for instead.
    pub(crate) fn tend(&self) -> u16 {
        let mut gone = Vec::new();
        let mut inner = self.lock();
        let mut kept = Vec::with_capacity(inner.idle.len());
        for mut leg in std::mem::take(&mut inner.idle) {
            if leg.is_alive() { kept.push(leg) } else { gone.push(leg) }
        }
        inner.idle = kept;
        let died = gone.len();
        let now = inner.forget_old_requests();
        let open_total = self.registry.len().saturating_sub(died);
        let idle = inner.idle.len();
        let excess = inner.demand.on_timeout(idle, open_total, now).min(idle);
        // Those at the front were not used for the longest time.
        gone.extend(inner.idle.drain(..excess));
        let requested = inner.requested;
        let ask = if died > 0 { inner.demand.on_leg_lost(open_total - excess, requested, now) } else { 0 };
        inner.ask(ask, now);
        drop(inner);
        ask
    }

    /// Closes the idle legs. The busy ones fail, or after a `clean` end of the session come to their own.
    pub(crate) fn close(&self, clean: bool) {
        if clean {
            self.registry.retire();
        } else {
            self.registry.end_all();
        }
        let idle = std::mem::take(&mut self.lock().idle);
        drop(idle);
    }
}

impl Inner {
    fn forget_old_requests(&mut self) -> Instant {
        let now = now();
        if now.saturating_duration_since(self.requested_at) > REQUEST_FORGOTTEN_AFTER {
            self.requested = 0;
        }
        now
    }

    fn ask(&mut self, count: u16, now: Instant) {
        if count > 0 {
            self.requested += usize::from(count);
            self.requested_at = now;
        }
    }
}

impl LegHome for LegPool {
    fn take_back(self: Arc<Self>, leg: Leg) {
        let mut inner = self.lock();
        // Looked at under the lock, which `close` takes after it has ended the registry.
        if !self.registry.is_over() {
            inner.idle.push(leg);
            return;
        }
        drop(inner);
        drop(leg);
    }
}
