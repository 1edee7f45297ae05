//! Openings that clients do not wait for: an origin that is silent is one also for those who give up before the connect
//! timeout.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sallyport_balance::ejection;
use sallyport_tunnel::Establishment;

use crate::origins::{origin::Origin, pool::SocketPool};

/// How long an opening must have gone unanswered when the client leaves, to speak against the origin: clients that leave
/// sooner say nothing of it.
const MIN_SILENCE: Duration = Duration::from_secs(1);

/// The opening of a connection to an origin, for as long as somebody waits for it. Dropped while there is no answer, it counts
/// as one that the origin did not take.
pub(crate) struct Opening<'a> {
    pool: &'a SocketPool,
    origin: &'a Arc<Origin>,
    establishment: Establishment,
    began: Instant,
    is_settled: bool,
}

impl<'a> Opening<'a> {
    /// It begins now.
    pub(crate) fn new(pool: &'a SocketPool, origin: &'a Arc<Origin>, establishment: Establishment) -> Self {
        Self { pool, origin, establishment, began: Instant::now(), is_settled: false }
    }

    /// The attempt has an outcome, which is told elsewhere.
    pub(crate) fn settle(mut self) {
        self.is_settled = true;
    }

    /// The client left before there was an answer.
    pub(crate) fn give_up(mut self) {
        self.is_settled = true;
        self.count();
    }

    fn count(&self) {
        if self.began.elapsed() >= MIN_SILENCE {
            self.pool.failed(self.origin, ejection::Failure::Connect);
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
