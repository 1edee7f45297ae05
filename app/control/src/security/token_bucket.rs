//! Token buckets in a bounded map. Pure: time is an argument.
//!
//! Each bucket is one instant, the time at which it would be full again: the generic cell rate algorithm, which is
//! equal to a refilled counter.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

/// How many buckets one limiter keeps.
const MAX_BUCKETS: usize = 16_384;

/// The rate of a token bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// The number of tries at once.
    pub(crate) burst: u32,
    /// The interval after which one more try is allowed.
    pub(crate) every: Duration,
}

/// A token bucket for each key, in a bounded map.
#[derive(Debug)]
pub(crate) struct Limiter<K> {
    rate: Rate,
    max_buckets: usize,
    full_at: HashMap<K, Instant>,
}

impl<K: Hash + Eq + Clone> Limiter<K> {
    /// An empty limiter.
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, max_buckets: MAX_BUCKETS, full_at: HashMap::new() }
    }

    /// Counts a try, or returns the time to wait for the next one.
    pub(crate) fn take(&mut self, key: &K, now: Instant) -> Result<(), Duration> {
        let full_at = self.full_at.get(key).copied().filter(|at| *at > now).unwrap_or(now);
        let next = full_at + self.rate.every;
        let most = now + self.rate.every * self.rate.burst;
        if next > most {
            return Err(next - most);
        }
        if !self.full_at.contains_key(key) && self.full_at.len() >= self.max_buckets {
            self.make_room(now);
        }
        self.full_at.insert(key.clone(), next);
        Ok(())
    }

    /// Whether attempts of this key count at present.
    pub(crate) fn has_tries(&self, key: &K, now: Instant) -> bool {
        self.full_at.get(key).is_some_and(|full_at| *full_at > now)
    }

    /// Takes back the last try, because it succeeded.
    pub(crate) fn give_back(&mut self, key: &K, now: Instant) {
        if let Some(full_at) = self.full_at.get_mut(key) {
            match full_at.checked_sub(self.rate.every) {
                Some(earlier) if earlier > now => *full_at = earlier,
                _ => {
                    self.full_at.remove(key);
                }
            }
        }
    }

    /// Removes full buckets, which changes no decision. If there are none, removes the fullest eighth: a client with
    /// very many addresses gains a few attempts, but cannot lock others out.
    fn make_room(&mut self, now: Instant) {
        self.full_at.retain(|_, full_at| *full_at > now);
        if self.full_at.len() < self.max_buckets {
            return;
        }
        let mut instants: Vec<Instant> = self.full_at.values().copied().collect();
        let (_, limit, _) = instants.select_nth_unstable(self.max_buckets / 8);
        let limit = *limit;
        self.full_at.retain(|_, full_at| *full_at > limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { burst: 3, every: Duration::from_secs(10) };

    #[test]
    fn a_burst_passes_then_one_at_a_time() {
        let mut limiter = Limiter::new(RATE);
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(limiter.take(&"a", start), Ok(()));
        }
        assert_eq!(limiter.take(&"a", start), Err(Duration::from_secs(10)));
        assert_eq!(limiter.take(&"b", start), Ok(()), "others are not touched");
        let later = start + Duration::from_secs(4);
        assert_eq!(limiter.take(&"a", later), Err(Duration::from_secs(6)), "refused tries cost nothing");
        let later = start + Duration::from_secs(10);
        assert_eq!(limiter.take(&"a", later), Ok(()));
        assert!(limiter.take(&"a", later).is_err());
        let much_later = start + Duration::from_secs(10_000);
        for _ in 0..3 {
            assert_eq!(limiter.take(&"a", much_later), Ok(()));
        }
        assert!(limiter.take(&"a", much_later).is_err(), "a bucket holds no more than its burst");
    }

    #[test]
    fn a_good_try_does_not_count() {
        let mut limiter = Limiter::new(RATE);
        let now = Instant::now();
        for _ in 0..50 {
            assert_eq!(limiter.take(&"a", now), Ok(()));
            assert!(limiter.has_tries(&"a", now) && !limiter.has_tries(&"a", now + RATE.every));
            limiter.give_back(&"a", now);
            assert!(!limiter.has_tries(&"a", now));
        }
        assert!(limiter.full_at.is_empty());
    }

    #[test]
    fn the_map_stays_bounded_and_keeps_the_worst() {
        let mut limiter = Limiter { max_buckets: 64, ..Limiter::new(RATE) };
        let now = Instant::now();
        for _ in 0..3 {
            limiter.take(&u32::MAX, now).unwrap();
        }
        for key in 0..10_000 {
            limiter.take(&key, now).unwrap();
            assert!(limiter.full_at.len() <= 64);
        }
        assert!(limiter.take(&u32::MAX, now).is_err(), "the one that tried most is not forgotten");
    }
}
