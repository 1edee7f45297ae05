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
use serde::{Deserialize, Serialize};

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
/// How long after the begin of its term a leader waits for edges that it has never heard. Edges that it has heard must
/// answer its term, or be gone: their neighbours may keep them the quotas of a former leader for any time.
const GROW_AFTER: Duration = TERM.saturating_mul(3);
/// By how much a term may be greater than that of the store, when the store was restored from an older copy.
const MAX_LOST_TERMS: u64 = 1_000_000;
/// Of how many edges that left the last report is remembered.
const MAX_DEPARTED: usize = 4_096;
/// How much of a learned bound is planned, in percent.
const LEARNED_PERCENT: Amount = 95;
/// How often learned bounds take what origins did.
const LEARN_PERIOD: Duration = Duration::from_secs(1);

/// An edge, as the fleet knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The whole report that this one is built upon has not arrived.
    #[error("the whole report that this one is built upon has not arrived")]
    NoBase,
}

/// A learned bound, with what reports of each edge said since it was updated.
#[derive(Debug, Default)]
struct Learned {
    estimator: Estimator,
    observed: HashMap<EdgeId, Observed>,
    updated_at: Duration,
}

impl Learned {
    /// Takes what was observed, as if the reports of all edges were about the same time.
    fn update(&mut self, now: Duration) {
        let Some(span) = self.observed.values().map(|observed| observed.span).max() else { return };
        let mut sum = Observed { span, ..Observed::default() };
        for observed in std::mem::take(&mut self.observed).into_values() {
            sum.add_counts(observed.over(span));
        }
        self.estimator.observe(sum, now);
        self.updated_at = now;
    }
}

/// An edge that may have quotas of a former leader, and has not reported to this control.
#[derive(Debug, Clone, Copy)]
struct Unheard {
    /// Since when this control leads.
    since: Duration,
    /// Since when a majority does not reach the edge.
    unreached_since: Option<Duration>,
}

/// The planner. Times are measured from any fixed moment.
#[derive(Debug, Default)]
pub struct Planner {
    topology: Topology,
    names: BTreeMap<EdgeId, EdgeInfo>,
    /// What the edges are called, also those that are lost and still have quotas.
    labels: BTreeMap<EdgeId, EdgeInfo>,
    edges: BTreeMap<EdgeId, EdgeState>,
    unheard: BTreeMap<EdgeId, Unheard>,
    /// The last reports of edges that left or are forgotten, by epoch and number: older ones stay refused.
    departed: HashMap<EdgeId, (u64, u64)>,
    learned: HashMap<Place, Learned>,
    /// The term of this control and the time of its begin, while it leads.
    leads: Option<(u64, Duration)>,
    /// Until when it is certain that no later leader was elected.
    confirmed_at: Duration,
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
        self.labels.retain(|id, _| self.edges.contains_key(id) || self.unheard.contains_key(id));
        self.labels.extend(edges.iter().map(|(id, info)| (*id, info.clone())));
        self.names = edges;
    }

    /// Forgets the silent edges that are not of the installation any more: such an edge has given its quotas up.
    pub fn forget_removed(&mut self, is_removed: impl Fn(EdgeId) -> bool, now: Duration) {
        let is_silent = |since: Duration| now.saturating_sub(since) >= GONE_AFTER;
        let removed = self.edges.iter().filter(|(id, edge)| is_silent(edge.heard_at) && is_removed(**id));
        let removed: Vec<_> = removed.map(|(id, _)| *id).collect();
        removed.into_iter().for_each(|id| self.forget(id));
        self.unheard.retain(|id, edge| !(is_silent(edge.since) && is_removed(*id)));
    }

    /// The edges that may have quotas. Another control has to know them when it takes the lead.
    #[must_use]
    pub fn holders(&self) -> BTreeMap<EdgeId, EdgeInfo> {
        let all = self.edges.keys().chain(self.unheard.keys());
        all.filter_map(|id| Some((*id, self.labels.get(id)?.clone()))).collect()
    }

    /// Sets which edges may have quotas of the former leader. Until each of them has reported or is certainly gone, no
    /// quota grows.
    pub fn set_former_holders(&mut self, holders: BTreeMap<EdgeId, EdgeInfo>, now: Duration) {
        let unknown = holders.keys().filter(|id| !self.edges.contains_key(id));
        self.unheard = unknown.map(|id| (*id, Unheard { since: now, unreached_since: None })).collect();
        for (id, info) in holders {
            self.labels.entry(id).or_insert(info);
        }
    }

    /// The greatest term of a leader whose term the store has lost, as far as a live edge has heard. No leader has it, once the store has confirmed that this control leads: the store is older than the term.
    #[must_use]
    pub fn lost_term(&self, now: Duration) -> Option<u64> {
        let (own, _) = self.leads?;
        let live = self.edges.values().filter(|edge| self.is_live(edge, now) && edge.term_at < self.confirmed_at);
        // The own term was lost too, if an edge has got more assignments in it than were sent.
        let is_lost = |edge: &&EdgeState| edge.term > own || (edge.term == own && edge.assignment > self.assignments);
        live.filter(is_lost).map(|edge| edge.term).filter(|term| *term < own + MAX_LOST_TERMS).max()
    }

    /// Forgets an edge, whose quotas then go to others.
    fn forget(&mut self, id: EdgeId) {
        if let Some(edge) = self.edges.remove(&id) {
            self.record_departed(id, (edge.epoch, edge.number));
        }
    }

    fn record_departed(&mut self, id: EdgeId, last: (u64, u64)) {
        if self.departed.len() >= MAX_DEPARTED {
            let names = &self.names;
            self.departed.retain(|id, _| names.contains_key(id));
        }
        if self.departed.len() < MAX_DEPARTED {
            self.departed.insert(id, last);
        }
    }

    /// This control leads from now on, with a term that is greater than those of all leaders before.
    pub fn lead(&mut self, term: u64, now: Duration) {
        if self.leads.is_none_or(|(own, _)| own != term) {
            self.leads = Some((term, now));
            self.assignments = 0;
        }
    }

    /// The store has confirmed, after this time, that this control leads: no later leader was elected until then.
    pub fn confirm(&mut self, asked_at: Duration) {
        self.confirmed_at = asked_at;
    }

    /// This control does not lead any more.
    pub fn follow(&mut self) {
        self.leads = None;
        self.unheard.clear();
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
        let is_known = self.names.contains_key(&report.edge) || self.unheard.contains_key(&report.edge);
        if !is_known && !self.edges.contains_key(&report.edge) {
            return Err(ReportRefused::UnknownEdge);
        }
        let last = self.edges.get(&report.edge).map(|known| (known.epoch, known.number));
        if last.max(self.departed.get(&report.edge).copied()) >= Some((report.epoch, report.number)) {
            return Err(ReportRefused::Old);
        }
        let has_base = |edge: &EdgeState| edge.epoch == report.epoch && edge.base >= report.base;
        let has_base = report.base == 0 || self.edges.get(&report.edge).is_some_and(has_base);
        if !has_base && !report.is_last {
            return Err(ReportRefused::NoBase);
        }
        let is_new_run = last.is_some_and(|(epoch, _)| report.epoch > epoch);
        let former = if is_new_run { self.edges.remove(&report.edge) } else { None };
        self.unheard.remove(&report.edge);
        if report.is_last {
            self.edges.remove(&report.edge);
            self.record_departed(report.edge, (report.epoch, report.number));
            return Ok(());
        }
        let edge = self.edges.entry(report.edge).or_insert_with(|| EdgeState::new(report.epoch, now));
        if let Some(former) = former {
            edge.continue_from(former);
        }
        let leads = self.leads.map(|(term, _)| term);
        let (topology, mut observed_at) = (&self.topology, HashMap::<usize, Observed>::new());
        edge.record(report, leads, now, |leaf, observed| {
            let Some(at) = topology.leaf(leaf) else { return };
            for up in topology.chain(at).filter(|up| topology.nodes[*up].is_learned) {
                let sum = observed_at.entry(up).or_default();
                sum.span = observed.span;
                sum.add_counts(observed);
            }
        });
        for (at, observed) in observed_at {
            let learned = self.learned.entry(topology.nodes[at].place.clone()).or_default();
            learned.observed.entry(report.edge).or_default().add(observed);
        }
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
        let due = |learned: &&mut Learned| now.saturating_sub(learned.updated_at) >= LEARN_PERIOD;
        self.learned.values_mut().filter(due).for_each(|learned| learned.update(now));
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

    /// Whether quotas may grow: every edge has said what it has since this control leads, and none may follow a later
    /// leader, which may give back what it has just taken.
    fn may_grow(&self, now: Duration) -> bool {
        let Some((term, since)) = self.leads else { return false };
        let may_follow_another = |edge: &EdgeState| edge.term > term && edge.term_at >= self.confirmed_at;
        if !self.unheard.is_empty() || self.edges.values().any(may_follow_another) {
            return false;
        }
        let is_confirmed = |edge: &EdgeState| edge.term >= term;
        // An edge that this control has never heard had nothing, or it has given it up by now.
        let has_waited = now.saturating_sub(since) >= GROW_AFTER;
        self.names.keys().all(|id| self.edges.get(id).map_or(has_waited, is_confirmed))
            && self.edges.iter().all(|(id, edge)| is_confirmed(edge) || !self.names.contains_key(id))
    }

    /// The edges that are not heard, those of a former leader first.
    fn suspects(&self, now: Duration) -> Vec<EdgeId> {
        let silent = self.edges.iter().filter(|(_, edge)| !self.is_live(edge, now)).map(|(id, _)| *id);
        self.unheard.keys().copied().chain(silent).take(MAX_NAMED_EDGES).collect()
    }

    /// Forgets the silent edges that have given their quotas up: so many others do not reach them that they cannot reach
    /// a majority.
    fn forget_gone(&mut self, now: Duration) {
        let count = self.edges.len() + self.unheard.len();
        let is_past = |since: Duration, period: Duration| now.saturating_sub(since) >= period;
        if !self.edges.values().any(|edge| self.is_live(edge, now)) {
            // Who hears nobody knows nothing of anybody.
            self.edges.values_mut().for_each(|edge| edge.silent_since = now);
            self.unheard.values_mut().for_each(|edge| edge.since = now);
        }
        for suspect in self.suspects(now) {
            let live = self.edges.values().filter(|edge| self.is_live(edge, now));
            let not_reaching = live.filter(|edge| edge.unreachable.contains(&suspect)).count();
            let is_cut_off = not_reaching >= count.div_ceil(2);
            let (silent_since, unreached_since) = match (self.edges.get_mut(&suspect), self.unheard.get_mut(&suspect)) {
                (Some(edge), _) => (edge.silent_since, &mut edge.unreached_since),
                (None, Some(edge)) => (edge.since, &mut edge.unreached_since),
                (None, None) => continue,
            };
            *unreached_since = is_cut_off.then(|| unreached_since.unwrap_or(now));
            let is_gone = unreached_since.is_some_and(|since| is_past(since, GONE_AFTER));
            if is_gone || is_past(silent_since, FORGET_AFTER) {
                self.unheard.remove(&suspect);
                self.forget(suspect);
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
