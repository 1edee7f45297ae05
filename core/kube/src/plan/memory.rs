//! What plans remember from one to the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sallyport_model::SocketId;

use crate::ExposureKey;

/// How long an object that has gone without its finalizer keeps its sockets. An object with the finalizer shows its
/// deletion, and loses them at once. The time lets a cluster be restored after its etcd was lost.
pub const SWEEP_AFTER: Duration = Duration::from_mins(10);

/// What plans remember from one to the next. A new program begins with an empty one.
#[derive(Debug, Clone)]
pub struct Memory {
    sweep_after: Duration,
    absent_since: BTreeMap<SocketId, Duration>,
    taken: BTreeSet<ExposureKey>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(SWEEP_AFTER)
    }
}

impl Memory {
    /// Sockets whose objects are gone for this long are swept.
    #[must_use]
    pub fn new(sweep_after: Duration) -> Self {
        Self { sweep_after, absent_since: BTreeMap::new(), taken: BTreeSet::new() }
    }

    /// Remembers that a socket of somebody else has the name of this one (409, `name-taken`): the next plan makes it
    /// with the name of the cluster behind. So two clusters of one account have Services of the same name. A listing
    /// comes before that plan, since the socket may be the own one, whose creation was not heard of.
    pub fn name_taken(&mut self, key: &ExposureKey) {
        self.taken.insert(key.clone());
    }

    /// Whether somebody else has the name.
    pub(super) fn is_name_taken(&self, key: &ExposureKey) -> bool {
        self.taken.contains(key)
    }

    /// Forgets the names of sockets that nobody wants any more.
    pub(super) fn keep_names(&mut self, is_wanted: impl Fn(&ExposureKey) -> bool) {
        self.taken.retain(|key| is_wanted(key));
    }

    /// When the socket is to be swept.
    pub(super) fn sweep_at(&mut self, socket: SocketId, now: Duration) -> Duration {
        self.absent_since.entry(socket).or_insert(now).saturating_add(self.sweep_after)
    }

    /// Forgets the sockets whose objects are back, and those that are gone.
    pub(super) fn keep(&mut self, absent: &BTreeSet<SocketId>) {
        self.absent_since.retain(|socket, _| absent.contains(socket));
    }
}
