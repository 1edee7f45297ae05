//! The summary of a `ping`.

use std::time::Duration;

use sallyport_probe::{Counts, Rejected, Statistics, Summary};
use serde::Serialize;

use super::target::Target;
use crate::output;

/// The summary, as programs get it.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    host: &'a str,
    address: String,
    /// `icmp` or `tcp`.
    method: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_bytes: Option<usize>,
    sent: u64,
    answered: u64,
    lost: u64,
    loss_percent: f64,
    /// Answers that came after the answer to a later request.
    #[serde(skip_serializing_if = "Option::is_none")]
    reordered: Option<u64>,
    /// Answers that were refusals of a connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<u64>,
    round_trip_ms: Option<RoundTrips>,
    /// Replies that were not believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<RejectedReplies>,
    /// Answers during which the wall clock jumped.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_jumps: Option<u64>,
    /// Answers without stamps of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    unstamped: Option<u64>,
}

/// Times in milliseconds.
#[derive(Debug, Serialize)]
struct RoundTrips {
    min: f64,
    avg: f64,
    max: f64,
    mdev: f64,
    p50: f64,
    p90: f64,
    p99: f64,
}

#[derive(Debug, Serialize)]
struct RejectedReplies {
    duplicates: u64,
    forged: u64,
    late: u64,
    truncated: u64,
    other_sender: u64,
    damaged: u64,
}

impl From<Summary> for RoundTrips {
    fn from(summary: Summary) -> Self {
        let Summary { min, avg, max, mdev, p50, p90, p99 } = summary;
        let [min, avg, max, mdev, p50, p90, p99] =
            [min, avg, max, mdev, p50, p90, p99].map(|time| time.as_nanos() as f64 / 1_000_000.0);
        Self { min, avg, max, mdev, p50, p90, p99 }
    }
}

impl From<Rejected> for RejectedReplies {
    fn from(rejected: Rejected) -> Self {
        let Rejected { forged, duplicates, late, truncated, other_sender, damaged } = rejected;
        Self { duplicates, forged, late, truncated, other_sender, damaged }
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(
        host: &'a str,
        target: Target,
        size: usize,
        statistics: &Statistics,
        refusals: u64,
        counts: Counts,
    ) -> Self {
        let is_echo = matches!(target, Target::Echo(_));
        Self {
            host,
            address: target.to_string(),
            method: if is_echo { "icmp" } else { "tcp" },
            data_bytes: is_echo.then_some(size),
            sent: statistics.sent(),
            answered: statistics.answered(),
            lost: statistics.lost(),
            loss_percent: statistics.loss_percent(),
            reordered: is_echo.then_some(statistics.reordered()),
            refused: (!is_echo).then_some(refusals),
            round_trip_ms: statistics.summary().map(RoundTrips::from),
            rejected: is_echo.then(|| counts.rejected.into()),
            clock_jumps: is_echo.then_some(counts.clock_jumps),
            unstamped: is_echo.then_some(counts.unstamped),
        }
    }

    /// The summary for people.
    pub(super) fn table(&self) -> String {
        let percent = format!("{:.1}", self.loss_percent);
        let percent = percent.strip_suffix(".0").unwrap_or(&percent);
        let mut lines = vec![
            format!("--- {} ping statistics ---", output::safe(self.host)),
            format!("{} sent, {} answered, {percent}% loss", self.sent, self.answered),
        ];
        if let Some(RoundTrips { min, avg, max, mdev, p50, p90, p99 }) = &self.round_trip_ms {
            lines.push(format!("round trip min/avg/max/mdev = {min:.3}/{avg:.3}/{max:.3}/{mdev:.3} ms"));
            lines.push(format!("round trip p50/p90/p99 = {p50:.3}/{p90:.3}/{p99:.3} ms"));
        }
        let further = [
            (self.reordered.unwrap_or_default(), "reordered"),
            (self.refused.unwrap_or_default(), "refused"),
            (self.clock_jumps.unwrap_or_default(), "measured while the wall clock jumped"),
            (self.unstamped.unwrap_or_default(), "measured without stamps of the kernel"),
        ];
        lines.extend(counted("answers", &further));
        if let Some(rejected) = &self.rejected {
            let reasons = [
                (rejected.duplicates, "duplicates"),
                (rejected.forged, "forged"),
                (rejected.late, "late"),
                (rejected.truncated, "truncated"),
                (rejected.other_sender, "from another address"),
                (rejected.damaged, "damaged"),
            ];
            lines.extend(counted("not believed", &reasons));
        }
        lines.join("\n")
    }
}

/// The counters that are not zero.
fn counted(what: &str, counters: &[(u64, &str)]) -> Option<String> {
    let shown: Vec<_> =
        counters.iter().filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}")).collect();
    (!shown.is_empty()).then(|| format!("{what}: {}", shown.join(", ")))
}

/// A time in milliseconds, to the microsecond.
pub(super) fn ms(time: Duration) -> String {
    format!("{:.3}", time.as_nanos() as f64 / 1_000_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(answers: u64, losses: u64) -> Statistics {
        let mut statistics = Statistics::default();
        (1..=answers).for_each(|number| statistics.handle_answer(number, Duration::from_millis(number)));
        (0..losses).for_each(|_| statistics.handle_loss());
        statistics
    }

    #[test]
    fn the_summary_names_what_is_not_zero() {
        let target = Target::Echo([192, 0, 2, 1].into());
        let report = Report::new("a", target, 56, &statistics(2, 1), 0, Counts::default());
        assert_eq!(
            report.table(),
            "--- a ping statistics ---\n3 sent, 2 answered, 33.3% loss\nround trip min/avg/max/mdev = \
             1.000/1.500/2.000/0.500 ms\nround trip p50/p90/p99 = 1.000/2.000/2.000 ms"
        );
        let rejected = Rejected { duplicates: 1, forged: 2, late: 3, truncated: 4, other_sender: 5, damaged: 6 };
        let counts = Counts { rejected, clock_jumps: 1, unstamped: 2, ..Counts::default() };
        let report = Report::new("a", target, 56, &statistics(0, 3), 0, counts);
        assert_eq!(
            report.table(),
            "--- a ping statistics ---\n3 sent, 0 answered, 100% loss\nanswers: 1 measured while the wall clock \
             jumped, 2 measured without stamps of the kernel\nnot believed: 1 duplicates, 2 forged, 3 late, 4 \
             truncated, 5 from another address, 6 damaged"
        );
    }

    #[test]
    fn programs_get_all_counters_of_the_method() {
        let echo = Target::Echo([192, 0, 2, 1].into());
        let json = serde_json::to_value(Report::new("a", echo, 56, &statistics(1, 0), 0, Counts::default())).unwrap();
        assert_eq!(json["round_trip_ms"]["p99"], 1.0);
        assert_eq!(json["rejected"]["forged"], 0);
        assert!(json.get("refused").is_none());
        let connect = Target::Connect(([192, 0, 2, 1], 1).into());
        let json = serde_json::to_value(Report::new("a", connect, 56, &statistics(0, 1), 0, Counts::default()));
        let json = json.unwrap();
        assert_eq!((&json["method"], &json["refused"]), (&"tcp".into(), &0.into()));
        assert!(json["round_trip_ms"].is_null() && json.get("rejected").is_none());
    }
}
