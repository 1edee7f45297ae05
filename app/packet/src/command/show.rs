//! `packet router show`: routes, neighbours, and what became of packets.

use clap::{Args, Subcommand};
use sallyport_cli::output::{Output, table};
use sallyport_xdp::{Action, Router, kernel::Hop};
use serde::Serialize;

use crate::command::{kernel, mac, name_of};

/// What is shown.
#[derive(Debug, Subcommand)]
pub(crate) enum ShowCommand {
    /// The routes that the router follows
    Routes,
    /// The neighbours of the ports
    Neighbors,
    /// What was dropped, and why
    Drops(DropsArgs),
}

/// The arguments of `drops`.
#[derive(Debug, Args)]
pub(crate) struct DropsArgs {
    /// Also what was forwarded, and what was left to the kernel
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Serialize)]
struct RouteView {
    prefix: String,
    kind: &'static str,
    metric: u32,
    hops: Vec<HopView>,
}

#[derive(Debug, Serialize)]
struct HopView {
    gateway: Option<String>,
    device: Option<String>,
    weight: u16,
    /// Whether the device is a port, or a VLAN of one: other packets are left to the kernel.
    is_port: bool,
}

#[derive(Debug, Serialize)]
struct NeighborView {
    address: String,
    device: String,
    mac: Option<String>,
    state: &'static str,
}

#[derive(Debug, Serialize)]
struct CountView {
    port: Option<String>,
    action: &'static str,
    reason: &'static str,
    packets: u64,
    bytes: u64,
    meaning: &'static str,
}

/// Shows it.
pub(super) async fn show(output: Output, router: &Router, command: ShowCommand) -> anyhow::Result<()> {
    match command {
        ShowCommand::Routes => routes(output, router).await,
        ShowCommand::Neighbors => neighbors(output, router).await,
        ShowCommand::Drops(args) => counts(output, router, args.all).await,
    }
}

async fn routes(output: Output, router: &Router) -> anyhow::Result<()> {
    let ports = router.ports()?;
    let (kernel, devices) = kernel().await?;
    let view = |hop: Hop| HopView {
        gateway: hop.gateway.map(|gateway| gateway.to_string()),
        is_port: ports.iter().any(|port| Some(port.ifindex) == hop.device),
        device: hop.device.map(|index| name_of(&devices, index)),
        weight: hop.weight,
    };
    let routes = kernel.routes().await?.into_iter().map(|route| RouteView {
        prefix: format!("{}/{}", route.destination, route.length),
        kind: route.kind,
        metric: route.metric,
        hops: route.hops.into_iter().map(view).collect(),
    });
    let routes: Vec<_> = routes.collect();
    output.list(&routes, "there are no routes", |routes| {
        let hop = |hop: &HopView| {
            let gateway = hop.gateway.as_deref().unwrap_or("connected");
            let weight = if hop.weight > 1 { format!(" weight {}", hop.weight) } else { String::new() };
            let by = if hop.is_port { "" } else { " (kernel)" };
            format!("{gateway} {}{weight}{by}", hop.device.as_deref().unwrap_or("-"))
        };
        let rows = routes.iter().map(|route| {
            let hops = route.hops.iter().map(hop).collect::<Vec<_>>().join(", ");
            [route.prefix.clone(), route.kind.to_owned(), route.metric.to_string(), hops]
        });
        table(["PREFIX", "KIND", "METRIC", "NEXT HOPS"], rows)
    })
}

async fn neighbors(output: Output, router: &Router) -> anyhow::Result<()> {
    let ports = router.ports()?;
    let (kernel, devices) = kernel().await?;
    let neighbors = kernel.neighbors().await?.into_iter();
    let neighbors = neighbors.filter(|neighbor| ports.iter().any(|port| port.ifindex == neighbor.device));
    let neighbors = neighbors.map(|neighbor| NeighborView {
        address: neighbor.address.to_string(),
        device: name_of(&devices, neighbor.device),
        mac: neighbor.mac.map(mac),
        state: neighbor.state,
    });
    let neighbors: Vec<_> = neighbors.collect();
    output.list(&neighbors, "the ports have no neighbours yet", |neighbors| {
        let rows = neighbors.iter().map(|neighbor| {
            let mac = neighbor.mac.clone().unwrap_or_else(|| "-".to_owned());
            [neighbor.address.clone(), neighbor.device.clone(), mac, neighbor.state.to_owned()]
        });
        table(["ADDRESS", "DEVICE", "MAC", "STATE"], rows)
    })
}

async fn counts(output: Output, router: &Router, shows_all: bool) -> anyhow::Result<()> {
    let counts = router.counts()?;
    let (_, devices) = kernel().await?;
    let counts = counts.into_iter().filter(|count| shows_all || count.reason.action() == Action::Drop);
    let counts = counts.map(|count| CountView {
        port: count.ifindex.map(|index| name_of(&devices, index)),
        action: count.reason.action().name(),
        reason: count.reason.name(),
        packets: count.packets,
        bytes: count.bytes,
        meaning: count.reason.sentence(),
    });
    let counts: Vec<_> = counts.collect();
    output.list(&counts, "nothing was dropped", |counts| {
        let rows = counts.iter().map(|count| {
            let port = count.port.clone().unwrap_or_else(|| "-".to_owned());
            let (action, reason) = (count.action.to_owned(), count.reason.to_owned());
            [port, action, reason, count.packets.to_string(), count.bytes.to_string(), count.meaning.to_owned()]
        });
        table(["PORT", "ACTION", "REASON", "PACKETS", "BYTES", "MEANING"], rows)
    })
}
