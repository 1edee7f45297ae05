//! `sallyport lab`: starts the program `sallyport-lab`.

use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

use clap::Args;
use sallyport_cli::program;

use crate::{
    context::Global,
    failure::{Failure, Kind},
};

/// The name of the command.
pub(crate) const NAME: &str = "lab";
/// The program.
const PROGRAM: &str = "sallyport-lab";

/// The arguments of `sallyport-lab`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct LabArgs {
    /// The command; `sallyport lab --help` lists them
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Replaces this process by `sallyport-lab`, with the global options before those of the laboratory.
pub(crate) fn run(global: &Global, args: &LabArgs) -> anyhow::Result<()> {
    // The laboratory reads the environment itself.
    let environment = std::env::var_os("SALLYPORT_CA");
    let ca = global.ca.iter().filter(|file| Some(file.as_os_str()) != environment.as_deref());
    let ca = ca.flat_map(|file| ["--ca".into(), file.into()]);
    start(ca.chain(global.printing.to_args()).chain(args.words.iter().cloned()))
}

/// Replaces this process by `sallyport-lab`; returns only if the program cannot be started.
pub(crate) fn start(args: impl IntoIterator<Item = OsString>) -> anyhow::Result<()> {
    let program = program::find(PROGRAM).ok_or_else(|| {
        let missing =
            "the laboratory is a program of its own, sallyport-lab, which is neither beside sallyport nor on PATH";
        let step = "`scripts/install` of the sources installs both, `cargo build --package sallyport-lab` builds it";
        Failure::new(Kind::Failed, missing).next(step)
    })?;
    let error = Command::new(&program).args(args).exec();
    Err(anyhow::Error::new(error).context(format!("cannot run {}", program.display())))
}
