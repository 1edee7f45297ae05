//! When the next frame is due, as `is_due` of packet/bpf/generate.bpf.c decides it.

use super::{CHECK_SEQUENCE, PREAMBLE_AND_GAP, Pace};

/// Bits of a part of a nanosecond: `PACE_SHIFT`.
const SHIFT: u32 = 10;
/// How far behind its pace a sender may be: 1 ms, or so many frames.
const MAX_DEBT: u64 = 1_000_000 << SHIFT;
const MAX_DEBT_FRAMES: u64 = 64;
/// What the wire adds to a frame.
const WIRE_BYTES: u64 = (CHECK_SEQUENCE + PREAMBLE_AND_GAP) as u64;

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct End {
    /// After so many frames.
    pub count: Option<u64>,
    /// After so many nanoseconds.
    pub duration: Option<u64>,
}

/// Whether a frame is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It is.
    Now,
    /// Not yet.
    Later,
    /// The run has ended.
    Never,
}

/// The clock of a sender.
#[derive(Debug, Clone, Default)]
pub struct Pacer {
    /// When the first frame was due.
    pub start: Option<u64>,
    /// Frames.
    pub sent: u64,
    /// Their bytes without check sequences.
    pub bytes: u64,
    /// When the last one was sent.
    pub last: u64,
    next: u64,
}

impl Pacer {
    /// Nanoseconds since the first frame.
    #[must_use]
    pub fn elapsed(&self, now: u64) -> u64 {
        now.saturating_sub(self.start.unwrap_or(now))
    }

    /// Whether a frame is due; the longest one has so many bytes. The first call starts the clock.
    pub fn due(&mut self, now: u64, end: End, pace: Pace, longest: u64) -> Due {
        self.start.get_or_insert(now);
        let elapsed = self.elapsed(now);
        if end.count.is_some_and(|count| self.sent >= count) || end.duration.is_some_and(|span| elapsed >= span) {
            return Due::Never;
        }
        let elapsed = elapsed.saturating_mul(1 << SHIFT);
        if self.next > elapsed {
            return Due::Later;
        }
        let debt = MAX_DEBT.max(MAX_DEBT_FRAMES.saturating_mul(cost(pace, longest)));
        self.next = self.next.max(elapsed.saturating_sub(debt));
        Due::Now
    }

    /// Counts a frame of so many bytes.
    pub fn count(&mut self, now: u64, pace: Pace, bytes: u64) {
        self.next = self.next.saturating_add(cost(pace, bytes + WIRE_BYTES));
        self.sent += 1;
        self.bytes += bytes;
        self.last = now;
    }
}

fn cost(pace: Pace, bytes: u64) -> u64 {
    pace.frame.saturating_add(pace.byte.saturating_mul(bytes))
}

#[cfg(test)]
mod tests {
    use super::{super::Rate, *};

    #[test]
    fn frames_keep_their_pace_and_little_is_made_up_for() {
        let pace = Rate::Packets(1e6).pace();
        let end = End { count: None, duration: Some(20_000_000) };
        let mut pacer = Pacer::default();
        let mut send = |now: u64| {
            let before = pacer.sent;
            while pacer.due(now, end, pace, 60) == Due::Now {
                pacer.count(now, pace, 60);
            }
            pacer.sent - before
        };
        assert_eq!(send(5_000), 1, "the first starts the clock");
        assert_eq!((send(5_999), send(6_000), send(15_000)), (0, 1, 9));
        // 10 ms without the processor: 1 ms is made up for.
        assert_eq!(send(10_015_000), 1_001);
        assert_eq!(send(20_005_000), 0, "the time is over");
        assert_eq!(pacer.due(20_005_000, end, pace, 60), Due::Never);
        let one = End { count: Some(pacer.sent), duration: None };
        assert_eq!(pacer.due(10_015_000, one, pace, 60), Due::Never);
    }
}
