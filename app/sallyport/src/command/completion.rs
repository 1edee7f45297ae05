//! `sallyport completion`: scripts for shells that complete commands, options and names.

use std::io;

use clap::{Args, builder::PossibleValuesParser};
use clap_complete::env::Shells;
use sallyport_cli::usage;

use crate::{failure::Failure, output};

/// Options of `completion`.
#[derive(Debug, Args)]
#[command(after_help = "\
  bash  source <(sallyport completion bash)      in ~/.bashrc
  zsh   source <(sallyport completion zsh)       in ~/.zshrc, after compinit
  fish  sallyport completion fish | source       in ~/.config/fish/config.fish")]
pub(crate) struct CompletionArgs {
    /// The shell to write the script for
    #[arg(value_parser = PossibleValuesParser::new(["bash", "elvish", "fish", "powershell", "zsh"]))]
    shell: String,
}

/// Prints the script, which runs this program at each TAB.
pub(crate) fn run(args: &CompletionArgs) -> anyhow::Result<()> {
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell).ok_or_else(|| Failure::usage("there is no script for this shell"))?;
    let mut script: Vec<u8> = Vec::new();
    shell.write_registration(usage::COMPLETE, "sallyport", "sallyport", "sallyport", &mut script)?;
    let script = String::from_utf8(script).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    output::line(script.trim_end())
}
