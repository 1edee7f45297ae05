//! `packet router up` and `packet router down`.

use std::path::PathBuf;

use clap::Args;
use sallyport_cli::{
    failure::{Failure, Kind},
    output::Output,
};
use sallyport_packet_model::nat::{nft_removal, nft_rules};
use sallyport_xdp::{Change, Router, XdpError, nat::NatEngine};
use serde::Serialize;

use crate::{
    command::{device_of, kernel},
    config::{Check, Config, Lookup, PortConfig},
};

/// Examples of the help.
pub(super) const EXAMPLES: &str = "Examples:
  sallyport packet router up --dev eth1,eth2
  sallyport packet router up --dev eth1,eth2 --urpf strict
  sallyport packet router up --config router.toml";

/// The arguments of `up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// The ports, with native XDP; their VLANs come along
    #[arg(long, value_name = "DEVICES", value_delimiter = ',', required_unless_present = "config")]
    dev: Vec<String>,
    /// The file of the router
    #[arg(long, value_name = "FILE", conflicts_with = "dev")]
    config: Option<PathBuf>,
    /// Where routes are looked up
    #[arg(long, value_enum)]
    lookup: Option<Lookup>,
    /// Drop packets whose source has no way back: by any device, or by the one that they came from
    #[arg(long, value_enum, default_value = "off", conflicts_with = "config")]
    urpf: Check,
}

#[derive(Debug, Serialize)]
struct UpView {
    attached: Vec<String>,
    replaced: Vec<String>,
    detached: Vec<String>,
}

/// Brings the router up.
pub(super) async fn up(output: Output, router: &Router, args: UpArgs) -> anyhow::Result<()> {
    let config = match &args.config {
        Some(file) => Config::read(file)?,
        None => {
            let ports = args.dev.iter().map(|dev| PortConfig { dev: dev.trim().to_owned(), urpf: args.urpf });
            Config { lookup: Lookup::Kernel, ports: ports.collect(), vlans: Vec::new(), nat: None }
        }
    };
    // One lookup so far: the file and the option name no other.
    let Lookup::Kernel = args.lookup.unwrap_or(config.lookup);
    if config.ports.is_empty() {
        return Err(Failure::usage("the router has no port").next("name two or more ports by --dev a,b").into());
    }
    let (_, mut devices) = kernel().await?;
    for vlan in &config.vlans {
        if !(1..=4094).contains(&vlan.id) {
            return Err(Failure::usage(format!("VLAN {} of {} is not from 1 to 4094", vlan.id, vlan.dev)).into());
        }
        let port = device_of(&devices, &vlan.port)?.index;
        let device = devices.iter_mut().find(|device| device.name == vlan.dev);
        device.ok_or_else(|| XdpError::NoDevice(vlan.dev.clone()))?.vlan = Some((port, vlan.id));
    }
    let mut ports = Vec::new();
    for port in &config.ports {
        let device = device_of(&devices, &port.dev)?;
        if ports.iter().any(|(other, _): &(sallyport_xdp::kernel::Device, _)| other.index == device.index) {
            return Err(Failure::usage(format!("the port {} is named twice", port.dev)).into());
        }
        ports.push((device.clone(), port.urpf.into()));
    }
    let nat = config.nat.as_ref().map(|section| section.to_setup(router.nat_seed())).transpose()?;
    let rules = nat.as_ref().map_or_else(nft_removal, |nat| nft_rules(&nat.config));
    let had_nat = router.nat_engine().is_ok_and(|engine| engine.is_some());
    let change = router.clone().with_nat(nat.clone()).up(&ports, &devices)?;
    if nat.is_some() || had_nat {
        sallyport_nft::apply(&rules).await.map_err(|error| {
            Failure::new(Kind::Failed, format!("the router is up, and what the kernel forwards has no NAT: {error}"))
        })?;
    }
    if nat.as_ref().is_some_and(|nat| nat.engine == NatEngine::Conntrack) {
        be_liberal()?;
    }
    let Change { attached, replaced, detached } = change;
    output.data(&UpView { attached, replaced, detached }, |view| {
        let lines =
            [("forwarding", &view.attached), ("replaced in place", &view.replaced), ("no port", &view.detached)];
        let lines = lines.iter().filter(|(_, names)| !names.is_empty());
        let lines: Vec<_> = lines.map(|(word, names)| format!("{}: {word}", names.join(", "))).collect();
        lines.join("\n")
    })?;
    output.hint("the programs stay in the kernel; `sallyport packet router down` removes them");
    Ok(())
}

/// Has connection tracking take the end of a connection whose middle XDP has forwarded.
fn be_liberal() -> Result<(), Failure> {
    let file = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal";
    let failed = |error| Failure::new(Kind::Failed, format!("cannot write {file}: {error}"));
    std::fs::write(file, "1").map_err(failed)
}

/// Takes the router down.
pub(super) async fn down(output: Output, router: &Router) -> anyhow::Result<()> {
    let (_, devices) = kernel().await?;
    let had_nat = router.nat_engine().is_ok_and(|engine| engine.is_some());
    let detached = router.down(&devices)?;
    if had_nat {
        // Without `nft` there is no table either.
        drop(sallyport_nft::apply(&nft_removal()).await);
    }
    let view = UpView { attached: Vec::new(), replaced: Vec::new(), detached };
    output.data(&view, |view| match view.detached.as_slice() {
        [] => "the state is removed; no device had the program".to_owned(),
        names => format!("{}: the kernel forwards again", names.join(", ")),
    })
}
