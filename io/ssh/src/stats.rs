//! Metrics of the server.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters and gauges of one [`SshServer`](crate::SshServer). Counters only grow; gauges are marked.
#[derive(Debug, Default)]
pub struct SshStats {
    /// Accepted connections.
    pub connections: AtomicU64,
    /// Open connections (gauge).
    pub connections_open: AtomicU64,
    /// Connections refused by a limit or by the gate.
    pub connections_refused: AtomicU64,
    /// Successful logins.
    pub logins: AtomicU64,
    /// Refused login attempts, without the initial query of methods.
    pub logins_refused: AtomicU64,
    /// Connections whose RSA signature with SHA-1 was refused.
    pub sha1_refused: AtomicU64,
    /// Connections that did not log in in time.
    pub logins_timed_out: AtomicU64,
    /// Connections that were closed before their login in favour of newer ones.
    pub logins_pushed_out: AtomicU64,
    /// Connections before their login (gauge).
    pub logins_pending: AtomicU64,
    /// Granted forwards.
    pub forwards: AtomicU64,
    /// Current forwards (gauge).
    pub forwards_open: AtomicU64,
    /// Refused forwards.
    pub forwards_refused: AtomicU64,
    /// Opened streams.
    pub streams: AtomicU64,
    /// Open streams (gauge).
    pub streams_open: AtomicU64,
    /// Streams that the client refused because its origin was not reached.
    pub streams_refused: AtomicU64,
    /// Streams that failed for another reason.
    pub streams_failed: AtomicU64,
    /// Connections with an unresponsive client.
    pub clients_lost: AtomicU64,
    /// Bytes from visitors to origins.
    pub bytes_to_clients: AtomicU64,
    /// Bytes from origins to visitors.
    pub bytes_from_clients: AtomicU64,
    /// Lines of the live log that were dropped because a shell read too slowly.
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
