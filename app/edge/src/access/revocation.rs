//! The revocation check of a request whose answer is under way, kept where its bytes are written.
//!
//! The body of an answer is polled only while the client takes something. So the check does not lie in the body alone. For
//! HTTP/1 it lies where the connection is written to, and for HTTP/2 where the stream is run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{Method, uri::PathAndQuery};
use parking_lot::Mutex;

use super::AccessRevalidation;

use crate::{access::Access, origins::pool::SocketPool, util::wake_gated::WakeGated};

/// How long somebody who may not go on has to take the page that says so.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Resolves when whose request it is may not go on with it.
pub(crate) type Over = WakeGated<()>;

/// What decides whether a request may go on.
#[derive(Default)]
pub(crate) enum RevocationCheck {
    /// Nothing.
    #[default]
    Nothing,
    /// Nothing was asked when it came: that is all that a short request has. One that has to wait gets a revalidation.
    UncheckedRequest(UncheckedRequest),
    /// It goes on until this resolves.
    Stands(Over),
}

/// A request to a socket that asked nothing.
pub(crate) struct UncheckedRequest {
    pub(crate) access: Arc<Access>,
    pub(crate) pool: Arc<SocketPool>,
    pub(crate) client: std::net::IpAddr,
    pub(crate) port: u16,
    pub(crate) method: Method,
    pub(crate) target: Option<PathAndQuery>,
}

impl UncheckedRequest {
    fn revalidation(&self) -> AccessRevalidation {
        let mut revalidation = AccessRevalidation::new(&self.access, &self.pool, self.client, self.port);
        revalidation.set_request(&self.method, self.target.as_ref().map_or("/", PathAndQuery::path));
        revalidation.set_due();
        revalidation
    }
}

impl RevocationCheck {
    /// It goes on for as long as this says.
    pub(crate) fn of(revalidation: AccessRevalidation) -> Self {
        Self::Stands(WakeGated::new(revalidation.over()))
    }

    /// It is over, but for a page that says so.
    pub(crate) fn last_words() -> Self {
        Self::Stands(WakeGated::new(tokio::time::sleep(LAST_WORDS)))
    }

    /// To be asked while the request waits: ready when it may not go on.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::UncheckedRequest(unasked) = self {
            *self = Self::of(unasked.revalidation());
        }
        self.poll_known(cx)
    }

    /// Ready when it is known that it may not go on.
    fn poll_known(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Stands(over) => std::pin::Pin::new(over).poll(cx),
            Self::Nothing | Self::UncheckedRequest(_) => Poll::Pending,
        }
    }
}

/// Where the revocation of the answer under way lies.
#[derive(Default)]
pub(crate) struct RevocationSlot {
    revocation: Mutex<RevocationCheck>,
    is_over: AtomicBool,
}

impl RevocationSlot {
    /// This is under way now.
    pub(crate) fn put(&self, revocation: RevocationCheck) {
        self.is_over.store(false, Ordering::Relaxed);
        *self.revocation.lock() = revocation;
    }

    /// What was under way has ended. Whether that was because it might not go on.
    pub(crate) fn clear(&self) -> bool {
        *self.revocation.lock() = RevocationCheck::Nothing;
        self.is_over.swap(false, Ordering::Relaxed)
    }

    /// To be asked while the answer waits, for its origin or its client: ready when it may not go on.
    pub(crate) fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.revocation.lock().poll_over(cx);
        self.judged(polled)
    }

    /// To be asked while the answer flows: ready when it is known that it may not go on.
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
