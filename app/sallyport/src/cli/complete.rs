//! Completion of a line in a shell: commands and options by clap's engine, names by [`crate::context::candidates`].

use std::ffi::OsString;

use clap::CommandFactory as _;
use clap_complete::CompleteEnv;
use sallyport_cli::{completion::words, usage::COMPLETE};

use super::Cli;
use crate::command::companion::Companion;

/// Answers a shell that completes a line, and ends; returns in a normal run of the program.
pub(crate) fn answer() {
    if std::env::var_os(COMPLETE).is_some()
        && let Some(companion) = first_command(&words()).and_then(Companion::of_word)
    {
        // A companion completes its own commands, if it is installed.
        drop(companion.start(std::env::args_os().skip(1)));
    }
    CompleteEnv::with_factory(Cli::command).var(COMPLETE).bin("sallyport").completer("sallyport").complete();
}

/// The first word of a line that is neither the program, nor a global option, nor an option's value.
fn first_command(words: &[OsString]) -> Option<&OsString> {
    let root = Cli::command();
    let has_value = |word: &str| {
        let named = |argument: &&clap::Arg| {
            let long = argument.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long));
            long || argument.get_short().is_some_and(|short| word.strip_prefix('-') == Some(&*short.to_string()))
        };
        root.get_arguments().find(named).is_some_and(|argument| argument.get_action().takes_values())
    };
    let mut rest = words.iter().skip(1);
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some(option) if option.starts_with('-') && has_value(option) => drop(rest.next()),
            Some(option) if option.starts_with('-') => {}
            _ => return Some(word),
        }
    }
    None
}
