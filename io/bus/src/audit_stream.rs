//! The audit stream: what each machine of an installation has recorded, on its way to the logs of controls.
//!
//! What travels is not looked into here: whoever has a log gives batches of it and takes those of others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use parking_lot::Mutex;
use tokio::sync::watch;

/// What is to be passed on of a log. The methods may read and write files: they are called where that holds up nobody.
pub trait AuditSource: Send + Sync + 'static {
    /// The next batch and a mark for it; `None` while there is none. The same one until it is out.
    ///
    /// # Errors
    /// The log cannot be read.
    fn next(&self) -> Result<Option<(Vec<u8>, u64)>, String>;

    /// The batch that was given last is in the stream.
    ///
    /// # Errors
    /// That cannot be kept in mind.
    fn mark_published(&self) -> Result<(), String>;

    /// Sees a change whenever there may be more.
    fn changes(&self) -> watch::Receiver<u64>;

    /// How many events are not in the stream yet.
    fn behind(&self) -> u64;
}

/// What takes batches of other machines. The methods may read and write files.
pub trait AuditTaker: Send + Sync + 'static {
    /// When the stream was made that was read last, in nanoseconds since 1970, and up to which of its messages.
    fn place(&self) -> (i64, u64);

    /// Takes a batch, which is this message of the stream that was made then; gives how many events were new.
    ///
    /// # Errors
    /// It could not be kept: the same one comes again.
    fn take(&self, batch: &[u8], place: (i64, u64)) -> Result<u64, String>;
}

/// How the audit stream does at this machine. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct AuditStreamStats {
    shared: Arc<AuditStreamCounts>,
}

#[derive(Debug, Default)]
struct AuditStreamCounts {
    published: AtomicU64,
    failed: AtomicU64,
    taken: AtomicU64,
    is_read: AtomicBool,
    stuck: Mutex<Option<(Instant, String)>>,
}

impl AuditStreamStats {
    /// Events of this machine that are in the stream.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.shared.published.load(Relaxed)
    }

    /// Attempts to put events there that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.shared.failed.load(Relaxed)
    }

    /// Events of other machines that were taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.shared.taken.load(Relaxed)
    }

    /// Whether the stream of others is read now.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.shared.is_read.load(Relaxed)
    }

    /// Since when the events of this machine do not get into the stream, and why, where that is so.
    #[must_use]
    pub fn stuck(&self) -> Option<(Instant, String)> {
        self.shared.stuck.lock().clone()
    }

    pub(crate) fn record_published(&self, events: u64) {
        self.shared.published.fetch_add(events, Relaxed);
        *self.shared.stuck.lock() = None;
    }

    pub(crate) fn failed_by(&self, why: String) {
        self.shared.failed.fetch_add(1, Relaxed);
        let mut stuck = self.shared.stuck.lock();
        let since = stuck.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        *stuck = Some((since, why));
    }

    pub(crate) fn was_taken(&self, events: u64) {
        self.shared.taken.fetch_add(events, Relaxed);
    }

    pub(crate) fn reads(&self, is_read: bool) {
        self.shared.is_read.store(is_read, Relaxed);
    }
}
