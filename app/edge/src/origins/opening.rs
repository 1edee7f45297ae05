//! Counts origins that do not answer, even if the client leaves before the connect timeout.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sallyport_balance::ejection;
use sallyport_tunnel::Establishment;

use crate::origins::{origin::Origin, pool::SocketPool};

/// How long an open must have been unanswered when the client leaves, to count as a failure of the origin.
const MIN_SILENCE: Duration = Duration::from_secs(1);

/// The open of a connection to an origin. Dropped without an outcome, it counts as a failure of the origin if it lasted
/// [`MIN_SILENCE`].
pub(crate) struct Opening<'a> {
    pool: &'a SocketPool,
    origin: &'a Arc<Origin>,
    establishment: Establishment,
    began: Instant,
    is_settled: bool,
}

impl<'a> Opening<'a> {
    /// An open that begins now.
    pub(crate) fn new(pool: &'a SocketPool, origin: &'a Arc<Origin>, establishment: Establishment) -> Self {
        Self { pool, origin, establishment, began: Instant::now(), is_settled: false }
    }

    /// The open has an outcome, which the caller records.
    pub(crate) fn settle(mut self) {
        self.is_settled = true;
    }

    /// The client left before the outcome.
    pub(crate) fn give_up(mut self) {
        self.is_settled = true;
        self.count();
    }

    fn count(&self) {
        if self.began.elapsed() >= MIN_SILENCE {
            self.pool.record_failure(self.origin, ejection::Failure::Connect);
        }
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if !self.is_settled && self.establishment.peek().is_none() {
            self.count();
        }
    }
}
