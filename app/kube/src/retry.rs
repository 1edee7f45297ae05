//! Waits between attempts.

use std::time::Duration;

/// The longest wait.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Waits that double, with a random part, so that replicas do not all try at once.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    next: Duration,
}

impl Backoff {
    /// Waits that begin with this one.
    pub(crate) fn new(first: Duration) -> Self {
        Self { first, next: first }
    }

    /// The next wait: between three quarters and all of the current span.
    pub(crate) fn next(&mut self) -> Duration {
        let span = self.next.min(MAX_WAIT);
        self.next = span.saturating_mul(2).min(MAX_WAIT);
        // Without random numbers there is no jitter; the waits still grow.
        let random = getrandom::u32().unwrap_or(0);
        span.mul_f64(0.75 + 0.25 * f64::from(random) / f64::from(u32::MAX))
    }

    /// Begins again: an attempt succeeded.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_begin_again() {
        let mut backoff = Backoff::new(Duration::from_secs(1));
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            let wait = backoff.next().as_secs_f64();
            let span = f64::from(seconds);
            assert!((0.75 * span..=span).contains(&wait), "{wait} of {span}");
        }
        backoff.reset();
        assert!(backoff.next() <= Duration::from_secs(1));
    }
}
