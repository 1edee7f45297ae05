//! So much a second: the generic cell rate algorithm (ITU-T I.371), which is a token bucket that needs no refilling.

use std::time::{Duration, Instant};

use super::{MAX_WAIT, Outcome};

/// The greatest rate: more than a machine forwards, and little enough that nothing overflows.
pub const MAX_PER_SECOND: u64 = 1_000_000_000_000;
/// The greatest burst.
pub const MAX_BURST: u64 = 1_000_000_000_000;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A rate and how far it may be exceeded for a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    per_second: u64,
    burst: u64,
}

/// The rate cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a limit is from 1 to {MAX_PER_SECOND} a second, and so is its burst; leave it out for no limit")]
pub struct RateLimitError;

impl RateLimit {
    /// So many a second; after a pause, `burst` of them at once.
    ///
    /// # Errors
    /// When one of them is 0, or more than [`MAX_PER_SECOND`] or [`MAX_BURST`].
    pub fn new(per_second: u64, burst: u64) -> Result<Self, RateLimitError> {
        if !(1..=MAX_PER_SECOND).contains(&per_second) || !(1..=MAX_BURST).contains(&burst) {
            return Err(RateLimitError);
        }
        Ok(Self { per_second, burst })
    }

    /// How many a second.
    #[must_use]
    pub fn per_second(&self) -> u64 {
        self.per_second
    }

    /// How many at once.
    #[must_use]
    pub fn burst(&self) -> u64 {
        self.burst
    }
}

/// Counts requests or bytes against a [`RateLimit`], exactly, whatever the rate.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    limit: RateLimit,
    started: Instant,
    /// The "theoretical arrival time" of the algorithm: when everything taken so far will have been paid for. Counted
    /// from the start in nanoseconds times the rate: in this unit one token costs a second's nanoseconds, a whole
    /// number.
    paid_at: u128,
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(limit: RateLimit, now: Instant) -> Self {
        Self { limit, started: now, paid_at: 0 }
    }

    /// The limit it keeps.
    #[must_use]
    pub fn limit(&self) -> RateLimit {
        self.limit
    }

    /// Takes `n`, when there are as many. More than the whole burst are taken when the bucket is full, and paid for
    /// afterwards: one large piece passes, and the rate is kept.
    ///
    /// # Errors
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

    /// Takes `n` and says how long to wait for them, in the order of asking; unless that is longer than `max_wait` (or
    /// [`MAX_WAIT`]), or more than `max_waiting` times `n` would be waited for: then nothing is taken. Who does not
    /// wait to the end has taken them all the same.
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

    /// Takes `n` that are gone already, such as bytes that were read, and says how long to pause until more may be
    /// taken: zero as long as the burst is not used up.
    pub fn charge(&mut self, n: u64, now: Instant) -> Duration {
        let cost = u128::from(n).saturating_mul(NANOS_PER_SECOND);
        self.paid_at = self.paid_at.max(self.units(now)).saturating_add(cost);
        self.lacking(0, now)
    }

    /// How long until `n` are there, or the bucket is full.
    fn lacking(&self, n: u64, now: Instant) -> Duration {
        let nanos = self.ahead(n, now).div_ceil(u128::from(self.limit.per_second));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// By how much `n` more, or the whole burst when that is less, would exceed the burst; in units.
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
