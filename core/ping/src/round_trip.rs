//! A round trip, from stamps of two clocks.

use std::time::{Duration, Instant};

/// How far the two readings of a [`Moment`] may be apart. The clocks themselves run alike: Linux slews both, and sets
/// the wall clock alone (`clock_gettime(2)`).
const SLACK: Duration = Duration::from_micros(100);

/// The two clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The monotonic clock.
    pub monotonic: Instant,
    /// The wall clock, as the time since 1970. The kernel stamps packets by it.
    pub wall: Duration,
}

/// A measured round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip {
    /// The time between the request and its reply.
    pub time: Duration,
    /// Where the time comes from.
    pub source: Source,
}

/// Where the time of a round trip comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The kernel's stamps of both packets.
    Kernel,
    /// The monotonic clock of this process, because the kernel gave no stamps.
    Unstamped,
    /// The monotonic clock of this process, because the wall clock jumped between the stamps.
    ClockJumped,
}

impl RoundTrip {
    /// The round trip between sending and receiving. `transmitted` and `arrived` are the kernel's stamps by the wall
    /// clock, which may have jumped. Then only the monotonic clock counts.
    #[must_use]
    pub fn new(sent: Moment, received: Moment, transmitted: Option<Duration>, arrived: Option<Duration>) -> Self {
        let monotonic = received.monotonic.saturating_duration_since(sent.monotonic);
        let (Some(transmitted), Some(arrived)) = (transmitted, arrived) else {
            return Self { time: monotonic, source: Source::Unstamped };
        };
        // Both stamps lie between the readings of this process, and both clocks saw the same time pass.
        let is_between =
            sent.wall <= transmitted.saturating_add(SLACK) && arrived <= received.wall.saturating_add(SLACK);
        let is_even = received.wall.saturating_sub(sent.wall).abs_diff(monotonic) <= SLACK;
        match arrived.checked_sub(transmitted) {
            Some(time) if is_between && is_even && time <= monotonic => Self { time, source: Source::Kernel },
            _ => Self { time: monotonic, source: Source::ClockJumped },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Duration = Duration::from_secs(1_700_000_000);

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// The wall clock at this many milliseconds, when it was set by so many milliseconds.
    fn wall(at: u64, set_by: i64) -> Duration {
        Duration::from_millis((SENT.as_millis() as u64 + at).saturating_add_signed(set_by))
    }

    /// A round trip of 20 ms, of which the process noticed 80: sent at 0, transmitted at 10, arrived at 30, read at 80.
    /// The wall clock is set before the numbered of these steps: 1 to 3.
    fn measured(jump: i64, before: usize) -> RoundTrip {
        let start = Instant::now();
        let set_by = |step: usize| if step >= before { jump } else { 0 };
        let sent = Moment { monotonic: start, wall: SENT };
        let received = Moment { monotonic: start + ms(80), wall: wall(80, set_by(3)) };
        RoundTrip::new(sent, received, Some(wall(10, set_by(1))), Some(wall(30, set_by(2))))
    }

    #[test]
    fn the_kernels_stamps_are_believed_while_the_clock_runs_evenly() {
        assert_eq!(measured(0, 1), RoundTrip { time: ms(20), source: Source::Kernel });
    }

    #[test]
    fn jumps_of_the_wall_clock_change_nothing() {
        for jump in [-3_600_000, -1_000, -50, -15, -5, 5, 15, 50, 1_000, 3_600_000] {
            for before in 1..=3 {
                let found = measured(jump, before);
                assert_eq!(found, RoundTrip { time: ms(80), source: Source::ClockJumped }, "{jump} ms before {before}");
            }
        }
    }

    #[test]
    fn a_jump_that_is_taken_back_is_noticed() {
        let start = Instant::now();
        let sent = Moment { monotonic: start, wall: SENT };
        let received = Moment { monotonic: start + ms(80), wall: wall(80, 0) };
        for (transmitted, arrived) in [(500, 0), (-500, 0), (0, 500), (0, -500), (500, 500), (-500, -500)] {
            let stamps = (Some(wall(10, transmitted)), Some(wall(30, arrived)));
            let found = RoundTrip::new(sent, received, stamps.0, stamps.1);
            assert_eq!(found, RoundTrip { time: ms(80), source: Source::ClockJumped }, "{transmitted} {arrived}");
        }
    }

    #[test]
    fn a_jump_within_the_tolerance_makes_no_round_trip_longer() {
        let start = Instant::now();
        let micros = Duration::from_micros;
        let sent = Moment { monotonic: start, wall: SENT };
        // 20 µs between the stamps, 30 µs for the process, and a jump of 50 µs in between.
        let received = Moment { monotonic: start + micros(30), wall: SENT + micros(80) };
        let found = RoundTrip::new(sent, received, Some(SENT + micros(5)), Some(SENT + micros(75)));
        assert_eq!(found, RoundTrip { time: micros(30), source: Source::ClockJumped });
    }

    #[test]
    fn without_both_stamps_the_monotonic_clock_counts() {
        let start = Instant::now();
        let sent = Moment { monotonic: start, wall: SENT };
        let received = Moment { monotonic: start + ms(80), wall: wall(80, 0) };
        for (transmitted, arrived) in [(None, None), (Some(wall(10, 0)), None), (None, Some(wall(30, 0)))] {
            let found = RoundTrip::new(sent, received, transmitted, arrived);
            assert_eq!(found, RoundTrip { time: ms(80), source: Source::Unstamped });
        }
    }
}
