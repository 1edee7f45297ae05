//! How much of clients' uploads over HTTP/2 is held in memory, and its bounds.
//!
//! The windows of HTTP/2 let each client send megabytes ahead of an origin that does not read. For one client that is
//! what makes uploads fast; for hundreds it would be all memory there is. So what has come and was not taken is counted,
//! and past a bound those connections that hold more than a little are not read from until their origins have caught up.
//! One that stays so does not answer pings either, and ends.

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

/// How much of all uploads is held at once, in bytes; beyond it each connection has [`MAX_SPARED_BYTES`].
const MAX_UPLOAD_BYTES_HELD: usize = 256 * 1024 * 1024;
/// How much of the uploads of one address is held at once, in bytes.
const MAX_UPLOAD_BYTES_HELD_PER_ADDRESS: usize = 32 * 1024 * 1024;
/// What each connection may hold whatever the others do, in bytes: who sends little is not held up by who sends much.
const MAX_SPARED_BYTES: usize = 64 * 1024;
/// How long a connection waits before it is looked at again.
const PAUSE: Duration = Duration::from_millis(50);

/// What all connections hold.
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

    /// How many bytes are held now.
    pub(crate) fn held(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// The count of one connection from this address.
    pub(crate) fn meter(self: &Arc<Self>, address: IpAddr) -> Arc<UploadMeter> {
        let party = party(address);
        let mut by_party = self.by_party.lock();
        let of_party = by_party.entry(party).or_default().clone();
        drop(by_party);
        let (held, uploads) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(UploadMeter { budget: self.clone(), party, of_party, held, uploads })
    }
}

/// What one connection holds.
#[derive(Debug)]
pub(crate) struct UploadMeter {
    budget: Arc<UploadBudget>,
    party: IpAddr,
    of_party: Arc<AtomicUsize>,
    held: AtomicUsize,
    uploads: AtomicUsize,
}

impl UploadMeter {
    fn may_read(&self) -> bool {
        self.held.load(Ordering::Relaxed) < MAX_SPARED_BYTES
            || (self.of_party.load(Ordering::Relaxed) < self.budget.max_per_party
                && self.budget.held() < self.budget.max)
    }

    fn record_received(&self, bytes: usize) {
        for count in [&self.held, &*self.of_party, &self.budget.total] {
            count.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// So much was taken on its way to an origin.
    pub(crate) fn record_taken(&self, bytes: usize) {
        let left = |held: usize| Some(held.saturating_sub(bytes));
        let before = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).unwrap_or_default();
        let taken = before.min(bytes);
        self.of_party.fetch_sub(taken, Ordering::Relaxed);
        self.budget.total.fetch_sub(taken, Ordering::Relaxed);
    }

    /// One more upload runs on this connection.
    pub(crate) fn begin(self: &Arc<Self>) -> MeteredUpload {
        self.uploads.fetch_add(1, Ordering::Relaxed);
        MeteredUpload(self.clone())
    }
}

impl Drop for UploadMeter {
    fn drop(&mut self) {
        self.record_taken(usize::MAX);
        let mut by_party = self.budget.by_party.lock();
        // One is in the map and one is ours.
        if Arc::strong_count(&self.of_party) == 2 {
            by_party.remove(&self.party);
        }
    }
}

/// An upload that runs.
#[derive(Debug)]
pub(crate) struct MeteredUpload(Arc<UploadMeter>);

impl MeteredUpload {
    /// So much of it was taken.
    pub(crate) fn record_taken(&self, bytes: usize) {
        self.0.record_taken(bytes);
    }
}

impl Drop for MeteredUpload {
    fn drop(&mut self) {
        // What was given up was not taken and is gone all the same: with the last upload the count begins anew.
        if self.0.uploads.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.record_taken(usize::MAX);
        }
    }
}

/// What is between an HTTP/2 connection and its being read: a client that has sent too much ahead waits.
pub(crate) struct ReadGate {
    meter: Arc<UploadMeter>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl ReadGate {
    /// Of the connection with this meter.
    pub(crate) fn new(meter: Arc<UploadMeter>) -> Self {
        Self { meter, pause: None }
    }

    /// So many bytes of uploads came.
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
        assert!((200_000..200_000 + 16_384).contains(&budget.held()), "it goes on: {}", budget.held());
        drop(upload);
        assert_eq!(budget.held(), 0, "what was given up is gone");
        drop(gate);
        assert!(budget.by_party.lock().is_empty());
    }
}
