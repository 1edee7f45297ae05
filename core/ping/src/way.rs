//! The record of a way: what probes to one target found lately.

use std::{collections::VecDeque, time::Duration};

use crate::floor::WindowedMin;

/// Of how many outcomes the figures are.
pub const WAY_OUTCOMES: usize = 60;
/// Over which time the floor of a way is the shortest round trip.
pub const WAY_FLOOR_WINDOW: Duration = Duration::from_secs(300);
/// The longest round trip that is believed. A longer one, and one of no time, counts as lost.
pub const MAX_ROUND_TRIP: Duration = Duration::from_secs(60);

/// Records the outcomes of probes to one target. Times are measured from any fixed moment.
#[derive(Debug, Clone)]
pub struct WayRecord {
    sent: u64,
    lost: u64,
    /// The last round trip.
    last: Option<Duration>,
    /// The last outcomes; `None` for a probe without an answer.
    outcomes: VecDeque<Option<Duration>>,
    /// In nanoseconds.
    floor: WindowedMin,
}

/// The figures of a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WaySummary {
    /// How many probes were sent, without those that still wait.
    pub sent: u64,
    /// How many were not answered.
    pub lost: u64,
    /// The last round trip.
    pub last: Option<Duration>,
    /// How many outcomes the following figures are of: at most [`WAY_OUTCOMES`].
    pub recent: usize,
    /// How many of those are losses.
    pub recent_lost: usize,
    /// The shortest, the middle and the longest round trip of these; `None` without an answer.
    pub spread: Option<Spread>,
    /// The shortest round trip of the last [`WAY_FLOOR_WINDOW`].
    pub floor: Option<Duration>,
}

/// The spread of round trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// The shortest.
    pub min: Duration,
    /// Half of them are not longer than this one.
    pub median: Duration,
    /// The longest.
    pub max: Duration,
}

impl Default for WayRecord {
    fn default() -> Self {
        Self { sent: 0, lost: 0, last: None, outcomes: VecDeque::new(), floor: WindowedMin::new(WAY_FLOOR_WINDOW) }
    }
}

impl WayRecord {
    /// A probe was not answered.
    pub fn handle_loss(&mut self) {
        self.sent += 1;
        self.lost += 1;
        self.record_outcome(None);
    }

    /// A probe was answered after this time.
    pub fn handle_answer(&mut self, round_trip: Duration, at: Duration) {
        if round_trip.is_zero() || round_trip > MAX_ROUND_TRIP {
            return self.handle_loss();
        }
        self.sent += 1;
        self.last = Some(round_trip);
        self.floor.record(u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX), at);
        self.record_outcome(Some(round_trip));
    }

    fn record_outcome(&mut self, outcome: Option<Duration>) {
        if self.outcomes.len() == WAY_OUTCOMES {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(outcome);
    }

    /// The shortest round trip of the window that ends at this time.
    #[must_use]
    pub fn floor(&self, at: Duration) -> Option<Duration> {
        self.floor.get(at).map(Duration::from_nanos)
    }

    /// The figures at this time.
    #[must_use]
    pub fn summary(&self, at: Duration) -> WaySummary {
        let mut sorted: Vec<Duration> = self.outcomes.iter().copied().flatten().collect();
        sorted.sort_unstable();
        let spread = || {
            let median = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
            Some(Spread { min: *sorted.first()?, median, max: *sorted.last()? })
        };
        WaySummary {
            sent: self.sent,
            lost: self.lost,
            last: self.last,
            recent: self.outcomes.len(),
            recent_lost: self.outcomes.len() - sorted.len(),
            spread: spread(),
            floor: self.floor(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn figures_are_of_the_last_outcomes() {
        let mut way = WayRecord::default();
        assert_eq!(way.summary(second(0)), WaySummary::default());
        way.handle_loss();
        assert_eq!((way.summary(second(0)).spread, way.summary(second(0)).recent_lost), (None, 1));
        for (at, time) in [(1, 30), (2, 10), (3, 20), (4, 40)] {
            way.handle_answer(ms(time), second(at));
        }
        let summary = way.summary(second(4));
        assert_eq!((summary.sent, summary.lost, summary.last), (5, 1, Some(ms(40))));
        assert_eq!(summary.spread, Some(Spread { min: ms(10), median: ms(20), max: ms(40) }));
        for at in 0..1_000 {
            way.handle_answer(ms(7), second(5 + at));
        }
        let summary = way.summary(second(1_005));
        assert_eq!((summary.sent, summary.lost, summary.recent, summary.recent_lost), (1_005, 1, WAY_OUTCOMES, 0));
        assert_eq!(summary.spread, Some(Spread { min: ms(7), median: ms(7), max: ms(7) }));
    }

    #[test]
    fn the_floor_is_forgotten_after_five_minutes() {
        let mut way = WayRecord::default();
        way.handle_answer(ms(3), second(1));
        way.handle_answer(ms(9), second(200));
        assert_eq!(way.floor(second(299)), Some(ms(3)));
        assert_eq!(way.floor(second(301)), Some(ms(9)));
        assert_eq!(way.floor(second(900)), None, "nothing is known of a way that was not measured");
        assert_eq!(way.summary(second(900)).last, Some(ms(9)));
    }

    #[test]
    fn absurd_times_count_as_lost() {
        let mut way = WayRecord::default();
        for absurd in [Duration::ZERO, MAX_ROUND_TRIP + Duration::from_nanos(1), Duration::MAX] {
            way.handle_answer(absurd, second(1));
        }
        let summary = way.summary(second(1));
        assert_eq!((summary.sent, summary.lost, summary.last, summary.floor), (3, 3, None, None));
        way.handle_answer(MAX_ROUND_TRIP, second(1));
        way.handle_answer(Duration::from_nanos(1), second(1));
        assert_eq!(way.floor(second(1)), Some(Duration::from_nanos(1)));
    }
}
