//! What plans remember from one to the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sallyport_model::SocketId;

use super::{Action, OwnedSocket};
use crate::{ExposureKey, SocketSpec};

/// How long an object that has gone without its finalizer keeps its sockets. An object with the finalizer shows its
/// deletion, and loses them at once. The time lets a cluster be restored after its etcd was lost.
pub const SWEEP_AFTER: Duration = Duration::from_mins(10);

/// What plans remember from one to the next. A new program begins with an empty one.
#[derive(Debug, Clone)]
pub struct Memory {
    sweep_after: Duration,
    absent_since: BTreeMap<SocketId, Duration>,
    applied: BTreeMap<SocketId, Applied>,
    taken: BTreeSet<ExposureKey>,
}

/// An accepted change, with the version that came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Applied {
    spec: SocketSpec,
    labels: BTreeMap<String, String>,
    etag: String,
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
        Self { sweep_after, absent_since: BTreeMap::new(), applied: BTreeMap::new(), taken: BTreeSet::new() }
    }

    /// Remembers that the API accepted a change or a new socket, which now has this id and ETag. If the API writes a
    /// value in another way than it was sent, the next plan does not send it again.
    pub fn accepted(&mut self, action: &Action, id: SocketId, etag: Option<String>) {
        let (spec, labels) = match action {
            Action::Delete { .. } => {
                self.applied.remove(&id);
                return;
            }
            Action::Update { spec, labels, .. } | Action::Create { spec, labels, .. } => (spec, labels),
        };
        let Some(etag) = etag else { return };
        self.applied.insert(id, Applied { spec: (**spec).clone(), labels: labels.clone(), etag });
    }

    /// Remembers that a socket of somebody else has the name of this one (409, `name-taken`): the next plan makes it
    /// with the name of the cluster behind. So two clusters of one account have Services of the same name.
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

    /// Whether this very change was accepted, and nobody has changed the socket since.
    pub(super) fn has_applied(
        &self,
        socket: &OwnedSocket,
        spec: &SocketSpec,
        labels: &BTreeMap<String, String>,
    ) -> bool {
        self.applied.get(&socket.id).is_some_and(|applied| {
            Some(&applied.etag) == socket.etag.as_ref() && applied.spec == *spec && applied.labels == *labels
        })
    }

    /// When the socket is to be swept.
    pub(super) fn sweep_at(&mut self, socket: SocketId, now: Duration) -> Duration {
        self.absent_since.entry(socket).or_insert(now).saturating_add(self.sweep_after)
    }

    /// Forgets the sockets whose objects are back, and those that are gone.
    pub(super) fn keep(&mut self, absent: &BTreeSet<SocketId>, owned: &BTreeSet<SocketId>) {
        self.absent_since.retain(|socket, _| absent.contains(socket));
        self.applied.retain(|socket, _| owned.contains(socket));
    }
}
