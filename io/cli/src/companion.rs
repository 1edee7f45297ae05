//! A program that `sallyport NAME` starts, for a part of its command line.

use std::{error::Error, ffi::OsString, process::ExitCode};

use clap::{CommandFactory, Parser};

use crate::{
    completion,
    failure::{self, Failure},
    output::Output,
    usage::{self, Printing, misused},
};

/// A companion, whose command line is `C`: that of `sallyport`, with the one command `name`.
#[derive(Debug)]
pub struct Companion<C> {
    /// The name of its command.
    pub name: &'static str,
    /// The printing options of a command line.
    pub printing: fn(&C) -> Printing,
    /// The failure for an error of the program's own; `None` for those of others.
    pub failure_of: fn(&(dyn Error + 'static)) -> Option<Failure>,
    /// What the program does.
    pub run: fn(C, Output) -> anyhow::Result<()>,
}

impl<C: Parser + CommandFactory> Companion<C> {
    /// Reads the command line, does what it says, prints a failure, and returns the exit code.
    #[must_use]
    pub fn main(&self) -> ExitCode {
        completion::answer_for_companion(self.name, C::command);
        let words = ["sallyport", self.name].map(OsString::from);
        let args: Vec<_> = words.into_iter().chain(std::env::args_os().skip(1)).collect();
        self.main_with(&args)
    }

    fn main_with(&self, args: &[OsString]) -> ExitCode {
        let cli = match C::try_parse_from(args) {
            Ok(cli) => cli,
            Err(error) => {
                let help = format!("sallyport {} --help", self.name);
                return misused(&error, usage::asks_for_json(args), &help);
            }
        };
        let output = (self.printing)(&cli).to_output();
        let Err(error) = (self.run)(cli, output) else { return ExitCode::SUCCESS };
        match failure::describe(&error, self.failure_of) {
            None => ExitCode::SUCCESS,
            Some(failure) => {
                output.failure(&failure);
                ExitCode::from(failure.kind.exit_code())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Kind;

    #[derive(Debug, Parser)]
    #[command(name = "sallyport")]
    struct Cli {
        #[command(flatten)]
        printing: Printing,
        #[command(subcommand)]
        command: Command,
    }

    #[derive(Debug, clap::Subcommand)]
    enum Command {
        Part { kind: String },
    }

    fn run(cli: Cli, _: Output) -> anyhow::Result<()> {
        let Command::Part { kind } = cli.command;
        match kind.as_str() {
            "works" => Ok(()),
            "closed" => Err(failure::OutputClosed.into()),
            "own" => Err(std::fmt::Error.into()),
            _ => Err(Failure::new(Kind::NotFound, "nothing is there").into()),
        }
    }

    #[test]
    fn the_exit_code_is_that_of_the_failure() {
        let failure_of = |error: &(dyn Error + 'static)| {
            error.is::<std::fmt::Error>().then(|| Failure::new(Kind::Refused, "it is refused"))
        };
        let part = Companion { name: "part", printing: |cli: &Cli| cli.printing, failure_of, run };
        let code = |words: &[&str]| part.main_with(&words.iter().map(OsString::from).collect::<Vec<_>>());
        for (kind, wanted) in
            [("works", None), ("closed", None), ("own", Some(Kind::Refused)), ("no", Some(Kind::NotFound))]
        {
            let wanted = wanted.map_or(ExitCode::SUCCESS, |kind| ExitCode::from(kind.exit_code()));
            assert_eq!(code(&["sallyport", "part", kind]), wanted, "{kind}");
        }
        assert_eq!(code(&["sallyport", "part"]), ExitCode::from(Kind::Usage.exit_code()));
        assert_eq!(code(&["sallyport", "part", "--help"]), ExitCode::SUCCESS);
    }
}
