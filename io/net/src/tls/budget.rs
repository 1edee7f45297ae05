//! A rate limit for new names with a certificate of their own.

use std::time::{Duration, Instant};

/// A token bucket. Time is an argument.
#[derive(Debug)]
pub(crate) struct Budget {
    per_second: u32,
    burst: u32,
    /// Thousandths of a token, so that short times count.
    milli_tokens: u64,
    filled_at: Instant,
}

impl Budget {
    pub(crate) fn new(per_second: u32, burst: u32, now: Instant) -> Self {
        Self { per_second, burst, milli_tokens: u64::from(burst) * 1_000, filled_at: now }
    }

    /// Takes one token, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled_at).min(Duration::from_hours(1));
        let earned = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX).saturating_mul(u64::from(self.per_second));
        if earned > 0 {
            self.milli_tokens = (self.milli_tokens + earned).min(u64::from(self.burst) * 1_000);
            self.filled_at = now;
        }
        let enough = self.milli_tokens >= 1_000;
        if enough {
            self.milli_tokens -= 1_000;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_served_and_then_the_rate_holds() {
        let start = Instant::now();
        let mut budget = Budget::new(50, 100, start);
        let took = |budget: &mut Budget, at: Instant| (0..1_000).filter(|_| budget.take(at)).count();
        assert_eq!(took(&mut budget, start), 100);
        assert_eq!(took(&mut budget, start + Duration::from_millis(19)), 0);
        assert_eq!(took(&mut budget, start + Duration::from_secs(1)), 50);
        assert_eq!(took(&mut budget, start + Duration::from_hours(2)), 100);
        assert_eq!(took(&mut budget, start), 0, "time before the last call adds no tokens");
    }

    #[test]
    fn many_calls_in_short_steps_earn_as_much_as_one_long_wait() {
        let start = Instant::now();
        let mut budget = Budget::new(50, 10, start);
        let took = (0..10_000u64).filter(|ms| budget.take(start + Duration::from_millis(*ms))).count();
        assert!((508..=510).contains(&took), "{took}");
    }
}
