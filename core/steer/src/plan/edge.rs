//! What the planner knows of one edge: its demand, its loads, and the quotas that it may have.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use sallyport_model::{EdgeId, OriginRef, SocketId};
use sallyport_ping::WindowedMin;

use super::{
    demand::Demand,
    topology::{Dimension, Leaf},
};
use crate::{
    Amount, PER_UNIT,
    capacity::Observed,
    report::{LoadReport, MAX_ENTRIES, OriginLoad, Quota},
    solver::MAX_AMOUNT,
};

/// Over which time the shortest round trip counts.
const RTT_WINDOW: Duration = Duration::from_secs(300);
/// The longest round trip that is believed, in microseconds.
const MAX_RTT_US: u64 = 10_000_000;
/// How many unacknowledged assignments are kept apart; of further ones the greatest quotas count.
const MAX_UNACKNOWLEDGED: usize = 32;
/// The shortest time that the shown rate and latency of an origin are about.
const MIN_FIGURE_SPAN: Duration = Duration::from_millis(900);
/// No bound, as an amount.
pub(super) const UNBOUNDED: Amount = Amount::MAX;

/// A quota as an amount.
pub(super) fn amount(quota: &Quota, dimension: Dimension) -> Amount {
    match dimension {
        Dimension::Rate => quota.rate.unwrap_or(UNBOUNDED),
        Dimension::Connections => quota.connections.map_or(UNBOUNDED, |most| Amount::from(most) * PER_UNIT),
    }
}

/// One class of requests at the edge.
#[derive(Debug, Clone, Default)]
pub(super) struct Class {
    pub(super) demand: Demand,
    open: u32,
    pub(super) candidates: Vec<(OriginRef, bool)>,
}

/// The load of one origin by the edge.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub(super) counts: OriginLoad,
    /// Sent lately, in thousandths of a request per second.
    pub(super) rate: Amount,
    /// Answers lately, and the sum of the times to them in microseconds.
    pub(super) answers: (u64, u64),
    /// What was observed since these figures were taken.
    since: Observed,
}

impl Load {
    fn new(counts: OriginLoad) -> Self {
        Self { counts, rate: 0, answers: (0, 0), since: Observed::default() }
    }

    /// The load after these observations. Figures are of [`MIN_FIGURE_SPAN`] at least: urgent reports come fast.
    fn next(&self, counts: OriginLoad, observed: Observed) -> Self {
        let mut next = Self { counts, ..self.clone() };
        next.since.add(observed);
        if next.since.span >= MIN_FIGURE_SPAN {
            let since = std::mem::take(&mut next.since);
            let rate = u128::from(since.sent) * 1_000_000 / since.span.as_millis().max(1);
            next.rate = u64::try_from(rate).unwrap_or(MAX_AMOUNT).min(MAX_AMOUNT);
            next.answers = (since.done, since.latency_us);
        }
        next
    }
}

#[derive(Debug, Clone)]
struct Sent {
    term: u64,
    number: u64,
    quotas: HashMap<Leaf, Quota>,
}

/// One edge.
#[derive(Debug, Clone)]
pub(super) struct EdgeState {
    pub(super) epoch: u64,
    pub(super) number: u64,
    /// The number of the last whole report.
    pub(super) base: u64,
    /// When the last report arrived.
    pub(super) heard_at: Duration,
    /// Since when the edge is silent while others are heard.
    pub(super) silent_since: Duration,
    /// When it was written, by the edge's clock.
    at: Duration,
    pub(super) term: u64,
    /// The number of the last assignment that the edge has taken over.
    pub(super) assignment: u64,
    /// When it was first reported.
    pub(super) term_at: Duration,
    pub(super) classes: HashMap<(SocketId, u64), Class>,
    pub(super) loads: HashMap<Leaf, Load>,
    rtts: HashMap<Leaf, WindowedMin>,
    sent: VecDeque<Sent>,
    /// The most that the edge can have: what it reported before it heard of this leader, and what it was sent since.
    bounds: HashMap<Leaf, Quota>,
    /// The greatest term that any run of the edge has heard of.
    heard_term: u64,
    /// The term and the number of the report that was answered last.
    answered: (u64, u64),
    /// The quotas of the assignment that the edge has acknowledged last.
    acknowledged: Option<HashMap<Leaf, Quota>>,
    pub(super) unreachable: Vec<EdgeId>,
    /// Since when a majority does not reach the edge.
    pub(super) unreached_since: Option<Duration>,
}

impl EdgeState {
    pub(super) fn new(epoch: u64, now: Duration) -> Self {
        Self {
            epoch,
            number: 0,
            base: 0,
            heard_at: now,
            silent_since: now,
            at: Duration::ZERO,
            term: 0,
            assignment: 0,
            term_at: now,
            classes: HashMap::new(),
            loads: HashMap::new(),
            rtts: HashMap::new(),
            sent: VecDeque::new(),
            bounds: HashMap::new(),
            heard_term: 0,
            answered: (0, 0),
            acknowledged: None,
            unreachable: Vec::new(),
            unreached_since: None,
        }
    }

    /// Takes a report that is newer than all before, and whole or built upon a known one. Calls `observe` with what each origin did since the last one.
    pub(super) fn record(
        &mut self,
        report: &LoadReport,
        leads: Option<u64>,
        now: Duration,
        mut observe: impl FnMut(Leaf, Observed),
    ) {
        let at = Duration::from_micros(report.at_us);
        let span = at.saturating_sub(self.at);
        let is_first = self.number == 0;
        (self.number, self.heard_at, self.silent_since, self.at) = (report.number, now, now, at);
        self.assignment = report.assignment;
        if report.term > self.term {
            (self.term, self.term_at) = (report.term, now);
        }
        self.unreachable.clone_from(&report.unreachable);
        let is_whole = report.base == 0;
        if is_whole {
            self.base = report.number;
        }
        while self.sent.front().is_some_and(|sent| (sent.term, sent.number) <= (report.term, report.assignment)) {
            let sent = self.sent.pop_front();
            // Of the first assignment of a term, an edge takes over only what is less than it has.
            self.acknowledged = sent
                .filter(|sent| (sent.term, sent.number) == (report.term, report.assignment))
                .map(|sent| sent.quotas);
        }
        let mut classes = HashMap::new();
        for class in report.classes.iter().take(MAX_ENTRIES) {
            let key = (class.socket, class.class);
            let mut known = self.classes.remove(&key).unwrap_or_default();
            known.demand.record(class.arrived, class.shed, class.open, at);
            known.open = class.open;
            known.candidates = class.candidates.iter().map(|one| (one.origin, one.is_usable)).collect();
            for candidate in &class.candidates {
                let leaf = Leaf { socket: class.socket, origin: candidate.origin };
                if let Some(rtt) = candidate.rtt_us {
                    let window = self.rtts.entry(leaf).or_insert_with(|| WindowedMin::new(RTT_WINDOW));
                    window.record(rtt.min(MAX_RTT_US), now);
                }
            }
            classes.insert(key, known);
        }
        if !is_whole {
            let left = MAX_ENTRIES.saturating_sub(classes.len());
            for (key, mut known) in self.classes.drain().take(left) {
                known.demand.record_unchanged(known.open, at);
                classes.insert(key, known);
            }
        }
        self.classes = classes;
        let mut loads = HashMap::new();
        for counts in report.origins.iter().take(MAX_ENTRIES) {
            let leaf = Leaf { socket: counts.socket, origin: counts.origin };
            let mut load = Load::new(*counts);
            if let Some(former) = self.loads.get(&leaf).filter(|_| !is_first && !span.is_zero()) {
                let way_us = self.rtt_us(leaf, now).unwrap_or(0);
                let observed = difference(&former.counts, counts, span, way_us);
                load = former.next(*counts, observed);
                observe(leaf, observed);
            }
            loads.insert(leaf, load);
        }
        if !is_whole {
            let named: HashSet<Leaf> = loads.keys().copied().collect();
            let is_named = |leaf: &Leaf| named.contains(leaf);
            let left = MAX_ENTRIES.saturating_sub(loads.len());
            for (leaf, load) in self.loads.drain().filter(|(leaf, _)| !is_named(leaf)).take(left) {
                let observed = Observed { span, ..Observed::default() };
                observe(leaf, observed);
                loads.insert(leaf, load.next(load.counts, observed));
            }
        }
        self.loads = loads;
        // What an edge has of a former leader is known from the edge alone.
        self.heard_term = self.heard_term.max(report.term);
        if leads.is_none_or(|own| self.heard_term < own) {
            self.bounds = self.loads.iter().map(|(leaf, load)| (*leaf, load.counts.quota)).collect();
        }
        let classes = &self.classes;
        self.rtts.retain(|leaf, _| {
            classes.iter().any(|((socket, _), class)| {
                *socket == leaf.socket && class.candidates.iter().any(|(origin, _)| *origin == leaf.origin)
            })
        });
    }

    /// The shortest recent round trip to an origin, in microseconds.
    pub(super) fn rtt_us(&self, leaf: Leaf, now: Duration) -> Option<u64> {
        self.rtts.get(&leaf)?.get(now)
    }

    /// The most that the edge may use now: its reported quota, or any that was sent and not acknowledged. Running
    /// requests count, even beyond a quota.
    pub(super) fn outstanding(&self, leaf: Leaf, dimension: Dimension) -> Amount {
        let load = self.loads.get(&leaf);
        let reported = self.reported(leaf, dimension);
        let sent = self.sent.iter().map(|sent| sent.quotas.get(&leaf).map_or(0, |quota| amount(quota, dimension)));
        let open = match dimension {
            Dimension::Rate => 0,
            Dimension::Connections => load.map_or(0, |load| Amount::from(load.counts.open) * PER_UNIT),
        };
        sent.chain([reported, open]).max().unwrap_or_default()
    }

    /// The quota that the edge has by its last report.
    pub(super) fn reported(&self, leaf: Leaf, dimension: Dimension) -> Amount {
        let reported = self.loads.get(&leaf).map_or(0, |load| amount(&load.counts.quota, dimension));
        // An edge that claims more than it got locks nothing.
        let reported = reported.min(self.bounds.get(&leaf).map_or(0, |quota| amount(quota, dimension)));
        let acknowledged = self.acknowledged.as_ref().and_then(|quotas| quotas.get(&leaf));
        acknowledged.map_or(reported, |quota| reported.min(amount(quota, dimension)))
    }

    /// What the edge was told last: the quota that was sent last, or the reported one.
    pub(super) fn last(&self, leaf: Leaf, dimension: Dimension) -> Amount {
        match self.sent.back() {
            Some(sent) => sent.quotas.get(&leaf).map_or(0, |quota| amount(quota, dimension)),
            None => self.reported(leaf, dimension),
        }
    }

    /// Whether these quotas were sent already in answer to the last report.
    pub(super) fn was_told(&self, term: u64, quotas: &HashMap<Leaf, Quota>) -> bool {
        let last = self.sent.back().filter(|last| last.term == term && &last.quotas == quotas);
        last.is_some() && self.answered == (term, self.number)
    }

    /// Continues with the bounds of the former run of the edge: its quotas may have outlived it.
    pub(super) fn continue_from(&mut self, former: Self) {
        (self.bounds, self.heard_term) = (former.bounds, former.heard_term);
    }

    /// Remembers quotas that were sent. Of too many, those before the last are merged: the acknowledgements of the oldest
    /// come first.
    pub(super) fn note_sent(&mut self, term: u64, number: u64, quotas: HashMap<Leaf, Quota>) {
        self.answered = (term, self.number);
        for (leaf, quota) in &quotas {
            let most = self.bounds.entry(*leaf).or_insert(Quota::NOTHING);
            *most = greater(most, quota);
        }
        if self.sent.len() >= MAX_UNACKNOWLEDGED
            && let Some(newest) = self.sent.pop_back()
            && let Some(former) = self.sent.back_mut()
        {
            for (leaf, quota) in newest.quotas {
                let kept = former.quotas.entry(leaf).or_insert(Quota::NOTHING);
                *kept = greater(kept, &quota);
            }
            (former.term, former.number) = (newest.term, newest.number);
        }
        self.sent.push_back(Sent { term, number, quotas });
    }
}

fn greater(one: &Quota, other: &Quota) -> Quota {
    Quota {
        rate: one.rate.zip(other.rate).map(|(one, other)| one.max(other)),
        connections: one.connections.zip(other.connections).map(|(one, other)| one.max(other)),
    }
}

/// What an origin did between two reports. `way_us`: the shortest round trip to it.
fn difference(former: &OriginLoad, counts: &OriginLoad, span: Duration, way_us: u64) -> Observed {
    let (done, failed) = (counts.done.saturating_sub(former.done), counts.failed.saturating_sub(former.failed));
    Observed {
        span,
        sent: counts.sent.saturating_sub(former.sent),
        done,
        failed: failed.min(done),
        latency_us: counts.latency_us.saturating_sub(former.latency_us),
        way_us: done.saturating_mul(way_us),
    }
}
