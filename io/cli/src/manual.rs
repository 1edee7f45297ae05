//! Manual pages: one for a program and one for each of its commands, from the command line itself.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Args, Command};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

use crate::{
    failure::{Failure, Kind},
    output,
};

/// The section of the manual: commands of users.
const SECTION: &str = "1";
/// Where the pages of the book are.
const BOOK: &str = "https://github.com/sallyport/sallyport/tree/main/docs";

/// Options of `man`.
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// The folder for the pages, which is made if it is absent
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl ManualArgs {
    /// Writes the pages of this built command and of all commands below it but those that are hidden or `absent`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self, command: &Command, absent: &[&str]) -> anyhow::Result<()> {
        let pages = pages(command, absent);
        let cannot = |error: io::Error| {
            Failure::new(Kind::Failed, format!("cannot write into {}: {error}", self.folder.display()))
        };
        write(&pages, &self.folder).map_err(cannot)?;
        output::line(&format!("{} pages in {}", pages.len(), self.folder.display()))
    }
}

fn write(pages: &[(String, String)], folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    pages.iter().try_for_each(|(name, page)| fs::write(folder.join(name), page))
}

/// The pages: the name of the file, and its text.
fn pages(command: &Command, absent: &[&str]) -> Vec<(String, String)> {
    let mut pages = vec![(format!("{}.{SECTION}", title(command)), page(command))];
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set() && !absent.contains(&inner.get_name()));
    pages.extend(inner.flat_map(|inner| self::pages(inner, &[])));
    pages
}

/// The name of a command's page, such as `sallyport-socket-create`.
fn title(command: &Command) -> String {
    command.get_bin_name().unwrap_or_else(|| command.get_name()).replace(' ', "-")
}

fn page(command: &Command) -> String {
    let title = title(command);
    let has_commands = command.get_subcommands().any(|inner| !inner.is_hide_set());
    let mut written: Vec<u8> = Vec::new();
    // Two quotation marks are an absent date: the page of a version is the same whenever it is written.
    let man = Man::new(command.clone().display_name(title.clone())).title(title.to_uppercase()).date("\"\"");
    let man = man.source(concat!("sallyport ", env!("CARGO_PKG_VERSION"))).manual("Sallyport manual");
    let sections = man
        .render_title(&mut written)
        .and_then(|()| man.render_name_section(&mut written))
        .and_then(|()| synopsis(command).to_writer(&mut written))
        .and_then(|()| man.render_description_section(&mut written))
        .and_then(|()| man.render_options_section(&mut written))
        .and_then(|()| if has_commands { man.render_subcommands_section(&mut written) } else { Ok(()) });
    debug_assert!(sections.is_ok(), "a vector takes everything");
    let mut end = Roff::new();
    notes(&mut end, command);
    see_also(&mut end, command, &title);
    String::from_utf8_lossy(&written).into_owned() + &end.to_roff()
}

/// The usage as the help has it, which names no option that may be left out.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let mut section = Roff::new();
    section.control("SH", ["SYNOPSIS"]).control("nf", []);
    for line in usage.trim_start_matches("Usage:").lines() {
        section.text([bold(line.trim())]);
    }
    section.control("fi", []);
    section
}

/// What the help says below the options, with its lines as they are.
fn notes(page: &mut Roff, command: &Command) {
    let Some(text) = command.get_after_long_help().or_else(|| command.get_after_help()) else { return };
    page.control("SH", ["NOTES"]).control("nf", []);
    for line in text.to_string().trim_end().lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []);
}

/// The pages around this one, and the book.
fn see_also(page: &mut Roff, command: &Command, title: &str) {
    let words: Vec<_> = title.split('-').collect();
    let bin = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let parent = bin.rsplit_once(' ').map(|(parent, _)| parent.replace(' ', "-"));
    let root = (words.len() > 1).then(|| words[0].to_owned());
    let mut names: Vec<_> = root.into_iter().chain(parent).collect();
    names.dedup();
    page.control("SH", ["SEE ALSO"]);
    for name in names {
        page.text([bold(name), roman(format!("({SECTION}),"))]);
    }
    page.text([roman("the book:")]).control("UR", [BOOK]).control("UE", []);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Command {
        let create = Command::new("create").about("Make one").after_help("Examples:\n  .it's here");
        let socket = Command::new("socket").about("Names").subcommand(create);
        let root = Command::new("sallyport").about("Gives names").version("1.2.3").subcommand(socket);
        let hidden = Command::new("hidden").hide(true);
        let mut root = root.subcommand(Command::new("lab")).subcommand(hidden);
        root.build();
        root
    }

    #[test]
    fn each_command_has_a_page_but_those_that_are_hidden_or_of_another_program() {
        let pages = pages(&root(), &["lab", "help"]);
        let names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.starts_with(&["sallyport.1", "sallyport-socket.1", "sallyport-socket-create.1"]), "{names:?}");
        assert!(!names.iter().any(|name| name.contains("hidden") || name.contains("lab")), "{names:?}");
    }

    #[test]
    fn a_page_has_its_sections_and_no_line_that_is_taken_for_a_request() {
        let pages = pages(&root(), &["help"]);
        let (_, page) = pages.iter().find(|(name, _)| name == "sallyport-socket-create.1").unwrap();
        for part in [".TH SALLYPORT-SOCKET-CREATE 1 \"\" ", "\\- Make one", ".SH NOTES\n.nf\n", ".SH \"SEE ALSO\"\n"] {
            assert!(page.contains(part), "{part:?} in {page}");
        }
        assert!(page.contains("\\fBsallyport\\-socket\\fR(1),"), "{page}");
        assert!(!page.lines().any(|line| line.starts_with(".it")), "{page}");
    }
}
