//! `sallyport socket plan`: which edge sends how much to which origin, and why.

use std::{collections::BTreeMap, path::PathBuf, str::FromStr};

use anyhow::Context as _;
use clap::Args;
use sallyport_api::{PlannedEdge, PlannedOrigin, PreviewPlan, SocketPlan};
use sallyport_model::EdgeName;

use super::settings::OFF;
use crate::{
    command::options::NamedSocketArg,
    context::Context,
    failure::{self, Failure},
    output,
    view::plan_drawing,
};

/// Options of `socket plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    socket: NamedSocketArg,
    /// Show what the plan would be with other numbers; nothing changes
    #[arg(long)]
    dry_run: bool,
    /// For --dry-run: the requests per second that come in at an edge: ams-1=300
    #[arg(long, value_name = "EDGE=RPS", value_delimiter = ',', requires = "dry_run")]
    demand: Vec<EdgeDemand>,
    /// For --dry-run: the most requests per second of an origin, by its id or name here: web-1=100, web-1=off
    #[arg(long, value_name = "ORIGIN=RPS", value_delimiter = ',', requires = "dry_run")]
    capacity: Vec<OriginCapacity>,
    /// Show the last hour too
    #[arg(long, conflicts_with = "dry_run")]
    history: bool,
    /// Draw load, share and latency of the last hour into this file
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    svg: Option<PathBuf>,
}

/// The demand at an edge.
#[derive(Debug, Clone, PartialEq)]
struct EdgeDemand(EdgeName, f64);

impl FromStr for EdgeDemand {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (edge, value) = text.split_once('=').ok_or("expected EDGE=RPS such as ams-1=300")?;
        Ok(Self(edge.parse().map_err(|error: sallyport_model::EdgeNameError| error.to_string())?, rate(value)?))
    }
}

/// The capacity of an origin; `None`: any number.
#[derive(Debug, Clone, PartialEq)]
struct OriginCapacity(String, Option<f64>);

impl FromStr for OriginCapacity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (origin, value) = text.rsplit_once('=').ok_or("expected ORIGIN=RPS such as web-1=100, or ORIGIN=off")?;
        Ok(Self(origin.to_owned(), if value == OFF { None } else { Some(rate(value)?) }))
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 0.0);
    number.ok_or_else(|| format!("{text:?} is no number of requests per second"))
}

/// Runs the command.
pub(crate) async fn run(context: &Context, args: PlanArgs) -> anyhow::Result<()> {
    let socket = args.socket.get()?;
    let client = context.client(&context.target()?)?;
    let has_history = args.history || args.svg.is_some();
    let plan = client.socket_plan(socket, has_history).await.map_err(|error| failure::about(error, socket))?;
    if args.dry_run {
        let demand = args.demand.into_iter().map(|EdgeDemand(edge, rps)| (edge, rps)).collect();
        let max_rps: Result<BTreeMap<_, _>, Failure> =
            args.capacity.into_iter().map(|OriginCapacity(name, rps)| Ok((id_of(&plan, &name)?, rps))).collect();
        let preview = PreviewPlan { demand, max_rps: max_rps? };
        let plan = client.preview_plan(socket, &preview).await.map_err(|error| failure::about(error, socket))?;
        return context.output.data(&plan, show);
    }
    if let Some(path) = &args.svg {
        let title = format!("The plan of {socket}");
        let names = plan.origins.iter().map(|origin| (origin.origin.clone(), label(origin))).collect();
        let drawing = plan_drawing::draw(&title, &plan.history, &names);
        std::fs::write(path, drawing).with_context(|| format!("cannot write {}", path.display()))?;
        context.output.hint(&format!("{} has load, share and latency of the last hour", path.display()));
    }
    context.output.data(&plan, show)
}

/// The id of an origin of the plan with this id, beginning of an id, or name.
fn id_of(plan: &SocketPlan, name: &str) -> Result<String, Failure> {
    let matching: Vec<_> = plan
        .origins
        .iter()
        .filter(|origin| {
            // A direct origin is known by its id alone elsewhere.
            let id = origin.origin.rsplit(':').next().unwrap_or_default();
            origin.name == name || (name.len() >= 4 && (origin.origin.starts_with(name) || id.starts_with(name)))
        })
        .collect();
    match matching.as_slice() {
        [one] => Ok(one.origin.clone()),
        [] => Err(Failure::usage(format!("the plan has no origin {name}"))
            .next("`sallyport socket plan` without --dry-run shows the origins")),
        _ => Err(Failure::usage(format!("several origins are called {name}"))
            .next("give its id, which `sallyport socket plan -o json` shows")),
    }
}

fn label(origin: &PlannedOrigin) -> String {
    match &origin.region {
        Some(region) => format!("{} in {region}", origin.name),
        None => origin.name.clone(),
    }
}

fn show(plan: &SocketPlan) -> String {
    let mut parts = vec![plan.words.join("\n")];
    let header = ["ORIGIN", "REGION", "CAPACITY", "PLANNED", "NOW", "OPEN", "LATENCY"];
    parts.push(output::table(header, plan.origins.iter().map(origin_row)));
    if !plan.edges.is_empty() {
        let header = ["EDGE", "REGION", "COMES IN", "REFUSED", "PLANNED OF GRANTED"];
        parts.push(output::table(header, plan.edges.iter().map(|edge| edge_row(edge, plan))));
    }
    if !plan.history.is_empty() {
        let rows = plan.history.iter().rev().take(60).map(|sample| {
            let origins = sample.origins.iter().map(|origin| number(origin.rps)).collect::<Vec<_>>().join(", ");
            [crate::view::utc(sample.at), number(sample.rps), number(sample.refused_rps), origins]
        });
        parts.push(output::table(["AT", "COMES IN", "REFUSED", "ORIGINS"], rows));
    }
    parts.join("\n\n")
}

fn origin_row(origin: &PlannedOrigin) -> [String; 7] {
    let none = || "-".to_owned();
    let rps = origin.max_rps.map(|rps| format!("{} rps", number(rps)));
    let most = origin.max_connections.map(|most| format!("{most} at once"));
    let capacity: Vec<_> = rps.into_iter().chain(most).collect();
    let learned = if origin.is_learned { " (learned)" } else { "" };
    [
        origin.name.clone(),
        origin.region.as_ref().map_or_else(none, ToString::to_string),
        if capacity.is_empty() { none() } else { format!("{}{learned}", capacity.join(", ")) },
        number(origin.planned_rps),
        number(origin.rps),
        origin.open.to_string(),
        origin.latency_ms.map_or_else(none, |ms| format!("{ms:.1} ms")),
    ]
}

fn edge_row(edge: &PlannedEdge, plan: &SocketPlan) -> [String; 5] {
    let name = |id: &str| {
        let origin = plan.origins.iter().find(|origin| origin.origin == id);
        origin.map_or_else(|| id.to_owned(), |origin| origin.name.clone())
    };
    let shares = edge.shares.iter().filter(|share| share.planned_rps > 0.0 || share.rps > 0.0).map(|share| {
        let away = share.round_trip_ms.map(|ms| format!(" ({ms:.0} ms)")).unwrap_or_default();
        let granted = share.quota_rps.map(|rps| format!(" of {}", number(rps))).unwrap_or_default();
        format!("{} {}{granted}{away}", name(&share.origin), number(share.planned_rps))
    });
    let shares: Vec<_> = shares.collect();
    [
        edge.edge.to_string(),
        edge.region.to_string(),
        if edge.is_heard { number(edge.rps) } else { "not heard".to_owned() },
        number(edge.refused_rps),
        if shares.is_empty() { "-".to_owned() } else { shares.join(", ") },
    ]
}

/// A rate with one decimal where it is small.
fn number(rate: f64) -> String {
    if rate >= 100.0 || rate == 0.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}

#[cfg(test)]
mod tests {
    use sallyport_api::PlannedShare;

    use super::*;

    #[test]
    fn a_row_of_an_edge_has_what_is_planned_and_what_is_granted() {
        let share = |origin: &str, quota_rps, planned_rps| PlannedShare {
            origin: origin.to_owned(),
            planned_rps,
            rps: 0.0,
            quota_rps,
            round_trip_ms: Some(5.2),
        };
        let edge = PlannedEdge {
            edge: "ams-1".parse().unwrap(),
            region: "eu".parse().unwrap(),
            is_heard: true,
            rps: 150.0,
            refused_rps: 0.0,
            shares: vec![share("a", Some(180.0), 150.0), share("b", None, 20.0), share("c", Some(9.0), 0.0)],
        };
        let plan = SocketPlan {
            socket_id: sallyport_model::SocketId::from_random([1; 16]),
            is_preview: false,
            words: Vec::new(),
            origins: Vec::new(),
            edges: Vec::new(),
            history: Vec::new(),
        };
        let row = edge_row(&edge, &plan);
        assert_eq!(row, ["ams-1", "eu", "150", "0", "a 150 of 180 (5 ms), b 20.0 (5 ms)"]);
    }

    #[test]
    fn numbers_of_a_dry_run_are_checked() {
        assert_eq!("ams-1=300".parse(), Ok(EdgeDemand("ams-1".parse().unwrap(), 300.0)));
        assert_eq!("10.0.0.7:80=off".parse(), Ok(OriginCapacity("10.0.0.7:80".to_owned(), None)));
        for bad in ["ams-1", "ams-1=x", "ams-1=-1", "ams-1=NaN", "ams-1=inf", "AMS=1"] {
            assert!(bad.parse::<EdgeDemand>().is_err(), "{bad}");
        }
        assert!("web-1=NaN".parse::<OriginCapacity>().is_err() && "web-1".parse::<OriginCapacity>().is_err());
    }
}
