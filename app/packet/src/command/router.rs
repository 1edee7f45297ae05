//! `packet router up` and `packet router down`.

use std::path::PathBuf;

use clap::Args;
use sallyport_cli::{
    failure::{Failure, Kind},
    output::Output,
};
use sallyport_xdp::{Change, Router, Urpf, XdpError, kernel::Device};
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

impl UpArgs {
    /// The file, or what the options say.
    pub(super) fn config(&self) -> Result<Config, Failure> {
        let mut config = match &self.config {
            Some(file) => Config::read(file)?,
            None => {
                let ports = self.dev.iter().map(|dev| PortConfig { dev: dev.trim().to_owned(), urpf: self.urpf });
                Config { ports: ports.collect(), ..Config::default() }
            }
        };
        config.lookup = self.lookup.unwrap_or(config.lookup);
        if config.ports.is_empty() {
            return Err(Failure::usage("the router has no port").next("name two or more ports by --dev a,b"));
        }
        Ok(config)
    }
}

/// The ports of a file. Devices that stand for VLANs are marked as such.
pub(super) fn ports_of(config: &Config, devices: &mut [Device]) -> anyhow::Result<Vec<(Device, Urpf)>> {
    for vlan in &config.vlans {
        if !(1..=4094).contains(&vlan.id) {
            return Err(Failure::usage(format!("VLAN {} of {} is not from 1 to 4094", vlan.id, vlan.dev)).into());
        }
        let port = device_of(devices, &vlan.port)?.index;
        let device = devices.iter_mut().find(|device| device.name == vlan.dev);
        device.ok_or_else(|| XdpError::NoDevice(vlan.dev.clone()))?.vlan = Some((port, vlan.id));
    }
    let mut ports: Vec<(Device, Urpf)> = Vec::new();
    for port in &config.ports {
        let device = device_of(devices, &port.dev)?;
        if ports.iter().any(|(other, _)| other.index == device.index) {
            return Err(Failure::usage(format!("the port {} is named twice", port.dev)).into());
        }
        ports.push((device.clone(), port.urpf.into()));
    }
    Ok(ports)
}

/// Brings the router up.
pub(super) async fn up(output: Output, router: &Router, args: UpArgs) -> anyhow::Result<()> {
    let config = args.config()?;
    if config.lookup == Lookup::Fib {
        let failure = Failure::usage("the lookup fib needs a process that follows the kernel's routes");
        return Err(failure.next("`sallyport packet router run` is that process").into());
    }
    if router.is_followed() {
        let failure = Failure::new(Kind::Refused, "a process follows this router: `router run` changes the router");
        return Err(failure.next("end that process first, and start it again with the change").into());
    }
    let (_, mut devices) = kernel().await?;
    let ports = ports_of(&config, &mut devices)?;
    let change = router.up(&ports, &devices)?;
    say(output, change)?;
    output.hint("the programs stay in the kernel; `sallyport packet router down` removes them");
    Ok(())
}

/// Says what has changed.
pub(super) fn say(output: Output, change: Change) -> anyhow::Result<()> {
    let Change { attached, replaced, detached } = change;
    output.data(&UpView { attached, replaced, detached }, |view| {
        let lines =
            [("forwarding", &view.attached), ("replaced in place", &view.replaced), ("no port", &view.detached)];
        let lines = lines.iter().filter(|(_, names)| !names.is_empty());
        let lines: Vec<_> = lines.map(|(word, names)| format!("{}: {word}", names.join(", "))).collect();
        lines.join("\n")
    })
}

/// Takes the router down.
pub(super) async fn down(output: Output, router: &Router) -> anyhow::Result<()> {
    let (_, devices) = kernel().await?;
    let detached = router.down(&devices)?;
    let view = UpView { attached: Vec::new(), replaced: Vec::new(), detached };
    output.data(&view, |view| match view.detached.as_slice() {
        [] => "the state is removed; no device had the program".to_owned(),
        names => format!("{}: the kernel forwards again", names.join(", ")),
    })
}
