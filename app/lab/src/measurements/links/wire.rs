//! The fate of segments on a wire: when they arrive, and which are lost. Pure: time is an argument, and chance comes
//! from a seed.

use std::time::Duration;

use crate::chance::Chance;

/// A segment that would wait longer than this for the wire is lost.
const MAX_QUEUE: Duration = Duration::from_millis(50);

/// The shape of a wire in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shape {
    /// Bits per second.
    pub(crate) rate_bits: u64,
    /// The time from one end to the other.
    pub(crate) delay: Duration,
    /// How many segments of a hundred are lost.
    pub(crate) loss_percent: f64,
}

/// A wire in one direction.
#[derive(Debug)]
pub(crate) struct Wire {
    shape: Shape,
    chance: Chance,
    /// Until when the wire is busy.
    busy_until: Duration,
}

impl Wire {
    /// A wire at rest.
    pub(crate) fn new(shape: Shape, seed: u64) -> Self {
        Self { shape, chance: Chance::new(seed), busy_until: Duration::ZERO }
    }

    /// Sends segments of these sizes, in bytes, one after the other. Returns which arrive, and when the last one does.
    pub(crate) fn carry(&mut self, now: Duration, sizes: impl Iterator<Item = usize>) -> (Vec<bool>, Duration) {
        let mut free_at = self.busy_until.max(now);
        let arrives = sizes.map(|bytes| {
            if self.chance.fraction() * 100.0 < self.shape.loss_percent || free_at - now > MAX_QUEUE {
                return false;
            }
            free_at += Duration::from_secs_f64(bytes as f64 * 8.0 / self.shape.rate_bits as f64);
            true
        });
        let arrives = arrives.collect();
        self.busy_until = free_at;
        (arrives, free_at + self.shape.delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn segments_wait_for_each_other_and_a_full_queue_loses_them() {
        // 1,250 bytes are 10 ms at a million bits a second.
        let mut wire = Wire::new(Shape { rate_bits: 1_000_000, delay: 70 * MS, loss_percent: 0.0 }, 1);
        assert_eq!(wire.carry(5 * MS, [1_250, 1_250].into_iter()), (vec![true, true], 95 * MS));
        let (arrives, due) = wire.carry(5 * MS, [1_250; 6].into_iter());
        assert_eq!((arrives, due), (vec![true, true, true, true, false, false], 135 * MS), "50 ms wait and no more");
        assert_eq!(wire.carry(400 * MS, [125].into_iter()), (vec![true], 471 * MS), "the wire was idle in between");
    }

    #[test]
    fn losses_are_of_single_segments_at_the_given_rate() {
        let mut wire = Wire::new(Shape { rate_bits: u64::MAX, delay: MS, loss_percent: 1.5 }, 7);
        let (arrives, _) = wire.carry(MS, std::iter::repeat_n(1_500, 100_000));
        let lost = arrives.iter().filter(|arrives| !**arrives).count();
        assert!((1_350..1_650).contains(&lost), "{lost} of 100000");
    }
}
