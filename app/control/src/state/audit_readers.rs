//! Bounds on requests that read the audit log, or wait for it.

use tokio::sync::{Semaphore, watch};

/// How many requests read the log at the same time.
const MAX_READERS: usize = 2;
/// How many requests wait for an event; others are answered at once.
const MAX_WAITING: usize = 256;

/// Permits for requests that read the audit log, and for those that wait for events until the process ends.
#[derive(Debug)]
pub(crate) struct AuditReaders {
    pub(crate) reading: Semaphore,
    pub(crate) waiting: Semaphore,
    stopping: watch::Sender<bool>,
}

impl AuditReaders {
    /// Ends the waits of all requests, now and later: each gets what its page has.
    pub(crate) fn stop_waiting(&self) {
        self.stopping.send_replace(true);
    }

    /// True once the process ends.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }
}

impl Default for AuditReaders {
    fn default() -> Self {
        Self {
            reading: Semaphore::new(MAX_READERS),
            waiting: Semaphore::new(MAX_WAITING),
            stopping: watch::Sender::new(false),
        }
    }
}
