//! Packet numbers that came by a path: what came before is refused, and acknowledgements name the rest.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::packet::{Ack, MAX_ACK_RANGES};

/// Ranges that are remembered. What lies below all of them is refused.
const MAX_RANGES: usize = 1024;
/// An acknowledgement waits for this many packets,
const ACK_PACKETS: u32 = 8;
/// or for this long.
pub(crate) const MAX_ACK_DELAY: Duration = Duration::from_millis(5);
/// Acknowledgements for packets out of order are at least this far apart.
const MIN_ACK_INTERVAL: Duration = Duration::from_millis(1);
/// Acknowledgements name what came in the last one or two of these.
const EPOCH: Duration = Duration::from_millis(400);

#[derive(Debug, Default)]
pub(crate) struct Received {
    /// First and last number of each range, newest first.
    ranges: VecDeque<(u64, u64)>,
    /// Numbers below this are refused.
    floor: u64,
    newest_at: Option<Instant>,
    waiting: u32,
    ack_at: Option<Instant>,
    acked_at: Option<Instant>,
    epoch_at: Option<Instant>,
    /// The greatest numbers at the last two turns of the epoch, the older first.
    epochs: [u64; 2],
}

impl Received {
    /// Whether the number came before, or is too old to say.
    pub(crate) fn has(&self, number: u64) -> bool {
        number < self.floor || self.ranges.iter().find(|range| range.0 <= number).is_some_and(|range| number <= range.1)
    }

    pub(crate) fn largest(&self) -> Option<u64> {
        self.ranges.front().map(|range| range.1)
    }

    /// Records a number that [`has`](Self::has) does not know. Returns whether no greater one came before.
    pub(crate) fn record(&mut self, number: u64, asks_for_ack: bool, now: Instant) -> bool {
        let largest = self.largest();
        let is_newest = largest.is_none_or(|largest| number > largest);
        let is_next = largest.map_or(number == 0, |largest| number == largest + 1);
        self.insert(number);
        if is_newest {
            self.newest_at = Some(now);
        }
        if self.epoch_at.is_none_or(|at| now.duration_since(at) >= EPOCH) {
            self.epoch_at = Some(now);
            self.epochs = [self.epochs[1], largest.unwrap_or(0)];
        }
        if asks_for_ack {
            self.waiting += 1;
            let at = if self.waiting >= ACK_PACKETS {
                now
            } else if is_next {
                now + MAX_ACK_DELAY
            } else {
                self.acked_at.map_or(now, |at| now.max(at + MIN_ACK_INTERVAL))
            };
            self.ack_at = Some(self.ack_at.map_or(at, |before| before.min(at)));
        }
        is_newest
    }

    fn insert(&mut self, number: u64) {
        let at = self.ranges.iter().position(|range| range.0 <= number).unwrap_or(self.ranges.len());
        let joins_older = self.ranges.get(at).is_some_and(|range| range.1 + 1 == number);
        let joins_newer = at > 0 && self.ranges[at - 1].0 == number + 1;
        match (joins_older, joins_newer) {
            (true, true) => {
                self.ranges[at].1 = self.ranges[at - 1].1;
                self.ranges.remove(at - 1);
            }
            (true, false) => self.ranges[at].1 = number,
            (false, true) => self.ranges[at - 1].0 = number,
            (false, false) => self.ranges.insert(at, (number, number)),
        }
        if self.ranges.len() > MAX_RANGES
            && let Some((_, last)) = self.ranges.pop_back()
        {
            self.floor = last + 1;
        }
    }

    /// When an acknowledgement is due.
    pub(crate) fn ack_at(&self) -> Option<Instant> {
        self.ack_at
    }

    /// Bytes of the frame that acknowledges, at most.
    pub(crate) fn ack_bytes(&self) -> usize {
        Ack::bytes(self.recent().count())
    }

    /// The ranges to acknowledge, at most `max_ranges`, and the delay since the newest number. Nothing waits then.
    pub(crate) fn take_ack(&mut self, max_ranges: usize, now: Instant) -> Option<(Vec<(u64, u64)>, Duration)> {
        let ranges: Vec<(u64, u64)> = self.recent().take(max_ranges).collect();
        let delay = self.newest_at.map_or(Duration::ZERO, |at| now.duration_since(at));
        self.waiting = 0;
        self.ack_at = None;
        self.acked_at = Some(now);
        (!ranges.is_empty()).then_some((ranges, delay))
    }

    fn recent(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().take_while(|range| range.1 >= self.epochs[0]).take(MAX_ACK_RANGES).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_know_exactly_what_came(numbers in prop::collection::vec(0u64..300, 1..400)) {
            let now = Instant::now();
            let (mut received, mut model) = (Received::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(received.has(number), model.contains(&number));
                if !received.has(number) {
                    let is_newest = model.last().is_none_or(|&last| number > last);
                    prop_assert_eq!(received.record(number, true, now), is_newest);
                    model.insert(number);
                }
                for pair in received.ranges.iter().collect::<Vec<_>>().windows(2) {
                    prop_assert!(pair[1].1 + 1 < pair[0].0);
                }
            }
            for number in 0..310 {
                prop_assert_eq!(received.has(number), model.contains(&number));
            }
        }
    }

    #[test]
    fn memory_is_bounded_and_what_was_forgotten_is_refused() {
        let now = Instant::now();
        let mut received = Received::default();
        for number in (0..10_000).step_by(2) {
            assert!(!received.has(number));
            received.record(number, true, now);
        }
        assert_eq!(received.ranges.len(), MAX_RANGES);
        assert!(received.has(1) && received.has(0) && !received.has(9_997));
    }
}
