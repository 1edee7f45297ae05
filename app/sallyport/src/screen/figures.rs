//! How many requests come, and how long they take: the last minute, by second.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// How many seconds are kept.
pub(super) const SECONDS: usize = 60;
/// How many durations of one second are kept, so that a flood takes no memory.
const MAX_DURATIONS: usize = 256;

/// One second of the last minute.
#[derive(Debug, Clone, Default)]
struct Second {
    requests: u64,
    durations_us: Vec<u64>,
}

/// The figures. Time is an argument.
#[derive(Debug)]
pub(super) struct Figures {
    began: Instant,
    /// The number of the newest second since the begin.
    newest: u64,
    /// The oldest second first.
    seconds: VecDeque<Second>,
    requests: u64,
    failures: u64,
}

impl Figures {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, newest: 0, seconds: VecDeque::from([Second::default()]), requests: 0, failures: 0 }
    }

    /// Records an answered request.
    pub(super) fn record(&mut self, duration: Duration, is_failure: bool, now: Instant) {
        self.advance(now);
        self.requests += 1;
        self.failures += u64::from(is_failure);
        if let Some(second) = self.seconds.back_mut() {
            second.requests += 1;
            if second.durations_us.len() < MAX_DURATIONS {
                second.durations_us.push(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
            }
        }
    }

    /// Forgets what is older than a minute.
    pub(super) fn advance(&mut self, now: Instant) {
        let second = now.saturating_duration_since(self.began).as_secs();
        let passed = second.saturating_sub(self.newest);
        self.newest = self.newest.max(second);
        if passed >= SECONDS as u64 {
            self.seconds.clear();
            self.seconds.push_back(Second::default());
            return;
        }
        for _ in 0..passed {
            self.seconds.push_back(Second::default());
        }
        while self.seconds.len() > SECONDS {
            self.seconds.pop_front();
        }
    }

    /// Whether a request came within the last minute: then the figures change with each second.
    pub(super) fn is_moving(&self) -> bool {
        self.seconds.iter().any(|second| second.requests > 0)
    }

    /// All requests, and those that failed.
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.requests, self.failures)
    }

    /// Requests a second, over the last ten whole seconds or since the begin.
    pub(super) fn rate(&self) -> f64 {
        let whole = self.seconds.iter().rev().skip(1).take(10);
        let (count, sum) = whole.fold((0_u32, 0_u64), |(count, sum), second| (count + 1, sum + second.requests));
        let sum = u32::try_from(sum).unwrap_or(u32::MAX);
        if count == 0 { 0.0 } else { f64::from(sum) / f64::from(count) }
    }

    /// Requests of each second, the oldest one first.
    pub(super) fn requests_by_second(&self) -> Vec<u64> {
        self.padded(|second| second.requests)
    }

    /// The slowest answer of each second in microseconds, the oldest second first.
    pub(super) fn slowest_by_second(&self) -> Vec<u64> {
        self.padded(|second| second.durations_us.iter().copied().max().unwrap_or(0))
    }

    fn padded(&self, of: impl Fn(&Second) -> u64) -> Vec<u64> {
        let mut all = vec![0; SECONDS - self.seconds.len().min(SECONDS)];
        all.extend(self.seconds.iter().map(of));
        all
    }

    /// The duration within which this part of the last minute's requests was answered, in microseconds.
    pub(super) fn percentile_us(&self, percent: usize) -> Option<u64> {
        let mut all: Vec<u64> = self.seconds.iter().flat_map(|second| second.durations_us.iter().copied()).collect();
        all.sort_unstable();
        let at = (all.len() * percent).div_ceil(100).saturating_sub(1);
        all.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_kept_by_second() {
        let began = Instant::now();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let mut figures = Figures::new(began);
        assert_eq!((figures.rate(), figures.percentile_us(50), figures.is_moving()), (0.0, None, false));
        for number in 1..=100 {
            figures.record(Duration::from_micros(number), number > 90, at(3));
        }
        figures.record(Duration::from_secs(1), false, at(5));
        figures.advance(at(6));
        assert_eq!(figures.totals(), (101, 10));
        assert_eq!((figures.percentile_us(50), figures.percentile_us(95)), (Some(51), Some(96)));
        assert!((figures.rate() - 101.0 / 6.0).abs() < 0.01, "{}", figures.rate());
        let by_second = figures.requests_by_second();
        assert_eq!((by_second.len(), &by_second[SECONDS - 4..]), (SECONDS, &[100, 0, 1, 0][..]));
        assert_eq!(figures.slowest_by_second()[SECONDS - 2], 1_000_000);
        figures.advance(at(64));
        assert_eq!(figures.requests_by_second().iter().sum::<u64>(), 1);
        figures.advance(at(66));
        assert!(!figures.is_moving() && figures.requests_by_second().len() == SECONDS);
        figures.advance(at(100_000));
        assert_eq!(figures.requests_by_second(), vec![0; SECONDS]);
        assert_eq!(figures.totals(), (101, 10));
    }

    #[test]
    fn a_flood_takes_no_more_memory_and_a_clock_that_stands_still_does_no_harm() {
        let began = Instant::now();
        let mut figures = Figures::new(began + Duration::from_secs(9));
        for _ in 0..10_000 {
            figures.record(Duration::MAX, false, began);
        }
        assert_eq!(figures.seconds[0].durations_us.len(), MAX_DURATIONS);
        assert_eq!(figures.totals().0, 10_000);
    }
}
