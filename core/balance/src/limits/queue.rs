//! So many at once, and a bounded number that wait for a place.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{MAX_WAIT, Outcome};

/// How many places there may be.
pub const MAX_AT_ONCE: usize = 1_000_000;
/// How many may wait for a place.
pub const MAX_WAITING: usize = 10_000;

/// How many are served at once, and how many wait, for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueConfig {
    /// How many at once: 1 to [`MAX_AT_ONCE`].
    pub max_at_once: usize,
    /// How many wait: up to [`MAX_WAITING`]. With 0, what finds no place is refused.
    pub max_waiting: usize,
    /// How long one waits: up to [`MAX_WAIT`].
    pub max_wait: Duration,
}

/// Nothing can be served like this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueConfigError {
    /// None at all, or too many.
    #[error("the number of connections or requests at once is from 1 to {MAX_AT_ONCE}; leave it out for no limit")]
    AtOnce,
    /// Too many.
    #[error("the number of those that wait is at most {MAX_WAITING}")]
    Waiting,
    /// Too long.
    #[error("the time that one waits is at most {} seconds", MAX_WAIT.as_secs())]
    Wait,
}

impl QueueConfig {
    /// So many at once; the rest is refused.
    #[must_use]
    pub fn refusing(max_at_once: usize) -> Self {
        Self { max_at_once, max_waiting: 0, max_wait: Duration::ZERO }
    }

    /// Whether it keeps to the bounds named at its fields.
    ///
    /// # Errors
    /// The first bound that it does not keep to.
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
    /// Until when it waits at most.
    pub until: Instant,
}

/// Places, and who waits for one, first come, first served.
///
/// Who was admitted calls [`leave`](Self::leave) in the end, whether it was admitted at once or after waiting. Who
/// waits is admitted by a ticket that [`leave`](Self::leave) or [`set_config`](Self::set_config) hands out, or ends
/// with [`give_up`](Self::give_up) or by [`handle_timeout`](Self::handle_timeout).
#[derive(Debug, Clone)]
pub struct Queue {
    config: QueueConfig,
    at_once: usize,
    waiting: VecDeque<Ticket>,
    tickets: u64,
}

impl Queue {
    /// Nobody is there.
    #[must_use]
    pub fn new(config: QueueConfig) -> Self {
        Self { config, at_once: 0, waiting: VecDeque::new(), tickets: 0 }
    }

    /// How many have a place.
    #[must_use]
    pub fn at_once(&self) -> usize {
        self.at_once
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Someone comes. Whoever comes later never gets a place before one who waits.
    pub fn arrive(&mut self, now: Instant) -> Outcome<Ticket> {
        // Those whose time is up are out, though nobody told them yet.
        let is_someone_ahead = self.waiting.iter().any(|ticket| now < ticket.until);
        if !is_someone_ahead && self.at_once < self.config.max_at_once {
            self.at_once += 1;
            return Outcome::Admit;
        }
        let max_wait = self.config.max_wait.min(MAX_WAIT);
        if self.waiting.len() >= self.config.max_waiting.min(MAX_WAITING) || max_wait.is_zero() {
            // Nobody knows when a place is free: a second is the least that can be said in HTTP.
            return Outcome::Refuse { retry_after: max_wait.max(Duration::from_secs(1)) };
        }
        self.tickets += 1;
        let ticket = Ticket { number: self.tickets, until: now + max_wait };
        self.waiting.push_back(ticket);
        Outcome::Wait(ticket)
    }

    /// One who had a place is done. Returns who gets it: the first whose time is not up. Those whose time is up before
    /// it are refused: [`handle_timeout`](Self::handle_timeout) hands them out.
    pub fn leave(&mut self, now: Instant) -> Option<Ticket> {
        self.at_once = self.at_once.saturating_sub(1);
        self.admit_next(now)
    }

    /// One who waits does not any more. Returns whether it waited still; when not, it was admitted (and has to
    /// [leave](Self::leave)) or its time was up.
    pub fn give_up(&mut self, ticket: Ticket) -> bool {
        let place = self.waiting.iter().position(|waiting| waiting.number == ticket.number);
        place.is_some_and(|place| self.waiting.remove(place).is_some())
    }

    /// When the time of the next one who waits is up. None when nobody waits.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.iter().map(|ticket| ticket.until).min()
    }

    /// One whose time is up: it is refused. To be called until it returns None.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Ticket> {
        let place = self.waiting.iter().position(|ticket| ticket.until <= now)?;
        self.waiting.remove(place)
    }

    /// Other bounds from here on. Who has a place or waits goes on; when there are more places now, who waits gets one
    /// by [`admit_next`](Self::admit_next).
    pub fn set_config(&mut self, config: QueueConfig) {
        self.config = config;
    }

    /// Who gets a place that is free, when someone waits. To be called until it returns None, after
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
