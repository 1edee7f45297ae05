//! Active health checks: their outcomes decide whether an origin is usable.
//!
//! [`HealthState`] is sans-IO. Its driver waits until [`poll_timeout`](HealthState::poll_timeout). Then the driver
//! either starts a check and announces it with [`check_started`](HealthState::check_started), or calls
//! [`handle_timeout`](HealthState::handle_timeout) because the current check took too long. The driver reports the
//! outcome of each check.
//!
//! A new origin is usable, and its first check decides alone, either way (HAProxy: `init-state up`). So a newly
//! attached tunnel serves its first request without waiting for a check, and an origin that does not answer is down
//! after one check, not after three. Later changes take as many consecutive checks as the thresholds say.
//!
//! May use: nothing else of this crate.

mod config;

use std::{
    fmt,
    time::{Duration, Instant},
};

pub use config::{
    ExpectedStatus, HealthCheck, HealthConfig, HealthConfigError, INTERVAL_BOUNDS, MAX_CHECK_TEXT_BYTES,
    MAX_STATUS_RANGES, MAX_THRESHOLD, MIN_TIMEOUT,
};

/// The longest time until an origin's first check. It spreads the checks of origins that return at once.
const MAX_FIRST_DELAY: Duration = Duration::from_secs(1);
/// The interval divided by this number is the greatest jitter of a check, earlier or later, so that checks do not
/// synchronise.
const JITTER_DIVISOR: u32 = 10;

/// Reason why a check failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckFailure {
    /// The origin was not reached.
    Connect,
    /// The origin did not answer in time.
    TimedOut,
    /// The origin's response is not HTTP, or ended too early.
    BadAnswer,
    /// The origin answered with an unexpected status.
    Status(u16),
}

/// The health of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Not checked yet: usable.
    Unknown,
    /// The checks pass.
    Up,
    /// The checks fail: not usable.
    Down,
}

/// A change of an origin's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthEvent {
    /// The origin is up; before, it was down or unknown.
    Up,
    /// The origin is down; before, it was up or unknown.
    Down {
        /// Reason of the last failure.
        why: CheckFailure,
        /// Number of consecutive failures.
        failures: u32,
    },
}

/// The next timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthTimeout {
    /// A check has to start.
    CheckDue,
    /// The current check has exceeded its timeout.
    CheckOverdue,
}

/// Number of a check, reported with its outcome, so that a late outcome is not taken for that of another check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckNumber(u64);

/// The health of one origin.
#[derive(Debug, Clone)]
pub struct HealthState {
    config: HealthConfig,
    health: Health,
    /// Consecutive checks that contradict the current health.
    against: u32,
    last_failure: Option<CheckFailure>,
    /// `None` if the origin is not checked.
    next_check: Option<Instant>,
    running: Option<Running>,
    started: u64,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    number: CheckNumber,
    started: Instant,
    deadline: Instant,
}

impl HealthState {
    /// A new origin. `random` spreads first checks over a second, or over the interval if that is shorter.
    #[must_use]
    pub fn new(config: HealthConfig, now: Instant, random: u64) -> Self {
        let delay = part_of(MAX_FIRST_DELAY.min(config.interval), random);
        let next_check = (config.check != HealthCheck::None).then(|| now + delay);
        Self { config, health: Health::Unknown, against: 0, last_failure: None, next_check, running: None, started: 0 }
    }

    /// The configuration of the checks.
    #[must_use]
    pub fn config(&self) -> &HealthConfig {
        &self.config
    }

    /// The current health.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health
    }

    /// Whether requests may be sent to the origin.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.health != Health::Down
    }

    /// Reason of the latest failed check.
    #[must_use]
    pub fn last_failure(&self) -> Option<CheckFailure> {
        self.last_failure
    }

    /// When the next check has to start; `None` during a check, and if the origin is not checked.
    #[must_use]
    pub fn next_check(&self) -> Option<Instant> {
        self.next_check.filter(|_| self.running.is_none())
    }

    /// Time and kind of the next timer; `None` if the origin is not checked.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, HealthTimeout)> {
        match self.running {
            Some(running) => Some((running.deadline, HealthTimeout::CheckOverdue)),
            None => self.next_check.map(|at| (at, HealthTimeout::CheckDue)),
        }
    }

    /// Starts a check. `None` if the origin is not checked, or a check is running.
    pub fn check_started(&mut self, now: Instant) -> Option<CheckNumber> {
        self.next_check()?;
        self.started += 1;
        let number = CheckNumber(self.started);
        self.running = Some(Running { number, started: now, deadline: now + self.config.timeout });
        Some(number)
    }

    /// Records a passed check. After its timeout it counts as failed. The outcome of an earlier check is ignored.
    /// `random` adds jitter to the next check.
    pub fn check_passed(&mut self, check: CheckNumber, now: Instant, random: u64) -> Option<HealthEvent> {
        let running = self.take(check)?;
        self.schedule(running, now, random);
        if now >= running.deadline { self.failed(CheckFailure::TimedOut) } else { self.passed() }
    }

    /// Records a failed check. The outcome of an earlier check is ignored. `random` adds jitter to the next check.
    pub fn check_failed(
        &mut self,
        check: CheckNumber,
        why: CheckFailure,
        now: Instant,
        random: u64,
    ) -> Option<HealthEvent> {
        let running = self.take(check)?;
        self.schedule(running, now, random);
        self.failed(why)
    }

    /// Fails the current check once its timeout has passed; a later outcome is ignored. `random` adds jitter to the
    /// next check.
    pub fn handle_timeout(&mut self, now: Instant, random: u64) -> Option<HealthEvent> {
        let running = self.running.filter(|running| running.deadline <= now)?;
        self.check_failed(running.number, CheckFailure::TimedOut, now, random)
    }

    fn take(&mut self, check: CheckNumber) -> Option<Running> {
        self.running.take_if(|running| running.number == check)
    }

    fn schedule(&mut self, ended: Running, now: Instant, random: u64) {
        let interval = self.config.interval;
        let jitter = interval / JITTER_DIVISOR;
        let next = ended.started + (interval - jitter) + part_of(2 * jitter, random);
        self.next_check = Some(next.max(now));
    }

    fn passed(&mut self) -> Option<HealthEvent> {
        if self.is_changed(Health::Up, self.config.healthy_threshold) {
            return Some(HealthEvent::Up);
        }
        None
    }

    fn failed(&mut self, why: CheckFailure) -> Option<HealthEvent> {
        self.last_failure = Some(why);
        let failures = self.against + 1;
        self.is_changed(Health::Down, self.config.unhealthy_threshold).then_some(HealthEvent::Down { why, failures })
    }

    /// Counts a check with result `health`, and returns whether the health changes.
    fn is_changed(&mut self, health: Health, threshold: u32) -> bool {
        if self.health == health {
            self.against = 0;
            return false;
        }
        self.against += 1;
        if self.health == Health::Unknown || self.against >= threshold {
            self.health = health;
            self.against = 0;
            return true;
        }
        false
    }
}

/// A duration from zero to `whole`, selected evenly by `random`.
fn part_of(whole: Duration, random: u64) -> Duration {
    let nanos = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
    let part = (u128::from(nanos) * u128::from(random)) >> 64;
    Duration::from_nanos(u64::try_from(part).unwrap_or(nanos))
}

impl fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect => f.write_str("no connection to the origin"),
            Self::TimedOut => f.write_str("no answer in time"),
            Self::BadAnswer => f.write_str("the response is not HTTP or ended too early"),
            Self::Status(status) => write!(f, "the response has status {status}"),
        }
    }
}
