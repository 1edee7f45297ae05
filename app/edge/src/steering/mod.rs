//! The edge's part in steering: reports the demand and the load of sockets with limits, and follows the quotas.
//!
//! May use `state`, `origins`, `mesh`.

mod kept;
mod metrics;
mod reach;

use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use sallyport_bus::{Routes, Steering};
use sallyport_model::EdgeId;
use sallyport_steer::{
    REPORT_PERIOD,
    delta::ReportDelta,
    quota::{Applies, AssignmentFollower},
    report::{LoadReport, MAX_ENTRIES, QuotaAssignment},
};
use tokio::sync::{Notify, broadcast::error::RecvError};

use self::{metrics::SteeringMetrics, reach::Reach};
use crate::{mesh::Mesh, origins::pool::SocketPool, state::EdgeState};

/// The shortest time between two reports.
const MIN_PERIOD: Duration = Duration::from_millis(150);

/// How many reports in a row come early because requests wait.
const MAX_HURRIED: u32 = 4;

/// The settings of an edge's part in steering.
#[derive(Debug, Clone)]
pub struct SteeringSettings {
    /// The edge's id.
    pub edge: EdgeId,
    /// Number of the edge's run, greater than those of all earlier runs.
    pub epoch: u64,
    /// Carries reports to control, and quotas back.
    pub bus: Steering,
    /// The file with the quotas for a restart while no control answers; `None`: they are not kept.
    pub kept: Option<PathBuf>,
    /// Whether the edge starts with the quotas of that file. Not if another process still uses them.
    pub restores: bool,
}

/// The edge's part in steering.
pub(crate) struct SteeringFollower {
    settings: SteeringSettings,
    state: Arc<EdgeState>,
    follower: Mutex<AssignmentFollower>,
    delta: Mutex<ReportDelta>,
    reach: Reach,
    /// Whether the edge has given its quotas back.
    has_left: AtomicBool,
    /// The term of the last assignment.
    term: AtomicU64,
    /// Notified when the leader waits for a report: it is new, or a quota became less.
    given_back: Notify,
    metrics: SteeringMetrics,
}

/// Whether any socket has limits, looked up again after each change of routes.
#[derive(Default)]
struct KnownLimits(Option<(u64, bool)>);

impl KnownLimits {
    fn are_there(&mut self, routes: &Routes) -> bool {
        let version = routes.version();
        match self.0 {
            Some((of, are_there)) if of == version => are_there,
            _ => {
                let are_there = routes.all().iter().any(|route| route.has_capacities());
                self.0 = Some((version, are_there));
                are_there
            }
        }
    }
}

impl SteeringFollower {
    pub(crate) fn new(state: &Arc<EdgeState>, settings: SteeringSettings) -> Arc<Self> {
        let follower = Mutex::new(AssignmentFollower::new(settings.edge, settings.epoch));
        let (reach, metrics) = (Reach::default(), SteeringMetrics::default());
        let (term, given_back) = (AtomicU64::new(0), Notify::new());
        let started = state.sockets.started();
        let restored = settings.kept.as_deref().filter(|_| settings.restores).and_then(kept::read);
        if let Some((quotas, edges, left)) = restored {
            let until = started.elapsed() + left;
            follower.lock().restore(until, edges);
            state.sockets.shared().held_quotas.set(&quotas, until);
        }
        Arc::new(Self {
            settings,
            state: state.clone(),
            follower,
            delta: Mutex::default(),
            reach,
            has_left: AtomicBool::new(false),
            term,
            given_back,
            metrics,
        })
    }

    /// The time of the edge, from which quotas count.
    fn now(&self) -> Duration {
        self.state.sockets.started().elapsed()
    }

    /// The sockets with limits.
    fn limited(&self) -> Vec<Arc<SocketPool>> {
        let mut pools = self.state.sockets.all();
        pools.retain(|pool| pool.quotas().is_limited());
        pools
    }

    /// Reports and follows for as long as the edge serves.
    pub(crate) async fn run(&self, mesh: &OnceLock<Arc<Mesh>>) {
        tokio::join!(self.report(), self.follow(), self.check(mesh));
    }

    /// Reports each second while any socket of the installation has limits. After a change of routes, and when requests
    /// wait or quotas are given back, the next report comes at once.
    async fn report(&self) {
        let mut routes = self.state.routes.subscribe();
        let wanted = self.state.sockets.shared().quota_wanted.clone();
        let mut limits = KnownLimits::default();
        let (mut sent_at, mut hurried) = (Instant::now(), 0);
        loop {
            let is_urgent = tokio::select! {
                () = tokio::time::sleep(REPORT_PERIOD) => false,
                change = routes.next() => {
                    if change.is_none() {
                        return;
                    }
                    true
                }
                () = self.given_back.notified() => true,
                // Where requests wait for long, more reports change nothing.
                () = wanted.notified(), if hurried < MAX_HURRIED => {
                    hurried += 1;
                    true
                }
            };
            if !is_urgent {
                hurried = 0;
            }
            if self.has_left.load(Ordering::Relaxed) {
                return;
            }
            if !limits.are_there(&self.state.routes) {
                continue;
            }
            tokio::time::sleep(MIN_PERIOD.saturating_sub(sent_at.elapsed())).await;
            sent_at = Instant::now();
            self.settings.bus.report(self.make_report(is_urgent));
        }
    }

    /// The report of this moment.
    fn make_report(&self, is_urgent: bool) -> LoadReport {
        let mut report = self.follower.lock().begin_report(self.now());
        report.is_urgent = is_urgent;
        report.unreachable = self.reach.unreachable();
        let limited = self.limited();
        limited.iter().for_each(|pool| pool.report(&mut report));
        let reported: Vec<_> = limited.iter().map(|pool| pool.socket()).collect();
        self.state.sockets.shared().held_quotas.report_rest(&mut report, &reported, self.now());
        report.classes.truncate(MAX_ENTRIES);
        report.origins.truncate(MAX_ENTRIES);
        let known = self.follower.lock().known_base(self.now());
        self.delta.lock().shorten(&mut report, known);
        self.metrics.reported();
        report
    }

    /// Gives all quotas back: the edge stops.
    pub(crate) fn leave(&self) {
        self.has_left.store(true, Ordering::Relaxed);
        let mut report = self.follower.lock().begin_report(self.now());
        report.is_last = true;
        self.settings.bus.report(report);
    }

    /// Follows the assignments.
    async fn follow(&self) {
        let mut assignments = self.settings.bus.subscribe_quotas();
        loop {
            match assignments.recv().await {
                Ok(assignment) if assignment.edge == self.settings.edge => self.take(&assignment),
                // A later assignment has all quotas.
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn take(&self, assignment: &QuotaAssignment) {
        let mut follower = self.follower.lock();
        let applies = match follower.handle_assignment(assignment) {
            Ok(applies) => applies,
            Err(refused) => {
                self.metrics.refused(refused);
                tracing::debug!(%refused, term = assignment.term, number = assignment.number, "quotas are not taken");
                return;
            }
        };
        let valid_until = follower.valid_until().unwrap_or_default();
        let is_first = self.term.swap(assignment.term, Ordering::Relaxed) != assignment.term;
        let mut is_less = false;
        if applies == Applies::Fully {
            self.state.sockets.shared().held_quotas.set(&assignment.quotas, valid_until);
            self.keep(follower.edges());
        }
        for pool in self.limited() {
            let own = assignment.quotas.iter().filter(|quota| quota.socket == pool.socket());
            let own: Vec<_> = own.map(|quota| (quota.origin, quota.plan, quota.quota)).collect();
            is_less |= pool.quotas().assign(&own, applies, valid_until);
        }
        drop(follower);
        if is_first || is_less {
            self.given_back.notify_one();
        }
        self.reach.suspect(&assignment.suspects);
        self.metrics.assigned(assignment);
    }

    /// Keeps the quotas on disk.
    fn keep(&self, edges: u32) {
        let Some(path) = self.settings.kept.clone() else { return };
        let (quotas, valid_until) = self.state.sockets.shared().held_quotas.all();
        let valid_for = valid_until.saturating_sub(self.now());
        tokio::task::spawn_blocking(move || {
            if let Err(error) = kept::write(&path, quotas, edges, valid_for) {
                tracing::debug!(%error, path = %path.display(), "the quotas cannot be kept for a restart");
            }
        });
    }

    /// Checks which other edges are reached: the suspects of the leader, and all of them while no leader is heard.
    async fn check(&self, mesh: &OnceLock<Arc<Mesh>>) {
        let mut turn = 0_usize;
        loop {
            tokio::time::sleep(REPORT_PERIOD).await;
            if self.limited().is_empty() {
                continue;
            }
            let began = self.now();
            let (is_due, age) = {
                let mut follower = self.follower.lock();
                (follower.poll_check(began), follower.age(began))
            };
            self.metrics.set_age(age);
            let Some(mesh) = mesh.get() else {
                // A lone edge is its own majority.
                self.extend(began, 0, 0, is_due);
                continue;
            };
            if is_due {
                let mut others = mesh.others();
                // The first ones get the report, so they change.
                turn = turn.wrapping_add(1);
                let first = turn % others.len().max(1);
                others.rotate_left(first);
                let reached = mesh.reach(&others).await;
                self.extend(began, reached.len(), others.len(), true);
            } else if self.reach.has_suspects() {
                let suspects = self.reach.suspects();
                let reached = mesh.reach(&mesh.cards_of(&suspects)).await;
                self.reach.set_reached(&reached);
            }
        }
    }

    /// Takes the result of a check, by which the quotas may be valid for longer.
    fn extend(&self, began: Duration, reached: usize, others: usize, is_due: bool) {
        if !is_due {
            return;
        }
        let mut follower = self.follower.lock();
        follower.handle_reach(began, reached, others);
        let (valid_until, is_valid, edges) = (follower.valid_until(), follower.is_valid(self.now()), follower.edges());
        drop(follower);
        if let Some(until) = valid_until {
            self.state.sockets.shared().held_quotas.set_valid_until(until);
            self.keep(edges);
            self.limited().iter().for_each(|pool| pool.quotas().set_valid_until(until));
        }
        self.metrics.set_valid(is_valid);
    }

    /// A line for `/healthz` while no leader is heard.
    pub(crate) fn note(&self) -> String {
        if self.limited().is_empty() {
            return String::new();
        }
        let follower = self.follower.lock();
        let Some(age) = follower.age(self.now()).filter(|age| *age >= sallyport_steer::TERM) else {
            return String::new();
        };
        let state = if follower.is_valid(self.now()) { "kept" } else { "given up, because no majority is reached" };
        format!("steering: no control has assigned quotas for {} s: the last ones are {state}\n", age.as_secs())
    }

    pub(crate) fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }
}
