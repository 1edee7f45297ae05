//! Bounds on the memory that uploads over HTTP/2 and HTTP/3 hold.
//!
//! The windows of HTTP/2 let each client send megabytes ahead of an origin that does not read. One such client is
//! harmless; hundreds would fill the memory. So the bytes that were received and not yet consumed are counted. Beyond a
//! bound, connections that hold more than [`MAX_SPARED_BYTES`] are not read until their origins catch up. The answers
//! to pings are not read either, so a connection that stays paused ends.
//!
//! Over HTTP/3 a client sends what its credit allows, whether the edge reads or not. So the credit of each running
//! upload counts as held. Beyond a bound, the connection grants less credit. Most WebSockets are quiet, so the credit
//! of one counts only while its bytes wait for the origin.

use std::{
    collections::HashMap,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Sleep;

use crate::lifecycle::counts::party;

/// The bound on the bytes of all uploads. Beyond the bound, each connection may hold [`MAX_SPARED_BYTES`].
const MAX_UPLOAD_BYTES_HELD: usize = 256 * 1024 * 1024;
/// The bound on the bytes of the uploads of one address.
const MAX_UPLOAD_BYTES_HELD_PER_ADDRESS: usize = 32 * 1024 * 1024;
/// How many bytes each connection may hold regardless of others, so that large uploads do not delay small ones.
pub(super) const MAX_SPARED_BYTES: usize = 64 * 1024;
/// How long a connection is paused before the bounds are checked again.
const PAUSE: Duration = Duration::from_millis(50);

/// The count of all connections.
#[derive(Debug)]
pub(crate) struct UploadBudget {
    max: usize,
    max_per_party: usize,
    total: AtomicUsize,
    by_party: Mutex<HashMap<IpAddr, Arc<AtomicUsize>>>,
}

impl Default for UploadBudget {
    fn default() -> Self {
        Self::new(MAX_UPLOAD_BYTES_HELD, MAX_UPLOAD_BYTES_HELD_PER_ADDRESS)
    }
}

impl UploadBudget {
    fn new(max: usize, max_per_party: usize) -> Self {
        Self { max, max_per_party, total: AtomicUsize::new(0), by_party: Mutex::default() }
    }

    /// How many bytes are held.
    pub(crate) fn held(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// The meter of a new connection from this address.
    pub(crate) fn meter(self: &Arc<Self>, address: IpAddr) -> Arc<UploadMeter> {
        let party = party(address);
        let mut by_party = self.by_party.lock();
        let of_party = by_party.entry(party).or_default().clone();
        drop(by_party);
        let (held, uploads) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(UploadMeter { budget: self.clone(), party, of_party, held, uploads })
    }
}

/// The count of one connection.
#[derive(Debug)]
pub(crate) struct UploadMeter {
    budget: Arc<UploadBudget>,
    party: IpAddr,
    of_party: Arc<AtomicUsize>,
    held: AtomicUsize,
    uploads: AtomicUsize,
}

impl UploadMeter {
    /// Whether the connection may hold more.
    pub(super) fn may_read(&self) -> bool {
        self.held.load(Ordering::Relaxed) < MAX_SPARED_BYTES
            || (self.of_party.load(Ordering::Relaxed) < self.budget.max_per_party
                && self.budget.held() < self.budget.max)
    }

    /// Records bytes that were received, or may be.
    pub(super) fn record_received(&self, bytes: usize) {
        for count in [&self.held, &*self.of_party, &self.budget.total] {
            count.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Records bytes that were consumed.
    pub(crate) fn record_taken(&self, bytes: usize) {
        let left = |held: usize| Some(held.saturating_sub(bytes));
        let before = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).unwrap_or_default();
        let taken = before.min(bytes);
        self.of_party.fetch_sub(taken, Ordering::Relaxed);
        self.budget.total.fetch_sub(taken, Ordering::Relaxed);
    }

    /// Counts one more upload on this connection.
    pub(crate) fn begin(self: &Arc<Self>) -> MeteredUpload {
        self.uploads.fetch_add(1, Ordering::Relaxed);
        MeteredUpload(self.clone())
    }
}

impl Drop for UploadMeter {
    fn drop(&mut self) {
        self.record_taken(usize::MAX);
        let mut by_party = self.budget.by_party.lock();
        // One reference is in the map, and one here.
        if Arc::strong_count(&self.of_party) == 2 {
            by_party.remove(&self.party);
        }
    }
}

/// An upload of a connection, counted until dropped.
#[derive(Debug)]
pub(crate) struct MeteredUpload(Arc<UploadMeter>);

impl MeteredUpload {
    /// Records bytes of the upload that were consumed.
    pub(crate) fn record_taken(&self, bytes: usize) {
        self.0.record_taken(bytes);
    }
}

impl Drop for MeteredUpload {
    fn drop(&mut self) {
        // Discarded bytes were never recorded as consumed: the last upload resets the count.
        if self.0.uploads.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.record_taken(usize::MAX);
        }
    }
}

/// Pauses the reads of an HTTP/2 connection while its uploads hold too much memory.
pub(crate) struct ReadGate {
    meter: Arc<UploadMeter>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl ReadGate {
    /// The gate of the connection with this meter.
    pub(crate) fn new(meter: Arc<UploadMeter>) -> Self {
        Self { meter, pause: None }
    }

    /// Records bytes of uploads that were received.
    pub(crate) fn record_received(&self, bytes: usize) {
        if bytes > 0 {
            self.meter.record_received(bytes);
        }
    }

    /// Ready when the connection may be read.
    pub(crate) fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.meter.may_read() {
            ready!(self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(PAUSE))).as_mut().poll(cx));
            self.pause = None;
        }
        self.pause = None;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn large_uploads_wait_and_small_ones_do_not() {
        let budget = Arc::new(UploadBudget::new(1_000_000, 200_000));
        let address = "192.0.2.1".parse().unwrap();
        let greedy = budget.meter(address);
        let upload = greedy.begin();
        let mut gate = ReadGate::new(greedy);
        let read_on = async |gate: &mut ReadGate| {
            let open = Duration::from_secs(1);
            while tokio::time::timeout(open, poll_fn(|cx| gate.poll_open(cx))).await.is_ok() {
                gate.record_received(16_384);
            }
        };
        read_on(&mut gate).await;
        assert!((200_000..200_000 + 16_384).contains(&budget.held()), "{}", budget.held());

        let modest = budget.meter(address);
        assert!(modest.may_read() && budget.meter("192.0.2.2".parse().unwrap()).may_read());
        modest.record_received(MAX_SPARED_BYTES);
        assert!(!modest.may_read(), "of the same address");
        drop(modest);

        upload.record_taken(100_000);
        read_on(&mut gate).await;
        assert!((200_000..200_000 + 16_384).contains(&budget.held()), "reads continue: {}", budget.held());
        drop(upload);
        assert_eq!(budget.held(), 0, "what was given up is gone");
        drop(gate);
        assert!(budget.by_party.lock().is_empty());
    }
}
