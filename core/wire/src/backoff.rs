//! Exponential backoff with jitter.

use std::time::Duration;

/// The delays between attempts. The bound of the delay doubles with each attempt up to a cap. Each delay is drawn
/// evenly between half of the base and that bound, so that the connectors of an edge do not return at once.
#[derive(Debug, Clone)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    bound: Duration,
}

impl Default for Backoff {
    /// 250 ms at first, at most 30 s.
    fn default() -> Self {
        Self::new(Duration::from_millis(250), Duration::from_secs(30))
    }
}

impl Backoff {
    /// Delays that start at about `base` and never exceed `cap` (nor fall below `base / 2`).
    #[must_use]
    pub fn new(base: Duration, cap: Duration) -> Self {
        let cap = cap.max(base);
        Self { base, cap, bound: base }
    }

    /// The next delay. `random` is 64 evenly distributed bits.
    pub fn next(&mut self, random: u64) -> Duration {
        let least = self.base / 2;
        let span_us = u64::try_from((self.bound - least).as_micros()).unwrap_or(u64::MAX - 1);
        self.bound = self.bound.saturating_mul(2).min(self.cap);
        least + Duration::from_micros(random % (span_us + 1))
    }

    /// Resets the backoff after a success: the next delay is short.
    pub fn reset(&mut self) {
        self.bound = self.base;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_cap_and_start_again_after_a_success() {
        let mut backoff = Backoff::default();
        let longest: Vec<u128> = (0..9).map(|_| backoff.clone_with_longest()).collect();
        assert_eq!(longest, [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        backoff.reset();
        assert_eq!(backoff.clone_with_longest(), 250);
    }

    impl Backoff {
        /// Takes the next delay, and returns its bound in milliseconds.
        fn clone_with_longest(&mut self) -> u128 {
            let longest = self.bound;
            let random = (longest - self.base / 2).as_micros() as u64;
            assert_eq!(self.clone().next(0), self.base / 2);
            let wait = self.next(random);
            assert_eq!(wait, longest);
            wait.as_millis()
        }
    }

    #[test]
    fn any_random_number_gives_a_wait_within_the_bounds() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_millis(1));
        for random in [0, 1, u64::MAX, 0x5555_5555_5555_5555] {
            let wait = backoff.next(random);
            assert!((Duration::from_millis(500)..=Duration::from_secs(1)).contains(&wait), "{wait:?}");
        }
    }
}
