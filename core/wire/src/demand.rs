//! The number of legs that an edge should keep in a session: the recent peak of streams, and some more.

use std::time::{Duration, Instant};

/// Default number of legs kept ready beyond the recent peak.
pub const DEFAULT_READY_LEGS: usize = 8;
/// Time that a peak is remembered: at least this long, at most twice as long.
const PEAK_PERIOD: Duration = Duration::from_secs(30);
/// Time that a stream which found no idle leg counts as part of the current burst.
const BURST_PERIOD: Duration = Duration::from_secs(1);
/// Interval of closing surplus legs.
const SHRINK_PERIOD: Duration = Duration::from_secs(5);
/// Share of the surplus legs that is closed at a time: one in this number.
const SHRINK_DIVISOR: usize = 4;

/// Decides how many legs the edge requests, and how many idle ones it closes.
///
/// Demand is the number of busy legs plus the streams that were multiplexed within the last second. The pool follows
/// the peak of the last 30 to 60 seconds: upwards at once, downwards slowly.
#[derive(Debug, Clone)]
pub struct LegDemand {
    ready: usize,
    max_legs: usize,
    peaks: Peaks,
    period_start: Option<Instant>,
    missed: usize,
    burst_start: Option<Instant>,
    next_shrink: Option<Instant>,
}

/// The peak of demand in the current and the previous period.
#[derive(Debug, Clone, Copy, Default)]
struct Peaks {
    current: usize,
    previous: usize,
}

impl LegDemand {
    /// Keeps `ready` idle legs beyond the recent peak, and at most `max_legs` in all.
    #[must_use]
    pub fn new(ready: usize, max_legs: usize) -> Self {
        Self {
            ready,
            max_legs,
            peaks: Peaks::default(),
            period_start: None,
            missed: 0,
            burst_start: None,
            next_shrink: None,
        }
    }

    /// Number of legs to request when the first tunnel of the session is attached.
    #[must_use]
    pub fn at_start(&self) -> u16 {
        ask(self.wanted())
    }

    /// Records the opening of a stream, and returns how many more legs to request. `idle_before`: idle legs before the
    /// opening (0: the stream was multiplexed). `open_total`: all legs. `requested_outstanding`: requested legs that
    /// have not arrived (the caller forgets those that take more than some seconds).
    pub fn on_open(
        &mut self,
        idle_before: usize,
        open_total: usize,
        requested_outstanding: usize,
        now: Instant,
    ) -> u16 {
        self.turn(now);
        if self.burst_start.is_none_or(|start| now.saturating_duration_since(start) >= BURST_PERIOD) {
            self.burst_start = Some(now);
            self.missed = 0;
        }
        let busy_before = open_total.saturating_sub(idle_before);
        if idle_before == 0 {
            self.missed = self.missed.saturating_add(1);
        }
        let busy = if idle_before == 0 { busy_before } else { busy_before + 1 };
        self.peaks.current = self.peaks.current.max(busy.saturating_add(self.missed));
        let have = open_total.saturating_add(requested_outstanding);
        ask(self.wanted().saturating_sub(have))
    }

    /// Records the loss of a leg. Returns how many legs to request in its place; see [`Self::on_open`].
    pub fn on_leg_lost(&mut self, open_total: usize, requested_outstanding: usize, now: Instant) -> u16 {
        self.turn(now);
        ask(self.wanted().saturating_sub(open_total.saturating_add(requested_outstanding)))
    }

    /// When to call [`Self::on_timeout`] next; `None` until the first stream.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.next_shrink
    }

    /// Returns how many of the idle legs to close now.
    pub fn on_timeout(&mut self, idle: usize, open_total: usize, now: Instant) -> usize {
        if self.next_shrink.is_some_and(|at| now < at) {
            return 0;
        }
        self.turn(now);
        self.next_shrink = now.checked_add(SHRINK_PERIOD);
        let busy = open_total.saturating_sub(idle);
        self.peaks.current = self.peaks.current.max(busy);
        let excess = open_total.saturating_sub(self.wanted()).min(idle);
        excess.div_ceil(SHRINK_DIVISOR)
    }

    /// The number of legs to have now.
    fn wanted(&self) -> usize {
        let peak = self.peaks.current.max(self.peaks.previous);
        peak.saturating_add(self.ready).min(self.max_legs)
    }

    /// Advances to the current period.
    fn turn(&mut self, now: Instant) {
        let start = *self.period_start.get_or_insert(now);
        if self.next_shrink.is_none() {
            self.next_shrink = now.checked_add(SHRINK_PERIOD);
        }
        let passed = now.saturating_duration_since(start);
        if passed < PEAK_PERIOD {
            return;
        }
        let previous = if passed < PEAK_PERIOD * 2 { self.peaks.current } else { 0 };
        self.peaks = Peaks { current: 0, previous };
        self.period_start = Some(now);
    }
}

/// A number of legs for the LEGS frame, saturated; the excess is requested next time.
fn ask(legs: usize) -> u16 {
    u16::try_from(legs).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_asked_for_at_once_but_only_once() {
        let mut demand = LegDemand::new(8, 256);
        let now = Instant::now();
        assert_eq!(demand.at_start(), 8);
        let (mut idle, mut outstanding) = (8usize, 0);
        for _ in 0..40 {
            outstanding += usize::from(demand.on_open(idle, 8, outstanding, now));
            idle = idle.saturating_sub(1);
        }
        assert_eq!(8 + outstanding, 40 + 8);
    }

    #[test]
    fn one_stream_after_another_asks_for_nothing_more() {
        let mut demand = LegDemand::new(8, 256);
        let mut now = Instant::now();
        assert_eq!(demand.on_open(8, 8, 0, now), 1);
        for _ in 0..100_000 {
            now += Duration::from_millis(1);
            assert_eq!(demand.on_open(9, 9, 0, now), 0);
        }
    }

    #[test]
    fn the_bound_holds_and_zero_means_no_legs_at_all() {
        let now = Instant::now();
        let mut demand = LegDemand::new(8, 16);
        let mut legs = usize::from(demand.at_start());
        for _ in 0..100 {
            legs += usize::from(demand.on_open(0, legs, 0, now));
        }
        assert_eq!(legs, 16);
        let mut none = LegDemand::new(8, 0);
        assert_eq!((none.at_start(), none.on_open(0, 0, 0, now)), (0, 0));
    }

    #[test]
    fn after_a_burst_the_pool_shrinks_slowly_to_what_is_ready() {
        let start = Instant::now();
        let mut demand = LegDemand::new(8, 1_000);
        let mut legs = 8;
        for _ in 0..200 {
            legs += usize::from(demand.on_open(0, legs, 0, start));
        }
        assert!(legs >= 200, "{legs}");
        let mut now = start;
        let mut at_half_minute = 0;
        for _ in 0..60 {
            now = demand.poll_timeout().unwrap();
            let closed = demand.on_timeout(legs, legs, now);
            assert!(closed <= legs / SHRINK_DIVISOR + 1);
            legs -= closed;
            if now <= start + Duration::from_secs(25) {
                at_half_minute = legs;
            }
        }
        assert!(at_half_minute >= 200, "the peak is remembered for half a minute, {at_half_minute}");
        assert_eq!(legs, 8);
        assert!(now <= start + Duration::from_secs(301));
    }

    #[test]
    fn a_lost_leg_is_replaced_and_a_clock_that_jumps_does_no_harm() {
        let start = Instant::now();
        let mut demand = LegDemand::new(4, 100);
        assert_eq!(demand.on_open(4, 4, 0, start), 1);
        assert_eq!(demand.on_leg_lost(3, 0, start), 2);
        assert_eq!(demand.on_leg_lost(3, 2, start), 0);
        let far = start + Duration::from_secs(86_400 * 365);
        assert_eq!(demand.on_open(5, 5, 0, far), 0);
        assert_eq!(demand.on_timeout(5, 5, start), 0);
    }
}
