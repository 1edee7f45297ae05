//! Rate limits of request records.
//!
//! Thousands of lines a second are too many to read, and sending them would cost as much as serving the requests.

use std::time::{Duration, Instant};

/// Sustained rate of records per second.
pub const LOGGED_PER_SECOND: u32 = 50;
/// Burst of records after a quiet time.
pub const MAX_LOGGED_BURST: u32 = 200;

/// Time after which a share gets a record whatever the other shares took.
const SHARE_INTERVAL: Duration = Duration::from_secs(1);

/// A token bucket that counts the records it refused.
#[derive(Debug)]
pub struct LogBudget {
    tokens: u32,
    refilled: Instant,
    omitted: u32,
}

/// A share of budgets: the records for one reader are bounded, and a busy share leaves records to the others.
#[derive(Debug, Default)]
pub struct LogShare {
    sent_at: Option<Instant>,
    omitted: u32,
}

impl LogBudget {
    /// A full budget.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { tokens: MAX_LOGGED_BURST, refilled: now, omitted: 0 }
    }

    /// Whether one more record may be sent. Returns the number of records refused since the last one.
    pub fn take(&mut self, now: Instant) -> Option<u32> {
        if self.take_token(now) {
            return Some(std::mem::take(&mut self.omitted));
        }
        self.omitted = self.omitted.saturating_add(1);
        None
    }

    fn take_token(&mut self, now: Instant) -> bool {
        let has_one = self.has_token(now);
        self.tokens -= u32::from(has_one);
        has_one
    }

    fn has_token(&mut self, now: Instant) -> bool {
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
        self.tokens > 0
    }
}

impl LogShare {
    /// Like [`LogBudget::take`], for a share of all of these budgets; returns the number of refused records of this
    /// share. A share without a record for a second gets one, whatever the others took.
    pub fn take<const N: usize>(&mut self, mut budgets: [&mut LogBudget; N], now: Instant) -> Option<u32> {
        let has_tokens = budgets.iter_mut().all(|budget| budget.has_token(now));
        if has_tokens {
            budgets.iter_mut().for_each(|budget| budget.tokens -= 1);
        }
        let waited = || self.sent_at.is_none_or(|sent_at| now.saturating_duration_since(sent_at) >= SHARE_INTERVAL);
        if has_tokens || waited() {
            self.sent_at = Some(now);
            return Some(std::mem::take(&mut self.omitted));
        }
        self.omitted = self.omitted.saturating_add(1);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_thinned_out_and_what_is_left_out_is_counted() {
        let start = Instant::now();
        let mut budget = LogBudget::new(start);
        let (mut sent, mut omitted) = (0, 0);
        // Ten seconds with a thousand requests each.
        for number in 0..10_000_u64 {
            if let Some(before) = budget.take(start + Duration::from_millis(number)) {
                sent += 1;
                omitted += before;
            }
        }
        assert_eq!(sent, MAX_LOGGED_BURST + 10 * LOGGED_PER_SECOND - 1);
        let last = budget.take(start + Duration::from_secs(60)).unwrap();
        assert_eq!(sent + omitted + last, 10_000);
    }

    #[test]
    fn of_many_that_share_a_budget_the_busy_leave_the_quiet_their_lines() {
        let start = Instant::now();
        let mut budget = LogBudget::new(start);
        let mut shares: [LogShare; 64] = std::array::from_fn(|_| LogShare::default());
        let (mut sent, mut omitted) = ([0; 64], [0; 64]);
        // Ten seconds: a thousand requests each for the first share, ten for the second, none for the others.
        let mut ask = |of: usize, at: u64| {
            if let Some(before) = shares[of].take([&mut budget], start + Duration::from_millis(at)) {
                (sent[of], omitted[of]) = (sent[of] + 1, omitted[of] + before);
            }
        };
        for at in 0..10_000_u64 {
            ask(0, at);
            if at % 1_000 == 1 {
                ask(1, at);
            }
        }
        (0..64).for_each(|of| ask(of, 20_000));
        assert_eq!(sent[1], 11, "each of its lines");
        assert_eq!(omitted[1], 0);
        assert!(sent[0] <= MAX_LOGGED_BURST + 10 * LOGGED_PER_SECOND + 1, "{}", sent[0]);
        assert_eq!(sent[0] + omitted[0], 10_001, "what was left out is counted");
        assert_eq!(sent[2..], [1; 62]);
    }

    #[test]
    fn many_busy_tunnels_log_about_as_often_as_one() {
        let start = Instant::now();
        for count in [1_usize, 16, 64] {
            let mut budget = LogBudget::new(start);
            let mut shares: Vec<LogShare> = std::iter::repeat_with(LogShare::default).take(count).collect();
            // Ten seconds with a thousand requests each, in turn.
            let sent = (0..10_000_u64)
                .filter_map(|number| {
                    let share = &mut shares[usize::try_from(number).unwrap() % count];
                    share.take([&mut budget], start + Duration::from_millis(number))
                })
                .count();
            let bound = MAX_LOGGED_BURST + 10 * (LOGGED_PER_SECOND + u32::try_from(count).unwrap());
            assert!(sent <= usize::try_from(bound).unwrap(), "{sent} of {count}");
        }
    }

    #[test]
    fn a_user_of_two_budgets_gets_the_scarcer_rate_and_wastes_no_turn() {
        let start = Instant::now();
        let (mut own, mut common) = (LogBudget::new(start), LogBudget::new(start));
        let (mut here, mut elsewhere) = (LogShare::default(), LogShare::default());
        while common.take(start).is_some() {}
        assert_eq!(
            here.take([&mut own, &mut common], start),
            Some(0),
            "the first report counts lines that others took"
        );
        assert_eq!(here.take([&mut own, &mut common], start), None);
        assert_eq!(own.tokens, MAX_LOGGED_BURST, "nothing was taken for lines that were not reported");
        let earned = start + Duration::from_millis(500);
        let sent = (0..100).filter_map(|_| here.take([&mut own, &mut common], earned)).collect::<Vec<_>>();
        assert_eq!(sent.len(), LOGGED_PER_SECOND as usize / 2);
        assert_eq!(sent[0], 1, "what was left out is counted");
        assert_eq!(own.tokens, MAX_LOGGED_BURST - LOGGED_PER_SECOND / 2);
        assert_eq!(elsewhere.take([&mut common], earned), Some(0));
        assert_eq!(elsewhere.take([&mut common], earned), None);
    }

    #[test]
    fn all_slow_requests_are_logged_and_time_may_stand_still() {
        let start = Instant::now();
        let mut budget = LogBudget::new(start);
        for number in 0..1_000 {
            assert_eq!(budget.take(start + Duration::from_millis(25) * number), Some(0));
        }
        let mut still = LogBudget::new(start + Duration::from_secs(5));
        assert_eq!((0..1_000).filter_map(|_| still.take(start)).count(), MAX_LOGGED_BURST as usize);
    }
}
