//! The state of an origin in its pool: weight, checks, failures, ejection.

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

/// The state of one origin.
#[derive(Debug)]
pub(crate) struct OriginHealthState {
    weight: AtomicU16,
    /// The origins that serve the same paths.
    group: AtomicU64,
    is_down: AtomicBool,
    /// What the edge that holds its tunnel reports, if that is another edge.
    is_reported_down: AtomicBool,
    is_reported_ejected: AtomicBool,
    checks: Mutex<Option<Checks>>,
    /// The last failure of its checks, while the origin is down.
    check_failure: Mutex<Option<HealthFailure>>,
    /// Whether the origin has ever failed; without a failure, no lock is taken.
    has_failed: AtomicBool,
    failures: Mutex<EjectionState>,
    /// The reason of the last ejection.
    ejection: Mutex<Option<HealthFailure>>,
}

impl Default for OriginHealthState {
    /// Nothing known: the default weight, and healthy.
    fn default() -> Self {
        Self {
            weight: AtomicU16::new(sallyport_model::DEFAULT_WEIGHT),
            group: AtomicU64::new(Group::ROOT.number()),
            is_down: AtomicBool::new(false),
            is_reported_down: AtomicBool::new(false),
            is_reported_ejected: AtomicBool::new(false),
            checks: Mutex::default(),
            check_failure: Mutex::default(),
            has_failed: AtomicBool::new(false),
            failures: Mutex::default(),
            ejection: Mutex::default(),
        }
    }
}

impl OriginHealthState {
    /// Its weight.
    pub(crate) fn weight(&self) -> Weight {
        Weight::new(self.weight.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Sets the weight.
    pub(crate) fn weighs(&self, weight: u16) {
        self.weight.store(weight, Ordering::Relaxed);
    }

    /// The group of origins that serve the same paths.
    pub(crate) fn group(&self) -> Group {
        Group::from_number(self.group.load(Ordering::Relaxed))
    }

    /// Sets the group.
    pub(crate) fn set_group(&self, group: Group) {
        self.group.store(group.number(), Ordering::Relaxed);
    }

    /// Whether it takes new flows by its weight and its checks.
    pub(crate) fn is_fit(&self) -> bool {
        !self.is_down() && self.weight() != Weight::ZERO
    }

    /// Whether it is down by its checks.
    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Whether the edge that holds its tunnel reports it as down.
    pub(crate) fn is_reported_down(&self) -> bool {
        self.is_reported_down.load(Ordering::Relaxed)
    }

    /// Sets the health that the edge of its tunnel reports.
    pub(crate) fn set_reported(&self, health: OriginHealth) {
        self.is_reported_down.store(health == OriginHealth::Unwell, Ordering::Relaxed);
        self.is_reported_ejected.store(health == OriginHealth::LeftOut, Ordering::Relaxed);
    }

    /// Its health as this edge sees it.
    pub(crate) fn health(&self) -> OriginHealth {
        if self.is_down() {
            OriginHealth::Unwell
        } else if self.is_ejected() {
            OriginHealth::LeftOut
        } else {
            OriginHealth::Well
        }
    }

    /// Its health as this edge sees it, with the reason if it is not healthy.
    pub(crate) fn found(&self) -> (OriginHealth, Option<HealthFailure>) {
        let health = self.health();
        let failure = match health {
            OriginHealth::Well => None,
            OriginHealth::Unwell => self.check_failure.lock().clone(),
            OriginHealth::LeftOut => self.ejection.lock().clone(),
        };
        (health, failure)
    }

    /// Starts these checks, or stops them. A changed check starts without a known failure. Returns whether the check
    /// changed.
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

    /// Records the result of a check: a failure, or none. Returns false for a check that has been replaced.
    pub(crate) fn set_failure(&self, probe: &Arc<Probe>, failure: Option<HealthFailure>) -> bool {
        let checks = self.checks.lock();
        let counts = checks.as_ref().is_some_and(|checks| Arc::ptr_eq(checks.probe(), probe));
        if counts {
            self.is_down.store(failure.is_some(), Ordering::Relaxed);
            *self.check_failure.lock() = failure;
        }
        counts
    }

    /// Records the newest reason of an origin that stays down. Returns the failure if the reason changed.
    pub(crate) fn set_failure_reason(&self, probe: &Arc<Probe>, why: &HealthFailure) -> Option<HealthFailure> {
        let known = self.check_failure.lock().clone()?;
        if known.says_the_same_as(why) {
            return None;
        }
        let failure = HealthFailure { since: known.since, ..why.clone() };
        self.set_failure(probe, Some(failure.clone())).then_some(failure)
    }

    /// Records the reason of an ejection.
    pub(crate) fn record_ejection(&self, message: &str, since: i64) {
        let failure = HealthFailure::new(HealthFailureCode::Ejected, message, since);
        *self.ejection.lock() = Some(failure);
    }

    /// Whether it is ejected after failed connections, here or at the edge that holds its tunnel.
    pub(crate) fn is_ejected(&self) -> bool {
        self.is_reported_ejected.load(Ordering::Relaxed)
            || self.has_failed.load(Ordering::Relaxed) && self.failures().is_ejected(Instant::now())
    }

    /// It accepted a connection.
    pub(crate) fn served(&self) {
        if self.has_failed.load(Ordering::Relaxed) {
            self.failures().succeeded();
        }
    }

    /// A connection failed. Returns the ejection if one begins.
    pub(crate) fn record_failure(&self, config: &EjectionConfig, failure: Failure, pool: PoolCount) -> Option<Ejected> {
        self.has_failed.store(true, Ordering::Relaxed);
        self.failures().record_failure(config, failure, pool, Instant::now())
    }

    /// A check passed, which ends an ejection. Returns whether there was one.
    pub(crate) fn check_passed(&self, now: Instant) -> bool {
        self.has_failed.load(Ordering::Relaxed) && self.failures().check_passed(now)
    }

    fn failures(&self) -> parking_lot::MutexGuard<'_, EjectionState> {
        self.failures.lock()
    }
}
