//! The commands of the packet path.

mod balance;
mod capture;
mod counts;
mod decap;
mod dump;
mod explain;
mod generate;
mod nat;
mod policy;
mod question;
mod reach;
mod router;

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Subcommand;
use sallyport_cli::{completion::CompletionArgs, manual::ManualArgs, output::Output};
use sallyport_xdp::{
    Router, XdpError,
    balance::{Balancer, Decap},
    kernel::{Device, Kernel},
    require_root,
};

/// The folder of bpffs with the state of all parts, each in a folder of its own.
const PINS: &str = "/sys/fs/bpf/sallyport";

/// What the packet path does.
#[derive(Debug, Subcommand)]
pub(crate) enum PacketCommand {
    /// A router: packets go from port to port in XDP, by the routes of the kernel
    #[command(subcommand)]
    Router(router::RouterCommand),
    /// A balancer: packets to a shared address go to edges, which answer themselves
    #[command(subcommand)]
    Balance(balance::BalanceCommand),
    /// An edge behind a balancer: takes packets out of their tunnels
    #[command(subcommand)]
    Decap(decap::DecapCommand),
    /// The NAT of the router: its sessions, pools, drops and log
    #[command(subcommand)]
    Nat(nat::NatCommand),
    /// The policy of the router: which packets may pass
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Say what would become of a packet, and why
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::ExplainArgs),
    /// Send packets without taking the card from the kernel, count what arrives, find the rate without loss
    #[command(after_help = generate::EXAMPLES)]
    Generate(Box<generate::GenerateArgs>),
    /// Show what became of packets, as tcpdump would: forwarded, dropped with the reason, rewritten
    #[command(after_help = dump::EXAMPLES)]
    Dump(dump::DumpArgs),
    /// Write the manual pages of the packet path into a folder
    #[command(hide = true)]
    Man(ManualArgs),
    /// Print the completion script of a shell, for `sallyport-packet`
    #[command(hide = true)]
    Completion(CompletionArgs),
}

/// Runs a command.
pub(crate) async fn run(
    output: Output,
    (pins, ca): (Option<PathBuf>, Option<PathBuf>),
    command: PacketCommand,
) -> anyhow::Result<()> {
    let folder = |name: &str| pins.clone().unwrap_or_else(|| Path::new(PINS).join(name));
    let router = Router::new(folder("router"));
    match &command {
        PacketCommand::Policy(command) if command.is_of_file() => {}
        // It judges its options first.
        PacketCommand::Generate(_) => {}
        _ => require_root()?,
    }
    match command {
        PacketCommand::Router(command) => router::run(output, &router, command).await,
        PacketCommand::Generate(args) => generate::generate(output, *args).await,
        PacketCommand::Nat(command) => nat::run(output, &router, command).await,
        PacketCommand::Policy(command) => policy::run(output, &router, command),
        PacketCommand::Explain(args) => explain::explain(output, &router, args).await,
        PacketCommand::Dump(args) => dump::dump(output, &Router::new(folder(args.of.name())), args).await,
        PacketCommand::Balance(command) => balance::run(output, &Balancer::new(folder("balance")), command, ca).await,
        PacketCommand::Decap(command) => decap::run(output, &Decap::new(folder("decap")), command).await,
        // They are answered before, without a kernel.
        PacketCommand::Man(_) | PacketCommand::Completion(_) => Ok(()),
    }
}

/// The kernel, and its devices.
async fn kernel() -> Result<(Kernel, Vec<Device>), XdpError> {
    let kernel = Kernel::open()?;
    let devices = kernel.devices().await?;
    Ok((kernel, devices))
}

/// The device of this name.
fn device_of<'a>(devices: &'a [Device], name: &str) -> Result<&'a Device, XdpError> {
    devices.iter().find(|device| device.name == name).ok_or_else(|| XdpError::NoDevice(name.to_owned()))
}

/// The name of a device, which may be gone by now.
fn name_of(devices: &[Device], index: u32) -> String {
    let device = devices.iter().find(|device| device.index == index);
    device.map_or_else(|| format!("device {index}"), |device| device.name.clone())
}

/// An address of a link, as people write it.
fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// Replaces a file at once, so that a reader finds all of it.
fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    let next = file.with_extension("next");
    // In a folder where others may write, the name can be a link of theirs to any file.
    drop(fs::remove_file(&next));
    let made = fs::OpenOptions::new().write(true).create_new(true).open(&next);
    let written = made.and_then(|mut made| made.write_all(text.as_bytes())).and_then(|()| fs::rename(&next, file));
    written.with_context(|| format!("cannot write the metrics to {}", file.display()))
}
