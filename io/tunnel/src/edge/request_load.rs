//! Counts the running requests of a session, and decides whether a further one should share the control connection.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Number of running requests from which on a further one may share the control connection. With fewer, little can be
/// combined in one record, and a leg answers sooner.
const MIN_REQUESTS: u32 = 8;
/// Time for which requests keep sharing after the number was reached.
///
/// Responses arrive in waves, as requests do, so a client with many streams may have none running between two waves.
/// Without this time the first request of each wave would take a leg, and keep the waves apart. A longer time would
/// affect single requests, which may have long responses and run better on legs.
const LINGERS: Duration = Duration::from_millis(10);

/// Counts the running requests. The result is only a hint.
#[derive(Debug)]
pub(super) struct RequestLoad {
    under_way: AtomicU32,
    begin: Instant,
    /// Time until which requests share, in microseconds since the start; 0 if the number was never reached.
    lasts_until: AtomicU64,
}

impl RequestLoad {
    pub(super) fn new(now: Instant) -> Self {
        Self { under_way: AtomicU32::new(0), begin: now, lasts_until: AtomicU64::new(0) }
    }

    /// Counts a request as running until [`Self::ended`].
    pub(super) fn began(&self) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a running request as ended.
    pub(super) fn ended(&self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether many requests are running, including the counted one that asks.
    pub(super) fn is_crowded(&self, now: Instant) -> bool {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let since = now.saturating_duration_since(self.begin);
        if self.under_way.load(Ordering::Relaxed) < MIN_REQUESTS {
            return micros(since) < self.lasts_until.load(Ordering::Relaxed);
        }
        self.lasts_until.store(micros(since + LINGERS), Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_are_a_crowd_and_what_follows_at_once_belongs_to_it() {
        let begin = Instant::now();
        let crowd = RequestLoad::new(begin);
        for _ in 1..MIN_REQUESTS {
            crowd.began();
            assert!(!crowd.is_crowded(begin));
        }
        crowd.began();
        assert!(crowd.is_crowded(begin));
        for _ in 0..MIN_REQUESTS {
            crowd.ended();
        }
        crowd.began();
        assert!(crowd.is_crowded(begin + LINGERS / 2), "the next wave begins");
        assert!(!crowd.is_crowded(begin + LINGERS), "a request alone, which may be for a long answer");
        assert!(!crowd.is_crowded(begin + 2 * LINGERS));
    }

    #[test]
    fn each_wave_makes_the_crowd_last_and_those_between_do_not() {
        let begin = Instant::now();
        let crowd = RequestLoad::new(begin);
        for wave in 0..100 {
            let now = begin + wave * (LINGERS / 2);
            for number in 1..=MIN_REQUESTS {
                crowd.began();
                assert_eq!(crowd.is_crowded(now), wave > 0 || number == MIN_REQUESTS);
            }
            for _ in 0..MIN_REQUESTS {
                crowd.ended();
            }
        }
        let last = begin + 99 * (LINGERS / 2);
        crowd.began();
        assert!(crowd.is_crowded(last + LINGERS / 2));
        assert!(!crowd.is_crowded(last + LINGERS));
    }
}
