//! How many requests a connector is told of. Nobody reads thousands of lines a second, and sending them would cost as
//! much as serving the requests.

use std::time::{Duration, Instant};

/// How many requests a second are told of in the long run.
pub const LOGGED_PER_SECOND: u32 = 50;
/// How many may be told of at once after a quiet time.
pub const MAX_LOGGED_BURST: u32 = 200;

/// A token bucket that also counts what it turned away.
#[derive(Debug)]
pub struct LogBudget {
    tokens: u32,
    refilled: Instant,
    omitted: u32,
}

impl LogBudget {
    /// A full one.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { tokens: MAX_LOGGED_BURST, refilled: now, omitted: 0 }
    }

    /// Whether one more request may be told of, and if so, how many were left out since the one before.
    pub fn take(&mut self, now: Instant) -> Option<u32> {
        let each = Duration::from_secs(1) / LOGGED_PER_SECOND;
        if self.tokens < MAX_LOGGED_BURST {
            let earned = now.saturating_duration_since(self.refilled).as_micros() / each.as_micros();
            if earned >= u128::from(MAX_LOGGED_BURST - self.tokens) {
                self.tokens = MAX_LOGGED_BURST;
                self.refilled = now;
            } else if let Ok(earned @ 1..) = u32::try_from(earned) {
                self.tokens += earned;
                self.refilled += each * earned;
            }
        } else {
            self.refilled = now;
        }
        if self.tokens == 0 {
            self.omitted = self.omitted.saturating_add(1);
            return None;
        }
        self.tokens -= 1;
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_thinned_out_and_what_is_left_out_is_counted() {
        let start = Instant::now();
        let mut budget = LogBudget::new(start);
        let (mut told, mut omitted) = (0, 0);
        // Ten seconds of a thousand requests each.
        for number in 0..10_000_u64 {
            if let Some(before) = budget.take(start + Duration::from_millis(number)) {
                told += 1;
                omitted += before;
            }
        }
        assert_eq!(told, MAX_LOGGED_BURST + 10 * LOGGED_PER_SECOND - 1);
        let last = budget.take(start + Duration::from_secs(60)).unwrap();
        assert_eq!(told + omitted + last, 10_000);
    }

    #[test]
    fn slow_requests_are_all_told_of_and_time_may_stand_still() {
        let start = Instant::now();
        let mut budget = LogBudget::new(start);
        for number in 0..1_000 {
            assert_eq!(budget.take(start + Duration::from_millis(25) * number), Some(0));
        }
        let mut still = LogBudget::new(start + Duration::from_secs(5));
        assert_eq!((0..1_000).filter_map(|_| still.take(start)).count(), MAX_LOGGED_BURST as usize);
    }
}
