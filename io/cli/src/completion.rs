//! Completion of command lines in shells: the scripts, and the answers of programs that `sallyport` starts.

use std::ffi::OsString;

use clap::{Args, Command, builder::PossibleValuesParser};
use clap_complete::{CompleteEnv, env::Shells};

use crate::{
    failure::{Failure, Kind},
    output,
    usage::COMPLETE,
};

/// Options of `completion`.
#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// The shell to write the script for
    #[arg(value_parser = PossibleValuesParser::new(["bash", "elvish", "fish", "powershell", "zsh"]))]
    shell: String,
}

impl CompletionArgs {
    /// Prints the script for command lines of this program, which runs the program at each TAB.
    ///
    /// # Errors
    /// The standard output cannot be written.
    pub fn print(&self, program: &str) -> anyhow::Result<()> {
        let shells = Shells::builtins();
        let shell = shells.completer(&self.shell);
        let shell = shell.ok_or_else(|| Failure::usage("there is no script for this shell"))?;
        let mut script: Vec<u8> = Vec::new();
        let written = shell.write_registration(COMPLETE, program, program, program, &mut script);
        written.map_err(|error| Failure::new(Kind::Failed, format!("cannot write the script: {error}")))?;
        output::line(String::from_utf8_lossy(&script).trim_end())
    }
}

/// The words of the completed line; empty in a normal run of the program.
pub fn words() -> Vec<OsString> {
    std::env::args_os().skip_while(|word| word != "--").skip(1).collect()
}

/// Answers a shell that completes a line of a companion, and ends; returns in a normal run. The line begins with
/// `sallyport NAME` or with the name of the program, `sallyport-NAME`. `root` is the command line of `sallyport`.
pub fn answer_for_companion(name: &'static str, root: fn() -> Command) {
    let program = format!("sallyport-{name}");
    let is_program = words().first().is_some_and(|word| word.to_string_lossy().ends_with(&program));
    let line = move || if is_program { companion(name, root()) } else { root() };
    CompleteEnv::with_factory(line).var(COMPLETE).bin("sallyport").completer("sallyport").complete();
}

/// The command line of a companion, built, with the options of all commands.
///
/// # Panics
/// `root` has no such command.
#[must_use]
pub fn companion(name: &str, mut root: Command) -> Command {
    root.build();
    let command = root.find_subcommand(name).cloned();
    command.unwrap_or_else(|| unreachable!("sallyport has no command {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_companion_has_the_options_of_all_commands() {
        let global = clap::Arg::new("api").long("api").global(true);
        let root = Command::new("sallyport").arg(global).subcommand(Command::new("lab"));
        let lab = companion("lab", root);
        assert!(lab.get_arguments().any(|argument| argument.get_long() == Some("api")));
        assert_eq!(lab.get_bin_name(), Some("sallyport lab"));
    }
}
