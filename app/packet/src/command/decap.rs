//! `packet decap`: an edge, or a machine with slices, behind balancers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::IpAddr,
};

use clap::{Args, Subcommand};
use sallyport_cli::{
    failure::{Failure, Kind},
    output::{Output, pairs},
};
use sallyport_packet_model::balance::{GUE_PORT, MAX_RATE};
use sallyport_xdp::{
    Change, XdpError,
    balance::{Decap, DecapConfig, SynLimit},
    kernel::{Device, Kernel},
};
use serde::Serialize;

use crate::command::{
    counts::{DropsArgs, counts},
    device_of, kernel, name_of,
};

/// Examples of the help.
pub(super) const EXAMPLES: &str = "Examples:
  sallyport packet decap up --dev eth0 --from 10.0.0.1 --address 203.0.113.10
  sallyport packet decap up --dev eth0 --from 10.0.0.1 --mate 10.0.0.12,10.0.0.13 --address 203.0.113.10,2001:db8::10";

/// The kernel's setting of SYN cookies.
const KERNEL_COOKIES: &str = "/proc/sys/net/ipv4/tcp_syncookies";
/// Its value for cookies at any time: the kernel makes and takes them.
const ALL_COOKIES: u32 = 2;

/// What a machine behind balancers does.
#[derive(Debug, Subcommand)]
pub(crate) enum DecapCommand {
    /// Take packets of balancers out of their tunnels, or change what stands, without a lost packet
    #[command(after_help = EXAMPLES)]
    Up(UpArgs),
    /// Show what stands, or what was taken out, sent on and dropped
    #[command(subcommand)]
    Show(ShowCommand),
    /// End it, and take the addresses from the loopback device
    Down,
}

/// The arguments of `up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// The devices by which packets come, with native XDP
    #[arg(long, value_name = "DEVICES", value_delimiter = ',', required = true)]
    dev: Vec<String>,
    /// The balancers, by the addresses that their packets come from
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', required = true)]
    from: Vec<IpAddr>,
    /// The other edges of the site: they send on what they have no connection of, and get such packets
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    mate: Vec<IpAddr>,
    /// The virtual addresses and egress addresses; they are put on the loopback device
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', required = true)]
    address: Vec<IpAddr>,
    /// The port of GUE
    #[arg(long, value_name = "PORT", default_value_t = GUE_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    gue_port: u16,
    /// Keep packets of unknown connections, instead of sending them on to the second edge
    #[arg(long)]
    no_second_chance: bool,
    /// Answer SYNs above so many a second by SYN cookies, before they reach the kernel; it sets net.ipv4.tcp_syncookies to 2
    #[arg(long, value_name = "RATE", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RATE)))]
    syn_cookies: Option<u32>,
}

/// What is shown.
#[derive(Debug, Subcommand)]
pub(crate) enum ShowCommand {
    /// What stands
    Status,
    /// What was dropped, and why
    Drops(DropsArgs),
}

#[derive(Debug, Serialize)]
struct UpView {
    attached: Vec<String>,
    replaced: Vec<String>,
    detached: Vec<String>,
}

#[derive(Debug, Serialize)]
struct StatusView {
    devices: Vec<String>,
    balancers: BTreeSet<IpAddr>,
    mates: BTreeSet<IpAddr>,
    addresses: Vec<IpAddr>,
    gue_port: u16,
    second_chance: bool,
    /// The SYNs a second that the kernel gets.
    syn_cookies: Option<u32>,
}

/// Runs a command.
pub(super) async fn run(output: Output, decap: &Decap, command: DecapCommand) -> anyhow::Result<()> {
    match command {
        DecapCommand::Up(args) => up(output, decap, args).await,
        DecapCommand::Down => down(output, decap).await,
        DecapCommand::Show(ShowCommand::Status) => status(output, decap).await,
        DecapCommand::Show(ShowCommand::Drops(args)) => {
            let found = decap.counts()?;
            counts(output, &kernel().await?.1, found, args.all)
        }
    }
}

/// The loopback device.
fn loopback(devices: &[Device]) -> Result<u32, XdpError> {
    device_of(devices, "lo").map(|device| device.index)
}

/// What the arguments ask for.
fn config_of(args: &UpArgs, own: &[(u32, IpAddr)]) -> Result<DecapConfig, Failure> {
    let addresses: BTreeMap<IpAddr, bool> = args.address.iter().map(|address| (*address, false)).collect();
    let locals: BTreeSet<IpAddr> = own.iter().map(|own| own.1).filter(|own| !addresses.contains_key(own)).collect();
    let is_right = |address: &IpAddr| !address.is_loopback() && !address.is_multicast() && !address.is_unspecified();
    for (option, list) in [("--from", &args.from), ("--mate", &args.mate), ("--address", &args.address)] {
        if let Some(address) = list.iter().find(|address| !is_right(address)) {
            return Err(Failure::usage(format!("{option} {address} is no address of one machine")));
        }
    }
    if let Some(own) = args.from.iter().chain(&args.mate).find(|address| addresses.contains_key(address)) {
        return Err(Failure::usage(format!("{own} is a balancer or an edge, and cannot be shared by --address")));
    }
    Ok(DecapConfig {
        balancers: args.from.iter().copied().collect(),
        // A list of all edges may be the same everywhere.
        mates: args.mate.iter().copied().filter(|mate| !locals.contains(mate)).collect(),
        addresses,
        locals: locals.into_iter().filter(|local| !local.is_loopback()).collect(),
        gue_port: args.gue_port,
        has_second_chance: !args.no_second_chance,
        syn_cookies: None,
    })
}

async fn up(output: Output, decap: &Decap, args: UpArgs) -> anyhow::Result<()> {
    let (kernel, devices) = kernel().await?;
    let mut wanted: Vec<Device> = Vec::new();
    for name in &args.dev {
        wanted.push(device_of(&devices, name.trim())?.clone());
    }
    let own = kernel.addresses().await?;
    let lo = loopback(&devices)?;
    let _change = decap.change()?;
    let standing = if decap.is_up() { decap.config()? } else { DecapConfig::default() };
    let mut config = config_of(&args, &own)?;
    if let Some(per_second) = args.syn_cookies {
        let before = standing.syn_cookies.map_or_else(kernel_cookies, |limit| Ok(limit.before))?;
        config.syn_cookies = Some(SynLimit { per_second, before });
    }
    if let Some(local) = own.iter().find(|own| own.0 != lo && args.address.contains(&own.1)) {
        let device = name_of(&devices, local.0);
        let failure = Failure::usage(format!("{} is this machine's own address, on {device}", local.1));
        return Err(failure.next("--address has addresses that edges share").into());
    }
    let mut added = Vec::new();
    let added_all = put(&kernel, lo, &own, &standing, &mut config, &mut added).await;
    // The kernel takes answers to cookies before the first one is sent.
    if config.syn_cookies.is_some() {
        set_kernel_cookies(ALL_COOKIES)?;
    }
    let done = added_all.and_then(|()| decap.up(&wanted, &devices, &config));
    let change = match done {
        Ok(change) => change,
        Err(error) => {
            for address in added {
                drop(kernel.remove_address(lo, address).await);
            }
            if let (Some(limit), None) = (config.syn_cookies, standing.syn_cookies) {
                drop(set_kernel_cookies(limit.before));
            }
            return Err(error.into());
        }
    };
    let gone =
        standing.addresses.iter().filter(|(address, is_ours)| **is_ours && !config.addresses.contains_key(address));
    for (address, _) in gone {
        kernel.remove_address(lo, *address).await?;
    }
    if let (None, Some(limit)) = (config.syn_cookies, standing.syn_cookies) {
        set_kernel_cookies(limit.before)?;
    }
    let Change { attached, replaced, detached } = change;
    output.data(&UpView { attached, replaced, detached }, |view| {
        let lines = [("takes out", &view.attached), ("replaced in place", &view.replaced), ("left", &view.detached)];
        let lines = lines.iter().filter(|(_, names)| !names.is_empty());
        lines.map(|(word, names)| format!("{}: {word}", names.join(", "))).collect::<Vec<_>>().join("\n")
    })?;
    output.hint("the program stays in the kernel; `sallyport packet decap down` removes it, and the addresses");
    Ok(())
}

/// What the kernel does about SYN cookies in this network namespace.
fn kernel_cookies() -> Result<u32, Failure> {
    let text = fs::read_to_string(KERNEL_COOKIES).map_err(|error| error.to_string());
    let number = text.and_then(|text| text.trim().parse().map_err(|_| format!("it has {text:?}")));
    number.map_err(|error| Failure::new(Kind::Failed, format!("cannot read {KERNEL_COOKIES}: {error}")))
}

fn set_kernel_cookies(value: u32) -> Result<(), Failure> {
    let written = fs::write(KERNEL_COOKIES, value.to_string());
    written.map_err(|error| Failure::new(Kind::Failed, format!("cannot write {KERNEL_COOKIES}: {error}")))
}

/// Puts the addresses on the loopback device that are not there yet.
async fn put(
    kernel: &Kernel,
    lo: u32,
    own: &[(u32, IpAddr)],
    standing: &DecapConfig,
    config: &mut DecapConfig,
    added: &mut Vec<IpAddr>,
) -> Result<(), XdpError> {
    for (address, is_ours) in &mut config.addresses {
        if own.iter().any(|(_, own)| own == address) {
            *is_ours = standing.addresses.get(address).copied().unwrap_or_default();
            continue;
        }
        kernel.add_address(lo, *address).await?;
        added.push(*address);
        *is_ours = true;
    }
    Ok(())
}

async fn down(output: Output, decap: &Decap) -> anyhow::Result<()> {
    let (kernel, devices) = kernel().await?;
    let _change = if decap.is_up() { decap.change()? } else { return Err(XdpError::NoDecap.into()) };
    let config = decap.config()?;
    let detached = decap.down(&devices)?;
    let lo = loopback(&devices)?;
    for (address, _) in config.addresses.iter().filter(|(_, is_ours)| **is_ours) {
        let removed = kernel.remove_address(lo, *address).await;
        removed.map_err(|error| Failure::new(Kind::Failed, format!("{address} stays on lo: {error}")))?;
    }
    if let Some(limit) = config.syn_cookies {
        set_kernel_cookies(limit.before)?;
    }
    output.data(&serde_json::json!({ "detached": detached }), |_| format!("{}: takes nothing out", detached.join(", ")))
}

async fn status(output: Output, decap: &Decap) -> anyhow::Result<()> {
    let ports = decap.ports()?;
    let (_, devices) = kernel().await?;
    let config = decap.config()?;
    let view = StatusView {
        devices: ports.iter().map(|port| name_of(&devices, port.ifindex)).collect(),
        balancers: config.balancers,
        mates: config.mates,
        addresses: config.addresses.into_keys().collect(),
        gue_port: config.gue_port,
        second_chance: config.has_second_chance,
        syn_cookies: config.syn_cookies.map(|limit| limit.per_second),
    };
    output.data(&view, |view| {
        let list = |addresses: Vec<IpAddr>| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let is_on = if view.second_chance { "on" } else { "off" };
        let above = |rate| format!("above {rate} SYNs a second");
        let cookies = view.syn_cookies.map_or_else(|| "off".to_owned(), above);
        pairs(&[
            ("devices", view.devices.join(", ")),
            ("balancers", list(view.balancers.iter().copied().collect())),
            ("other edges", list(view.mates.iter().copied().collect())),
            ("addresses", list(view.addresses.clone())),
            ("port of GUE", view.gue_port.to_string()),
            ("second chance", is_on.to_owned()),
            ("SYN cookies", cookies),
        ])
    })
}
