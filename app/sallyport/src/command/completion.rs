//! `sallyport completion`: scripts that let a shell complete our commands.

use std::io;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::{cli::Cli, output};

/// Options of `completion`.
#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// The shell to write the script for
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &CompletionArgs) -> anyhow::Result<()> {
    let mut script: Vec<u8> = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sallyport", &mut script);
    let script = String::from_utf8(script).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    output::line(script.trim_end())
}
