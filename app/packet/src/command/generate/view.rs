//! What a run prints.

use std::time::Duration;

use sallyport_cli::output::{pairs, table};
use sallyport_packet_model::generate::{CHECK_SEQUENCE, Found, PREAMBLE_AND_GAP, Rate};
use sallyport_xdp::generate::{Progress, Receipt};
use serde::Serialize;

/// A run.
#[derive(Debug, Serialize)]
pub(super) struct RunView {
    device: String,
    processors: usize,
    sent: u64,
    bytes: u64,
    seconds: f64,
    packets_per_second: f64,
    wire_bits_per_second: f64,
    /// Whether everything was sent that was asked for.
    is_complete: bool,
    received: Option<ReceivedView>,
}

/// What arrived.
#[derive(Debug, Serialize)]
struct ReceivedView {
    device: String,
    packets: u64,
    bytes: u64,
    lost: u64,
    lost_percent: f64,
    /// `None` where frames bear no stamp.
    reordered: Option<u64>,
    packets_per_second: f64,
    latency_us: Option<LatencyView>,
}

#[derive(Debug, Serialize)]
struct LatencyView {
    mean: f64,
    p50: f64,
    p99: f64,
    max: f64,
}

/// A rate that was found.
#[derive(Debug, Serialize)]
pub(super) struct FoundView {
    sizes: Vec<u16>,
    packets_per_second: f64,
    wire_bits_per_second: f64,
    trials: u32,
    /// What ended the search: loss, the rate that was asked for, or the generator.
    limit: &'static str,
}

fn wire_bits(packets: u64, bytes: u64) -> f64 {
    (bytes + packets * u64::from(CHECK_SEQUENCE + PREAMBLE_AND_GAP)) as f64 * 8.0
}

fn microseconds(span: Option<Duration>) -> f64 {
    span.map_or(0.0, |span| span.as_nanos() as f64 / 1e3)
}

fn rate(packets: u64, time: Duration) -> f64 {
    Progress { sent: packets, time, ..Progress::default() }.rate()
}

/// Spaces between thousands.
fn spaced(number: u64) -> String {
    let digits = number.to_string();
    let parts: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    parts.join(",")
}

impl RunView {
    /// The view of a run; `has_stamps` tells whether the receiver knows the run's frames.
    pub(super) fn of(
        device: &str,
        processors: usize,
        sent: Progress,
        received: Option<(&str, Receipt)>,
        has_stamps: bool,
    ) -> Self {
        let seconds = sent.time.as_secs_f64();
        let received = received.map(|(device, receipt)| {
            let lost = sent.sent.saturating_sub(receipt.packets);
            let latency = &receipt.latency;
            ReceivedView {
                device: device.to_owned(),
                packets: receipt.packets,
                bytes: receipt.bytes,
                lost,
                lost_percent: lost as f64 * 100.0 / sent.sent.max(1) as f64,
                reordered: has_stamps.then_some(receipt.reordered),
                packets_per_second: rate(receipt.packets, receipt.time),
                latency_us: (latency.count() > 0).then(|| LatencyView {
                    mean: microseconds(latency.mean()),
                    p50: microseconds(latency.quantile(0.5)),
                    p99: microseconds(latency.quantile(0.99)),
                    max: microseconds(latency.longest()),
                }),
            }
        });
        Self {
            device: device.to_owned(),
            processors,
            sent: sent.sent,
            bytes: sent.bytes,
            seconds,
            packets_per_second: sent.rate(),
            wire_bits_per_second: wire_bits(sent.sent, sent.bytes) / seconds.max(1e-9),
            is_complete: sent.is_done,
            received,
        }
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let rate = |rate: f64| Rate::Packets(rate).to_string();
        let by = match self.processors {
            1 => self.device.clone(),
            processors => format!("{} from {processors} processors", self.device),
        };
        let mut rows = vec![
            ("sent", format!("{} frames by {by}", spaced(self.sent))),
            ("time", format!("{:.3} s{}", self.seconds, if self.is_complete { "" } else { ", stopped early" })),
        ];
        if self.sent > 1 {
            let bits = Rate::Bits(self.wire_bits_per_second);
            rows.push(("rate", format!("{}, {bits} on the wire", rate(self.packets_per_second))));
        }
        if let Some(received) = &self.received {
            rows.push(("received", format!("{} frames at {}", spaced(received.packets), received.device)));
            rows.push(("lost", format!("{} ({:.4} %)", spaced(received.lost), received.lost_percent)));
            rows.extend(received.reordered.map(|reordered| ("reordered", spaced(reordered))));
            if received.packets > 1 {
                rows.push(("its rate", rate(received.packets_per_second)));
            }
            rows.extend(received.latency_us.as_ref().map(|latency| {
                let LatencyView { mean, p50, p99, max } = latency;
                ("latency", format!("p50 {p50:.1} us, p99 {p99:.1} us, max {max:.1} us, mean {mean:.1} us"))
            }));
        }
        pairs(&rows)
    }
}

impl FoundView {
    /// The view of a rate for these sizes.
    pub(super) fn of(sizes: &[u16], mean_wire_bytes: f64, found: Found, is_top: bool) -> Self {
        let limit = match (found.is_generators_limit, is_top) {
            (true, _) => "generator",
            (false, true) => "rate",
            (false, false) => "loss",
        };
        Self {
            sizes: sizes.to_vec(),
            packets_per_second: found.rate,
            wire_bits_per_second: found.rate * mean_wire_bytes * 8.0,
            trials: found.trials,
            limit,
        }
    }

    /// For people.
    pub(super) fn table(views: &[Self]) -> String {
        let rows = views.iter().map(|view| {
            let size = match view.sizes.as_slice() {
                [size] => size.to_string(),
                sizes => format!("mix of {}", sizes.len()),
            };
            let limit = match view.limit {
                "generator" => "the generator sends no more",
                "rate" => "the rate that was asked for",
                _ => "frames are lost above",
            };
            let rate = Rate::Packets(view.packets_per_second).to_string();
            [size, rate, Rate::Bits(view.wire_bits_per_second).to_string(), view.trials.to_string(), limit.to_owned()]
        });
        table(["SIZE", "RATE", "ON THE WIRE", "TRIALS", "LIMIT"], rows)
    }
}

/// A line of progress.
pub(super) fn line(started: Duration, now: Progress, before: Progress, received: Option<u64>) -> String {
    let rate = (now.sent - before.sent) as f64 / now.time.saturating_sub(before.time).as_secs_f64().max(1e-9);
    let received = received.map(|received| format!(", {} received", spaced(received))).unwrap_or_default();
    format!("{:.1} s: {} sent, {}{received}", started.as_secs_f64(), spaced(now.sent), Rate::Packets(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_loss_and_rates() {
        let sent = Progress { sent: 1_001, bytes: 60_060, time: Duration::from_millis(500), is_done: true };
        let receipt = Receipt { packets: 991, time: Duration::from_millis(500), ..Receipt::default() };
        let view = RunView::of("eth1", 1, sent, Some(("eth2", receipt)), true);
        let table = view.table();
        for words in
            ["1,001 frames by eth1", "2.000 kpps, 1.345 Mbps on the wire", "10 (0.9990 %)", "991 frames at eth2"]
        {
            assert!(table.contains(words), "{words}: {table}");
        }
        assert_eq!((spaced(0), spaced(1_234_567)), ("0".to_owned(), "1,234,567".to_owned()));
    }
}
