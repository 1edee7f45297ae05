//! Passive ejection: an origin that keeps failing requests gets none for a while. Envoy calls it outlier detection.
//!
//! As in Envoy, failures in a row eject an origin, and one that is silent at once, for longer each time it happens again; it comes back by itself, and
//! no more than a part of the origins is ejected at once. Unlike in Envoy, that part is half of them unless said
//! otherwise, since sockets have few origins, and **a socket's only origin is never ejected**, nor the last one that is
//! left: an answer that may be bad is better than none. (Envoy used to eject one regardless, and stopped.)

use std::time::{Duration, Instant};

/// How many failures in a row may be asked for at most.
pub const MAX_CONSECUTIVE_FAILURES: u32 = 1_000;
/// How long an origin may be ejected at most.
pub const MAX_EJECTION: Duration = Duration::from_secs(3_600);
/// How often the time of an ejection is doubled at most.
const MAX_DOUBLINGS: u32 = 16;

/// What went wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The origin took no connection, or ended it without an answer.
    Connect,
    /// The origin did not say in time whether it takes the connection. Each such failure costs a client all of that time, so
    /// one is as good as the number that is asked for.
    Silent,
    /// The origin answered 502, 503 or 504, or not in time: Envoy's gateway failure.
    Gateway,
}

/// When origins are ejected, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EjectionConfig {
    /// After how many failures in a row: 1 to [`MAX_CONSECUTIVE_FAILURES`].
    pub consecutive_failures: u32,
    /// Whether a [gateway failure](Failure::Gateway) counts, too. Where it does not, it is an answer like any other.
    pub gateway_failures: bool,
    /// How long the first time. Each time again it is twice as long; every such time without an ejection after the
    /// origin's return takes one doubling back.
    pub base_ejection: Duration,
    /// How long at most: up to [`MAX_EJECTION`].
    pub max_ejection: Duration,
    /// How much of the origins is ejected at once, at most, in percent and rounded down: 0 (never) to 100. The last
    /// one always stays.
    pub max_ejected_percent: u8,
}

/// Why origins cannot be ejected like this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EjectionConfigError {
    /// None at all, or too many.
    #[error("the number of failures that eject an origin is from 1 to {MAX_CONSECUTIVE_FAILURES}, not {0}")]
    Failures(u32),
    /// No time at all, or too much.
    #[error("the time of an ejection is from 1 second to an hour, and the longest is no shorter than the first")]
    Times,
    /// More than everything.
    #[error("the part of the origins that may be ejected is from 0 to 100 percent, not {0}")]
    Percent(u8),
}

/// How many origins a socket has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolCount {
    /// Those that are usable, or would be if they were not ejected: not those that are down by their checks.
    pub origins: usize,
    /// Those that are [ejected](EjectionState::is_ejected) now.
    pub ejected: usize,
}

/// An origin was ejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ejected {
    /// Until when.
    pub until: Instant,
    /// After how many failures in a row.
    pub failures: u32,
}

/// What the requests of one origin have met.
#[derive(Debug, Clone, Default)]
pub struct EjectionState {
    failures: u32,
    until: Option<Instant>,
    doublings: u32,
}

impl Default for EjectionConfig {
    /// Envoy's: 5 failures, 30 seconds, 300 at most. Answers do not count; half of the origins.
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
    /// Whether it keeps to the bounds named at its fields.
    ///
    /// # Errors
    /// The first bound that it does not keep to.
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
    /// An origin that nothing is known about.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the origin gets no requests now.
    #[must_use]
    pub fn is_ejected(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// When it comes back, or came back last. None when it was never ejected.
    #[must_use]
    pub fn returns_at(&self) -> Option<Instant> {
        self.until
    }

    /// A request was answered: failures are counted from nothing again. One that began before an ejection does not
    /// end it.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// A request failed. Returns the ejection that follows from it. When too many others are ejected, none does, and
    /// the next failure asks again. What fails during an ejection began before it, and counts for nothing.
    pub fn failed(
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

    /// An active check found the origin well: it comes back at once. Returns whether it was ejected.
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
