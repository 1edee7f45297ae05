//! The demand of one class at one edge, from its cumulative counts.

use std::{collections::VecDeque, time::Duration};

use crate::{Amount, PER_UNIT};

/// How much of the value of a second counts, in 1/256: one half. Of a shorter time less counts, since it varies more.
const WEIGHT: u64 = 128;
/// The most that counts of the value of a longer time.
const MAX_WEIGHT: u64 = 192;
/// The least, after many reversals.
const MIN_WEIGHT: u64 = 16;
/// How many reversals within [`REVERSAL_WINDOW`] halve the weight.
const MAX_REVERSALS: usize = 3;
const REVERSAL_WINDOW: Duration = Duration::from_secs(30);
/// From which change on a turn counts as a reversal, in percent.
const REVERSAL_PERCENT: u64 = 2;
/// A change beyond this many standard deviations of random arrivals is taken at once.
const JUMP_DEVIATIONS: u64 = 4;
/// A change beyond so many on the same side twice in a row is taken at the second time, in tenths. The average has gone half
/// of the way then.
const LEAN_DEVIATIONS_TENTHS: u64 = 25;
/// The time over which the history of an edge is averaged, in milliseconds.
const HISTORY_MS: u64 = 10_000;
/// How many times its history an edge may claim.
pub(super) const MAX_CLAIM: Amount = 4;
/// What an edge without a history may claim.
const MIN_CLAIM: Amount = 20 * PER_UNIT;
/// The shortest span that a rate is taken from. Of a shorter one only a jump counts: urgent reports come fast, and their
/// counts vary too much.
const MIN_SPAN: Duration = Duration::from_millis(500);
/// The longest span between two reports that a rate is taken from.
const MAX_SPAN: Duration = Duration::from_secs(30);

/// The smoothed demand of one class at one edge, by rate and by connections.
#[derive(Debug, Clone, Default)]
pub(super) struct Demand {
    last: Option<(u64, u64, Duration)>,
    rate: Smoothed,
    connections: Smoothed,
    /// Refused in the last second.
    shed: Amount,
    /// A long average of the rate, for the bound on claims.
    history: Amount,
}

impl Demand {
    /// Takes a report that leaves this class out: its counts have not changed.
    pub(super) fn record_unchanged(&mut self, open: u32, at: Duration) {
        if let Some((arrived, shed, _)) = self.last {
            self.record(arrived, shed, open, at);
        }
    }

    /// Takes cumulative counts of a report that was written at this time of the edge.
    pub(super) fn record(&mut self, arrived: u64, shed: u64, open: u32, at: Duration) {
        let connections = Amount::from(open) * PER_UNIT;
        let Some((former, former_shed, former_at)) = self.last else {
            self.last = Some((arrived, shed, at));
            self.connections.set(connections, 0, Duration::ZERO, at);
            return;
        };
        let span = at.saturating_sub(former_at);
        // Counts never go back within an epoch.
        if span.is_zero() || arrived < former {
            return;
        }
        if span > MAX_SPAN {
            self.last = Some((arrived, shed, at));
            return;
        }
        let nanos = span.as_nanos().max(1);
        let per_second = |count: u64| {
            let rate = u128::from(count) * u128::from(PER_UNIT) * 1_000_000_000 / nanos;
            u64::try_from(rate).unwrap_or(Amount::MAX).min(crate::solver::MAX_AMOUNT)
        };
        let rate = per_second(arrived - former);
        // Random arrivals differ by the square root of their number.
        let expected = u128::from(self.rate.value / PER_UNIT) * nanos / 1_000_000_000;
        let expected = u64::try_from(expected).unwrap_or(u64::MAX);
        let deviation = per_second((arrived - former).max(expected).isqrt());
        // Where requests come and none runs, one would run.
        let connections = if rate > 0 { connections.max(PER_UNIT) } else { connections };
        self.connections.set(connections, Amount::from(open.isqrt()) * PER_UNIT, span, at);
        let is_jump = self.rate.set(rate, deviation, span, at);
        if span < MIN_SPAN && !is_jump {
            return;
        }
        self.last = Some((arrived, shed, at));
        self.shed = per_second(shed.saturating_sub(former_shed));
        let ms = u64::try_from(span.as_millis()).unwrap_or(HISTORY_MS).min(HISTORY_MS);
        if self.history == 0 {
            self.history = rate;
        }
        let claim = rate.min(self.history.saturating_mul(MAX_CLAIM).max(MIN_CLAIM));
        self.history = (self.history * (HISTORY_MS - ms) + claim * ms) / HISTORY_MS;
    }

    /// The demand by rate, no more than `MAX_CLAIM` times the history of the edge, or its fair share.
    pub(super) fn rate(&self, fair_share: Amount) -> Amount {
        self.rate.value.min(self.history.saturating_mul(MAX_CLAIM).max(fair_share))
    }

    /// The demand by requests at once.
    pub(super) fn connections(&self) -> Amount {
        self.connections.value
    }

    /// Refused requests, in thousandths of a request per second.
    pub(super) fn shed(&self) -> Amount {
        self.shed
    }

    /// The measured rate.
    pub(super) fn measured(&self) -> Amount {
        self.rate.value
    }
}

/// An average that follows a jump at once, and that slows down while it is turned back and forth.
#[derive(Debug, Clone)]
struct Smoothed {
    value: Amount,
    weight: u64,
    is_rising: bool,
    turns: VecDeque<Duration>,
    /// Whether the last value was far above, or far below.
    leans: Option<bool>,
    is_known: bool,
}

impl Default for Smoothed {
    fn default() -> Self {
        Self { value: 0, weight: WEIGHT, is_rising: true, turns: VecDeque::new(), leans: None, is_known: false }
    }
}

impl Smoothed {
    /// Takes the value of a span that ends at this time. Returns whether it counts as a jump.
    fn set(&mut self, new: Amount, deviation: Amount, span: Duration, at: Duration) -> bool {
        let former = self.value;
        let millis = if span < MIN_SPAN { 0 } else { u64::try_from(span.as_millis()).unwrap_or(u64::MAX) };
        let weight = (self.weight.saturating_mul(millis) / 1_000).min(MAX_WEIGHT);
        let (distance, is_above) = (new.abs_diff(former), new > former);
        let is_far = distance > deviation.saturating_mul(JUMP_DEVIATIONS);
        let is_beyond =
            |part: u64| distance.saturating_mul(10 * part) > deviation.saturating_mul(LEAN_DEVIATIONS_TENTHS);
        let is_second = span >= MIN_SPAN && self.leans == Some(is_above) && is_beyond(2);
        let is_jump = ((is_far || is_second) && self.weight == WEIGHT) || !self.is_known;
        if span >= MIN_SPAN {
            self.leans = (is_beyond(1) && !is_jump).then_some(is_above);
        }
        self.value = if is_jump {
            new
        } else if new > former {
            former + (new - former).div_ceil(256) * weight
        } else {
            former - (former - new) * weight / 256
        };
        self.value = self.value.min(new.max(former));
        self.is_known = true;
        self.note_turn(former, at);
        is_jump
    }

    fn note_turn(&mut self, former: Amount, at: Duration) {
        let is_large = self.value.abs_diff(former) * 100 > former.max(1) * REVERSAL_PERCENT;
        let is_rising = self.value > former;
        if is_large && is_rising != self.is_rising {
            self.is_rising = is_rising;
            self.turns.push_back(at);
        }
        while self.turns.front().is_some_and(|turn| at.saturating_sub(*turn) > REVERSAL_WINDOW) {
            self.turns.pop_front();
        }
        if self.turns.len() > MAX_REVERSALS {
            self.turns.clear();
            self.weight = (self.weight / 2).max(MIN_WEIGHT);
        } else if self.turns.is_empty() {
            self.weight = WEIGHT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(demand: &mut Demand, rates: impl IntoIterator<Item = u64>) -> Vec<Amount> {
        let (mut arrived, mut at) = demand.last.map_or((0, Duration::ZERO), |(arrived, _, at)| (arrived, at));
        demand.record(arrived, 0, 0, at);
        let mut values = Vec::new();
        for rate in rates {
            arrived += rate;
            at += Duration::from_secs(1);
            demand.record(arrived, 0, 0, at);
            values.push(demand.rate(Amount::MAX) / PER_UNIT);
        }
        values
    }

    #[test]
    fn a_jump_counts_at_once_and_noise_is_smoothed() {
        let mut demand = Demand::default();
        assert_eq!(run(&mut demand, [100, 100]).last(), Some(&100));
        assert_eq!(run(&mut demand, [190]), [190]);
        let noisy = run(&mut demand, [200, 180, 201, 185, 190]);
        assert!(noisy.iter().all(|value| (182..=198).contains(value)), "{noisy:?}");
        assert_eq!(run(&mut demand, [0]), [0]);
    }

    #[test]
    fn a_few_more_requests_count_at_the_second_report() {
        let mut demand = Demand::default();
        assert_eq!(run(&mut demand, [40, 40, 40]).last(), Some(&40));
        let values = run(&mut demand, [70, 70]);
        assert!(values[0] < 70 && values[1] == 70, "{values:?}");
        let mut demand = Demand::default();
        run(&mut demand, [40, 40]);
        let values = run(&mut demand, [58, 40]);
        assert!(values.iter().all(|value| (40..=49).contains(value)), "a burst is none of a crowd: {values:?}");
    }

    #[test]
    fn of_reports_in_quick_succession_only_a_jump_counts() {
        let mut demand = Demand::default();
        run(&mut demand, [100, 100]);
        let ms = |ms: u64| Duration::from_millis(2_000 + ms);
        for (arrived, at) in [(205, 150), (235, 300), (240, 450)] {
            demand.record(arrived, 0, 0, ms(at));
            assert_eq!(demand.measured(), 100 * PER_UNIT);
        }
        demand.record(300, 0, 0, ms(1_000));
        assert_eq!(demand.measured(), 100 * PER_UNIT, "all of them together are a second as usual");
        demand.record(500, 0, 0, ms(1_200));
        assert_eq!(demand.measured(), 1_000 * PER_UNIT);
    }

    #[test]
    fn demand_that_swings_is_followed_more_slowly() {
        let mut demand = Demand::default();
        run(&mut demand, [500]);
        let swings = run(&mut demand, (0..40).map(|second| if second % 2 == 0 { 300 } else { 700 }));
        let last = &swings[36..];
        let (least, most) = (last.iter().min().unwrap(), last.iter().max().unwrap());
        assert!(most - least < 60, "{swings:?}");
    }

    #[test]
    fn a_claim_without_a_history_is_bounded() {
        let mut demand = Demand::default();
        run(&mut demand, [10; 60]);
        run(&mut demand, [1_000_000]);
        assert!(demand.rate(20 * PER_UNIT) < 100 * PER_UNIT, "{}", demand.rate(20 * PER_UNIT));
        assert_eq!(demand.measured(), 1_000_000 * PER_UNIT);
        // An honest crowd of twice as many counts at once.
        let mut demand = Demand::default();
        run(&mut demand, [100; 60]);
        run(&mut demand, [190]);
        assert_eq!(demand.rate(0), 190 * PER_UNIT);
    }

    #[test]
    fn doubled_late_and_absurd_reports_change_nothing() {
        let mut demand = Demand::default();
        run(&mut demand, [100, 100]);
        let before = demand.measured();
        demand.record(200, 0, 0, Duration::from_secs(2));
        demand.record(150, 0, 0, Duration::from_secs(3));
        demand.record(100, 0, 0, Duration::from_secs(1));
        assert_eq!(demand.measured(), before);
        demand.record(u64::MAX, 0, u32::MAX, Duration::from_secs(3));
        let absurd = demand.measured();
        assert!(absurd > before && absurd <= crate::solver::MAX_AMOUNT);
        // After a long silence the counts are a new beginning.
        demand.record(u64::MAX, 0, 0, Duration::from_secs(300));
        assert_eq!(demand.measured(), absurd);
    }
}
