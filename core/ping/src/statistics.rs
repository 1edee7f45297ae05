//! Figures about a series of probes to one target.

use std::{collections::VecDeque, time::Duration};

/// The most round trips from which percentiles are calculated; older ones only count for the other figures.
pub const MAX_SAMPLES: usize = 65_536;

/// Collects the outcomes of a series of probes, which are numbered in the order of sending.
#[derive(Debug, Clone, Default)]
pub struct Statistics {
    answered: u64,
    lost: u64,
    reordered: u64,
    /// The highest number with an answer.
    highest: Option<u64>,
    min: Duration,
    max: Duration,
    /// In nanoseconds.
    sum: u128,
    /// In square nanoseconds.
    sum_of_squares: u128,
    /// The last round trips.
    samples: VecDeque<Duration>,
}

/// The figures about round trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// The shortest.
    pub min: Duration,
    /// The mean.
    pub avg: Duration,
    /// The longest.
    pub max: Duration,
    /// The standard deviation.
    pub mdev: Duration,
    /// Half of the last [`MAX_SAMPLES`] round trips are not longer than this one.
    pub p50: Duration,
    /// The same of 90 in a hundred.
    pub p90: Duration,
    /// The same of 99 in a hundred.
    pub p99: Duration,
}

impl Statistics {
    /// A probe was not answered.
    pub fn handle_loss(&mut self) {
        self.lost += 1;
    }

    /// The probe with this number was answered after this time.
    pub fn handle_answer(&mut self, number: u64, time: Duration) {
        if self.highest.is_some_and(|highest| number < highest) {
            self.reordered += 1;
        }
        self.highest = self.highest.max(Some(number));
        self.min = if self.answered == 0 { time } else { self.min.min(time) };
        self.max = self.max.max(time);
        self.answered += 1;
        let nanoseconds = time.as_nanos();
        self.sum = self.sum.saturating_add(nanoseconds);
        self.sum_of_squares = self.sum_of_squares.saturating_add(nanoseconds.saturating_mul(nanoseconds));
        if self.samples.len() == MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(time);
    }

    /// How many probes were sent, without those that still wait.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.answered + self.lost
    }

    /// How many probes were answered.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// How many probes were not answered.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// How many answers came after the answer to a later probe.
    #[must_use]
    pub fn reordered(&self) -> u64 {
        self.reordered
    }

    /// How many probes were not answered, in percent of those sent; zero if none was sent.
    #[must_use]
    pub fn loss_percent(&self) -> f64 {
        if self.sent() == 0 {
            return 0.0;
        }
        self.lost as f64 * 100.0 / self.sent() as f64
    }

    /// The figures about round trips; `None` without answers.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        let count = u128::from(self.answered);
        let mean = self.sum.checked_div(count)?;
        let variance = (self.sum_of_squares / count).saturating_sub(mean.saturating_mul(mean));
        let mut sorted: Vec<Duration> = self.samples.iter().copied().collect();
        sorted.sort_unstable();
        let percentile = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied().unwrap_or_default()
        };
        Some(Summary {
            min: self.min,
            avg: from_nanos(mean),
            max: self.max,
            mdev: from_nanos(variance.isqrt()),
            p50: percentile(50),
            p90: percentile(90),
            p99: percentile(99),
        })
    }
}

fn from_nanos(nanoseconds: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn of(times: impl IntoIterator<Item = Duration>) -> Statistics {
        let mut statistics = Statistics::default();
        for (number, time) in times.into_iter().enumerate() {
            statistics.handle_answer(number as u64, time);
        }
        statistics
    }

    #[test]
    fn figures_are_those_of_the_definitions() {
        let summary = of((1..=100).map(ms)).summary().unwrap();
        assert_eq!((summary.min, summary.max, summary.avg), (ms(1), ms(100), Duration::from_micros(50_500)));
        assert_eq!((summary.p50, summary.p90, summary.p99), (ms(50), ms(90), ms(99)));
        // The variance of 1 to n is (n² - 1) / 12.
        let expected = (9_999.0_f64 / 12.0).sqrt();
        assert!((summary.mdev.as_secs_f64() * 1_000.0 - expected).abs() < 0.001, "{:?}", summary.mdev);
        let one = of([ms(3)]).summary().unwrap();
        assert_eq!([one.min, one.avg, one.max, one.p50, one.p90, one.p99], [ms(3); 6]);
        assert_eq!(one.mdev, Duration::ZERO);
        assert_eq!(Statistics::default().summary(), None);
    }

    #[test]
    fn loss_and_reordering_are_counted() {
        let mut statistics = Statistics::default();
        assert_eq!(statistics.loss_percent(), 0.0);
        for number in [0, 3, 1, 4] {
            statistics.handle_answer(number, ms(1));
        }
        statistics.handle_loss();
        assert_eq!((statistics.sent(), statistics.answered(), statistics.reordered()), (5, 4, 1));
        assert_eq!(statistics.loss_percent(), 20.0);
    }

    #[test]
    fn an_endless_series_takes_bounded_memory() {
        let statistics = of((0..MAX_SAMPLES + 10).map(|at| if at < 10 { ms(900) } else { ms(1) }));
        assert_eq!(statistics.samples.len(), MAX_SAMPLES);
        let summary = statistics.summary().unwrap();
        assert_eq!((summary.max, summary.p99), (ms(900), ms(1)));
    }
}
