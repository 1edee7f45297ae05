//! `sallyport-lab`: the laboratory as a program, which `sallyport lab` starts.

// Doc comments of options are help texts, shown as they are, so rustdoc's markup cannot be used.
#![allow(rustdoc::bare_urls, rustdoc::broken_intra_doc_links)]

mod command;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use sallyport_cli::{companion::Companion, completion, files, output::Output, usage::Printing};

use crate::command::{Context, LabCommand, LabSelector};

/// For how many file descriptors the table of a load is prepared.
const FILES: i32 = 4_096;

/// The part of the command line of `sallyport` that has the laboratory.
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
    /// The root certificate to trust, in PEM
    #[arg(long, global = true, value_name = "FILE", env = "SALLYPORT_CA")]
    ca: Option<PathBuf>,
    #[command(flatten)]
    printing: Printing,
}

/// The one command.
#[derive(Debug, Subcommand)]
enum Command {
    /// A laboratory: a network of edges, controls and clients in namespaces of this machine, and faults to try on it
    #[command(version)]
    Lab {
        #[command(flatten)]
        which: LabSelector,
        #[command(subcommand)]
        command: LabCommand,
    },
}

fn main() -> ExitCode {
    Companion { name: "lab", printing: |cli: &Cli| cli.global.printing, failure_of: |_| None, run }.main()
}

fn run(cli: Cli, output: Output) -> anyhow::Result<()> {
    let Command::Lab { which, command } = cli.command;
    match command {
        LabCommand::Man(args) => return args.write(&completion::companion("lab", Cli::command()), &[]),
        LabCommand::Completion(args) => return args.print("sallyport-lab"),
        _ => {}
    }
    files::allow_many();
    files::make_room(FILES);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ca = cli.global.ca.filter(|path| !path.as_os_str().is_empty());
    let result = runtime.block_on(command::run(&Context { output, ca }, which, command));
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
