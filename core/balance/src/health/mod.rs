//! Active health checks: what their outcomes say about an origin.
//!
//! [`HealthState`] is sans-IO. Whoever drives it waits until [`poll_timeout`](HealthState::poll_timeout), then either
//! begins a check, which it announces with [`check_started`](HealthState::check_started), or calls
//! [`handle_timeout`](HealthState::handle_timeout) because the check under way took too long; and tells it how a check
//! ended.
//!
//! An origin begins usable, and its first check decides at once, either way. So HAProxy does it (`init-state up`): a
//! tunnel that just came serves its first request without waiting for a check, and one whose origin does not answer
//! is out after one check, not after three. From then on it takes as many checks in a row as the thresholds say.

mod config;

use std::{
    fmt,
    time::{Duration, Instant},
};

pub use config::{
    ExpectedStatus, HealthCheck, HealthConfig, HealthConfigError, INTERVAL_BOUNDS, MAX_CHECK_TEXT_BYTES,
    MAX_STATUS_RANGES, MAX_THRESHOLD, MIN_TIMEOUT,
};

/// The longest time until an origin's first check: all origins that come back at once are not checked at once.
const MAX_FIRST_DELAY: Duration = Duration::from_secs(1);
/// By which part of the interval a check is moved at most, earlier or later, so that checks do not fall into step.
const JITTER_DIVISOR: u32 = 10;

/// Why a check failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckFailure {
    /// There was no connection to the origin.
    Connect,
    /// The origin did not answer in time.
    TimedOut,
    /// The origin's answer is not HTTP, or ended too early.
    BadAnswer,
    /// The origin answered with a status that is not expected.
    Status(u16),
}

/// What is known about an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It has not been checked: usable.
    Unknown,
    /// Its checks are good.
    Up,
    /// Its checks are bad: not usable.
    Down,
}

/// A change of what is known about an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthEvent {
    /// It is up now; before, it was down or unknown.
    Up,
    /// It is down now; before, it was up or unknown.
    Down {
        /// Why the last check failed.
        why: CheckFailure,
        /// How many failed in a row.
        failures: u32,
    },
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthTimeout {
    /// A check has to begin.
    CheckDue,
    /// The check that is under way has taken too long.
    CheckOverdue,
}

/// One check: its outcome is told with it, so that one that comes late is not taken for another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckNumber(u64);

/// The health of one origin.
#[derive(Debug, Clone)]
pub struct HealthState {
    config: HealthConfig,
    health: Health,
    /// Checks in a row that speak against what is believed.
    against: u32,
    last_failure: Option<CheckFailure>,
    /// None when the origin is not checked.
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
    /// An origin that came just now. `random` spreads first checks over a second, or the interval if that is shorter.
    #[must_use]
    pub fn new(config: HealthConfig, now: Instant, random: u64) -> Self {
        let delay = part_of(MAX_FIRST_DELAY.min(config.interval), random);
        let next_check = (config.check != HealthCheck::None).then(|| now + delay);
        Self { config, health: Health::Unknown, against: 0, last_failure: None, next_check, running: None, started: 0 }
    }

    /// How it is checked.
    #[must_use]
    pub fn config(&self) -> &HealthConfig {
        &self.config
    }

    /// What is known about the origin.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health
    }

    /// Whether requests may go to the origin.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.health != Health::Down
    }

    /// Why the latest check that failed did.
    #[must_use]
    pub fn last_failure(&self) -> Option<CheckFailure> {
        self.last_failure
    }

    /// When the next check has to begin. None while one is under way, and when the origin is not checked.
    #[must_use]
    pub fn next_check(&self) -> Option<Instant> {
        self.next_check.filter(|_| self.running.is_none())
    }

    /// When something is due, and what. None when the origin is not checked.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, HealthTimeout)> {
        match self.running {
            Some(running) => Some((running.deadline, HealthTimeout::CheckOverdue)),
            None => self.next_check.map(|at| (at, HealthTimeout::CheckDue)),
        }
    }

    /// A check begins now. None when the origin is not checked, or a check is under way.
    pub fn check_started(&mut self, now: Instant) -> Option<CheckNumber> {
        self.next_check()?;
        self.started += 1;
        let number = CheckNumber(self.started);
        self.running = Some(Running { number, started: now, deadline: now + self.config.timeout });
        Some(number)
    }

    /// The check went well. After its time it did not: then it counts as failed. An outcome of a check that is over
    /// counts for nothing. `random` moves the next check a little.
    pub fn check_passed(&mut self, check: CheckNumber, now: Instant, random: u64) -> Option<HealthEvent> {
        let running = self.take(check)?;
        self.schedule(running, now, random);
        if now >= running.deadline { self.failed(CheckFailure::TimedOut) } else { self.passed() }
    }

    /// The check failed. An outcome of a check that is over counts for nothing. `random` moves the next check a little.
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

    /// Fails the check that is under way when its time is up: whatever it may still bring counts for nothing. `random`
    /// moves the next check a little.
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

    /// Whether one more check that speaks for `health` changes what is believed.
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

/// A time from zero up to `whole`, evenly by `random`.
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
            Self::BadAnswer => f.write_str("the answer is not HTTP or ended too early"),
            Self::Status(status) => write!(f, "the answer has status {status}"),
        }
    }
}
