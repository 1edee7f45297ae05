//! Bounds on requests that read the audit log, or wait for it.

use tokio::sync::Semaphore;

/// How many requests read the log at the same time.
const MAX_READERS: usize = 2;
/// How many requests wait for an event; others are answered at once.
const MAX_WAITING: usize = 256;

/// Permits for requests that read the audit log, and for those that wait for events.
#[derive(Debug)]
pub(crate) struct AuditReaders {
    pub(crate) reading: Semaphore,
    pub(crate) waiting: Semaphore,
}

impl Default for AuditReaders {
    fn default() -> Self {
        Self { reading: Semaphore::new(MAX_READERS), waiting: Semaphore::new(MAX_WAITING) }
    }
}
