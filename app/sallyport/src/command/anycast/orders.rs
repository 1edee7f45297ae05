//! Orders about edges: drain and maintain.

use std::{
    io::{IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use clap::Args;
use sallyport_api::{AnycastEdge, AnycastOrder, AnycastOrderKind, AnycastState, AnycastStatus, CreateAnycastOrder};
use sallyport_client::ApiClient;
use serde_json::json;

use crate::{
    context::Context,
    duration,
    failure::{self, Failure, Kind},
    output,
};

/// How often the edges are asked.
const ASK_PERIOD: Duration = Duration::from_secs(1);

/// Options of `anycast drain` and `anycast maintain`.
#[derive(Debug, Args)]
pub(crate) struct OrderArgs {
    /// The edges: everywhere, region:NAME, edge:NAME, or the name of an edge
    #[arg(value_name = "PLACE")]
    place: String,
    /// Take the order back
    #[arg(long)]
    off: bool,
    /// Wait until the edges have done it, or this long
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "6m", conflicts_with = "off")]
    #[arg(value_parser = duration::parse)]
    wait: Option<Duration>,
}

/// A place as the API takes it: a name alone is that of an edge.
pub(super) fn place(text: &str) -> String {
    if text.contains(':') || text == "everywhere" { text.to_owned() } else { format!("edge:{text}") }
}

/// Gives an order, or takes it back.
pub(super) async fn run(context: &Context, client: &ApiClient, args: OrderArgs, drains: bool) -> anyhow::Result<()> {
    let (place, verb) = (place(&args.place), if drains { "drain" } else { "maintain" });
    let kind = if drains { AnycastOrderKind::Drain } else { AnycastOrderKind::Maintain };
    if args.off {
        return take_back(context, client, &place, kind, verb).await;
    }
    let create = CreateAnycastOrder { place: place.clone(), kind };
    let order = client.create_anycast_order(&create).await.map_err(|error| failure::about(error, &place))?;
    order.notes.iter().for_each(|note| output::note(&output::safe(note)));
    if let Some(limit) = args.wait {
        wait(client, &order, limit).await?;
    }
    context.output.data(&order, |order: &AnycastOrder| match (drains, args.wait.is_some()) {
        (true, true) => format!("{}: withdrawn", order.place),
        (true, false) => format!("{}: clients are led elsewhere, then the prefixes are withdrawn", order.place),
        (false, true) => format!("{}: routers are asked to prefer others", order.place),
        (false, false) => format!("{}: routers will be asked to prefer others", order.place),
    })?;
    context.output.hint(&format!(
        "`sallyport anycast status` shows how it goes; `sallyport anycast {verb} {} --off` takes it back",
        args.place
    ));
    Ok(())
}

async fn take_back(
    context: &Context,
    client: &ApiClient,
    place: &str,
    kind: AnycastOrderKind,
    verb: &str,
) -> anyhow::Result<()> {
    let orders = client.anycast_orders().await?;
    let Some(order) = orders.iter().find(|order| order.place == place && order.kind == kind) else {
        let message = format!("there is no order to {verb} {}", output::safe(place));
        return Err(Failure::new(Kind::NotFound, message)
            .next("`sallyport anycast status` lists the orders that hold")
            .into());
    };
    client.delete_anycast_order(order.id).await.map_err(|error| failure::about(error, &place))?;
    context.output.data(&json!({ "deleted": order.place }), |_| format!("{place}: announces as its health allows"))
}

/// Waits until the edges have done what the order says.
async fn wait(client: &ApiClient, order: &AnycastOrder, limit: Duration) -> anyhow::Result<()> {
    let began = Instant::now();
    let is_shown = std::io::stderr().is_terminal();
    let show = |text: &str| {
        if is_shown {
            let mut errors = std::io::stderr().lock();
            let _ = write!(errors, "\r\x1b[K{text}").and_then(|()| errors.flush());
        }
    };
    loop {
        let status = client.anycast_status().await?;
        let left = undone(&status, order);
        if left.is_empty() {
            show("");
            return Ok(());
        }
        if began.elapsed() >= limit {
            show("");
            let message = format!("not done within the time: {}", output::safe(&left.join("; ")));
            return Err(Failure::new(Kind::Failed, message)
                .next("the order holds on: `sallyport anycast status`")
                .into());
        }
        show(&output::safe(&left.join("; ")));
        tokio::time::sleep(ASK_PERIOD).await;
    }
}

fn is_in(edge: &AnycastEdge, place: &str) -> bool {
    match place.split_once(':') {
        Some(("edge", name)) => edge.edge == name,
        Some(("region", name)) => edge.region.as_deref() == Some(name),
        _ => true,
    }
}

/// The prefixes that are not yet as the order says, in a few words each.
fn undone(status: &AnycastStatus, order: &AnycastOrder) -> Vec<String> {
    let is_done = |state: AnycastState| match order.kind {
        AnycastOrderKind::Drain => state == AnycastState::Withdrawn,
        AnycastOrderKind::Maintain => state != AnycastState::Announced,
    };
    let edges = status.edges.iter().filter(|edge| is_in(edge, &order.place));
    let prefixes = edges.flat_map(|edge| edge.prefixes.iter().map(move |prefix| (edge, prefix)));
    let left = prefixes.filter(|(_, prefix)| !is_done(prefix.state) || has_addresses(order, prefix.addresses.len()));
    left.map(|(edge, prefix)| format!("{} {}: {}", edge.edge, prefix.prefix, prefix.why)).collect()
}

/// Whether addresses are left that a drain removes.
fn has_addresses(order: &AnycastOrder, count: usize) -> bool {
    order.kind == AnycastOrderKind::Drain && count > 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_alone_is_an_edge() {
        assert_eq!(place("eu-1"), "edge:eu-1");
        assert_eq!(place("region:eu"), "region:eu");
        assert_eq!(place("everywhere"), "everywhere");
    }

    #[test]
    fn an_order_is_done_when_its_edges_have_withdrawn() {
        let edge = |name: &str, region: &str, state: &str| {
            json!({
                "edge": name, "region": region, "peers": [], "prefixes": [{
                    "prefix": "198.51.100.0/24", "state": state, "why": "w", "since": "2026-01-01T00:00:00Z",
                    "addresses": [], "sent_to": []
                }]
            })
        };
        let status = |one: &str, two: &str| -> AnycastStatus {
            let edges = [edge("eu-1", "eu", one), edge("us-1", "us", two)];
            serde_json::from_value(json!({"edges": edges, "orders": []})).unwrap()
        };
        let order = |place: &str, kind: &str| -> AnycastOrder {
            let id = "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11";
            serde_json::from_value(
                json!({"id": id, "place": place, "kind": kind, "created_at": "2026-01-01T00:00:00Z"}),
            )
            .unwrap()
        };
        let left = |one, two, place: &str, kind: &str| undone(&status(one, two), &order(place, kind)).len();
        assert_eq!(left("withdrawn", "announced", "region:eu", "drain"), 0);
        assert_eq!(left("deprioritised", "announced", "edge:eu-1", "drain"), 1);
        assert_eq!(left("deprioritised", "announced", "everywhere", "maintain"), 1);
        assert_eq!(left("deprioritised", "withdrawn", "everywhere", "maintain"), 0);
    }
}
