//! The estimate of what an origin can carry, from what it answers.
//!
//! An origin has a knee: up to some rate it answers as fast as when it is idle, beyond it requests queue or fail. Until
//! an origin was seen beyond its knee, nothing bounds it. Beyond the knee an origin answers what it can, so the rate of
//! its answers is the knee. The origin then gets [`DRAIN_PERCENT`] of the knee until its queue is gone, and the knee
//! afterwards. A bound that is used grows by [`GROWTH_PERCENT`] every [`GROWTH_PERIOD`] while the origin stays fast, to
//! find a knee that has moved up. The bound changes far more slowly than a plan, so that the two loops do not swing
//! together.

use std::time::Duration;

use sallyport_ping::WindowedMin;

use crate::{Amount, solver::MAX_AMOUNT};

/// How often a used bound grows.
pub const GROWTH_PERIOD: Duration = Duration::from_secs(30);
/// By how much a used bound grows, in percent.
pub const GROWTH_PERCENT: u64 = 2;
/// What an origin gets of its knee until its queue is gone, in percent.
pub const DRAIN_PERCENT: u64 = 80;
/// What an origin gets of its knee afterwards, in percent.
const KNEE_PERCENT: u64 = 97;
/// How long a cut has to show, before another one follows.
const CUT_PERIOD: Duration = Duration::from_secs(4);
/// The part of what an origin gets by which its answers may differ while it has no queue to work off: a twentieth.
const STEADY_PART: u64 = 20;
/// How many requests have to be open at an origin, by its rate and latency, for a queue that does not grow.
const MIN_CROWD: u128 = 32;
/// The longest time over which a few answers are looked at together.
const MAX_FEW_SPAN: Duration = Duration::from_secs(30);
/// By how much a bound grows after an outage, in percent.
const FAST_PERCENT: u64 = 50;
/// From which part of the bound on it counts as used, in percent.
const USED_PERCENT: u64 = 85;
/// The part of failed requests from which on an origin is beyond its knee, in percent.
const FAILED_PERCENT: u64 = 5;
/// How long the lowest latency is remembered.
const FLOOR_WINDOW: Duration = Duration::from_secs(300);
/// The fewest answers in a second from which anything is concluded.
const MIN_ANSWERS: u64 = 5;
/// Latency that is no sign of a queue, in microseconds, whatever the floor is.
const MIN_QUEUE_US: u64 = 2_000;
/// The longest time to an answer that counts, in microseconds: an hour.
const MAX_LATENCY_US: u64 = 3_600_000_000;
/// The lowest bound, in thousandths of a request per second.
const MIN_BOUND: Amount = 1_000;

/// What an origin did in a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Observed {
    /// The length of the while.
    pub span: Duration,
    /// Requests sent to it.
    pub sent: u64,
    /// Requests answered.
    pub done: u64,
    /// Requests that failed, of those answered.
    pub failed: u64,
    /// The sum of the times to the answers, in microseconds.
    pub latency_us: u64,
    /// The part of it that the ways to the origin took at least, in microseconds.
    pub way_us: u64,
}

impl Observed {
    /// Adds what happened in the while after this one.
    pub fn add(&mut self, other: Self) {
        self.span = self.span.saturating_add(other.span);
        self.add_counts(other);
    }

    /// Adds what happened in the same while.
    pub fn add_counts(&mut self, other: Self) {
        self.sent = self.sent.saturating_add(other.sent);
        self.done = self.done.saturating_add(other.done);
        self.failed = self.failed.saturating_add(other.failed);
        self.latency_us = self.latency_us.saturating_add(other.latency_us);
        self.way_us = self.way_us.saturating_add(other.way_us);
    }

    /// The same rates over this while.
    #[must_use]
    pub fn over(self, span: Duration) -> Self {
        let (own, other) = (self.span.as_micros().max(1), span.as_micros());
        let scaled = |count: u64| u64::try_from(u128::from(count) * other / own).unwrap_or(u64::MAX);
        Self {
            span,
            sent: scaled(self.sent),
            done: scaled(self.done),
            failed: scaled(self.failed),
            latency_us: scaled(self.latency_us),
            way_us: scaled(self.way_us),
        }
    }

    fn rate(self, count: u64) -> Amount {
        let millis = self.span.as_millis().max(1);
        u64::try_from(u128::from(count) * 1_000_000 / millis).unwrap_or(MAX_AMOUNT).min(MAX_AMOUNT)
    }
}

/// The learned bound of one origin.
#[derive(Debug, Clone)]
pub struct Estimator {
    bound: Option<Amount>,
    /// The bound after a queue is gone; `None`: none.
    after: Option<Amount>,
    /// What was observed since the last conclusion.
    few: Observed,
    /// The greatest rate so far.
    peak: Amount,
    /// Whether a queue is to go before the origin gets what its knee is.
    is_draining: bool,
    floor: WindowedMin,
    cut_at: Duration,
    grown_at: Duration,
    /// How many times in a row the origin was beyond its knee.
    bad_times: u32,
}

impl Default for Estimator {
    fn default() -> Self {
        Self {
            bound: None,
            after: None,
            few: Observed::default(),
            peak: 0,
            is_draining: false,
            floor: WindowedMin::new(FLOOR_WINDOW),
            cut_at: Duration::ZERO,
            grown_at: Duration::ZERO,
            bad_times: 0,
        }
    }
}

impl Estimator {
    /// The bound in thousandths of a request per second; `None` as long as the origin was never beyond its knee.
    #[must_use]
    pub fn bound(&self) -> Option<Amount> {
        self.bound
    }

    /// Takes what the origin did since the last call. `now` is the time since any fixed moment.
    pub fn observe(&mut self, observed: Observed, now: Duration) {
        // A few answers are looked at together, so that an origin with a low bound is seen to be well again.
        self.few.add(observed);
        let is_enough = self.few.done >= MIN_ANSWERS || self.few.sent >= 4 * MIN_ANSWERS;
        if !is_enough && self.few.span < MAX_FEW_SPAN {
            return;
        }
        let observed = std::mem::take(&mut self.few);
        if observed.done == 0 {
            // Nothing answered of what was sent is a sign too.
            if observed.sent >= 4 * MIN_ANSWERS {
                self.handle_bad(observed, now);
            }
            return;
        }
        let latency = (observed.latency_us / observed.done).min(MAX_LATENCY_US);
        // Requests from far edges take longer, and say nothing about the origin.
        let way = (observed.way_us / observed.done).min(latency);
        let usual = self.floor.get(now).map(|floor| floor + way);
        self.floor.record(latency - way, now);
        let is_slow = usual.is_some_and(|usual| latency > 2 * usual && latency > usual + MIN_QUEUE_US);
        let is_failing = u128::from(observed.failed) * 100 > u128::from(observed.done) * u128::from(FAILED_PERCENT);
        // Some slow requests make the mean slow. A queue shows in answers that fall behind, or in many that are open.
        let open = u128::from(observed.rate(observed.done)) * u128::from(latency) / 1_000_000_000;
        let is_crowded = usual.is_some_and(|usual| latency > 4 * usual) && open >= MIN_CROWD;
        if is_failing || (is_slow && (is_behind(observed) || is_crowded)) {
            return self.handle_bad(observed, now);
        }
        self.bad_times = 0;
        self.peak = self.peak.max(observed.rate(observed.done));
        if std::mem::take(&mut self.is_draining) {
            self.bound = self.after;
            self.grown_at = now;
            return;
        }
        if let Some(bound) = self.bound
            && !is_slow
        {
            self.grow(bound, observed.rate(observed.done), now);
        }
    }

    /// Raises a bound that is used. After an outage it rises fast, up to a tenth of what it was before.
    fn grow(&mut self, bound: Amount, rate: Amount, now: Duration) {
        self.peak = self.peak.max(bound);
        let is_fast = bound < self.peak / 10;
        let (period, percent) = if is_fast { (CUT_PERIOD, FAST_PERCENT) } else { (GROWTH_PERIOD, GROWTH_PERCENT) };
        if rate * 100 >= bound * USED_PERCENT && now.saturating_sub(self.grown_at) >= period {
            self.bound = Some(bound + (bound * percent / 100).max(1));
            self.grown_at = now;
        }
    }

    fn handle_bad(&mut self, observed: Observed, now: Duration) {
        self.bad_times = self.bad_times.saturating_add(1);
        // One bad second may be a pause of the origin.
        if self.bad_times < 2 {
            return;
        }
        if self.is_draining && (now.saturating_sub(self.cut_at) < CUT_PERIOD || !is_behind(observed)) {
            return;
        }
        let answered = observed.rate(observed.done.saturating_sub(observed.failed));
        let least = self.bound.map_or(0, |bound| bound / 4).max(MIN_BOUND);
        self.peak = self.peak.max(answered);
        self.after = Some((answered * KNEE_PERCENT / 100).max(least));
        self.bound = Some((answered * DRAIN_PERCENT / 100).max(least));
        (self.is_draining, self.cut_at, self.grown_at) = (true, now, now);
    }
}

/// Whether an origin answers less than it gets, or fails.
fn is_behind(observed: Observed) -> bool {
    let answered = observed.done.saturating_sub(observed.failed);
    answered < observed.sent.saturating_sub(observed.sent / STEADY_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An origin that answers up to `knee` requests per second, and queues or refuses the rest.
    struct Origin {
        knee: u64,
        queue: u64,
    }

    impl Origin {
        fn serve(&mut self, rate: u64) -> Observed {
            let waiting = self.queue + rate;
            let done = waiting.min(self.knee);
            self.queue = (waiting - done).min(2 * self.knee);
            // Each answer takes longer at a slower origin.
            let latency_us = 2_000_000 / self.knee.max(1) + 1_000_000 * self.queue / self.knee.max(1);
            Observed {
                span: Duration::from_secs(1),
                sent: rate,
                done,
                failed: 0,
                latency_us: latency_us * done,
                way_us: 0,
            }
        }
    }

    /// Offers this rate within the bound for some seconds; returns the bound.
    fn run(estimator: &mut Estimator, origin: &mut Origin, offered: u64, seconds: std::ops::Range<u64>) -> f64 {
        for second in seconds {
            let rate = estimator.bound().map_or(offered, |bound| offered.min(bound / 1_000));
            let observed = origin.serve(rate);
            estimator.observe(observed, Duration::from_secs(second));
        }
        estimator.bound().unwrap_or_default() as f64 / 1_000.0
    }

    #[test]
    fn the_knee_is_found_and_followed() {
        let (mut estimator, mut origin) = (Estimator::default(), Origin { knee: 200, queue: 0 });
        assert!(run(&mut estimator, &mut origin, 150, 0..60) == 0.0, "an origin that keeps up has no bound");
        let found = run(&mut estimator, &mut origin, 320, 60..360);
        assert!((180.0..=220.0).contains(&found), "{found}");
        origin.knee = 100;
        let found = run(&mut estimator, &mut origin, 320, 360..420);
        assert!((80.0..=110.0).contains(&found), "{found}");
        origin.knee = 200;
        let found = run(&mut estimator, &mut origin, 320, 420..1_800);
        assert!((180.0..=220.0).contains(&found), "{found}");
    }

    #[test]
    fn failures_and_silence_bound_an_origin_and_one_bad_second_does_not() {
        let at = Duration::from_secs;
        let good = Observed { span: at(1), sent: 100, done: 100, failed: 0, latency_us: 100 * 5_000, way_us: 0 };
        let mut estimator = Estimator::default();
        estimator.observe(good, at(1));
        estimator.observe(Observed { failed: 50, ..good }, at(2));
        estimator.observe(good, at(3));
        assert_eq!(estimator.bound(), None);
        for second in 4..6 {
            estimator.observe(Observed { failed: 50, ..good }, at(second));
        }
        assert_eq!(estimator.bound(), Some(40_000));
        estimator.observe(good, at(6));
        assert_eq!(estimator.bound(), Some(48_500));
        let mut estimator = Estimator::default();
        estimator.observe(good, at(1));
        for second in 2..20 {
            estimator.observe(Observed { done: 0, latency_us: 0, ..good }, at(second));
        }
        assert!(estimator.bound().unwrap() < 40_000, "{:?}", estimator.bound());
        for second in 20..2_000 {
            estimator.observe(Observed { done: 0, latency_us: 0, ..good }, at(second));
        }
        assert_eq!(estimator.bound(), Some(MIN_BOUND), "something always goes there, to see whether it is back");
        // The origin is back: within two minutes it gets a tenth of what it had, and more from then on.
        let mut owed = 0;
        for second in 2_000..2_120 {
            owed += estimator.bound().unwrap();
            let count = owed / 1_000;
            owed %= 1_000;
            let well = Observed { sent: count, done: count, latency_us: count * 5_000, ..good };
            estimator.observe(well, at(second));
        }
        assert!(estimator.bound().unwrap() > 9_000, "{:?}", estimator.bound());
    }

    #[test]
    fn far_edges_do_not_make_an_origin_slow() {
        let at = Duration::from_secs;
        let of = |way: u64, queue: u64| Observed {
            span: at(1),
            sent: 100,
            done: 100,
            failed: 0,
            latency_us: 100 * (way + 5_000 + queue),
            way_us: 100 * way,
        };
        let mut estimator = Estimator::default();
        (1..10).for_each(|second| estimator.observe(of(1_000, 0), at(second)));
        (10..20).for_each(|second| estimator.observe(of(90_000, 0), at(second)));
        assert_eq!(estimator.bound(), None);
        (20..22).for_each(|second| estimator.observe(Observed { sent: 150, ..of(90_000, 100_000) }, at(second)));
        assert_eq!(estimator.bound(), Some(80_000));
        let mut estimator = Estimator::default();
        (1..10).for_each(|second| estimator.observe(of(1_000, 0), at(second)));
        (10..20).for_each(|second| estimator.observe(of(1_000, 100_000), at(second)));
        assert_eq!(estimator.bound(), None, "some slow requests are no queue");
        (20..22).for_each(|second| estimator.observe(of(1_000, 500_000), at(second)));
        assert_eq!(estimator.bound(), Some(80_000), "fifty open requests are one");
    }
}
