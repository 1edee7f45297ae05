//! How much a socket takes: so many requests or bytes a second, so many at once, and what happens to the rest.
//!
//! What is too much either gets an answer at once that says when to come again (429 in HTTP), or waits a little. Both
//! ends are bounded: how many wait, and for how long.

mod queue;
mod rate;

use std::time::Duration;

pub use queue::{MAX_AT_ONCE, MAX_WAITING, Queue, QueueConfig, QueueConfigError, Ticket};
pub use rate::{MAX_BURST, MAX_PER_SECOND, RateLimit, RateLimitError, TokenBucket};

/// How long something may wait at most.
pub const MAX_WAIT: Duration = Duration::from_secs(60);

/// What happens to a request or a connection. `W` says how it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<W> {
    /// It goes on at once.
    Admit,
    /// It waits.
    Wait(W),
    /// It is refused.
    Refuse {
        /// After how long it may be worth trying again.
        retry_after: Duration,
    },
}
