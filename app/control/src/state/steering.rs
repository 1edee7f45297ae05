//! The planner of steering, and what it planned in the last hour.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_model::{EdgeId, OriginRef, SocketId};
use sallyport_steer::{
    Amount,
    plan::{EdgeInfo, PlanView, Planner},
};

/// How often a plan is kept.
pub(crate) const SAMPLE_PERIOD: Duration = Duration::from_secs(5);
/// How many samples of a socket are kept: an hour.
const MAX_SAMPLES: usize = 720;
/// The most sockets with a history.
const MAX_SOCKETS: usize = 1_000;

/// The plan of a socket at one moment. Rates are in thousandths of a request per second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlanSample {
    /// In seconds since 1970.
    pub(crate) at: i64,
    pub(crate) demand: Amount,
    pub(crate) shed: Amount,
    pub(crate) origins: Vec<OriginSample>,
}

/// An origin at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OriginSample {
    pub(crate) origin: OriginRef,
    pub(crate) capacity: Option<Amount>,
    pub(crate) planned: Amount,
    pub(crate) load: Amount,
    pub(crate) latency_us: Option<u64>,
}

/// The planner and its history.
#[derive(Debug)]
pub(crate) struct SteeringState {
    started: Instant,
    planner: Mutex<Planner>,
    /// The edges that may have quotas, as the store has them.
    stored_holders: Mutex<BTreeMap<EdgeId, EdgeInfo>>,
    history: Mutex<HashMap<SocketId, VecDeque<PlanSample>>>,
}

impl Default for SteeringState {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            planner: Mutex::default(),
            stored_holders: Mutex::default(),
            history: Mutex::default(),
        }
    }
}

impl SteeringState {
    /// The planner, and the time from which its times count.
    pub(crate) fn planner(&self) -> (MutexGuard<'_, Planner>, Duration) {
        // The time is read under the lock, so that it never goes back.
        let planner = self.planner.lock();
        (planner, self.started.elapsed())
    }

    /// The store has confirmed that this control leads. Returns a later term that edges know and the store does not.
    pub(crate) fn confirm(&self, asked_at: Duration) -> Option<i64> {
        let (mut planner, now) = self.planner();
        planner.confirm(asked_at);
        planner.lost_term(now).and_then(|term| i64::try_from(term).ok())
    }

    /// The edges that may have quotas, as the store has them.
    pub(crate) fn stored_holders(&self) -> BTreeMap<EdgeId, EdgeInfo> {
        self.stored_holders.lock().clone()
    }

    /// Sets which edges may have quotas, as the store has them.
    pub(crate) fn set_stored_holders(&self, holders: BTreeMap<EdgeId, EdgeInfo>) {
        *self.stored_holders.lock() = holders;
    }

    /// Keeps these plans, and forgets sockets without one.
    pub(crate) fn keep(&self, plans: &[PlanView], at: i64) {
        let mut history = self.history.lock();
        history.retain(|socket, _| plans.iter().any(|plan| plan.socket == *socket));
        for plan in plans.iter().take(MAX_SOCKETS) {
            let samples = history.entry(plan.socket).or_default();
            if samples.len() >= MAX_SAMPLES {
                samples.pop_front();
            }
            samples.push_back(PlanSample {
                at,
                demand: plan.edges.iter().map(|edge| edge.demand).sum(),
                shed: plan.edges.iter().map(|edge| edge.shed).sum(),
                origins: plan
                    .origins
                    .iter()
                    .map(|origin| OriginSample {
                        origin: origin.origin,
                        capacity: origin.capacity,
                        planned: origin.planned,
                        load: origin.load,
                        latency_us: origin.latency_us,
                    })
                    .collect(),
            });
        }
    }

    /// The samples of a socket, oldest first.
    pub(crate) fn samples(&self, socket: SocketId) -> Vec<PlanSample> {
        self.history.lock().get(&socket).into_iter().flatten().cloned().collect()
    }
}
