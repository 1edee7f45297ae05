//! The highest rate without loss: a bisection (RFC 2544, section 26.1). Trials are made elsewhere.

/// What a trial has shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// Frames a second that were wanted; `None` for as fast as can be.
    pub wanted: Option<f64>,
    /// Frames a second that were sent.
    pub sent_rate: f64,
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that arrived.
    pub received: u64,
}

/// The end of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// The highest rate without loss that a trial has had, in frames a second; 0 if every trial lost some.
    pub rate: f64,
    /// Whether the generator itself can send no more.
    pub is_generators_limit: bool,
    /// The number of trials.
    pub trials: u32,
}

/// A search between no frames and the highest rate.
#[derive(Debug, Clone)]
pub struct Search {
    /// The highest rate that lost nothing.
    good: f64,
    /// The lowest rate that lost some; `None` before one did.
    bad: Option<f64>,
    /// The rate of the first trial.
    top: Option<f64>,
    /// How near the two rates get, as a share of the lower one.
    precision: f64,
    /// The share of frames that may be lost.
    tolerance: f64,
    trials: u32,
    found: Option<Found>,
}

/// The most trials of a search: 2^-30 of the range is left.
const MAX_TRIALS: u32 = 30;
/// A generator that sends less than this share of what was wanted is at its own limit.
const REACHED: f64 = 0.98;
/// The lowest rate that is tried, in frames a second.
const LEAST: f64 = 1.0;

impl Search {
    /// A search from this rate downward; from as fast as can be without one.
    #[must_use]
    pub fn new(top: Option<f64>, precision: f64, tolerance: f64) -> Self {
        Self { good: 0.0, bad: None, top, precision, tolerance, trials: 0, found: None }
    }

    /// The end, once it is there.
    #[must_use]
    pub fn found(&self) -> Option<Found> {
        self.found
    }

    /// The rate of the next trial: `None` inside for as fast as can be. `None` outside at the end.
    #[must_use]
    pub fn next(&self) -> Option<Option<f64>> {
        match (self.found, self.bad) {
            (Some(_), _) => None,
            (None, None) => Some(self.top),
            (None, Some(bad)) => Some(Some((self.good + bad) / 2.0)),
        }
    }

    /// Takes in what the trial of [`next`](Self::next) has shown.
    pub fn take(&mut self, trial: Trial) {
        self.trials += 1;
        let lost = trial.sent.saturating_sub(trial.received) as f64;
        let is_lossless = trial.sent > 0 && lost <= trial.sent as f64 * self.tolerance;
        // What was really sent is what the receiver bore. A generator that fell behind has tested a lower rate.
        let has_reached = trial.wanted.is_none_or(|wanted| trial.sent_rate >= wanted * REACHED);
        let rate = trial.wanted.filter(|_| has_reached).unwrap_or(trial.sent_rate);
        let mut is_limit = false;
        if is_lossless {
            self.good = self.good.max(rate);
            is_limit = !has_reached || (self.bad.is_none() && trial.wanted.is_none());
            let is_top = self.bad.is_none();
            if is_limit || is_top {
                self.end(is_limit);
                return;
            }
        } else {
            self.bad = Some(self.bad.map_or(rate, |bad| bad.min(rate)));
        }
        let bad = self.bad.unwrap_or(rate);
        if bad - self.good <= (self.good * self.precision).max(LEAST) || self.trials >= MAX_TRIALS {
            self.end(is_limit);
        }
    }

    fn end(&mut self, is_generators_limit: bool) {
        self.found = Some(Found { rate: self.good, is_generators_limit, trials: self.trials });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Searches against a receiver that bears `bound`, and a generator that sends at most `most`.
    fn searched(mut search: Search, bound: f64, most: f64) -> Found {
        loop {
            let Some(wanted) = search.next() else { return search.found().unwrap() };
            let sent_rate = wanted.unwrap_or(most).min(most);
            let sent = (sent_rate * 10.0) as u64;
            let received = (sent_rate.min(bound) * 10.0) as u64;
            search.take(Trial { wanted, sent_rate, sent, received });
        }
    }

    proptest! {
        #[test]
        fn it_ends_just_below_the_bound(bound in 10.0_f64..1e6, top in proptest::option::of(1e6_f64..2e6)) {
            let found = searched(Search::new(top, 0.01, 0.0), bound, 3e6);
            prop_assert!(found.rate <= bound + 0.2, "{found:?} is above {bound}");
            prop_assert!(found.rate >= bound * 0.98 - 2.0, "{found:?} is far below {bound}");
            prop_assert!(found.trials <= MAX_TRIALS && !found.is_generators_limit);
        }
    }

    #[test]
    fn without_loss_the_first_trial_is_the_last() {
        let found = searched(Search::new(Some(1e5), 0.01, 0.0), 1e6, 3e6);
        assert_eq!(found, Found { rate: 1e5, is_generators_limit: false, trials: 1 });
        let found = searched(Search::new(None, 0.01, 0.0), 1e7, 3e6);
        assert_eq!(found, Found { rate: 3e6, is_generators_limit: true, trials: 1 });
        let slow = searched(Search::new(Some(5e6), 0.01, 0.0), 1e7, 3e6);
        assert_eq!(slow, Found { rate: 3e6, is_generators_limit: true, trials: 1 }, "the generator falls behind");
    }

    #[test]
    fn a_receiver_that_gets_nothing_ends_the_search_at_zero() {
        let found = searched(Search::new(Some(1e6), 0.01, 0.0), 0.0, 3e6);
        assert!(found.rate == 0.0 && found.trials <= MAX_TRIALS, "{found:?}");
        let mut search = Search::new(Some(10.0), 0.01, 0.0);
        search.take(Trial { wanted: Some(10.0), sent_rate: 0.0, sent: 0, received: 0 });
        assert_eq!(search.found().map(|found| found.rate), Some(0.0), "nothing sent shows nothing");
    }

    #[test]
    fn a_tolerated_share_is_no_loss() {
        let mut search = Search::new(Some(1_000.0), 0.01, 0.001);
        search.take(Trial { wanted: Some(1_000.0), sent_rate: 1_000.0, sent: 10_000, received: 9_990 });
        assert_eq!(search.found().map(|found| found.rate), Some(1_000.0));
    }
}
