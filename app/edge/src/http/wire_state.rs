//! The state that the reading side of a client's connection shares with its requests.

use std::{
    net::SocketAddr,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use sallyport_http::RequestRefusal;
use tokio::time::Instant;

use crate::access::RevocationSlot;

/// The state of one client connection.
#[derive(Debug)]
pub(crate) struct WireState {
    refused: OnceLock<RequestRefusal>,
    opened: Instant,
    busy: AtomicU32,
    quiet_since_ms: AtomicU64,
    unread: AtomicBool,
    at_rest: AtomicBool,
    ending: AtomicBool,
    closing: AtomicBool,
    revocation: RevocationSlot,
    peer: OnceLock<Box<str>>,
}

impl Default for WireState {
    fn default() -> Self {
        Self {
            refused: OnceLock::new(),
            opened: Instant::now(),
            busy: AtomicU32::new(0),
            quiet_since_ms: AtomicU64::new(0),
            unread: AtomicBool::new(false),
            at_rest: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            revocation: RevocationSlot::default(),
            peer: OnceLock::new(),
        }
    }
}

impl WireState {
    /// Why the client's bytes are refused, if they are.
    pub(crate) fn refused(&self) -> Option<RequestRefusal> {
        self.refused.get().copied()
    }

    /// Records why the client's bytes are refused. Only the first reason is kept.
    pub(crate) fn set_refused(&self, refusal: RequestRefusal) {
        let _ = self.refused.set(refusal);
    }

    /// The client's address for the access log, formatted once for all requests of the connection.
    pub(crate) fn peer(&self, addr: SocketAddr) -> &str {
        self.peer.get_or_init(|| addr.to_string().into())
    }

    /// The revocation check of the response under way on an HTTP/1 connection.
    pub(crate) fn revocation(&self) -> &RevocationSlot {
        &self.revocation
    }

    /// Records that a request began.
    pub(crate) fn mark_request_begun(&self) {
        self.busy.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that a request ended.
    pub(crate) fn mark_request_ended(&self) {
        let quiet_since = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.quiet_since_ms.store(quiet_since, Ordering::Release);
        self.busy.fetch_sub(1, Ordering::AcqRel);
    }

    /// When an idle connection will have been quiet for `bound`; `None` while requests run.
    pub(crate) fn quiet_until(&self, bound: Duration) -> Option<Instant> {
        let quiet_since = self.opened + Duration::from_millis(self.quiet_since_ms.load(Ordering::Acquire));
        (self.busy.load(Ordering::Acquire) == 0).then(|| quiet_since + bound)
    }

    /// Whether the connection waits for a new request, with nothing unread and nothing unwritten. If no request runs,
    /// the state of its reader can be dropped.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.at_rest.load(Ordering::Acquire) && !self.has_unread()
    }

    /// Records whether the connection waits for a new request, with nothing read and nothing unwritten.
    pub(crate) fn set_at_rest(&self, at_rest: bool) {
        self.at_rest.store(at_rest, Ordering::Release);
    }

    /// Records that some bytes of the client will not be read.
    pub(crate) fn mark_unread(&self) {
        self.unread.store(true, Ordering::Release);
    }

    /// Records that all bytes of the client were read.
    pub(crate) fn mark_read(&self) {
        self.unread.store(false, Ordering::Release);
    }

    /// Whether the client may still send bytes that will not be read. Closing at once would reset the connection, and
    /// the client could lose the last response (RFC 9112 section 9.6).
    pub(crate) fn has_unread(&self) -> bool {
        self.refused().is_some() || self.unread.load(Ordering::Acquire)
    }

    /// Records that no request follows the one under way.
    pub(crate) fn set_closing(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Whether no request follows the one under way.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Records that the next write is the connection's last one.
    pub(crate) fn mark_last_write(&self) {
        self.ending.store(true, Ordering::Release);
    }

    /// Whether the next write is the connection's last one. Resets the mark.
    pub(crate) fn take_last_write(&self) -> bool {
        self.ending.swap(false, Ordering::AcqRel)
    }
}
