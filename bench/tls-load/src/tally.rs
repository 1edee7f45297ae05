//! What came of the connections, counted.

use std::time::Duration;

use crate::connection::Failure;

/// What came of the connections of a thread, or of all.
#[derive(Default)]
pub(crate) struct Tally {
    resumed: usize,
    failed: usize,
    first_failure: Option<String>,
    times: Vec<Duration>,
}

impl Tally {
    pub(crate) fn count(&mut self, resumed: bool, took: Duration) {
        self.resumed += usize::from(resumed);
        self.times.push(took);
    }

    pub(crate) fn fail(&mut self, failure: &Failure) {
        self.failed += 1;
        self.first_failure.get_or_insert_with(|| failure.to_string());
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.resumed += other.resumed;
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.times.extend(other.times);
    }

    pub(crate) fn said(mut self, took: Duration) -> serde_json::Value {
        self.times.sort_unstable();
        let percentile = |percent: usize| {
            self.times.get(self.times.len() * percent / 100).map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        serde_json::json!({
            "count": self.times.len(),
            "resumed": self.resumed,
            "failed": self.failed,
            "first_failure": self.first_failure.as_deref().unwrap_or_default(),
            "seconds": took.as_secs_f64(),
            "p50_ms": percentile(50),
            "p99_ms": percentile(99),
        })
    }
}
