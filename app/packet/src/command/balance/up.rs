//! `packet balance up`, `drain`, `undrain` and `down`.

use std::{
    collections::BTreeSet,
    net::{IpAddr, UdpSocket},
    path::PathBuf,
};

use clap::Args;
use sallyport_cli::{
    failure::{Failure, Kind},
    output::Output,
};
use sallyport_packet_model::balance::BalanceConfig;
use sallyport_xdp::{Change, Router, Urpf, XdpError, balance::Balancer, kernel::Device};
use serde::Serialize;

use super::state::State;
use crate::{
    command::{device_of, kernel, router::say_if_off},
    config,
};

/// Examples of the help.
pub(super) const EXAMPLES: &str = "Examples:
  sallyport packet balance up --config balance.toml
  sallyport packet balance up --config balance.toml --dev eth0,eth1";

/// The most bytes of the file.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The port that takes what wakes a neighbour: discard.
const DISCARD: u16 = 9;

/// The arguments of `up`.
#[derive(Debug, Clone, Args)]
pub(crate) struct UpArgs {
    /// The file of the balancer
    #[arg(long, value_name = "FILE")]
    pub(super) config: PathBuf,
    /// The devices by which packets come and go, with native XDP; otherwise those of the file
    #[arg(long, value_name = "DEVICES", value_delimiter = ',')]
    pub(super) dev: Vec<String>,
}

/// The arguments of `drain` and `undrain`.
#[derive(Debug, Args)]
pub(crate) struct EdgeArgs {
    /// The name of the edge
    edge: String,
}

#[derive(Debug, Serialize)]
struct UpView {
    attached: Vec<String>,
    replaced: Vec<String>,
    detached: Vec<String>,
    edges: usize,
    services: usize,
}

impl UpArgs {
    /// The file, with the devices of the option.
    pub(super) fn read(&self) -> Result<BalanceConfig, Failure> {
        let config: BalanceConfig = config::read(&self.config, MAX_FILE_BYTES)?;
        self.with_devices(config)
    }

    /// A configuration with the devices of the option.
    pub(super) fn with_devices(&self, mut config: BalanceConfig) -> Result<BalanceConfig, Failure> {
        if !self.dev.is_empty() {
            config.dev = self.dev.iter().map(|dev| dev.trim().to_owned()).collect();
        }
        if config.dev.is_empty() {
            let next = format!("name devices by --dev a,b, or by `dev` in {}", self.config.display());
            return Err(Failure::usage("the balancer has no device").next(next));
        }
        Ok(config)
    }
}

/// The devices of a configuration.
pub(super) fn devices_of(config: &BalanceConfig, devices: &[Device]) -> anyhow::Result<Vec<Device>> {
    let mut wanted: Vec<Device> = Vec::new();
    for name in &config.dev {
        let device = device_of(devices, name)?;
        if wanted.iter().any(|other| other.index == device.index) {
            return Err(Failure::usage(format!("the device {name} is named twice")).into());
        }
        wanted.push(device.clone());
    }
    Ok(wanted)
}

/// Brings the balancer up with a configuration, and says what has changed.
pub(super) async fn bring_up(balancer: &Balancer, config: BalanceConfig) -> anyhow::Result<(Change, State)> {
    let (kernel, devices) = kernel().await?;
    let wanted = devices_of(&config, &devices)?;
    let own: BTreeSet<IpAddr> = kernel.addresses().await?.into_iter().map(|(_, address)| address).collect();
    refuse_addresses(&config, &own)?;
    let _change = balancer.change()?;
    let mut state = State::standing(balancer)?.unwrap_or_default().with_config(config);
    let tables = state.compile()?;
    let change = balancer.up(&wanted, &devices, &tables, state.config.connections, &state.to_bytes()?)?;
    // Packets whose next hop is not known yet go through the kernel, from this machine's own address.
    for device in &wanted {
        let file = format!("/proc/sys/net/ipv4/conf/{}/accept_local", device.name);
        std::fs::write(&file, "1")
            .map_err(|error| Failure::new(Kind::Failed, format!("cannot write {file}: {error}")))?;
    }
    wake(&state.config);
    Ok((change, state))
}

/// Refuses what this machine cannot be: the source of packets must be here, and nothing that is balanced.
fn refuse_addresses(config: &BalanceConfig, own: &BTreeSet<IpAddr>) -> Result<(), Failure> {
    if let Some(source) = config.source.iter().find(|source| !own.contains(source)) {
        let failure = Failure::usage(format!("source is {source}, which is no address of this machine"));
        return Err(failure.next("`ip address` lists the addresses"));
    }
    let services = config.services.iter().map(|service| ("the virtual address", service.address));
    let egress = config.egress.iter().map(|egress| ("the egress address", egress.address));
    let edges = config.edges.iter().map(|edge| ("the address of an edge,", edge.address));
    match services.chain(egress).chain(edges).find(|(_, address)| own.contains(address)) {
        Some((what, address)) => Err(Failure::usage(format!("{what} {address} is this machine's own address"))),
        None => Ok(()),
    }
}

/// Has the kernel look for the neighbours on the way to all targets: an empty datagram to each.
pub(super) fn wake(config: &BalanceConfig) {
    let sockets = ["0.0.0.0:0", "[::]:0"].map(|address| UdpSocket::bind(address).ok());
    for (_, address, ..) in config.targets() {
        let [v4, v6] = &sockets;
        let socket = if address.is_ipv4() { v4 } else { v6 };
        // An edge that is not there yet gets packets once it is.
        if let Some(socket) = socket {
            drop(socket.send_to(&[], (address, DISCARD)));
        }
    }
}

/// Brings the balancer up.
pub(super) async fn up(output: Output, balancer: &Balancer, args: &UpArgs) -> anyhow::Result<()> {
    let config = args.read()?;
    if balancer.is_up() && Router::new(balancer.pins()).is_followed() {
        let failure = Failure::new(Kind::Refused, "a process keeps this balancer in step: change its file");
        return Err(failure.next("or end that process first").into());
    }
    let (change, state) = bring_up(balancer, config).await?;
    say(output, change, &state).await?;
    output.hint("the programs stay in the kernel; `sallyport packet balance down` removes them");
    Ok(())
}

/// Says what has changed.
pub(super) async fn say(output: Output, change: Change, state: &State) -> anyhow::Result<()> {
    let Change { attached, replaced, detached } = change;
    let (edges, services) = (state.config.edges.len(), state.config.services.len());
    output.data(&UpView { attached, replaced, detached, edges, services }, |view| {
        let lines = [("balancing", &view.attached), ("replaced in place", &view.replaced), ("left", &view.detached)];
        let lines = lines.iter().filter(|(_, names)| !names.is_empty());
        let mut lines: Vec<_> = lines.map(|(word, names)| format!("{}: {word}", names.join(", "))).collect();
        lines.push(format!("edges: {}, services: {}", view.edges, view.services));
        lines.join("\n")
    })?;
    let (_, devices) = kernel().await?;
    let ports: Vec<_> = devices_of(&state.config, &devices)?.into_iter().map(|device| (device, Urpf::Off)).collect();
    say_if_off(output, &ports);
    for name in &state.drained {
        output.hint(&format!("{name} is drained by hand: `sallyport packet balance undrain {name}` ends that"));
    }
    Ok(())
}

/// Drains an edge, or ends that. The file need not change.
pub(super) fn drain(output: Output, balancer: &Balancer, args: &EdgeArgs, is_drained: bool) -> anyhow::Result<()> {
    let _change = if balancer.is_up() { balancer.change()? } else { return Err(XdpError::NoBalancer.into()) };
    let mut state = State::standing(balancer)?.unwrap_or_default();
    let name = &args.edge;
    if !state.config.edges.iter().any(|edge| edge.name == *name) {
        let failure = Failure::new(Kind::NotFound, format!("there is no edge {name}"));
        return Err(failure.next("`sallyport packet balance show edges` lists the edges").into());
    }
    if is_drained {
        state.drained.insert(name.clone());
    } else {
        state.drained.remove(name);
    }
    let tables = state.compile()?;
    balancer.apply(&tables, &state.to_bytes()?)?;
    output.data(&serde_json::json!({ "edge": name, "drained": is_drained }), |_| match is_drained {
        true => format!("{name}: no new connections; those that it has stay"),
        false => format!("{name}: new connections as the file says"),
    })
}

/// Takes the balancer down.
pub(super) async fn down(output: Output, balancer: &Balancer) -> anyhow::Result<()> {
    let (_, devices) = kernel().await?;
    let _change = if balancer.is_up() { balancer.change()? } else { return Err(XdpError::NoBalancer.into()) };
    let detached = balancer.down(&devices)?;
    output.data(&serde_json::json!({ "detached": detached }), |_| format!("{}: balances no more", detached.join(", ")))
}
