//! The planner of the leading control: reports come in, quotas go out. May use every other room.
//!
//! A plan is the solution of the solver for the present demand. Quotas follow it, and never get ahead of it: what an
//! edge had counts until it has acknowledged less, or until it is certainly gone ([`Planner::tick`]).

mod demand;
mod edge;
mod explain;
mod fair;
mod grant;
mod problem;
mod topology;
mod view;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use sallyport_model::{EdgeId, EdgeName, RegionName, SocketId};

pub use explain::explain;
pub use problem::WhatIf;
pub use topology::{Dimension, Leaf, Place, SteeredOrigin, SteeredRegion, SteeredSocket};
pub use view::{EdgeView, OriginView, PlanView, ShareView};

use crate::{
    Amount, TERM,
    capacity::{Estimator, Observed},
    report::{LoadReport, MAX_NAMED_EDGES, QuotaAssignment},
};
use edge::EdgeState;
use grant::Shares;
use problem::Row;
use topology::Topology;

/// After how long without a report the demand of an edge no longer counts.
pub const SILENCE: Duration = Duration::from_secs(5);
/// How much longer than its quotas an edge that no majority reaches is believed to use them.
const GONE_AFTER: Duration = TERM.saturating_add(Duration::from_secs(2));
/// After how long without a report an edge is forgotten that no other one can tell about.
const FORGET_AFTER: Duration = Duration::from_secs(900);
/// How long after the begin of its term a leader has seen what a former one still did, though an edge says nothing: the
/// former one may have led for two terms of quotas more, and reports after that may be lost.
const GROW_AFTER: Duration = TERM.saturating_mul(3);
/// How much of a learned bound is planned, in percent.
const LEARNED_PERCENT: Amount = 95;
/// How often learned bounds take what origins did.
const LEARN_PERIOD: Duration = Duration::from_secs(1);

/// An edge, as the fleet knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeInfo {
    /// Its name.
    pub name: EdgeName,
    /// Its region.
    pub region: RegionName,
}

/// Reason why a report is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ReportRefused {
    /// The edge is not of the installation.
    #[error("the edge is not known")]
    UnknownEdge,
    /// A newer report of the edge is known.
    #[error("a newer report of the edge is known")]
    Old,
}

/// A learned bound, with what was observed since it was updated.
#[derive(Debug, Default)]
struct Learned {
    estimator: Estimator,
    observed: Observed,
    updated_at: Duration,
}

/// The planner. Times are measured from any fixed moment.
#[derive(Debug, Default)]
pub struct Planner {
    topology: Topology,
    names: BTreeMap<EdgeId, EdgeInfo>,
    /// What the edges are called, also those that are lost and still have quotas.
    labels: BTreeMap<EdgeId, EdgeInfo>,
    edges: BTreeMap<EdgeId, EdgeState>,
    learned: HashMap<Place, Learned>,
    /// The term of this control and the time of its begin, while it leads.
    leads: Option<(u64, Duration)>,
    assignments: u64,
    flows: HashMap<(Dimension, Row), Vec<Amount>>,
    plan: [Shares; 2],
    planned_at: Option<Duration>,
}

impl Planner {
    /// Sets the sockets with limits.
    pub fn set_sockets(&mut self, sockets: Vec<SteeredSocket>) {
        self.topology = Topology::new(sockets);
        let topology = &self.topology;
        self.learned.retain(|place, _| topology.nodes.iter().any(|node| node.is_learned && node.place == *place));
    }

    /// Sets the edges of the installation.
    pub fn set_edges(&mut self, edges: BTreeMap<EdgeId, EdgeInfo>) {
        self.labels.retain(|id, _| self.edges.contains_key(id));
        self.labels.extend(edges.iter().map(|(id, info)| (*id, info.clone())));
        self.names = edges;
    }

    /// Forgets the silent edges that are not of the installation any more: such an edge has given its quotas up.
    pub fn forget_removed(&mut self, is_removed: impl Fn(EdgeId) -> bool, now: Duration) {
        self.edges.retain(|id, edge| now.saturating_sub(edge.heard_at) < GONE_AFTER || !is_removed(*id));
    }

    /// This control leads from now on, with a term that is greater than those of all leaders before.
    pub fn lead(&mut self, term: u64, now: Duration) {
        if self.leads.is_none_or(|(own, _)| own != term) {
            self.leads = Some((term, now));
            self.assignments = 0;
        }
    }

    /// This control does not lead any more.
    pub fn follow(&mut self) {
        self.leads = None;
    }

    /// The term of this control, while it leads.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        self.leads.map(|(term, _)| term)
    }

    /// Takes a report whose sender was verified.
    ///
    /// # Errors
    /// The report changes nothing.
    pub fn handle_report(&mut self, report: &LoadReport, now: Duration) -> Result<(), ReportRefused> {
        if !self.names.contains_key(&report.edge) && !self.edges.contains_key(&report.edge) {
            return Err(ReportRefused::UnknownEdge);
        }
        if let Some(known) = self.edges.get(&report.edge) {
            if (report.epoch, report.number) <= (known.epoch, known.number) {
                return Err(ReportRefused::Old);
            }
            if report.epoch > known.epoch {
                self.edges.remove(&report.edge);
            }
        }
        if report.is_last {
            self.edges.remove(&report.edge);
            return Ok(());
        }
        let edge = self.edges.entry(report.edge).or_insert_with(|| EdgeState::new(report.epoch, now));
        let (topology, learned) = (&self.topology, &mut self.learned);
        edge.record(report, now, |leaf, observed| {
            let Some(at) = topology.leaf(leaf) else { return };
            for up in topology.chain(at).filter(|up| topology.nodes[*up].is_learned) {
                let of_place = learned.entry(topology.nodes[up].place.clone()).or_default();
                let sum = &mut of_place.observed;
                sum.sent = sum.sent.saturating_add(observed.sent);
                sum.done = sum.done.saturating_add(observed.done);
                sum.failed = sum.failed.saturating_add(observed.failed);
                sum.latency_us = sum.latency_us.saturating_add(observed.latency_us);
                sum.way_us = sum.way_us.saturating_add(observed.way_us);
            }
        });
        Ok(())
    }

    /// Makes the plan for this time. While this control leads, returns the assignments for all edges that are heard.
    pub fn tick(&mut self, now: Duration) -> Vec<QuotaAssignment> {
        self.forget_gone(now);
        self.learn(now);
        let plan = Dimension::ALL.map(|dimension| self.shares(dimension, &WhatIf::default(), now));
        let assignments = match self.leads {
            Some((term, _)) => self.assign(&plan, term, now),
            None => Vec::new(),
        };
        (self.plan, self.planned_at) = (plan, Some(now));
        assignments
    }

    /// Updates learned bounds.
    fn learn(&mut self, now: Duration) {
        for learned in self.learned.values_mut() {
            let span = now.saturating_sub(learned.updated_at);
            if span >= LEARN_PERIOD {
                let observed = Observed { span, ..std::mem::take(&mut learned.observed) };
                learned.estimator.observe(observed, now);
                learned.updated_at = now;
            }
        }
    }

    /// What a place can carry; `None`: any amount.
    fn capacity(&self, at: usize, dimension: Dimension) -> Option<Amount> {
        let node = &self.topology.nodes[at];
        let learned = match dimension {
            Dimension::Rate if node.is_learned => {
                self.learned.get(&node.place).and_then(|learned| learned.estimator.bound())
            }
            Dimension::Rate | Dimension::Connections => None,
        };
        let learned = learned.map(|bound| bound * LEARNED_PERCENT / 100);
        node.declared[dimension.index()].into_iter().chain(learned).min()
    }

    fn is_live(&self, edge: &EdgeState, now: Duration) -> bool {
        now.saturating_sub(edge.heard_at) < SILENCE
    }

    /// Whether quotas may grow: every edge has said what it has since this control leads, and none follows a later leader,
    /// which may give back what it has just taken.
    fn may_grow(&self, now: Duration) -> bool {
        let Some((term, since)) = self.leads else { return false };
        if self.edges.values().any(|edge| edge.term > term) {
            return false;
        }
        let has_learned = now.saturating_sub(since) >= GROW_AFTER;
        let is_heard = |id: &EdgeId| self.edges.get(id).is_some_and(|edge| edge.term >= term);
        let is_confirmed = |(id, edge): (&EdgeId, &EdgeState)| edge.term >= term || !self.names.contains_key(id);
        has_learned || (self.names.keys().all(is_heard) && self.edges.iter().all(is_confirmed))
    }

    /// The edges that are not heard.
    fn suspects(&self, now: Duration) -> Vec<EdgeId> {
        let silent = self.edges.iter().filter(|(_, edge)| !self.is_live(edge, now));
        silent.map(|(id, _)| *id).take(MAX_NAMED_EDGES).collect()
    }

    /// Forgets the silent edges that have given their quotas up: so many others do not reach them that they cannot reach
    /// a majority.
    fn forget_gone(&mut self, now: Duration) {
        let count = self.edges.len();
        for suspect in self.suspects(now) {
            let live = self.edges.values().filter(|edge| self.is_live(edge, now));
            let not_reaching = live.filter(|edge| edge.unreachable.contains(&suspect)).count();
            let is_cut_off = not_reaching >= count.div_ceil(2);
            let Some(edge) = self.edges.get_mut(&suspect) else { continue };
            let since = is_cut_off.then(|| edge.unreached_since.unwrap_or(now));
            edge.unreached_since = since;
            let is_gone = since.is_some_and(|since| now.saturating_sub(since) >= GONE_AFTER);
            if is_gone || now.saturating_sub(edge.heard_at) >= FORGET_AFTER {
                self.edges.remove(&suspect);
            }
        }
        for edge in self.edges.values_mut() {
            if now.saturating_sub(edge.heard_at) < SILENCE {
                edge.unreached_since = None;
            }
        }
    }

    /// The plan with other numbers, without any effect. `None`: no such socket has limits.
    pub fn preview(&mut self, socket: SocketId, what_if: &WhatIf, now: Duration) -> Option<PlanView> {
        let plan = Dimension::ALL.map(|dimension| self.shares(dimension, what_if, now));
        self.view_of(socket, &plan, what_if, now)
    }

    /// Whether there are sockets with limits.
    #[must_use]
    pub fn has_sockets(&self) -> bool {
        !self.topology.sockets.is_empty()
    }

    /// The sockets with limits.
    pub fn sockets(&self) -> impl Iterator<Item = SocketId> {
        self.topology.sockets.keys().copied()
    }

    /// The edges of the installation.
    pub fn edges(&self) -> impl Iterator<Item = (EdgeId, &EdgeInfo)> {
        self.names.iter().map(|(id, info)| (*id, info))
    }

    /// The places with limits.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.topology.nodes.iter().map(|node| &node.place)
    }

    /// The present plan of a socket. `None`: no such socket has limits.
    #[must_use]
    pub fn view(&self, socket: SocketId, now: Duration) -> Option<PlanView> {
        self.view_of(socket, &self.plan, &WhatIf::default(), now)
    }

    /// When the last plan was made.
    #[must_use]
    pub fn planned_at(&self) -> Option<Duration> {
        self.planned_at
    }

    /// How far the last plan may be from an optimum, in millionths of its cost: the gap to the bound of the dual.
    #[must_use]
    pub fn gap_ppm(&self) -> u64 {
        self.plan.iter().map(|plan| plan.gap_ppm).max().unwrap_or_default()
    }

    /// The sum of the quotas that edges may have for a place, and what the place can carry.
    #[must_use]
    pub fn granted(&self, place: &Place, dimension: Dimension) -> Option<(Amount, Amount)> {
        let at = self.topology.nodes.iter().position(|node| node.place == *place)?;
        let capacity = self.capacity(at, dimension)?;
        let below = self.topology.limited().filter(|leaf| self.topology.chain(*leaf).any(|up| up == at));
        let leaves = below.filter_map(|leaf| self.topology.leaf_of(leaf));
        let of_edges = |leaf: Leaf| self.edges.values().map(move |edge| edge.outstanding(leaf, dimension));
        Some((leaves.flat_map(of_edges).fold(0, Amount::saturating_add), capacity))
    }
}

#[cfg(test)]
mod tests;
