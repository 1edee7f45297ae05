//! What has happened so far, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters and gauges of one [`SshServer`](crate::SshServer). Counters only grow; gauges say so.
#[derive(Debug, Default)]
pub struct SshStats {
    /// Connections that were taken.
    pub connections: AtomicU64,
    /// Connections that are open now (gauge).
    pub connections_open: AtomicU64,
    /// Connections turned away for want of room, or by the gate.
    pub connections_refused: AtomicU64,
    /// Logins that succeeded.
    pub logins: AtomicU64,
    /// Attempts to log in that were refused; the question which methods there are is not counted.
    pub logins_refused: AtomicU64,
    /// Connections that wanted to sign with RSA and SHA-1, and were told no.
    pub sha1_refused: AtomicU64,
    /// Connections that did not log in within the time for it.
    pub logins_timed_out: AtomicU64,
    /// Connections that had not logged in and made room for newer ones.
    pub logins_pushed_out: AtomicU64,
    /// Connections that have not logged in (gauge).
    pub logins_pending: AtomicU64,
    /// Forwards that were granted.
    pub forwards: AtomicU64,
    /// Forwards that are in use now (gauge).
    pub forwards_open: AtomicU64,
    /// Forwards that were refused.
    pub forwards_refused: AtomicU64,
    /// Streams that were opened.
    pub streams: AtomicU64,
    /// Streams that are open now (gauge).
    pub streams_open: AtomicU64,
    /// Streams that the client refused: its origin was not reached.
    pub streams_refused: AtomicU64,
    /// Streams that did not come about for another reason.
    pub streams_failed: AtomicU64,
    /// Connections whose client answered no more.
    pub clients_lost: AtomicU64,
    /// Bytes from visitors to origins.
    pub bytes_to_clients: AtomicU64,
    /// Bytes from origins to visitors.
    pub bytes_from_clients: AtomicU64,
    /// Lines of the live log that were left out because a shell read too slowly.
    pub console_lines_dropped: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

pub(crate) fn uncount(gauge: &AtomicU64) {
    gauge.fetch_sub(1, Ordering::Relaxed);
}
