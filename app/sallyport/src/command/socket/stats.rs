//! `sallyport socket stats`: the counters of a socket, over all edges.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use sallyport_api::{Counts, EdgeCounts, OriginCounts, Quantiles, SocketStats};

use crate::{
    command::{flow, options::NamedSocketArg},
    context::Context,
    failure,
    output::{self, Format},
    view::utc,
};

/// The refresh interval of `--watch`.
const WATCH_EVERY: Duration = Duration::from_secs(2);
/// Moves a terminal's cursor to its first line, and clears the screen below (ECMA-48, CUP and ED).
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// Options of `socket stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    socket: NamedSocketArg,
    /// Refresh every two seconds, until this command is stopped
    #[arg(long)]
    watch: bool,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, args: StatsArgs) -> anyhow::Result<()> {
    let socket = args.socket.get()?;
    let client = context.client(&context.target()?)?;
    loop {
        let stats = client.socket_stats(socket).await.map_err(|error| failure::about(error, socket))?;
        if !args.watch {
            flow::print_silent(&stats.silent);
            return context.output.data(&stats, show);
        }
        match context.output.format {
            // One line each time, for programs that follow.
            Format::Json => output::line(&serde_json::to_string(&stats)?)?,
            Format::Table if context.output.terminal => output::line(&format!("{CLEAR}{}", show(&stats)))?,
            Format::Table | Format::Yaml => context.output.data(&stats, show)?,
        }
        flow::print_silent(&stats.silent);
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

fn show(stats: &SocketStats) -> String {
    let total = &stats.total;
    let mut rows = vec![
        ("socket", format!("{} ({})", stats.socket_name, stats.transport)),
        ("since", total.since.map_or_else(|| "-".to_owned(), utc)),
    ];
    if !total.requests.is_empty() {
        rows.push(("requests", counts(&total.requests)));
    }
    if !total.flows.is_empty() {
        rows.push(("flows", counts(&total.flows)));
    }
    if !total.refusals.is_empty() {
        rows.push(("refused", counts(&total.refusals)));
    }
    rows.extend([
        ("running now", total.live.to_string()),
        ("per second", rate(total)),
        ("from clients", format!("{} bytes", total.bytes_in)),
        ("to clients", format!("{} bytes", total.bytes_out)),
        ("took", quantiles(total.duration)),
    ]);
    if let Some(first_byte) = total.first_byte {
        rows.push(("first byte", quantiles(Some(first_byte))));
    }
    let mut parts = vec![output::pairs(&rows)];
    if stats.edges.iter().any(|one| one.edge.is_some()) {
        let header = ["EDGE", "REGION", "ENDED", "NOW", "PER S", "IN", "OUT", "P99"];
        parts.push(output::table(header, stats.edges.iter().map(edge)));
    }
    if !stats.origins.is_empty() {
        parts.push(output::table(["ORIGIN", "EDGE", "ENDED", "IN", "OUT"], stats.origins.iter().map(origin)));
    }
    parts.join("\n\n")
}

/// `0.05 (3 in the last 60 s)`.
fn rate(counts: &Counts) -> String {
    let Counts { per_second, last_minute, last_minute_seconds, .. } = counts;
    match last_minute_seconds {
        // A server without that figure.
        0 => format!("{per_second:.2} in the last minute"),
        seconds => format!("{per_second:.2} ({last_minute} in the last {seconds} s)"),
    }
}

fn edge(one: &EdgeCounts) -> [String; 8] {
    let (none, counts) = (|| "-".to_owned(), &one.counts);
    [
        one.edge.as_ref().map_or_else(none, ToString::to_string),
        one.region.as_ref().map_or_else(none, ToString::to_string),
        ended(counts).to_string(),
        counts.live.to_string(),
        format!("{:.2}", counts.per_second),
        counts.bytes_in.to_string(),
        counts.bytes_out.to_string(),
        counts.duration.map_or_else(none, |took| ms(took.p99_ms)),
    ]
}

fn origin(one: &OriginCounts) -> [String; 5] {
    let edges = one.edges.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let edges = if edges.is_empty() { "-".to_owned() } else { edges };
    let direct = || one.direct_origin.map(|id| format!("direct:{id}"));
    let id = one.tunnel.map(|id| id.to_string()).or_else(direct).unwrap_or_default();
    [id, edges, one.uses.to_string(), one.bytes_in.to_string(), one.bytes_out.to_string()]
}

/// How many requests and flows ended.
fn ended(counts: &Counts) -> u64 {
    counts.requests.values().chain(counts.flows.values()).sum()
}

/// `2xx 12, 5xx 1`.
fn counts(counts: &BTreeMap<String, u64>) -> String {
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

fn quantiles(times: Option<Quantiles>) -> String {
    times.map_or_else(|| "-".to_owned(), |times| format!("p50 {}, p99 {}", ms(times.p50_ms), ms(times.p99_ms)))
}

/// `0.41ms`, `12ms`, `3.4s`.
pub(crate) fn ms(ms: f64) -> String {
    match ms {
        ..1.0 => format!("{ms:.2}ms"),
        1.0..10.0 => format!("{ms:.1}ms"),
        10.0..1_000.0 => format!("{ms:.0}ms"),
        _ => format!("{:.1}s", ms / 1_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!([ms(0.412), ms(4.26), ms(61.4), ms(3_440.0)], ["0.41ms", "4.3ms", "61ms", "3.4s"]);
    }

    #[test]
    fn a_socket_is_shown_with_its_edges_and_tunnels() {
        let id = "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11";
        let counts = r#""since":"2026-11-22T08:00:00Z","requests":{"2xx":12,"5xx":1},"flows":{},"refusals":{"denied":2},
            "bytes_in":5,"bytes_out":70,"live":1,"per_second":0.05,"last_minute":3,"last_minute_seconds":60,"duration":{"p50_ms":4.2,"p99_ms":61.0}"#;
        let text = format!(
            r#"{{"socket":"{id}","socket_name":"calm-bay-1000","transport":"http",{counts},
            "edges":[{{"edge":"eu-1","region":"eu",{counts}}}],
            "origins":[{{"tunnel":"{id}","edges":["eu-1"],"uses":13,"bytes_in":5,"bytes_out":70}}]}}"#
        );
        let shown = show(&serde_json::from_str(&text).unwrap());
        for wanted in ["2xx 12, 5xx 1", "denied 2", "p50 4.2ms, p99 61ms", "0.05 (3 in the last 60 s)", "eu-1  eu"] {
            assert!(shown.contains(wanted), "{wanted} in {shown}");
        }
        assert!(shown.lines().all(|line| line.len() <= 80), "{shown}");
    }
}
