//! Errors of a command line, and the printing options that all programs share.

use std::{ffi::OsString, process::ExitCode};

use clap::{
    Args, ValueEnum as _,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{
    failure::{Failure, Kind},
    output::{Color, Form, Format, Output},
};

/// Set by the scripts of `sallyport completion` to the name of the shell.
pub const COMPLETE: &str = "SALLYPORT_COMPLETE";

/// The printing options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct Printing {
    /// How data is printed
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT", hide_possible_values = true)]
    #[arg(help = "How data is printed: table, wide (a table with all its columns), json or yaml")]
    pub output: Form,
    /// When to use colours: auto, always or never (NO_COLOR is respected)
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", hide_possible_values = true)]
    pub color: Color,
}

impl Printing {
    /// The output with these options.
    #[must_use]
    pub fn to_output(self) -> Output {
        Output::new(self.output.format(), self.color).wide(self.output == Form::Wide)
    }

    /// The options for another program's command line, without those at their defaults.
    #[must_use]
    pub fn to_args(self) -> Vec<OsString> {
        let output = (self.output != Form::default()).then(|| ("--output", self.output.to_possible_value()));
        let color = (self.color != Color::default()).then(|| ("--color", self.color.to_possible_value()));
        let chosen = [output, color].into_iter().flatten();
        chosen.filter_map(|(flag, value)| Some([flag.into(), value?.get_name().into()])).flatten().collect()
    }
}

/// Prints what is wrong with the command line, and returns the exit code; a requested help is no failure. `help` is the
/// command line that prints the help.
#[must_use]
pub fn misused(error: &clap::Error, as_json: bool, help: &str) -> ExitCode {
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if as_json && !is_help {
        let next = suggestion(error).unwrap_or_else(|| format!("see `{help}`"));
        let failure = Failure::usage(sentence(&error.render().to_string())).next(next);
        Output::new(Format::Json, Color::Never).failure(&failure);
    } else {
        // A failure to print cannot be reported.
        drop(error.print());
    }
    if is_help { ExitCode::SUCCESS } else { ExitCode::from(Kind::Usage.exit_code()) }
}

/// The suggested word, if one is similar.
fn suggestion(error: &clap::Error) -> Option<String> {
    let kinds = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let near = kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.clone()),
        // The last is the most similar.
        ContextValue::Strings(words) => words.last().cloned(),
        _ => None,
    })?;
    Some(format!("did you mean {near}?"))
}

/// The first paragraph of the message as one line; arguments may be on the lines below.
#[must_use]
pub fn sentence(text: &str) -> String {
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let paragraph = lines.collect::<Vec<_>>().join(" ");
    paragraph.trim_start_matches("error: ").to_owned()
}

/// Whether a command line that cannot be parsed requests JSON.
#[must_use]
pub fn asks_for_json(args: &[OsString]) -> bool {
    args.windows(2).any(|two| (two[0] == "-o" || two[0] == "--output") && two[1] == "json")
        || args.iter().any(|arg| arg == "-ojson" || arg == "-o=json" || arg == "--output=json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_in_one_line() {
        let command = clap::Command::new("create").args(
            [clap::Arg::new("name").long("name"), clap::Arg::new("email").long("email")].map(|arg| arg.required(true)),
        );
        let error = command.try_get_matches_from(["create"]).unwrap_err().render().to_string();
        let expected = "the following required arguments were not provided: --name <name> --email <email>";
        assert_eq!(sentence(&error), expected);
        assert_eq!(sentence("error: unexpected argument '--x' found\n\nUsage: y"), "unexpected argument '--x' found");
    }

    #[test]
    fn json_is_recognised_in_a_line_that_cannot_be_parsed() {
        let asks = |line: &str| asks_for_json(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        assert!(asks("sallyport nonsense -o json"));
        assert!(asks("sallyport --output=json nonsense"));
        assert!(!asks("sallyport -o yaml json"));
    }

    #[test]
    fn options_about_printing_go_on_to_another_program() {
        let printing = |output, color| Printing { output, color }.to_args();
        assert!(printing(Form::Table, Color::Auto).is_empty());
        assert_eq!(printing(Form::Json, Color::Never), ["--output", "json", "--color", "never"]);
    }
}
