//! `sallyport-kube`: the controller for Kubernetes, which `sallyport kube` starts.
//!
//! `program` composes the rooms. `watch` mirrors the cluster, and core/kube decides what is exposed. `sockets` brings
//! the API to that, and `report` tells the cluster by `status`; only the replica that `lead`s does both. `tunnels`
//! carries the traffic in every replica. `serve` answers probes and publishes metrics.

// Doc comments of options are help texts, shown as they are, so rustdoc's markup cannot be used.
#![allow(rustdoc::bare_urls, rustdoc::broken_intra_doc_links)]

mod args;
mod cluster;
mod commands;
mod control;
mod lead;
mod logs;
mod program;
mod report;
mod retry;
mod serve;
mod sockets;
mod status;
mod tunnels;
mod wants;
mod watch;

use std::process::ExitCode;

use clap::CommandFactory as _;
use sallyport_cli::{companion::Companion, completion, files, output::Output};

use crate::args::{Cli, Command, KubeCommand};

/// The field manager of every write to the cluster.
pub(crate) const FIELD_MANAGER: &str = "sallyport-kube";
/// Name and version of the program.
pub(crate) const AGENT: &str = concat!("sallyport-kube/", env!("CARGO_PKG_VERSION"));
/// For how many file descriptors the table is prepared.
const FILES: i32 = 4_096;

fn main() -> ExitCode {
    Companion { name: "kube", printing: |cli: &Cli| cli.global.printing, failure_of: |_| None, run }.main()
}

fn run(cli: Cli, output: Output) -> anyhow::Result<()> {
    let Cli { global, command: Command::Kube(args) } = cli;
    match &args.command {
        Some(KubeCommand::Man(args)) => return args.write(&completion::companion("kube", Cli::command()), &[]),
        Some(KubeCommand::Completion(args)) => return args.print("sallyport-kube"),
        _ => {}
    }
    files::allow_many();
    files::make_room(FILES);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(program::run(&global, *args, output));
    runtime.shutdown_background();
    result
}
