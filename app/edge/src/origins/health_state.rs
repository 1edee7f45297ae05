//! How an origin stands among those of its socket: its weight, its checks, its failures.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use sallyport_balance::{
    Weight,
    ejection::{Ejected, EjectionConfig, EjectionState, Failure, PoolCount},
};
use sallyport_model::{HealthFailure, HealthFailureCode, OriginHealth};

use crate::origins::{
    health::{Checks, Probe},
    http::forwarding::Group,
};

/// How one origin is.
#[derive(Debug)]
pub(crate) struct OriginHealthState {
    weight: AtomicU16,
    /// With which others it serves the same paths.
    group: AtomicU64,
    is_down: AtomicBool,
    /// What the edge that holds its tunnel says, where that is another one.
    is_said_down: AtomicBool,
    is_said_left_out: AtomicBool,
    checks: Mutex<Option<Checks>>,
    /// Why it is down, by its checks.
    check_failure: Mutex<Option<HealthFailure>>,
    /// Whether it ever failed: else there is nothing to look up.
    has_failed: AtomicBool,
    failures: Mutex<EjectionState>,
    /// Why it was left out last.
    ejection: Mutex<Option<HealthFailure>>,
}

impl Default for OriginHealthState {
    /// One of which nothing is known: it takes its share.
    fn default() -> Self {
        Self {
            weight: AtomicU16::new(sallyport_model::DEFAULT_WEIGHT),
            group: AtomicU64::new(Group::ROOT.number()),
            is_down: AtomicBool::new(false),
            is_said_down: AtomicBool::new(false),
            is_said_left_out: AtomicBool::new(false),
            checks: Mutex::default(),
            check_failure: Mutex::default(),
            has_failed: AtomicBool::new(false),
            failures: Mutex::default(),
            ejection: Mutex::default(),
        }
    }
}

impl OriginHealthState {
    /// Its share beside the others.
    pub(crate) fn weight(&self) -> Weight {
        Weight::new(self.weight.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Its owner has changed its share.
    pub(crate) fn weighs(&self, weight: u16) {
        self.weight.store(weight, Ordering::Relaxed);
    }

    /// With which others it serves the same paths.
    pub(crate) fn group(&self) -> Group {
        Group::from_number(self.group.load(Ordering::Relaxed))
    }

    /// It serves the same paths as these.
    pub(crate) fn set_group(&self, group: Group) {
        self.group.store(group.number(), Ordering::Relaxed);
    }

    /// Whether it takes new flows, as far as its owner and its checks say.
    pub(crate) fn is_fit(&self) -> bool {
        !self.is_down() && self.weight() != Weight::ZERO
    }

    /// Whether its checks are bad.
    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Whether it is not well by the checks of the edge that holds its tunnel.
    pub(crate) fn is_said_down(&self) -> bool {
        self.is_said_down.load(Ordering::Relaxed)
    }

    /// The edge that holds its tunnel finds it so.
    pub(crate) fn set_reported(&self, health: OriginHealth) {
        self.is_said_down.store(health == OriginHealth::Unwell, Ordering::Relaxed);
        self.is_said_left_out.store(health == OriginHealth::LeftOut, Ordering::Relaxed);
    }

    /// How this edge finds it.
    pub(crate) fn health(&self) -> OriginHealth {
        if self.is_down() {
            OriginHealth::Unwell
        } else if self.is_ejected() {
            OriginHealth::LeftOut
        } else {
            OriginHealth::Well
        }
    }

    /// How this edge finds it, and why, where it is not well.
    pub(crate) fn found(&self) -> (OriginHealth, Option<HealthFailure>) {
        let health = self.health();
        let failure = match health {
            OriginHealth::Well => None,
            OriginHealth::Unwell => self.check_failure.lock().clone(),
            OriginHealth::LeftOut => self.ejection.lock().clone(),
        };
        (health, failure)
    }

    /// It is checked like this from now on, or not at all. What is checked differently is not known to be down. Returns
    /// whether that is new.
    pub(crate) fn is_checked(&self, probe: Option<&Arc<Probe>>, start: impl FnOnce(Arc<Probe>) -> Checks) -> bool {
        let mut checks = self.checks.lock();
        let is_new = checks.as_ref().map(Checks::probe) != probe;
        if is_new {
            *checks = probe.cloned().map(start);
            self.is_down.store(false, Ordering::Relaxed);
            *self.check_failure.lock() = None;
        }
        is_new
    }

    /// This check says so: why it is down, or that it is not. One that is not made any more says nothing.
    pub(crate) fn set_failure(&self, probe: &Arc<Probe>, failure: Option<HealthFailure>) -> bool {
        let checks = self.checks.lock();
        let counts = checks.as_ref().is_some_and(|checks| Arc::ptr_eq(checks.probe(), probe));
        if counts {
            self.is_down.store(failure.is_some(), Ordering::Relaxed);
            *self.check_failure.lock() = failure;
        }
        counts
    }

    /// It is still down, and this check says why: the failure as it stands now, where that is otherwise than before.
    pub(crate) fn set_failure_reason(&self, probe: &Arc<Probe>, why: &HealthFailure) -> Option<HealthFailure> {
        let known = self.check_failure.lock().clone()?;
        if known.says_the_same_as(why) {
            return None;
        }
        let failure = HealthFailure { since: known.since, ..why.clone() };
        self.set_failure(probe, Some(failure.clone())).then_some(failure)
    }

    /// It is left out from now on, for this reason.
    pub(crate) fn record_ejection(&self, message: &str, since: i64) {
        let failure = HealthFailure::new(HealthFailureCode::Ejected, message, since);
        *self.ejection.lock() = Some(failure);
    }

    /// Whether it is left out for a while, because it took no connection too often: here, or at the edge that holds its tunnel.
    pub(crate) fn is_ejected(&self) -> bool {
        self.is_said_left_out.load(Ordering::Relaxed)
            || self.has_failed.load(Ordering::Relaxed) && self.failures().is_ejected(Instant::now())
    }

    /// It took a connection.
    pub(crate) fn served(&self) {
        if self.has_failed.load(Ordering::Relaxed) {
            self.failures().succeeded();
        }
    }

    /// It took none. Returns whether it is left out from now on.
    pub(crate) fn failed(&self, config: &EjectionConfig, failure: Failure, pool: PoolCount) -> Option<Ejected> {
        self.has_failed.store(true, Ordering::Relaxed);
        self.failures().failed(config, failure, pool, Instant::now())
    }

    /// A check was good: it is not left out any more. Returns whether it was.
    pub(crate) fn check_passed(&self, now: Instant) -> bool {
        self.has_failed.load(Ordering::Relaxed) && self.failures().check_passed(now)
    }

    fn failures(&self) -> parking_lot::MutexGuard<'_, EjectionState> {
        self.failures.lock()
    }
}
