//! Many changes become few configurations.

use std::time::Duration;

/// The shortest time between two configurations.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest time until a state that failed is tried again.
const MAX_RETRY: Duration = Duration::from_secs(60);

/// Says when the newest state is to be applied: the first change at once, the others at most once a second.
#[derive(Debug, Default)]
pub struct Batcher<T> {
    wanted: Option<T>,
    is_running: bool,
    /// When a new state may be applied.
    not_before: Duration,
    /// When a state that failed is tried again.
    retry_at: Option<Duration>,
    failures: u32,
}

impl<T: Clone + PartialEq> Batcher<T> {
    /// Nothing is to be applied.
    #[must_use]
    pub fn new() -> Self {
        Self { wanted: None, is_running: false, not_before: Duration::ZERO, retry_at: None, failures: 0 }
    }

    /// A state is wanted. It takes the place of one that waits.
    pub fn want(&mut self, state: T) {
        self.wanted = Some(state);
        self.retry_at = None;
    }

    /// The state to apply now. None is given out until [`Self::finish`].
    pub fn poll(&mut self, now: Duration) -> Option<T> {
        if self.is_running || now < self.start() {
            return None;
        }
        let state = self.wanted.take()?;
        (self.is_running, self.not_before) = (true, now + INTERVAL);
        Some(state)
    }

    /// The state was applied, or not: then it is wanted again, unless a newer one waits.
    pub fn finish(&mut self, failed: Option<T>, now: Duration) {
        self.is_running = false;
        self.not_before = self.not_before.max(now);
        self.retry_at = None;
        let Some(state) = failed else {
            self.failures = 0;
            return;
        };
        let delay = INTERVAL.saturating_mul(1 << self.failures.min(6)).min(MAX_RETRY);
        self.failures = self.failures.saturating_add(1);
        if self.wanted.is_none() {
            (self.wanted, self.retry_at) = (Some(state), Some(now + delay));
        }
    }

    fn start(&self) -> Duration {
        self.not_before.max(self.retry_at.unwrap_or_default())
    }

    /// When to poll again.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        (self.wanted.is_some() && !self.is_running).then(|| self.start())
    }

    /// Whether nothing waits and nothing is being applied.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.wanted.is_none() && !self.is_running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_hundred_changes_in_a_second_are_two_configurations_and_the_last_one_counts() {
        let mut batcher = Batcher::new();
        let mut applied = Vec::new();
        let mut running_until = None;
        for at in 0..3000 {
            if at % 10 == 0 && at < 1000 {
                batcher.want(at / 10);
            }
            if running_until == Some(at) {
                batcher.finish(None, ms(at));
                running_until = None;
            }
            if let Some(state) = batcher.poll(ms(at)) {
                applied.push((at, state));
                running_until = Some(at + 50);
            }
        }
        assert_eq!(applied, [(0, 0), (1000, 99)]);
        assert!(batcher.is_idle());
    }

    #[test]
    fn a_failed_state_comes_again_unless_a_newer_one_waits() {
        let mut batcher = Batcher::new();
        batcher.want(1);
        assert_eq!(batcher.poll(ms(0)), Some(1));
        batcher.finish(Some(1), ms(5000));
        assert_eq!((batcher.poll(ms(5500)), batcher.deadline()), (None, Some(ms(6000))));
        assert_eq!(batcher.poll(ms(6000)), Some(1));
        batcher.finish(Some(1), ms(6100));
        assert_eq!(batcher.deadline(), Some(ms(8100)), "the second wait is longer");
        batcher.want(2);
        assert_eq!(
            (batcher.poll(ms(6900)), batcher.poll(ms(7000))),
            (None, Some(2)),
            "a newer state does not wait for it"
        );
        batcher.finish(Some(2), ms(7100));
        for _ in 0..20 {
            let at = batcher.deadline().unwrap();
            assert_eq!(batcher.poll(at), Some(2));
            batcher.finish(Some(2), at);
            assert!(batcher.deadline().unwrap() <= at + MAX_RETRY);
        }
    }
}
