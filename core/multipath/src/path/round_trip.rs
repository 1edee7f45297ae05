//! Round trips of a path: smoothed, their variation (RFC 9002 section 5.3), and the shortest one of a window.

use std::time::{Duration, Instant};

/// The shortest round trip counts for this long, and then is measured again.
const MIN_WINDOW: Duration = Duration::from_secs(10);

#[derive(Debug, Default, Clone)]
pub(crate) struct RoundTrip {
    smoothed: Option<Duration>,
    variation: Duration,
    min: Duration,
    min_at: Option<Instant>,
    /// The shortest one since a measurement began.
    measured: Option<Duration>,
}

impl RoundTrip {
    /// Records a round trip, from which the peer's delay is already taken.
    pub(crate) fn record(&mut self, sample: Duration, now: Instant) {
        if self.min_at.is_none_or(|at| sample <= self.min || now.duration_since(at) > MIN_WINDOW * 2) {
            self.min = sample;
            self.min_at = Some(now);
        }
        self.measured = self.measured.map(|before| before.min(sample));
        match &mut self.smoothed {
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
                *smoothed = (*smoothed * 7 + sample) / 8;
            }
            smoothed => {
                *smoothed = Some(sample);
                self.variation = sample / 2;
            }
        }
    }

    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    pub(crate) fn variation(&self) -> Duration {
        self.variation
    }

    pub(crate) fn min(&self) -> Duration {
        self.min
    }

    /// Whether the shortest round trip has to be measured again.
    pub(crate) fn is_min_old(&self, now: Instant) -> bool {
        self.min_at.is_some_and(|at| now.duration_since(at) > MIN_WINDOW)
    }

    /// The queue is about to be empty: measures the shortest round trip from now on.
    pub(crate) fn begin_measurement(&mut self) {
        self.measured = Some(Duration::MAX);
    }

    /// Takes what was measured for the shortest round trip.
    pub(crate) fn end_measurement(&mut self, now: Instant) {
        if let Some(measured) = self.measured.take().filter(|&measured| measured < Duration::MAX) {
            self.min = measured;
            self.min_at = Some(now);
        }
    }
}
