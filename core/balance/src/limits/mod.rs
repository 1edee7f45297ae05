//! Limits of a socket: requests or bytes a second, requests at once, and a queue for the excess.
//!
//! Excess requests are either refused at once with a time to retry after (429 in HTTP), or wait a little. The number of
//! waiting requests and their time are bounded.
//!
//! May use: nothing else of this crate.

mod queue;
mod rate;

use std::time::Duration;

pub use queue::{MAX_AT_ONCE, MAX_WAITING, Queue, QueueConfig, QueueConfigError, Ticket};
pub use rate::{MAX_BURST, MAX_PER_SECOND, RateLimit, RateLimitError, TokenBucket};

/// The longest configurable wait.
pub const MAX_WAIT: Duration = Duration::from_secs(60);

/// The decision about a request or a connection. `W` describes the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<W> {
    /// Admit at once.
    Admit,
    /// Wait.
    Wait(W),
    /// Refuse.
    Refuse {
        /// Time after which a retry may succeed.
        retry_after: Duration,
    },
}
