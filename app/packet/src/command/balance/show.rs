//! `packet balance show`: edges, services, slices, and what became of packets.

use std::net::IpAddr;

use clap::Subcommand;
use sallyport_cli::output::{Output, table};
use sallyport_packet_model::balance::{EdgeConfig, POOL_SLOTS, PortSlices, Tables};
use sallyport_xdp::{
    XdpError,
    balance::{Balancer, TargetCount},
};
use serde::Serialize;

use super::state::State;
use crate::command::{
    counts::{DropsArgs, counts},
    kernel,
};

/// What is shown.
#[derive(Debug, Subcommand)]
pub(crate) enum ShowCommand {
    /// The edges: their state, their share of new connections, and what was sent to them
    Edges,
    /// The services, and their edges
    Services,
    /// What was dropped, and why
    Drops(DropsArgs),
    /// The slices of egress addresses, and their machines
    Slices,
}

#[derive(Debug, Serialize)]
struct EdgeView {
    name: String,
    address: IpAddr,
    state: &'static str,
    weight: u16,
    /// The share of the slots of all services, in percent.
    share: f64,
    server: Option<u16>,
    packets: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct ServiceView {
    address: IpAddr,
    protocol: &'static str,
    ports: String,
    edges: Vec<String>,
    quic: bool,
}

#[derive(Debug, Serialize)]
struct SliceView {
    address: IpAddr,
    slice: Option<u8>,
    ports: Option<String>,
    machine: Option<String>,
    site: Option<String>,
    packets: u64,
    bytes: u64,
}

/// Shows it.
pub(super) async fn show(output: Output, balancer: &Balancer, command: ShowCommand) -> anyhow::Result<()> {
    let mut state = State::standing(balancer)?.ok_or(XdpError::NoBalancer)?;
    let tables = state.compile()?;
    match command {
        ShowCommand::Edges => edges(output, &state, &tables, &balancer.target_counts()?),
        ShowCommand::Services => services(output, &state),
        ShowCommand::Slices => slices(output, &state, &tables, &balancer.target_counts()?),
        ShowCommand::Drops(args) => {
            let (_, devices) = kernel().await?;
            counts(output, &devices, balancer.counts()?, args.all)
        }
    }
}

/// What was sent to a target of this name and address.
fn sent(tables: &Tables, counts: &[TargetCount], address: IpAddr) -> (u64, u64) {
    let number = tables.targets.iter().find(|target| target.1.address == address).map(|target| *target.0);
    let count = counts.iter().find(|count| Some(count.target) == number);
    count.map_or((0, 0), |count| (count.packets, count.bytes))
}

fn edges(output: Output, state: &State, tables: &Tables, counts: &[TargetCount]) -> anyhow::Result<()> {
    let slots = (tables.pools.len() * POOL_SLOTS).max(1);
    let edge = |edge: EdgeConfig| {
        let number = tables.targets.iter().find(|target| target.1.address == edge.address).map(|target| *target.0);
        let first = tables.pools.iter().flatten().filter(|slot| Some(slot.first) == number).count();
        let (packets, bytes) = sent(tables, counts, edge.address);
        let share = (first as f64 * 10_000.0 / slots as f64).round() / 100.0;
        let state = edge.state.name();
        let EdgeConfig { name, address, weight, server, .. } = edge;
        EdgeView { name, address, state, weight, share, server, packets, bytes }
    };
    let edges: Vec<_> = state.effective().edges.into_iter().map(edge).collect();
    output.list(&edges, "there are no edges", |edges| {
        let rows = edges.iter().map(|edge| {
            let server = edge.server.map_or_else(|| "-".to_owned(), |server| server.to_string());
            let (share, weight) = (format!("{:.2} %", edge.share), edge.weight.to_string());
            let (packets, bytes) = (edge.packets.to_string(), edge.bytes.to_string());
            [edge.name.clone(), edge.address.to_string(), edge.state.to_owned(), weight, share, server, packets, bytes]
        });
        table(["EDGE", "ADDRESS", "STATE", "WEIGHT", "SHARE", "SERVER", "PACKETS", "BYTES"], rows)
    })
}

fn services(output: Output, state: &State) -> anyhow::Result<()> {
    let all = || state.config.edges.iter().map(|edge| edge.name.clone()).collect();
    let services = state.config.services.iter().map(|service| ServiceView {
        address: service.address,
        protocol: service.protocol.name(),
        ports: service.ports.to_string(),
        edges: service.edges.clone().unwrap_or_else(all),
        quic: service.quic,
    });
    let services: Vec<_> = services.collect();
    output.list(&services, "there are no services", |services| {
        let rows = services.iter().map(|service| {
            let quic = if service.quic { "yes" } else { "no" }.to_owned();
            let protocol = service.protocol.to_owned();
            [service.address.to_string(), protocol, service.ports.clone(), quic, service.edges.join(", ")]
        });
        table(["ADDRESS", "PROTOCOL", "PORTS", "QUIC", "EDGES"], rows)
    })
}

fn slices(output: Output, state: &State, tables: &Tables, counts: &[TargetCount]) -> anyhow::Result<()> {
    let mut slices = Vec::new();
    let sent = |address: Option<IpAddr>| address.map_or((0, 0), |address| sent(tables, counts, address));
    for egress in &state.config.egress {
        let address = egress.address;
        if let Some(site) = &egress.site {
            let balancer = state.config.sites.iter().find(|other| other.name == *site).map(|site| site.balancer);
            let (packets, bytes) = sent(balancer);
            let site = Some(site.clone());
            slices.push(SliceView { address, slice: None, ports: None, machine: None, site, packets, bytes });
        }
        for slice in &egress.slices {
            let ports = PortSlices::ports(usize::from(slice.number));
            let machines = state.config.machines.iter().map(|machine| (&machine.name, machine.address));
            let edges = state.config.edges.iter().map(|edge| (&edge.name, edge.address));
            let machine = machines.chain(edges).find(|(name, _)| **name == slice.machine).map(|found| found.1);
            let (packets, bytes) = sent(machine);
            slices.push(SliceView {
                address,
                slice: Some(slice.number),
                ports: ports.map(|ports| format!("{}-{}", ports.start(), ports.end())),
                machine: Some(slice.machine.clone()),
                site: None,
                packets,
                bytes,
            });
        }
    }
    output.list(&slices, "there are no egress addresses", |slices| {
        let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let rows = slices.iter().map(|slice| {
            let number = slice.slice.map(|number| number.to_string());
            let (address, packets, bytes) =
                (slice.address.to_string(), slice.packets.to_string(), slice.bytes.to_string());
            [address, word(&number), word(&slice.ports), word(&slice.machine), word(&slice.site), packets, bytes]
        });
        table(["ADDRESS", "SLICE", "PORTS", "MACHINE", "SITE", "PACKETS OF IT", "BYTES OF IT"], rows)
    })
}
