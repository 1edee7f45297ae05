//! Control's side of leases.

use std::{
    collections::{BTreeMap, btree_map},
    net::IpAddr,
    time::{Duration, Instant},
};

use sallyport_model::EdgeId;

use crate::{HANDED_OUT, Lease, Phase, Slice, SliceKey, SliceUse, UseState};

/// The times of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimes {
    /// How long a new lease goes on without a beat of its machine.
    pub lasts: Duration,
    /// How long control waits beyond that. It covers the way of a beat and the difference of two clocks' speeds.
    pub grace: Duration,
}

impl LeaseTimes {
    /// The times of leases that last so long.
    #[must_use]
    pub fn lasting(lasts: Duration) -> Self {
        Self { lasts, grace: (lasts / 10).clamp(MIN_GRACE, MAX_GRACE) }
    }
}

/// The shortest grace: a beat and a change of leases need less on their ways.
const MIN_GRACE: Duration = Duration::from_secs(5);
/// The longest grace.
const MAX_GRACE: Duration = Duration::from_secs(600);

/// Reason why a lease is not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// Another machine has the slice, or the same one already.
    #[error("slice {slice} of {address} is not free")]
    NotFree {
        /// The address.
        address: IpAddr,
        /// The slice.
        slice: Slice,
        /// The machine that has it.
        by: EdgeId,
    },
    /// All slices of the address have machines.
    #[error("all {HANDED_OUT} slices of {0} are handed out: add another address, or remove a slice")]
    NoneFree(IpAddr),
    /// No machine has the slice.
    #[error("no machine has slice {1} of {0}")]
    Unknown(IpAddr, Slice),
    /// The slice would move to the machine that has it.
    #[error("the slice is at that machine already")]
    SameMachine,
}

#[derive(Debug)]
struct Entry {
    lease: Lease,
    /// When the machine's last beat came, or the lease began.
    renewed: Instant,
    /// When the machine has said that it opens no more connections.
    closed: Option<Instant>,
}

/// The leases of all slices. Changes are returned as whole leases, for the store.
#[derive(Debug)]
pub struct Leases {
    times: LeaseTimes,
    entries: BTreeMap<SliceKey, Entry>,
}

impl Leases {
    /// The stored leases. All machines count as heard now, because nothing is known of before.
    #[must_use]
    pub fn restore(stored: Vec<Lease>, times: LeaseTimes, now: Instant) -> Self {
        let mut leases = Self { times, entries: BTreeMap::new() };
        leases.sync(stored, now);
        leases
    }

    /// Takes over what is stored now. A lease that others have changed begins its time anew.
    pub fn sync(&mut self, stored: Vec<Lease>, now: Instant) {
        let mut former = std::mem::take(&mut self.entries);
        for lease in stored {
            let entry = match former.remove(&lease.key()) {
                Some(known) if known.lease == lease => known,
                _ => Entry { lease, renewed: now, closed: None },
            };
            self.entries.insert(entry.lease.key(), entry);
        }
    }

    /// The lease of a slice, also one that has ended.
    #[must_use]
    pub fn get(&self, key: SliceKey) -> Option<&Lease> {
        self.entries.get(&key).map(|entry| &entry.lease)
    }

    /// All leases, by address and slice.
    pub fn all(&self) -> impl Iterator<Item = &Lease> {
        self.entries.values().map(|entry| &entry.lease)
    }

    /// Whether a machine has a slice of the address, or may have one.
    #[must_use]
    pub fn has_machines(&self, address: IpAddr) -> bool {
        self.all().any(|lease| lease.address == address && lease.phase != Phase::Free)
    }

    /// Grants a machine a slice of an address, the first free one if none is named.
    ///
    /// # Errors
    /// The slice is not free, or none is.
    pub fn grant(
        &mut self,
        address: IpAddr,
        slice: Option<Slice>,
        machine: EdgeId,
        now: Instant,
    ) -> Result<Lease, LeaseError> {
        let is_free = |key: SliceKey| self.get(key).is_none_or(|lease| lease.phase == Phase::Free);
        let slice = match slice {
            Some(slice) => slice,
            None => Slice::all().find(|one| is_free((address, *one))).ok_or(LeaseError::NoneFree(address))?,
        };
        let former = self.get((address, slice));
        // A lapsed lease has ended for its machine too.
        if let Some(lease) = former.filter(|lease| !matches!(lease.phase, Phase::Free | Phase::Lapsed)) {
            return Err(LeaseError::NotFree { address, slice, by: lease.machine });
        }
        let term = former.map_or(0, |lease| lease.term) + 1;
        Ok(self.begin((address, slice), machine, term, now))
    }

    /// Begins a lease.
    fn begin(&mut self, key: SliceKey, machine: EdgeId, term: u64, now: Instant) -> Lease {
        let lasts_seconds = u32::try_from(self.times.lasts.as_secs()).unwrap_or(u32::MAX);
        let lease = Lease { address: key.0, slice: key.1, machine, term, lasts_seconds, phase: Phase::Held };
        self.entries.insert(key, Entry { lease: lease.clone(), renewed: now, closed: None });
        lease
    }

    /// Moves a slice to another machine, or takes it from its machine if there is no other. The machine stops opening
    /// connections; its flows may go on for `within`. A slice whose machine has lapsed changes at once.
    ///
    /// # Errors
    /// Nobody has the slice, or the machine has it already.
    pub fn move_to(
        &mut self,
        key: SliceKey,
        to: Option<EdgeId>,
        within: Duration,
        now: Instant,
    ) -> Result<Lease, LeaseError> {
        let unknown = LeaseError::Unknown(key.0, key.1);
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.lease.phase != Phase::Free) else {
            return Err(unknown);
        };
        if to == Some(entry.lease.machine) {
            return Err(LeaseError::SameMachine);
        }
        if entry.lease.phase == Phase::Lapsed {
            return self.finish(key, to, now).ok_or(unknown);
        }
        let within_seconds = u32::try_from(within.as_secs()).unwrap_or(u32::MAX);
        entry.lease.phase = Phase::Draining { to, within_seconds };
        Ok(entry.lease.clone())
    }

    /// Ends the lease of a machine at once, because an operator says that the machine is off.
    ///
    /// # Errors
    /// Nobody has the slice.
    pub fn machine_is_off(&mut self, key: SliceKey, to: Option<EdgeId>, now: Instant) -> Result<Lease, LeaseError> {
        let unknown = LeaseError::Unknown(key.0, key.1);
        match self.get(key) {
            Some(lease) if lease.phase != Phase::Free => self.finish(key, to, now).ok_or(unknown),
            _ => Err(unknown),
        }
    }

    /// Gives the slice to the next machine, or to nobody. `None` if there is no lease.
    fn finish(&mut self, key: SliceKey, to: Option<EdgeId>, now: Instant) -> Option<Lease> {
        let entry = self.entries.get_mut(&key)?;
        match to {
            Some(machine) => {
                let term = entry.lease.term + 1;
                Some(self.begin(key, machine, term, now))
            }
            None => {
                entry.lease.phase = Phase::Free;
                entry.closed = None;
                Some(entry.lease.clone())
            }
        }
    }

    /// A beat of a machine has come at `now`, with these reports. Returns the leases that changed.
    pub fn handle_beat(&mut self, machine: EdgeId, uses: &[SliceUse], now: Instant) -> Vec<Lease> {
        let own: Vec<_> = self.entries.values().filter(|entry| entry.lease.machine == machine).map(key_of).collect();
        own.into_iter().filter_map(|key| self.handle_one(key, uses, now)).collect()
    }

    fn handle_one(&mut self, key: SliceKey, uses: &[SliceUse], now: Instant) -> Option<Lease> {
        let entry = self.entries.get_mut(&key)?;
        let found = uses.iter().find(|one| (one.address, one.slice, one.term) == (key.0, key.1, entry.lease.term));
        let (machine, term) = (entry.lease.machine, entry.lease.term);
        match entry.lease.phase {
            Phase::Held | Phase::Draining { .. } => entry.renewed = entry.renewed.max(now),
            // It is back, and nobody else has the slice.
            Phase::Lapsed => return Some(self.begin(key, machine, term + 1, now)),
            Phase::Free => return None,
        }
        let found = found.filter(|one| one.state == UseState::Closed)?;
        match entry.lease.phase {
            // The machine has missed the end of its lease, or has started anew: it needs a lease that it may trust.
            Phase::Held => Some(self.begin(key, machine, term + 1, now)),
            Phase::Draining { to, .. } if !found.has_flows => self.finish(key, to, now),
            Phase::Draining { .. } => {
                entry.closed.get_or_insert(now);
                None
            }
            Phase::Lapsed | Phase::Free => None,
        }
    }

    /// Control has heard nothing of any machine, because it has no connection to the bus. No lease ends meanwhile.
    pub fn handle_deaf(&mut self, now: Instant) {
        self.entries.values_mut().for_each(|entry| entry.renewed = entry.renewed.max(now));
    }

    /// Ends what is due. Returns the leases that changed.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<Lease> {
        let due: Vec<_> =
            self.entries.values().filter(|entry| self.ends(entry).is_some_and(|at| at <= now)).map(key_of).collect();
        let mut changed = Vec::new();
        for key in due {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            changed.extend(match entry.lease.phase {
                Phase::Draining { to, .. } => self.finish(key, to, now),
                Phase::Held | Phase::Lapsed | Phase::Free => {
                    entry.lease.phase = Phase::Lapsed;
                    Some(entry.lease.clone())
                }
            });
        }
        changed
    }

    /// When something is due next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.entries.values().filter_map(|entry| self.ends(entry)).min()
    }

    fn ends(&self, entry: &Entry) -> Option<Instant> {
        let lapses = entry.renewed + Duration::from_secs(entry.lease.lasts_seconds.into()) + self.times.grace;
        match entry.lease.phase {
            Phase::Held => Some(lapses),
            Phase::Draining { within_seconds, .. } => {
                let bound = entry.closed.map(|at| at + Duration::from_secs(within_seconds.into()));
                Some(bound.map_or(lapses, |bound| bound.min(lapses)))
            }
            Phase::Lapsed | Phase::Free => None,
        }
    }

    /// Forgets the slices of an address that no machine has. Returns whether it has none any more.
    pub fn forget(&mut self, address: IpAddr) -> bool {
        if self.has_machines(address) {
            return false;
        }
        let keys: Vec<_> = self.entries.keys().filter(|key| key.0 == address).copied().collect();
        for key in keys {
            if let btree_map::Entry::Occupied(entry) = self.entries.entry(key) {
                entry.remove();
            }
        }
        true
    }
}

fn key_of(entry: &Entry) -> SliceKey {
    entry.lease.key()
}
