//! A rate that is used evenly: the generic cell rate algorithm (ITU-T I.371).

use std::time::Duration;

use crate::Amount;

/// Nanoseconds of a second, times the thousandths of an [`Amount`].
const UNIT: u128 = 1_000_000_000_000;

/// A rate with a small tolerance for what comes unevenly. Times are measured from any fixed moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    rate: Amount,
    /// When everything taken so far is paid for (the "theoretical arrival time" of the algorithm).
    paid_at: Duration,
    /// When the last unit was due.
    promised_at: Duration,
}

impl Bucket {
    pub(super) fn new(now: Duration) -> Self {
        Self { rate: 0, paid_at: now, promised_at: now }
    }

    pub(super) fn rate(&self) -> Amount {
        self.rate
    }

    /// Changes the rate from now on. What was taken in advance stays taken: at a lower rate it takes longer to pay. At a
    /// higher one it is paid sooner, but the next unit comes after those that were promised.
    pub(super) fn set_rate(&mut self, rate: Amount, now: Duration) {
        if let Some(ahead) = self.paid_at.checked_sub(now).filter(|_| rate > 0 && rate != self.rate) {
            let ahead = ahead.as_nanos() * u128::from(self.rate) / u128::from(rate);
            let paid_at = now + Duration::from_nanos(u64::try_from(ahead).unwrap_or(u64::MAX));
            self.paid_at = paid_at.max(self.promised_at);
        }
        self.rate = rate;
    }

    /// The time of one unit at this rate; `None` at rate 0.
    pub(super) fn period(&self) -> Option<Duration> {
        let nanos = UNIT.checked_div(u128::from(self.rate))?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// When the next unit may be taken, with this tolerance; `None` at rate 0.
    pub(super) fn next(&self, tolerance: Duration) -> Option<Duration> {
        self.period().map(|_| self.paid_at.saturating_sub(tolerance))
    }

    /// When everything taken so far is paid for.
    pub(super) fn paid_at(&self) -> Duration {
        self.paid_at
    }

    /// Takes a unit, now or in advance.
    pub(super) fn take(&mut self, now: Duration) {
        if let Some(period) = self.period() {
            self.promised_at = self.paid_at.max(now);
            self.paid_at = self.promised_at.saturating_add(period);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_over_any_second() {
        let mut bucket = Bucket::new(Duration::ZERO);
        assert_eq!(bucket.next(Duration::ZERO), None, "at rate 0 nothing may be taken");
        bucket.set_rate(200_000, Duration::ZERO);
        let tolerance = Duration::from_millis(20);
        let (mut taken, mut now) = (0, Duration::ZERO);
        while now < Duration::from_secs(1) {
            if bucket.next(tolerance).unwrap() <= now {
                bucket.take(now);
                taken += 1;
            }
            now += Duration::from_micros(500);
        }
        assert!((200..=205).contains(&taken), "{taken}");
    }

    #[test]
    fn a_lower_rate_makes_what_was_taken_in_advance_longer() {
        let mut bucket = Bucket::new(Duration::ZERO);
        bucket.set_rate(10_000, Duration::ZERO);
        (0..5).for_each(|_| bucket.take(Duration::ZERO));
        assert_eq!(bucket.paid_at(), Duration::from_millis(500));
        bucket.set_rate(5_000, Duration::ZERO);
        assert_eq!(bucket.paid_at(), Duration::from_secs(1));
        bucket.set_rate(20_000, Duration::ZERO);
        assert_eq!(bucket.paid_at(), Duration::from_millis(400), "the last of five was promised for this time");
        for rate in [1_000, 0, 10_000] {
            bucket.set_rate(rate, Duration::ZERO);
        }
        assert!(bucket.paid_at() <= Duration::from_millis(800), "a low rate for a moment does not shut the bucket");
        bucket.set_rate(0, Duration::ZERO);
        bucket.set_rate(u64::MAX, Duration::ZERO);
        bucket.take(Duration::from_secs(5));
        assert!(bucket.paid_at() >= Duration::from_secs(5));
    }
}
