//! A limit of concurrent requests with a bounded queue.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{MAX_WAIT, Outcome};

/// The greatest limit.
pub const MAX_AT_ONCE: usize = 1_000_000;
/// The longest queue.
pub const MAX_WAITING: usize = 10_000;

/// Limit, queue length and waiting time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueConfig {
    /// Concurrent requests: 1 to [`MAX_AT_ONCE`].
    pub max_at_once: usize,
    /// Queue length: up to [`MAX_WAITING`]. With 0, requests beyond the limit are refused.
    pub max_waiting: usize,
    /// The longest wait: up to [`MAX_WAIT`].
    pub max_wait: Duration,
}

/// Reason why a [`QueueConfig`] is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueConfigError {
    /// The limit is 0 or too large.
    #[error("the number of connections or requests at once must be from 1 to {MAX_AT_ONCE}; leave it out for no limit")]
    AtOnce,
    /// The queue is too long.
    #[error("the number of waiting connections or requests must be at most {MAX_WAITING}")]
    Waiting,
    /// The wait is too long.
    #[error("the waiting time must be at most {} seconds", MAX_WAIT.as_secs())]
    Wait,
}

impl QueueConfig {
    /// A limit without a queue: requests beyond the limit are refused.
    #[must_use]
    pub fn refusing(max_at_once: usize) -> Self {
        Self { max_at_once, max_waiting: 0, max_wait: Duration::ZERO }
    }

    /// Checks the bounds documented at the fields.
    ///
    /// # Errors
    /// The first violated bound.
    pub fn validate(&self) -> Result<(), QueueConfigError> {
        if !(1..=MAX_AT_ONCE).contains(&self.max_at_once) {
            return Err(QueueConfigError::AtOnce);
        }
        if self.max_waiting > MAX_WAITING {
            return Err(QueueConfigError::Waiting);
        }
        if self.max_wait > MAX_WAIT { Err(QueueConfigError::Wait) } else { Ok(()) }
    }
}

/// A place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    number: u64,
    /// End of the wait.
    pub until: Instant,
}

/// A limit with a first-come, first-served queue.
///
/// Every admitted request calls [`leave`](Self::leave) in the end, also if it had to wait. A waiting request is
/// admitted by a ticket that [`leave`](Self::leave) or [`admit_next`](Self::admit_next) returns, or ends with
/// [`give_up`](Self::give_up) or [`handle_timeout`](Self::handle_timeout).
#[derive(Debug, Clone)]
pub struct Queue {
    config: QueueConfig,
    at_once: usize,
    waiting: VecDeque<Ticket>,
    tickets: u64,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(config: QueueConfig) -> Self {
        Self { config, at_once: 0, waiting: VecDeque::new(), tickets: 0 }
    }

    /// Number of admitted requests.
    #[must_use]
    pub fn at_once(&self) -> usize {
        self.at_once
    }

    /// Number of waiting requests.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Decides about a new request. A new request never overtakes a waiting one.
    pub fn arrive(&mut self, now: Instant) -> Outcome<Ticket> {
        // A ticket whose wait has ended does not count, even before `handle_timeout` returned it.
        let is_someone_ahead = self.waiting.iter().any(|ticket| now < ticket.until);
        if !is_someone_ahead && self.at_once < self.config.max_at_once {
            self.at_once += 1;
            return Outcome::Admit;
        }
        let max_wait = self.config.max_wait.min(MAX_WAIT);
        if self.waiting.len() >= self.config.max_waiting.min(MAX_WAITING) || max_wait.is_zero() {
            // When a place will be free is unknown; one second is the least that HTTP can express.
            return Outcome::Refuse { retry_after: max_wait.max(Duration::from_secs(1)) };
        }
        self.tickets += 1;
        let ticket = Ticket { number: self.tickets, until: now + max_wait };
        self.waiting.push_back(ticket);
        Outcome::Wait(ticket)
    }

    /// Ends an admitted request. Returns the ticket that is admitted in its place: the first whose wait has not ended.
    /// [`handle_timeout`](Self::handle_timeout) returns the earlier tickets, which are refused.
    pub fn leave(&mut self, now: Instant) -> Option<Ticket> {
        self.at_once = self.at_once.saturating_sub(1);
        self.admit_next(now)
    }

    /// Removes a waiting ticket. Returns whether the ticket was still waiting; otherwise it was admitted (and has to
    /// [leave](Self::leave)) or its wait has ended.
    pub fn give_up(&mut self, ticket: Ticket) -> bool {
        let place = self.waiting.iter().position(|waiting| waiting.number == ticket.number);
        place.is_some_and(|place| self.waiting.remove(place).is_some())
    }

    /// End of the next wait; `None` if no request waits.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.iter().map(|ticket| ticket.until).min()
    }

    /// The next ticket whose wait has ended: its request is refused. Call until it returns `None`.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Ticket> {
        let place = self.waiting.iter().position(|ticket| ticket.until <= now)?;
        self.waiting.remove(place)
    }

    /// Changes the bounds. Admitted and waiting requests stay; if the limit grows, [`admit_next`](Self::admit_next)
    /// admits waiting ones.
    pub fn set_config(&mut self, config: QueueConfig) {
        self.config = config;
    }

    /// Admits the next waiting ticket if there is room. Call until it returns `None`, after
    /// [`set_config`](Self::set_config).
    pub fn admit_next(&mut self, now: Instant) -> Option<Ticket> {
        if self.at_once >= self.config.max_at_once {
            return None;
        }
        let place = self.waiting.iter().position(|ticket| now < ticket.until)?;
        let ticket = self.waiting.remove(place)?;
        self.at_once += 1;
        Some(ticket)
    }
}
