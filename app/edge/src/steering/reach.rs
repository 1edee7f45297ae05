//! Which edges the leading control does not hear from, and which of them this edge cannot reach either.

use std::collections::HashSet;

use parking_lot::Mutex;
use sallyport_model::EdgeId;
use sallyport_steer::report::MAX_NAMED_EDGES;

/// The suspects of the leader.
#[derive(Debug, Default)]
pub(super) struct Reach {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    suspects: Vec<EdgeId>,
    /// The suspects that were not reached in the last check.
    unreachable: HashSet<EdgeId>,
}

impl Reach {
    /// Sets the suspects.
    pub(super) fn suspect(&self, suspects: &[EdgeId]) {
        let mut known = self.known.lock();
        known.suspects = suspects.iter().copied().take(MAX_NAMED_EDGES).collect();
        let Known { suspects, unreachable } = &mut *known;
        unreachable.retain(|edge| suspects.contains(edge));
    }

    /// Whether there are suspects.
    pub(super) fn has_suspects(&self) -> bool {
        !self.known.lock().suspects.is_empty()
    }

    /// The suspects.
    pub(super) fn suspects(&self) -> Vec<EdgeId> {
        self.known.lock().suspects.clone()
    }

    /// Sets which of the suspects were reached.
    pub(super) fn set_reached(&self, reached: &[EdgeId]) {
        let mut known = self.known.lock();
        known.unreachable = known.suspects.iter().filter(|edge| !reached.contains(edge)).copied().collect();
    }

    /// The suspects that are not reached.
    pub(super) fn unreachable(&self) -> Vec<EdgeId> {
        self.known.lock().unreachable.iter().copied().collect()
    }
}
