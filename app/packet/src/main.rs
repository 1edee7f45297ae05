//! `sallyport-packet`: the packet path, which `sallyport packet` starts.
//!
//! `command` has the commands, `config` the files of a router; that of a balancer is in core/packet. io/xdp loads the
//! programs of packet/bpf, and reads them.

// Doc comments of options are help texts, shown as they are, so rustdoc's markup cannot be used.
#![allow(rustdoc::bare_urls, rustdoc::broken_intra_doc_links)]

mod command;
mod config;
mod control;

use std::{error::Error, path::PathBuf, process::ExitCode};

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use sallyport_cli::{
    companion::Companion,
    completion,
    failure::{Failure, Kind},
    output::Output,
    usage::Printing,
};
use sallyport_xdp::XdpError;

use crate::command::PacketCommand;

/// The part of the command line of `sallyport` that has the packet path.
#[derive(Debug, Parser)]
#[command(name = "sallyport", disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options that every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// The root certificate of control to trust, in PEM; only `balance run --control` speaks with a server
    #[arg(long, global = true, value_name = "FILE", env = "SALLYPORT_CA", hide = true)]
    ca: Option<PathBuf>,
    #[command(flatten)]
    printing: Printing,
}

/// The one command.
#[derive(Debug, Subcommand)]
enum Command {
    /// The packet path: a router and a balancer in XDP, whose routes are those of the kernel
    #[command(version)]
    Packet {
        /// The folder of bpffs that has the state: otherwise /sys/fs/bpf/sallyport/router, .../balance or .../decap
        #[arg(long, global = true, value_name = "FOLDER")]
        pins: Option<PathBuf>,
        #[command(subcommand)]
        command: PacketCommand,
    },
}

fn main() -> ExitCode {
    let failure_of = |cause: &(dyn Error + 'static)| cause.downcast_ref().map(failure_of);
    Companion { name: "packet", printing: |cli: &Cli| cli.global.printing, failure_of, run }.main()
}

/// The kind of a failure of the packet path.
fn failure_of(error: &XdpError) -> Failure {
    let kind = match error {
        XdpError::NotRoot | XdpError::NotCapable => Kind::NotAllowed,
        XdpError::NoDevice(_)
        | XdpError::NotUp
        | XdpError::NoBalancer
        | XdpError::NoDecap
        | XdpError::NoNat
        | XdpError::NoPolicy
        | XdpError::NoNamespace(_)
        | XdpError::NoQueue { .. } => Kind::NotFound,
        XdpError::IsVlan { .. }
        | XdpError::TooMany { .. }
        | XdpError::StateTooLarge(_)
        | XdpError::TooManyPorts(_)
        | XdpError::TooManyVlans(_)
        | XdpError::NoProcessor(_)
        | XdpError::NotANamespace(_) => Kind::Usage,
        XdpError::GenericOnly(_)
        | XdpError::AlreadyAttached { .. }
        | XdpError::OtherRouter { .. }
        | XdpError::SameSlot(..)
        | XdpError::CannotSend(_)
        | XdpError::MtuTooLarge(_)
        | XdpError::DumpBusy
        | XdpError::QueueBusy { .. }
        | XdpError::Changing
        | XdpError::UnsafeFolder(_)
        | XdpError::OtherNamespace(_)
        | XdpError::NatRoom { .. }
        | XdpError::NatLogBusy
        | XdpError::NoConntrack => Kind::Refused,
        _ => Kind::Failed,
    };
    Failure::new(kind, error.to_string())
}

fn run(cli: Cli, output: Output) -> anyhow::Result<()> {
    let Command::Packet { pins, command } = cli.command;
    match &command {
        PacketCommand::Man(args) => return args.write(&completion::companion("packet", Cli::command()), &[]),
        PacketCommand::Completion(args) => return args.print("sallyport-packet"),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(command::run(output, (pins, cli.global.ca), command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
