//! What came of the connections, counted.

use std::time::Duration;

use crate::connection::Failure;

/// What came of the connections of a thread, or of all.
#[derive(Default)]
pub(crate) struct Tally {
    resumed: usize,
    failed: usize,
    first_failure: Option<String>,
    until_answer: Vec<Duration>,
    times: Vec<Duration>,
}

impl Tally {
    /// One that went well: whether its session was resumed, and how long it was until its answer began and until it ended.
    pub(crate) fn count(&mut self, resumed: bool, until_answer: Duration, took: Duration) {
        self.resumed += usize::from(resumed);
        self.until_answer.push(until_answer);
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
        self.until_answer.extend(other.until_answer);
        self.times.extend(other.times);
    }

    pub(crate) fn said(mut self, took: Duration) -> serde_json::Value {
        self.until_answer.sort_unstable();
        self.times.sort_unstable();
        let milliseconds = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
        let percentile = |times: &[Duration], percent| milliseconds(times.get(times.len() * percent / 100));
        serde_json::json!({
            "count": self.times.len(),
            "resumed": self.resumed,
            "failed": self.failed,
            "first_failure": self.first_failure.as_deref().unwrap_or_default(),
            "seconds": took.as_secs_f64(),
            "p50_ms": percentile(&self.times, 50),
            "p99_ms": percentile(&self.times, 99),
            "answer_p50_ms": percentile(&self.until_answer, 50),
            "answer_max_ms": milliseconds(self.until_answer.last()),
        })
    }
}
