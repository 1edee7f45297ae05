//! A rate limit: the generic cell rate algorithm (ITU-T I.371), a token bucket that needs no refilling.

use std::time::{Duration, Instant};

use super::{MAX_WAIT, Outcome};

/// The greatest rate: more than a machine forwards, and small enough that nothing overflows.
pub const MAX_PER_SECOND: u64 = 1_000_000_000_000;
/// The greatest burst.
pub const MAX_BURST: u64 = 1_000_000_000_000;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A rate with a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    per_second: u64,
    burst: u64,
}

/// A rate or burst is 0 or too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a limit and its burst must be from 1 to {MAX_PER_SECOND} a second; leave it out for no limit")]
pub struct RateLimitError;

impl RateLimit {
    /// A limit of `per_second`, with `burst` at once after a pause.
    ///
    /// # Errors
    /// One of them is 0, or above [`MAX_PER_SECOND`] or [`MAX_BURST`].
    pub fn new(per_second: u64, burst: u64) -> Result<Self, RateLimitError> {
        if !(1..=MAX_PER_SECOND).contains(&per_second) || !(1..=MAX_BURST).contains(&burst) {
            return Err(RateLimitError);
        }
        Ok(Self { per_second, burst })
    }

    /// The rate per second.
    #[must_use]
    pub fn per_second(&self) -> u64 {
        self.per_second
    }

    /// The burst.
    #[must_use]
    pub fn burst(&self) -> u64 {
        self.burst
    }
}

/// Counts requests or bytes against a [`RateLimit`], exactly at any rate.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    limit: RateLimit,
    started: Instant,
    /// The "theoretical arrival time" of the algorithm: when everything taken so far is paid for. Counted from the
    /// start in nanoseconds times the rate: in this unit one token costs a second's nanoseconds, a whole number.
    paid_at: u128,
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(limit: RateLimit, now: Instant) -> Self {
        Self { limit, started: now, paid_at: 0 }
    }

    /// The limit of the bucket.
    #[must_use]
    pub fn limit(&self) -> RateLimit {
        self.limit
    }

    /// Takes `n` tokens. More than the burst are taken if the bucket is full, and paid for afterwards: a large piece
    /// passes, and the rate holds.
    ///
    /// If there are too few: the time until there are enough. Nothing is taken then.
    /// When there are not as many now: how long until there are. Nothing was taken then.
    pub fn take(&mut self, n: u64, now: Instant) -> Result<(), Duration> {
        match self.lacking(n, now) {
            Duration::ZERO => {
                self.charge(n, now);
                Ok(())
            }
            wait => Err(wait),
        }
    }

    /// Takes `n` tokens in advance and returns the time to wait for them, first come, first served. Nothing is taken if
    /// the wait would exceed `max_wait` (or [`MAX_WAIT`]), or the tokens waited for `max_waiting` times `n`. A request
    /// that stops waiting does not return its tokens.
    pub fn reserve(&mut self, n: u64, now: Instant, max_wait: Duration, max_waiting: usize) -> Outcome<Instant> {
        let wait = self.lacking(n, now);
        if wait.is_zero() {
            self.charge(n, now);
            return Outcome::Admit;
        }
        let max_ahead = u128::try_from(max_waiting).unwrap_or(u128::MAX).saturating_mul(u128::from(n));
        if wait > max_wait.min(MAX_WAIT) || self.ahead(n, now) > max_ahead.saturating_mul(NANOS_PER_SECOND) {
            return Outcome::Refuse { retry_after: wait };
        }
        self.charge(n, now);
        Outcome::Wait(now + wait)
    }

    /// Takes `n` tokens that were used already, such as bytes read, and returns the pause until more may be used: zero
    /// while the burst is not used up.
    pub fn charge(&mut self, n: u64, now: Instant) -> Duration {
        let cost = u128::from(n).saturating_mul(NANOS_PER_SECOND);
        self.paid_at = self.paid_at.max(self.units(now)).saturating_add(cost);
        self.lacking(0, now)
    }

    /// Time until `n` tokens are available, or the bucket is full.
    fn lacking(&self, n: u64, now: Instant) -> Duration {
        let nanos = self.ahead(n, now).div_ceil(u128::from(self.limit.per_second));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The excess over the burst if `n` more were taken (at most the whole burst), in units.
    fn ahead(&self, n: u64, now: Instant) -> u128 {
        let now = self.units(now);
        let cost = u128::from(n.min(self.limit.burst)).saturating_mul(NANOS_PER_SECOND);
        let burst = u128::from(self.limit.burst).saturating_mul(NANOS_PER_SECOND);
        self.paid_at.max(now).saturating_add(cost).saturating_sub(now.saturating_add(burst))
    }

    fn units(&self, now: Instant) -> u128 {
        now.saturating_duration_since(self.started).as_nanos().saturating_mul(u128::from(self.limit.per_second))
    }
}
