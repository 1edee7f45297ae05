//! Damping: what flaps stays withdrawn, the longer the more often it flaps.

use std::time::Duration;

/// How long a prefix stays withdrawn after the first failure.
pub const FIRST_HOLD_DOWN: Duration = Duration::from_secs(30);
/// How long it stays withdrawn at most; also after how long without failure half of the penalty is forgiven.
pub const MAX_HOLD_DOWN: Duration = Duration::from_secs(600);
/// The shortest time between two changes of a prefix.
pub const MIN_BETWEEN_CHANGES: Duration = Duration::from_secs(10);

/// The penalty of a prefix.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Damping {
    hold_down: Duration,
    last_flap: Option<Duration>,
}

impl Damping {
    /// A check turned bad.
    pub(super) fn flap(&mut self, now: Duration) {
        let current = self.penalty(now);
        self.hold_down = (current * 2).clamp(FIRST_HOLD_DOWN, MAX_HOLD_DOWN);
        self.last_flap = Some(now);
    }

    /// The hold-down that the last flaps earned, as far as it is not forgiven.
    fn penalty(&self, now: Duration) -> Duration {
        let Some(last) = self.last_flap else { return Duration::ZERO };
        let periods = now.saturating_sub(last).as_secs() / MAX_HOLD_DOWN.as_secs();
        let left = self.hold_down / (1u32 << periods.min(16));
        if left < FIRST_HOLD_DOWN { Duration::ZERO } else { left }
    }

    /// Until when the prefix stays withdrawn.
    pub(super) fn until(&self) -> Duration {
        self.last_flap.map_or(Duration::ZERO, |last| last + self.hold_down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn hold_down_doubles_to_ten_minutes_and_is_forgiven() {
        let mut damping = Damping::default();
        let mut seen = Vec::new();
        for flap in 0..9 {
            damping.flap(seconds(flap));
            seen.push((damping.until() - seconds(flap)).as_secs());
        }
        assert_eq!(seen, [30, 60, 120, 240, 480, 600, 600, 600, 600]);
        // Two quiet periods later a quarter is left, which the next flap doubles.
        damping.flap(seconds(8 + 1200));
        assert_eq!(damping.until(), seconds(8 + 1200 + 300));
        damping.flap(seconds(1_000_000));
        assert_eq!(damping.until(), seconds(1_000_030));
    }
}
