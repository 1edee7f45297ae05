//! Bounds on the orders of an installation.

use std::time::{Duration, Instant};

/// Bounds on the orders of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacerConfig {
    /// The most orders that run at once, and that start in a row without a pause. At least 1.
    pub max_running: u32,
    /// The most orders that start in a minute, apart from those in a row. At least 1.
    pub max_starts_per_minute: u32,
}

impl Default for PacerConfig {
    /// A thousand names take about four minutes. A CA that wants fewer says so by 429.
    fn default() -> Self {
        Self { max_running: 10, max_starts_per_minute: 240 }
    }
}

/// Why an order does not start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacerWait {
    /// As many orders run as may: ask again when one has ended.
    Full,
    /// Too many orders started: ask again at this time.
    Until(Instant),
}

/// Starts orders one after the other, however many are due.
#[derive(Debug)]
pub struct Pacer {
    max_running: u32,
    /// The time between two starts in the long run.
    interval: Duration,
    running: u32,
    /// The time at which the starts so far are paid for, by one interval each.
    paid_at: Option<Instant>,
}

impl Pacer {
    /// No order runs.
    #[must_use]
    pub fn new(config: PacerConfig) -> Self {
        let interval = Duration::from_secs(60) / config.max_starts_per_minute.max(1);
        Self { max_running: config.max_running.max(1), interval, running: 0, paid_at: None }
    }

    /// Starts an order, which [`Pacer::end`] ends.
    ///
    /// # Errors
    /// The order has to wait.
    pub fn start(&mut self, now: Instant) -> Result<(), PacerWait> {
        if self.running >= self.max_running {
            return Err(PacerWait::Full);
        }
        let paid_at = self.paid_at.map_or(now, |at| at.max(now));
        let allowed = self.interval * (self.max_running - 1);
        let ahead = paid_at - now;
        if ahead > allowed {
            return Err(PacerWait::Until(now + (ahead - allowed)));
        }
        self.paid_at = Some(paid_at + self.interval);
        self.running += 1;
        Ok(())
    }

    /// An order ended.
    pub fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// The orders that run.
    #[must_use]
    pub fn running(&self) -> u32 {
        self.running
    }

    /// How long one of `due` orders is held back, so that they do not all start when a CA comes back or this program
    /// starts: none for a few orders, else a random part of the time that all of them take.
    #[must_use]
    pub fn hold_back(&self, due: usize, random: u64) -> Duration {
        let due = u32::try_from(due).unwrap_or(u32::MAX);
        if due <= self.max_running {
            return Duration::ZERO;
        }
        let all = self.interval.saturating_mul(due).as_nanos().min(u128::from(u64::MAX));
        Duration::from_nanos(u64::try_from((all * u128::from(random)) >> 64).unwrap_or(u64::MAX))
    }
}
