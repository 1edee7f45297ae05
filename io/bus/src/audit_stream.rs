//! The audit stream: the audit events of each machine, on their way to the logs of controls.
//!
//! Batches are opaque here: the log provides batches and accepts those of other machines.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use parking_lot::Mutex;
use tokio::sync::watch;

/// The batches of a log that are to be published. The methods may read and write files, and are called on blocking
/// threads.
pub trait AuditSource: Send + Sync + 'static {
    /// The next batch and its mark; `None` if there is none. Returns the same batch until it is marked as published.
    ///
    /// # Errors
    /// The log cannot be read.
    fn next(&self) -> Result<Option<(Vec<u8>, u64)>, String>;

    /// Marks the last returned batch as published.
    ///
    /// # Errors
    /// The mark cannot be stored.
    fn mark_published(&self) -> Result<(), String>;

    /// Changes whenever there may be more batches.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Number of events that are not published yet.
    fn behind(&self) -> u64;
}

/// Accepts batches of other machines. The methods may read and write files.
pub trait AuditTaker: Send + Sync + 'static {
    /// The position: creation time of the stream that was read last, in nanoseconds since 1970, and the sequence number
    /// of the last message.
    fn place(&self) -> (i64, u64);

    /// Accepts a batch at this position of the stream; returns how many events were new.
    ///
    /// # Errors
    /// The batch could not be stored and will be delivered again.
    fn take(&self, batch: &[u8], place: (i64, u64)) -> Result<u64, String>;
}

/// State and counters of the audit stream at this machine. Clones share them.
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
    /// Number of published events of this machine.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.shared.published.load(Relaxed)
    }

    /// Number of failed attempts to publish.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.shared.failed.load(Relaxed)
    }

    /// Number of accepted events of other machines.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.shared.taken.load(Relaxed)
    }

    /// Whether the stream is being read now.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.shared.is_read.load(Relaxed)
    }

    /// Since when events of this machine cannot be published, and why.
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
