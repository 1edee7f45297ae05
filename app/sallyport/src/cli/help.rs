//! `sallyport help`: the help of a command, or a short text about a topic.

use std::ffi::OsString;

use clap::{Args, CommandFactory as _};

use super::Cli;
use crate::{
    command::companion::Companion,
    failure::{Failure, Kind},
    output::{self, Output},
};

/// Short texts about topics, from the pages in docs/: name, text.
const TOPICS: [(&str, &str); 6] = [
    ("domains", include_str!("help/domains.txt")),
    ("names", include_str!("help/names.txt")),
    ("policies", include_str!("help/policies.txt")),
    ("run", include_str!("help/run.txt")),
    ("scripts", include_str!("help/scripts.txt")),
    ("transports", include_str!("help/transports.txt")),
];

/// In how many letters a suggested word may differ.
const MAX_DISTANCE: usize = 2;

/// Options of `help`.
#[derive(Debug, Args)]
#[command(after_help = "Topics: domains, names, policies, run, scripts, transports")]
pub(crate) struct HelpArgs {
    /// A command, such as `socket create`, or a topic
    #[arg(value_name = "COMMAND|TOPIC")]
    words: Vec<String>,
}

/// Prints the help.
pub(crate) fn run(output: &Output, args: &HelpArgs) -> anyhow::Result<()> {
    if let [word] = &args.words[..]
        && let Some((_, text)) = TOPICS.iter().find(|(name, _)| name == word)
        && Cli::command().find_subcommand(word).is_none()
    {
        return output::line(text.trim_end());
    }
    if let [word, rest @ ..] = &args.words[..]
        && let Some(companion) = Companion::of_word(word)
    {
        return companion.start(rest.iter().map(OsString::from).chain(["--help".into()]));
    }
    let mut root = Cli::command();
    root.build();
    let mut command = &root;
    for word in &args.words {
        let inner = command.find_subcommand(word);
        command = inner.ok_or_else(|| unknown(command, word, args.words.len() == 1))?;
    }
    // Parsed like a real command line, so that both have the same help.
    let line = ["sallyport"].into_iter().chain(args.words.iter().map(String::as_str)).chain(["--help"]);
    let help = Cli::command().try_get_matches_from(line).err().map(|error| error.render());
    let help = help.map(|help| if output.color { help.ansi().to_string() } else { help.to_string() });
    output::line(help.unwrap_or_default().trim_end())?;
    match &args.words[..] {
        [] => output::line(&format!("\nTopics of `sallyport help TOPIC`: {}", names().join(", "))),
        [word] if TOPICS.iter().any(|(name, _)| name == word) => text_of(word).map_or(Ok(()), output::line),
        _ => Ok(()),
    }
}

fn text_of(topic: &str) -> Option<&'static str> {
    TOPICS.iter().find(|(name, _)| *name == topic).map(|(_, text)| text.trim_end())
}

fn names() -> Vec<&'static str> {
    TOPICS.iter().map(|(name, _)| *name).collect()
}

fn unknown(command: &clap::Command, word: &str, is_topic: bool) -> Failure {
    let mut known: Vec<&str> =
        command.get_subcommands().filter(|inner| !inner.is_hide_set()).map(clap::Command::get_name).collect();
    if is_topic {
        known.extend(names());
    }
    let failure = Failure::new(Kind::Usage, format!("there is no help about {word:?}"));
    match nearest(word, known) {
        Some(near) => failure.next(format!("did you mean {near}?")),
        None => failure.next(format!("`sallyport help` lists the commands; topics are {}", names().join(", "))),
    }
}

/// The most similar word.
fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let measured = known.into_iter().map(|one| (strsim::damerau_levenshtein(word, one), one));
    measured.filter(|(distance, _)| *distance <= MAX_DISTANCE).min_by_key(|(distance, _)| *distance).map(|(_, one)| one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_short_and_fit_a_terminal() {
        for (name, text) in TOPICS {
            assert!(text.lines().count() <= 40, "{name}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{name}");
            assert!(!text.contains("docs/") && !text.contains(".md"), "{name}: an installation lacks these files");
        }
    }

    #[test]
    fn near_words_are_found() {
        assert_eq!(nearest("sockte", ["secret", "socket"]), Some("socket"));
        assert_eq!(nearest("transport", names()), Some("transports"));
        assert_eq!(nearest("nonsense", names()), None);
    }
}
