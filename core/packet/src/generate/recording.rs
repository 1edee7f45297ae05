//! Frames of a file, and when they were captured.

/// Frames of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recording {
    /// The frames, without check sequences.
    pub frames: Vec<Vec<u8>>,
    /// When each one was captured, in nanoseconds since the first; never earlier than the one before.
    pub times: Vec<u64>,
}

impl Recording {
    /// Takes frames with the times of their capture. One that is earlier than the one before counts as simultaneous.
    #[must_use]
    pub fn new(found: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Self {
        let (mut first, mut last) = (None, 0);
        let mut recording = Self::default();
        for (time, frame) in found {
            last = last.max(time.saturating_sub(*first.get_or_insert(time)));
            recording.times.push(last);
            recording.frames.push(frame);
        }
        recording
    }

    /// The times for so many times the speed.
    #[must_use]
    pub fn scaled(&self, speed: f64) -> Vec<u64> {
        self.times.iter().map(|time| (*time as f64 / speed) as u64).collect()
    }

    /// How long one pass takes at that speed, with the mean pause before the first frame comes again: 1 ns at least.
    #[must_use]
    pub fn period(&self, speed: f64) -> u64 {
        let last = self.times.last().copied().unwrap_or_default();
        let pauses = (self.times.len() as u64).saturating_sub(1);
        let whole = last.saturating_add(last.checked_div(pauses).unwrap_or_default());
        ((whole as f64 / speed) as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_first_and_never_fall() {
        let recording = Recording::new([5_000, 6_000, 5_500, 9_000].map(|time| (time, vec![0; 60])));
        assert_eq!(recording.times, [0, 1_000, 1_000, 4_000]);
        assert_eq!(recording.scaled(2.0), [0, 500, 500, 2_000]);
        // Three pauses have 4,000 ns: the next round begins 1,333 ns later.
        assert_eq!((recording.period(1.0), recording.period(2.0)), (5_333, 2_666));
        assert_eq!(Recording::new([(7, vec![0; 60])]).period(1.0), 1);
        assert_eq!(Recording::new([(0, vec![]), (u64::MAX, vec![])]).period(0.5), u64::MAX);
    }
}
