//! The revocation check of a request during its response, kept where bytes are written.
//!
//! A response body is polled only while the client takes bytes, so the check cannot live in the body alone. HTTP/1
//! polls it where the connection is written, HTTP/2 where the stream runs.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{Method, uri::PathAndQuery};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{AccessRevalidation, Whereabouts};

use crate::{access::Access, origins::pool::SocketPool, util::wake_gated::WakeGated};

/// How long a revoked client has to read the page about the revocation.
const PAGE_TIMEOUT: Duration = Duration::from_secs(2);

/// Resolves when the request is revoked.
pub(crate) type RevocationFuture = WakeGated<()>;

/// What can revoke a request.
#[derive(Default)]
pub(crate) enum RevocationCheck {
    /// Nothing.
    #[default]
    Nothing,
    /// The request came before the socket had policies. If it has to wait, it is evaluated again.
    UncheckedRequest(UncheckedRequest),
    /// This future, which resolves when the request is revoked.
    Stands(RevocationFuture),
}

/// A request that was admitted without a decision, because the socket had no policies.
pub(crate) struct UncheckedRequest {
    pub(crate) access: Arc<Access>,
    pub(crate) pool: Arc<SocketPool>,
    pub(crate) client: IpAddr,
    pub(crate) moves: Option<watch::Receiver<Whereabouts>>,
    pub(crate) port: u16,
    pub(crate) method: Method,
    pub(crate) target: Option<PathAndQuery>,
}

impl UncheckedRequest {
    fn revalidation(&self) -> AccessRevalidation {
        let mut revalidation = AccessRevalidation::new(&self.access, &self.pool, self.client, self.port);
        revalidation.set_moves(self.moves.clone());
        revalidation.set_request(&self.method, self.target.as_ref().map_or("/", PathAndQuery::path));
        revalidation.set_due();
        revalidation
    }
}

impl RevocationCheck {
    /// The check that resolves when this revalidation revokes the request.
    pub(crate) fn of(revalidation: AccessRevalidation) -> Self {
        Self::Stands(WakeGated::new(revalidation.over()))
    }

    /// The check after a revocation, which leaves time for the page about it.
    pub(crate) fn page_timeout() -> Self {
        Self::Stands(WakeGated::new(tokio::time::sleep(PAGE_TIMEOUT)))
    }

    /// Ready when the request is revoked. For a request that waits: it starts the evaluation of an unchecked request.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::UncheckedRequest(unchecked) = self {
            *self = Self::of(unchecked.revalidation());
        }
        self.poll_known(cx)
    }

    /// Like `poll_over`, without starting an evaluation.
    fn poll_known(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Stands(over) => std::pin::Pin::new(over).poll(cx),
            Self::Nothing | Self::UncheckedRequest(_) => Poll::Pending,
        }
    }
}

/// Holds the revocation check of the response under way.
#[derive(Default)]
pub(crate) struct RevocationSlot {
    revocation: Mutex<RevocationCheck>,
    is_over: AtomicBool,
}

impl RevocationSlot {
    /// Sets the check of a response that begins.
    pub(crate) fn put(&self, revocation: RevocationCheck) {
        self.is_over.store(false, Ordering::Relaxed);
        *self.revocation.lock() = revocation;
    }

    /// Clears the check of a response that ended. Returns whether the request was revoked.
    pub(crate) fn clear(&self) -> bool {
        *self.revocation.lock() = RevocationCheck::Nothing;
        self.is_over.swap(false, Ordering::Relaxed)
    }

    /// Ready when the request is revoked. To be polled while the response waits for its origin or its client.
    pub(crate) fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.revocation.lock().poll_over(cx);
        self.judged(polled)
    }

    /// Ready when the request is known to be revoked. To be polled while the response flows.
    pub(crate) fn poll_known(&self, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.revocation.lock().poll_known(cx);
        self.judged(polled)
    }

    fn judged(&self, polled: Poll<()>) -> Poll<()> {
        if polled.is_ready() {
            *self.revocation.lock() = RevocationCheck::Nothing;
            self.is_over.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl std::fmt::Debug for RevocationSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RevocationSlot").finish_non_exhaustive()
    }
}
