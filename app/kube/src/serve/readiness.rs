//! Whether a replica is ready: the lists of the cluster are complete, the token is accepted, and the tunnels are up.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// The tunnels of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TunnelCount {
    /// Those that are wanted and have a socket.
    pub(crate) wanted: usize,
    /// Those that an edge has attached.
    pub(crate) up: usize,
}

/// What readiness depends on.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    tunnels: Mutex<Option<TunnelCount>>,
    token_problem: Mutex<Option<String>>,
    was_ready: AtomicBool,
    drains: AtomicBool,
}

impl Readiness {
    /// The tunnels, once the lists of the cluster are complete.
    pub(crate) fn set_tunnels(&self, count: TunnelCount) {
        *self.tunnels.lock() = Some(count);
    }

    /// What is wrong with the token.
    pub(crate) fn set_token_problem(&self, problem: Option<&str>) {
        *self.token_problem.lock() = problem.map(str::to_owned);
    }

    /// The replica is about to end.
    pub(crate) fn drain(&self) {
        self.drains.store(true, Ordering::Relaxed);
    }

    /// Why the replica is not ready; `None` if it is.
    ///
    /// The first time every tunnel must be up, so that the replica before may go. Later one is enough: a single tunnel
    /// that the edge refuses says nothing about the others.
    pub(crate) fn why_not(&self) -> Option<String> {
        if self.drains.load(Ordering::Relaxed) {
            return Some("the replica is about to end".to_owned());
        }
        if let Some(problem) = self.token_problem.lock().clone() {
            return Some(problem);
        }
        let Some(TunnelCount { wanted, up }) = *self.tunnels.lock() else {
            return Some("the lists of the cluster are not complete yet".to_owned());
        };
        let needed = if self.was_ready.load(Ordering::Relaxed) { wanted.min(1) } else { wanted };
        if up < needed {
            return Some(format!("{up} of {wanted} tunnels are up"));
        }
        self.was_ready.store(true, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_becomes_ready_with_all_tunnels_and_stays_ready_with_one() {
        let readiness = Readiness::default();
        assert!(readiness.why_not().unwrap().contains("not complete"));
        readiness.set_tunnels(TunnelCount { wanted: 3, up: 2 });
        assert_eq!(readiness.why_not().as_deref(), Some("2 of 3 tunnels are up"));
        readiness.set_tunnels(TunnelCount { wanted: 3, up: 3 });
        assert_eq!(readiness.why_not(), None);
        readiness.set_tunnels(TunnelCount { wanted: 3, up: 1 });
        assert_eq!(readiness.why_not(), None);
        readiness.set_tunnels(TunnelCount { wanted: 3, up: 0 });
        assert!(readiness.why_not().is_some());
        readiness.set_tunnels(TunnelCount { wanted: 0, up: 0 });
        assert_eq!(readiness.why_not(), None, "nothing is exposed");
        readiness.set_token_problem(Some("the token is refused"));
        assert_eq!(readiness.why_not().as_deref(), Some("the token is refused"));
        readiness.set_token_problem(None);
        readiness.drain();
        assert!(readiness.why_not().unwrap().contains("about to end"));
    }
}
