//! Passive ejection (Envoy: outlier detection): an origin that keeps failing requests gets none for a while.
//!
//! As in Envoy, consecutive failures eject an origin (a silent one at once), each time for longer. The origin returns
//! by itself, and the share of ejected origins is bounded. Unlike in Envoy, the default bound is half of the origins,
//! because sockets have few. **A socket's only origin is never ejected**, nor is the last one left: a response that may
//! be bad is better than none.

use std::time::{Duration, Instant};

/// The greatest number of consecutive failures that can be configured.
pub const MAX_CONSECUTIVE_FAILURES: u32 = 1_000;
/// The longest ejection.
pub const MAX_EJECTION: Duration = Duration::from_secs(3_600);
/// The most doublings of the time of an ejection.
const MAX_DOUBLINGS: u32 = 16;

/// A kind of failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The origin refused the connection, or ended it without a response.
    Connect,
    /// The origin did not accept or refuse the connection in time. Each such failure costs a client the whole timeout,
    /// so a single one ejects the origin.
    Silent,
    /// The origin answered 502, 503 or 504, or not in time (Envoy: gateway failure).
    Gateway,
}

/// Configuration of passive ejection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EjectionConfig {
    /// Consecutive failures that eject an origin: 1 to [`MAX_CONSECUTIVE_FAILURES`].
    pub consecutive_failures: u32,
    /// Whether a [gateway failure](Failure::Gateway) counts as a failure. Otherwise it counts as a success.
    pub gateway_failures: bool,
    /// Time of the first ejection. Each further ejection doubles the time; each period of that length without an
    /// ejection takes one doubling back.
    pub base_ejection: Duration,
    /// The longest time, up to [`MAX_EJECTION`].
    pub max_ejection: Duration,
    /// The greatest share of ejected origins in percent, rounded down: 0 (never) to 100. The last origin always stays.
    pub max_ejected_percent: u8,
}

/// Reason why an [`EjectionConfig`] is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EjectionConfigError {
    /// The number of failures is 0 or too large.
    #[error("the number of failures that eject an origin must be from 1 to {MAX_CONSECUTIVE_FAILURES}, not {0}")]
    Failures(u32),
    /// A time is 0 or too long.
    #[error(
        "the time of an ejection must be from 1 second to an hour, and the longest must not be shorter than the first"
    )]
    Times,
    /// The percentage is above 100.
    #[error("the share of the origins that may be ejected must be from 0 to 100 percent, not {0}")]
    Percent(u8),
}

/// The number of origins of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolCount {
    /// Origins that are usable or ejected, without those that are down by health checks.
    pub origins: usize,
    /// Origins that are [ejected](EjectionState::is_ejected) now.
    pub ejected: usize,
}

/// An ejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ejected {
    /// End of the ejection.
    pub until: Instant,
    /// Number of consecutive failures before it.
    pub failures: u32,
}

/// Passive health of one origin.
#[derive(Debug, Clone, Default)]
pub struct EjectionState {
    failures: u32,
    until: Option<Instant>,
    doublings: u32,
}

impl Default for EjectionConfig {
    /// Envoy's values: 5 failures, 30 seconds, at most 300 seconds, gateway failures do not count; at most half of the
    /// origins.
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            gateway_failures: false,
            base_ejection: Duration::from_secs(30),
            max_ejection: Duration::from_secs(300),
            max_ejected_percent: 50,
        }
    }
}

impl EjectionConfig {
    /// Checks the bounds documented at the fields.
    ///
    /// # Errors
    /// The first violated bound.
    pub fn validate(&self) -> Result<(), EjectionConfigError> {
        if !(1..=MAX_CONSECUTIVE_FAILURES).contains(&self.consecutive_failures) {
            return Err(EjectionConfigError::Failures(self.consecutive_failures));
        }
        let shortest = Duration::from_secs(1);
        if self.base_ejection < shortest || !(self.base_ejection..=MAX_EJECTION).contains(&self.max_ejection) {
            return Err(EjectionConfigError::Times);
        }
        if self.max_ejected_percent > 100 {
            return Err(EjectionConfigError::Percent(self.max_ejected_percent));
        }
        Ok(())
    }

    /// Whether one more origin may be ejected.
    fn has_room(&self, pool: PoolCount) -> bool {
        let part = pool.origins.saturating_mul(usize::from(self.max_ejected_percent.min(100))) / 100;
        pool.ejected < part.min(pool.origins.saturating_sub(1))
    }
}

impl EjectionState {
    /// An origin without any known failure.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the origin gets no requests at `now`.
    #[must_use]
    pub fn is_ejected(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// End of the current or the last ejection; `None` if the origin was never ejected.
    #[must_use]
    pub fn returns_at(&self) -> Option<Instant> {
        self.until
    }

    /// Records a response: consecutive failures count from zero again. The response of a request from before an
    /// ejection does not end the ejection.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Records a failed request, and returns the ejection that follows, if any. If too many other origins are ejected,
    /// there is none, and the next failure decides again. Failures during an ejection do not count.
    pub fn record_failure(
        &mut self,
        config: &EjectionConfig,
        failure: Failure,
        pool: PoolCount,
        now: Instant,
    ) -> Option<Ejected> {
        if self.is_ejected(now) {
            return None;
        }
        if failure == Failure::Gateway && !config.gateway_failures {
            self.succeeded();
            return None;
        }
        self.failures = self.failures.saturating_add(1);
        let is_enough = failure == Failure::Silent || self.failures >= config.consecutive_failures;
        if !is_enough || !config.has_room(pool) {
            return None;
        }
        let doublings = self.doublings_left(config, now);
        let length = config.base_ejection.saturating_mul(1 << doublings).min(config.max_ejection);
        let ejected = Ejected { until: now + length, failures: self.failures };
        *self = Self { failures: 0, until: Some(ejected.until), doublings: (doublings + 1).min(MAX_DOUBLINGS) };
        Some(ejected)
    }

    /// Ends an ejection because an active check passed. Returns whether the origin was ejected.
    pub fn check_passed(&mut self, now: Instant) -> bool {
        let was_ejected = self.is_ejected(now);
        if was_ejected {
            self.until = Some(now);
        }
        was_ejected
    }

    fn doublings_left(&self, config: &EjectionConfig, now: Instant) -> u32 {
        let since_return = self.until.map_or(Duration::ZERO, |until| now.saturating_duration_since(until));
        let periods = since_return.as_nanos() / config.base_ejection.as_nanos().max(1);
        self.doublings.saturating_sub(u32::try_from(periods).unwrap_or(u32::MAX))
    }
}
