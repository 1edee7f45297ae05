//! Tests of selection, health and limits with simulated clocks.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod delivery;
mod ejection;
mod endpoints;
mod health;
mod limits;
mod maglev;
mod regions;
mod spread;
mod weights;

use std::time::{Duration, Instant};

/// A manual clock.
struct Clock(Instant);

impl Clock {
    fn new() -> Self {
        Self(Instant::now())
    }

    fn advance(&mut self, by: Duration) -> Instant {
        self.0 += by;
        self.0
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
