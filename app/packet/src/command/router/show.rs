//! `packet router show`: routes, neighbours, and what became of packets.

use std::{
    collections::BTreeMap,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use sallyport_cli::output::{Output, pairs, table};
use sallyport_xdp::{
    FibStatus, Router,
    kernel::{self as of_kernel, Hop, netlink},
    nat::NatEngine,
};
use serde::Serialize;

use super::up::{lost_of, off};
use crate::command::{
    counts::{DropsArgs, counts},
    kernel, mac, name_of,
};

/// What is shown.
#[derive(Debug, Subcommand)]
pub(crate) enum ShowCommand {
    /// The routes that the router follows
    Routes,
    /// The neighbours of the ports
    Neighbors,
    /// What was dropped, and why
    Drops(DropsArgs),
    /// Where routes are looked up, and how that is kept equal to the kernel's routes
    Status(StatusArgs),
}

/// The arguments of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The control socket of BIRD
    #[arg(long, value_name = "SOCKET", default_value = "/run/bird/bird.ctl")]
    bird: PathBuf,
}

#[derive(Debug, Serialize)]
struct StatusView {
    ports: Vec<StandingView>,
    lookup: &'static str,
    /// The engine of the NAT; none without NAT.
    nat: Option<&'static str>,
    has_policy: bool,
    /// Whether a process follows the kernel.
    is_followed: bool,
    numbers: BTreeMap<&'static str, u64>,
    bird_routes: usize,
    is_bird_there: bool,
    /// What should be known, in sentences.
    notes: Vec<String>,
}

/// A port of the router that stands.
#[derive(Debug, Serialize)]
struct StandingView {
    device: String,
    urpf: &'static str,
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

/// Shows it.
pub(super) async fn show(output: Output, router: &Router, command: ShowCommand) -> anyhow::Result<()> {
    match command {
        ShowCommand::Routes => routes(output, router).await,
        ShowCommand::Neighbors => neighbors(output, router).await,
        ShowCommand::Drops(args) => drops(output, router, args.all).await,
        ShowCommand::Status(args) => status(output, router, &args.bird).await,
    }
}

/// Sentences about a lookup that is not whole.
fn notes(router: &Router, status: &FibStatus) -> Vec<String> {
    let mut notes = Vec::new();
    if !router.is_followed() {
        notes.push(
            "no process follows the kernel's routes: the table stays as it is; `sallyport packet router run` goes on"
                .to_owned(),
        );
    }
    if status.rules > 0 {
        notes.push(format!(
            "`ip rule` has {} rules that the lookup fib does not follow: the kernel looks up until they are gone",
            status.rules
        ));
    }
    if status.left_out > 0 {
        notes.push(format!(
            "{} routes are more than `routes` of [limits] allows: the kernel looks up until there are fewer; raise \
             the number",
            status.left_out
        ));
    }
    if status.objects_left_out > 0 {
        let objects = status.objects_left_out;
        notes.push(format!("{objects} next-hop objects are more than is kept: the kernel forwards by them"));
    }
    if status.refused > 0 {
        notes.push(format!(
            "the table is full: the kernel forwards the packets of {} prefixes without room, and of {} around them; \
             raise ipv4_blocks or ipv6_nodes",
            status.refused, status.covering
        ));
    }
    if status.ways > 0 {
        notes.push(format!(
            "{} next hops found no room: the kernel forwards their packets; raise next_hops or groups",
            status.ways
        ));
    }
    if status.neighbors_refused > 0 {
        let refused = status.neighbors_refused;
        notes.push(format!("{refused} neighbours found no room: the kernel forwards to them; raise neighbors"));
    }
    notes
}

/// Hints about the lookup, under a listing.
fn hints(output: Output, router: &Router) -> anyhow::Result<()> {
    if let Some(status) = FibStatus::read(router.pins())? {
        notes(router, &status).iter().for_each(|note| output.hint(note));
    }
    Ok(())
}

async fn status(output: Output, router: &Router, bird: &Path) -> anyhow::Result<()> {
    // No router, no status.
    let ports = router.ports()?;
    let (_, devices) = kernel().await?;
    let status = FibStatus::read(router.pins())?;
    let bird_routes = netlink::count_routes_of_bird()?;
    let is_bird_there = UnixStream::connect(bird).is_ok();
    let mut notes = status.map(|status| notes(router, &status)).unwrap_or_default();
    if bird_routes > 0 && !is_bird_there {
        let bird = bird.display();
        notes.push(format!("BIRD does not answer at {bird}: its {bird_routes} routes stay as they are"));
    }
    notes.extend(ports.iter().filter_map(|port| {
        let device = devices.iter().find(|device| device.index == port.ifindex);
        let said = match device {
            None => format!("device {} is gone, and was a port or a VLAN of one", port.ifindex),
            Some(device) if device.mac != port.mac => format!(
                "{} has another address than when the router came up, so its packets go by the kernel as other-host",
                device.name
            ),
            Some(_) => return None,
        };
        Some(format!("{said}: run `sallyport packet router up` again, or `router run`, which follows such changes"))
    }));
    let of_ports = || ports.iter().filter(|port| port.vid.is_none());
    let there: Vec<_> = of_ports().filter_map(|port| devices.iter().find(|one| one.index == port.ifindex)).collect();
    notes.extend(router.missing(there.iter().copied())?.into_iter().map(|device| {
        format!(
            "{} runs no program of the router, so the kernel forwards what comes there: run `sallyport packet router \
             up` again, or `router run`, which follows such changes",
            device.name
        )
    }));
    notes.extend(off(&there));
    notes.extend(lost_of(router).await.into_iter().map(|what| {
        format!(
            "nftables has lost the {what} of the router, as by `nft flush ruleset`: what the kernel forwards goes \
             without; run `sallyport packet router up` again, or `router run`, which sets it again"
        )
    }));
    let view = StatusView {
        ports: of_ports()
            .map(|port| StandingView { device: name_of(&devices, port.ifindex), urpf: port.urpf.name() })
            .collect(),
        nat: router.nat_engine()?.map(NatEngine::name),
        has_policy: router.has_policy(),
        lookup: if status.is_some() { "fib" } else { "kernel" },
        is_followed: router.is_followed(),
        numbers: status.map(|status| status.numbers().into_iter().collect()).unwrap_or_default(),
        bird_routes,
        is_bird_there,
        notes,
    };
    output.data(&view, |view| {
        let answer = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let port = |port: &StandingView| match port.urpf {
            "off" => port.device.clone(),
            urpf => format!("{} (uRPF {urpf})", port.device),
        };
        let mut rows = vec![
            ("ports", view.ports.iter().map(port).collect::<Vec<_>>().join(", ")),
            ("lookup", view.lookup.to_owned()),
            ("followed", answer(view.is_followed)),
            ("NAT", view.nat.unwrap_or("no").to_owned()),
            ("policy", answer(view.has_policy)),
        ];
        rows.extend(view.numbers.iter().map(|(name, number)| (*name, number.to_string())));
        rows.push(("routes of BIRD", view.bird_routes.to_string()));
        rows.push(("BIRD answers", answer(view.is_bird_there)));
        [pairs(&rows)].into_iter().chain(view.notes.iter().cloned()).collect::<Vec<_>>().join("\n")
    })
}

async fn routes(output: Output, router: &Router) -> anyhow::Result<()> {
    let ports = router.ports()?;
    let (_, devices) = kernel().await?;
    let view = |hop: Hop| HopView {
        gateway: hop.gateway.map(|gateway| gateway.to_string()),
        is_port: ports.iter().any(|port| Some(port.ifindex) == hop.device),
        device: hop.device.map(|index| name_of(&devices, index)),
        weight: hop.weight,
    };
    let routes = of_kernel::routes()?.into_iter().map(|route| RouteView {
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
    })?;
    hints(output, router)
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
    })?;
    hints(output, router)
}

async fn drops(output: Output, router: &Router, shows_all: bool) -> anyhow::Result<()> {
    let found = router.counts()?;
    counts(output, &kernel().await?.1, found, shows_all)?;
    hints(output, router)
}
