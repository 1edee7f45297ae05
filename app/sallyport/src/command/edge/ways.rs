//! `sallyport edge ways`: the round trips that edges measure.

use std::{
    collections::BTreeMap,
    io::{IsTerminal as _, Write as _},
    time::Duration,
};

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{MeasureWay, SilentEdge, Way, WayKind, WayMethod, WayPage};
use sallyport_client::ApiClient;
use sallyport_ping::Target;

use crate::{
    command::socket::stats::ms,
    context::{Context, candidates},
    failure::Failure,
    output::{self, Output},
    view::columns::{self, Column},
};

/// For how long the edges measure a host before its figures are shown.
const MEASURED_FOR: Duration = Duration::from_secs(6);

/// Options of `edge ways`.
#[derive(Debug, Args)]
pub(crate) struct WaysArgs {
    /// The name of one edge, or its id; on one machine, `edge` [default: all edges]
    #[arg(value_name = "EDGE")]
    #[arg(add = ArgValueCompleter::new(candidates::edges))]
    edge: Option<String>,
    /// Measure the way to a host too: HOST by echo requests, HOST:PORT by TCP connects
    #[arg(long, value_name = "HOST", allow_hyphen_values = true)]
    to: Option<String>,
}

/// Runs the command.
pub(super) async fn run(context: &Context, client: &ApiClient, args: WaysArgs) -> anyhow::Result<()> {
    let edge = args.edge.as_deref();
    let page = match &args.to {
        None => client.ways(edge).await?,
        Some(to) => measured(client, edge, to).await?,
    };
    print_missing(&page.silent, "its ways are missing here");
    print_notes(&page);
    let empty = "no ways yet: edges begin to measure some seconds after their start";
    context.output.list(&page.items, empty, |ways| table(&context.output, ways))
}

/// Has the edges measure a host for a moment; returns what they found.
async fn measured(client: &ApiClient, edge: Option<&str>, to: &str) -> anyhow::Result<WayPage> {
    let target: Target =
        to.parse().map_err(|error: sallyport_ping::TargetError| Failure::usage(output::safe(&error.to_string())))?;
    let told = client.measure_way(&MeasureWay { to: to.to_owned(), edge: edge.map(str::to_owned) }).await?;
    show_progress(&target).await;
    let mut page = client.ways(edge).await?;
    page.items.retain(|way| way.kind == WayKind::Host && way.to == target.to_string());
    page.notes.extend(told.notes);
    Ok(page)
}

/// Waits, with a line on a terminal.
async fn show_progress(target: &Target) {
    let seconds = MEASURED_FOR.as_secs();
    let is_shown = std::io::stderr().is_terminal();
    let show = |text: &str| {
        if is_shown {
            let mut errors = std::io::stderr().lock();
            let _ = write!(errors, "\r\x1b[K{text}").and_then(|()| errors.flush());
        }
    };
    for second in 0..seconds {
        show(&format!("measuring {}: {} s", output::safe(&target.to_string()), seconds - second));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    show("");
}

/// Lists the edges that did not answer, on the standard error.
pub(super) fn print_missing(silent: &[SilentEdge], consequence: &str) {
    for one in silent {
        output::note(&format!("{} did not respond ({}): {consequence}", one.edge, output::safe(&one.why)));
    }
}

/// Prints each reason once, with the edges that it is of.
fn print_notes(page: &WayPage) {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let unanswered = page.items.iter().filter(|way| way.kind == WayKind::Host && way.min_ms.is_none());
    let failures = unanswered.filter_map(|way| Some((way.from.as_str(), way.failure.as_deref()?)));
    let noted = page.notes.iter().map(|note| (note.edge.as_str(), note.why.as_str()));
    for (edge, why) in noted.chain(failures) {
        let edges = reasons.entry(why).or_default();
        if !edges.contains(&edge) {
            edges.push(edge);
        }
    }
    for (why, edges) in reasons {
        output::note(&output::safe(&format!("{}: {why}", edges.join(", "))));
    }
    for edge in &page.cut {
        output::note(&output::safe(&format!("{edge} has more ways than fit into its answer")));
    }
}

fn table(output: &Output, ways: &[Way]) -> String {
    let time = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), ms);
    columns::table(
        output,
        [
            Column::Cut("FROM"),
            Column::Cut("TO"),
            Column::Plain("KIND"),
            Column::Plain("BY"),
            Column::Plain("MIN"),
            Column::Plain("MEDIAN"),
            Column::Plain("MAX"),
            Column::Plain("LOST"),
            Column::Wide("MIN 5M"),
            Column::Wide("LAST"),
            Column::Wide("SENT"),
            Column::Wide("ADDRESS"),
            Column::Wide("WHY"),
        ],
        ways.iter().map(|way| {
            [
                way.from.clone(),
                way.to.clone(),
                kind(way.kind).to_owned(),
                method(way.by).to_owned(),
                time(way.min_ms),
                time(way.median_ms),
                time(way.max_ms),
                lost(way),
                time(way.floor_ms),
                time(way.last_ms),
                way.sent.to_string(),
                way.address.clone().unwrap_or_default(),
                way.failure.clone().unwrap_or_default(),
            ]
        }),
    )
}

fn kind(kind: WayKind) -> &'static str {
    match kind {
        WayKind::Host => "host",
        WayKind::Edge => "edge",
        WayKind::Origin => "origin",
    }
}

fn method(by: WayMethod) -> &'static str {
    match by {
        WayMethod::Icmp => "icmp",
        WayMethod::Tcp => "tcp",
        WayMethod::Link => "link",
    }
}

/// How many of the recent probes were lost, in percent.
fn lost(way: &Way) -> String {
    if way.recent == 0 {
        return "-".to_owned();
    }
    // Rounded up: a loss is never shown as none.
    format!("{}%", (way.recent_lost * 100).div_ceil(way.recent))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::{Color, Format};

    fn way(more: serde_json::Value) -> Way {
        let mut way = json!({
            "from": "eu-central-9", "to": "us-east-1", "kind": "edge", "by": "icmp", "sent": 60, "lost": 1,
            "recent": 60, "recent_lost": 1, "min_ms": 84.1, "median_ms": 84.5, "max_ms": 1_234.0
        });
        way.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(way).unwrap()
    }

    #[test]
    fn a_usual_line_fits_eighty_columns() {
        let table = table(&Output::new(Format::Table, Color::Never), &[way(json!({}))]);
        let lines: Vec<_> = table.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{table}");
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            ["eu-central-9", "us-east-1", "edge", "icmp", "84ms", "84ms", "1.2s", "2%"]
        );
    }

    #[test]
    fn losses_are_rounded_up() {
        let of = |recent: u64, recent_lost: u64| lost(&way(json!({"recent": recent, "recent_lost": recent_lost})));
        assert_eq!([of(0, 0), of(60, 0), of(60, 1), of(60, 59), of(2, 2)], ["-", "0%", "2%", "99%", "100%"]);
    }
}
