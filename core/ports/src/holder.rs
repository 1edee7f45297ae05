//! The machine's side of leases.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use sallyport_model::EdgeId;
use serde::{Deserialize, Serialize};

use crate::{Lease, Phase, SliceKey, SliceUse, UseState};

/// The leases of one machine.
///
/// A term that is closed once stays closed, whatever the published leases say: an older state of them may come again.
#[derive(Debug)]
pub struct Holder {
    machine: EdgeId,
    own: BTreeMap<SliceKey, Lease>,
    /// The newest closed term of each slice.
    closed: BTreeMap<SliceKey, u64>,
    /// When the machine sent the last beat that the bus has acknowledged.
    renewed: Option<Instant>,
    /// Whether the machine knows how it was before its start.
    is_restored: bool,
}

/// What a machine must know of its leases after a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderRecord {
    /// The newest closed term of each slice.
    pub closed: Vec<(SliceKey, u64)>,
}

/// Reason why a machine opens no connection from a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NoSlice {
    /// No beat of this run has reached the bus yet.
    Waiting,
    /// The lease has ended, because no beat reached the bus for too long.
    Lost,
    /// The slices move to other machines.
    Moving,
    /// No address fits the destination or the purpose.
    NoAddress,
    /// The machine cannot use the address or the ports.
    NotUsable,
    /// All ports of the slices are in use for the destination.
    Exhausted,
}

impl NoSlice {
    /// The word for metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Lost => "lost",
            Self::Moving => "moving",
            Self::NoAddress => "no-address",
            Self::NotUsable => "not-usable",
            Self::Exhausted => "exhausted",
        }
    }
}

impl fmt::Display for NoSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "the leases of its slices are not confirmed yet",
            Self::Lost => "the leases of its slices have ended, because the bus was away for too long",
            Self::Moving => "its slices move to other machines",
            Self::NoAddress => "no egress address of it fits the origin",
            Self::NotUsable => "its egress addresses cannot be used on this machine",
            Self::Exhausted => "all ports of its slices lead to the origin already",
        })
    }
}

impl Holder {
    /// A machine that has just started. `record` is what it knew, if its leases cannot have ended meanwhile. Without it,
    /// the machine uses only leases that begin from now on.
    #[must_use]
    pub fn new(machine: EdgeId, record: Option<(HolderRecord, Instant)>) -> Self {
        let is_restored = record.is_some();
        let (closed, renewed) = record.map(|(record, at)| (record.closed, at)).unzip();
        let closed = closed.unwrap_or_default().into_iter().collect();
        Self { machine, own: BTreeMap::new(), closed, renewed, is_restored }
    }

    /// Takes the published leases.
    pub fn handle_leases(&mut self, leases: &[Lease]) {
        let own = leases.iter().filter(|lease| lease.machine == self.machine && lease.phase != Phase::Free);
        self.own = own.map(|lease| (lease.key(), lease.clone())).collect();
        let ended: Vec<_> = self.own.values().filter(|lease| lease.phase != Phase::Held).map(term_of).collect();
        ended.into_iter().for_each(|(key, term)| self.close(key, term));
        self.closed.retain(|key, _| leases.iter().any(|lease| lease.key() == *key));
    }

    /// The bus has acknowledged a beat that was sent at `sent`, and all published leases are known.
    pub fn handle_renewed(&mut self, sent: Instant) {
        self.handle_time(sent);
        if !self.is_restored {
            self.is_restored = true;
            self.close_all(|_| true);
        }
        self.renewed = self.renewed.max(Some(sent));
    }

    /// Ends leases whose time is over. Returns whether there were any.
    pub fn handle_time(&mut self, now: Instant) -> bool {
        let Some(renewed) = self.renewed else { return false };
        let is_over = |lease: &Lease| now >= renewed + Duration::from_secs(lease.lasts_seconds.into());
        self.close_all(is_over)
    }

    fn close_all(&mut self, is_over: impl Fn(&Lease) -> bool) -> bool {
        let is_open = |lease: &&Lease| !self.is_closed(lease.key(), lease.term);
        let over: Vec<_> = self.own.values().filter(is_open).filter(|lease| is_over(lease)).map(term_of).collect();
        let any = !over.is_empty();
        over.into_iter().for_each(|(key, term)| self.close(key, term));
        any
    }

    fn close(&mut self, key: SliceKey, term: u64) {
        let newest = self.closed.entry(key).or_default();
        *newest = term.max(*newest);
    }

    fn is_closed(&self, key: SliceKey, term: u64) -> bool {
        self.closed.get(&key).is_some_and(|closed| *closed >= term)
    }

    fn state(&self, lease: &Lease) -> UseState {
        if self.is_closed(lease.key(), lease.term) {
            UseState::Closed
        } else if self.renewed.is_none() || !self.is_restored {
            UseState::Waiting
        } else {
            UseState::Open
        }
    }

    /// The slices from which connections may be opened now.
    pub fn open(&mut self, now: Instant) -> Vec<SliceKey> {
        self.handle_time(now);
        self.own.values().filter(|lease| self.state(lease) == UseState::Open).map(Lease::key).collect()
    }

    /// Why no slice is open. `None` if the machine has no lease, and so no rule to leave from slices.
    #[must_use]
    pub fn refusal(&self) -> Option<NoSlice> {
        let states: Vec<_> = self.own.values().map(|lease| (self.state(lease), lease.phase)).collect();
        let is_any = |wanted: UseState| states.iter().any(|(state, _)| *state == wanted);
        if states.is_empty() {
            None
        } else if is_any(UseState::Open) {
            Some(NoSlice::NoAddress)
        } else if is_any(UseState::Waiting) {
            Some(NoSlice::Waiting)
        } else if states.iter().all(|(_, phase)| matches!(phase, Phase::Draining { .. })) {
            Some(NoSlice::Moving)
        } else {
            Some(NoSlice::Lost)
        }
    }

    /// What the machine reports, by slice. `has_flows` says whether connections from the slice are open.
    pub fn uses(&self, has_flows: impl Fn(SliceKey) -> bool) -> Vec<SliceUse> {
        let report = |lease: &Lease| SliceUse {
            address: lease.address,
            slice: lease.slice,
            term: lease.term,
            state: self.state(lease),
            // Of interest only at the end: the reports of a busy machine stay the same.
            has_flows: lease.phase != Phase::Held && has_flows(lease.key()),
            problem: None,
        };
        self.own.values().map(report).collect()
    }

    /// The leases of the machine.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.own.values()
    }

    /// What to keep for a restart, and when the last acknowledged beat was sent. `None` before the first one.
    #[must_use]
    pub fn record(&self) -> Option<(HolderRecord, Instant)> {
        let closed = self.closed.iter().map(|(key, term)| (*key, *term)).collect();
        self.renewed.filter(|_| self.is_restored).map(|at| (HolderRecord { closed }, at))
    }
}

fn term_of(lease: &Lease) -> (SliceKey, u64) {
    (lease.key(), lease.term)
}
