//! `packet router up` and `packet router down`.

use std::path::{Path, PathBuf};

use clap::Args;
use sallyport_cli::{
    failure::{Failure, Kind},
    output::Output,
};
use sallyport_packet_model::{
    filter::{Timeouts, policy_removal, policy_rules},
    nat::{nft_removal, nft_rules},
};
use sallyport_xdp::{Change, Router, XdpError, kernel::Device, nat::NatEngine, policy::CompiledPolicy};
use serde::Serialize;

use crate::{
    command::{device_of, kernel, name_of},
    config::{Check, Config, Lookup, PortConfig},
    policy_config::PolicyFile,
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
            Config { lookup: Lookup::Kernel, ports: ports.collect(), ..Config::default() }
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
    let policy = policy_of(&config, args.config.as_deref(), &devices)?;
    let had_policy = router.has_policy();
    let changed = router.clone().with_nat(nat.clone()).with_policy(policy.as_ref().map(|policy| policy.0.clone()));
    let change = changed.up(&ports, &devices)?;
    if policy.is_some() || had_policy {
        let rules = policy.map_or_else(policy_removal, |policy| policy.1);
        sallyport_nft::apply(&rules).await.map_err(|error| {
            Failure::new(Kind::Failed, format!("the router is up, and what the kernel forwards has no policy: {error}"))
        })?;
    }
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

/// The policy of a router, compiled for XDP and for nftables.
fn policy_of(
    config: &Config,
    file: Option<&Path>,
    devices: &[Device],
) -> anyhow::Result<Option<(CompiledPolicy, String)>> {
    let Some(policy) = &config.policy else { return Ok(None) };
    let path = file.and_then(Path::parent).map_or_else(|| policy.clone(), |folder| folder.join(policy));
    let index = |name: &str| match devices.iter().find(|device| device.name == name) {
        Some(device) => Ok(device.index),
        None => Err(Failure::new(Kind::NotFound, XdpError::NoDevice(name.to_owned()).to_string())),
    };
    let policy = PolicyFile::read(&path)?.to_policy(index)?;
    let compiled = CompiledPolicy::new(&policy, &Timeouts::default());
    let compiled = compiled.map_err(|error| Failure::usage(error.to_string()))?;
    Ok(Some((compiled, policy_rules(&policy, |index| name_of(devices, index)))))
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
    let had_policy = router.has_policy();
    let detached = router.down(&devices)?;
    if had_policy {
        drop(sallyport_nft::apply(&policy_removal()).await);
    }
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
