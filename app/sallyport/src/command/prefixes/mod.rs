//! `sallyport prefixes`: what files of clouds and registries hold, without a server.
//!
//! May use what `command` may use.

mod diff;
mod report;

use std::{
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use sallyport_prefixes::{AddressSet, HostBits, ReadOptions, Source, SourceKind, read};

use self::{diff::DiffArgs, report::ReportArgs};
use crate::{
    failure::{self, Failure, Kind},
    output::{self, Output},
};

/// The files of one command, at most: pairs of them are compared.
const MAX_FILES: usize = 64;

/// What can be done with files of prefixes.
#[derive(Debug, Subcommand)]
pub(crate) enum PrefixesCommand {
    /// Count what files hold together: sizes, overlaps, what is not in use, the value; and draw it
    #[command(after_help = "\
Examples:
  sallyport prefixes report ip-ranges.json rdap.json --price 25 --picture holdings.svg
  sallyport prefixes report delegated-ripencc-extended-latest --holder OPAQUE-ID --announced table.txt")]
    Report(ReportArgs),
    /// Show what came and went between two files
    Diff(DiffArgs),
    /// Print the fewest prefixes that hold exactly what the files hold, one on a line
    #[command(alias = "list")]
    Ls(LsArgs),
}

/// How files are read.
#[derive(Debug, Args)]
struct ReadArgs {
    /// Clear bits behind the length of a prefix, instead of refusing the file
    #[arg(long)]
    mask: bool,
    /// Of delegated statistics, only what this opaque id holds
    #[arg(long, value_name = "OPAQUE-ID")]
    holder: Option<String>,
}

/// Options of `prefixes ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// The files; - for the standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Leave out what this file has
    #[arg(long, value_name = "FILE")]
    without: Vec<PathBuf>,
    #[command(flatten)]
    read: ReadArgs,
}

/// Runs the command.
pub(crate) fn run(output: &Output, command: PrefixesCommand) -> anyhow::Result<()> {
    match command {
        PrefixesCommand::Report(args) => report::run(output, &args),
        PrefixesCommand::Diff(args) => diff::run(output, &args),
        PrefixesCommand::Ls(args) => list(output, &args),
    }
}

fn list(output: &Output, args: &LsArgs) -> anyhow::Result<()> {
    check_count(&[&args.files, &args.without])?;
    let set = args.read.union(&args.files)?.difference(&args.read.union(&args.without)?);
    let prefixes: Vec<String> = set.prefixes().collect();
    output.list(&prefixes, "nothing is left", |prefixes| prefixes.join("\n"))
}

/// Refuses more files than [`MAX_FILES`], and the standard input twice.
fn check_count(files: &[&[PathBuf]]) -> Result<(), Failure> {
    if files.iter().map(|files| files.len()).sum::<usize>() > MAX_FILES {
        return Err(Failure::usage(format!("there are more than {MAX_FILES} files"))
            .next("join lists first: `sallyport prefixes ls FILE... > joined.txt`"));
    }
    if files.iter().flat_map(|files| files.iter()).filter(|file| is_stdin(file)).count() > 1 {
        return Err(Failure::usage("the standard input (-) can be read only once"));
    }
    Ok(())
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

impl ReadArgs {
    /// Reads one file.
    fn source(&self, file: &Path) -> Result<Source, Failure> {
        let host_bits = if self.mask { HostBits::Mask } else { HostBits::Refuse };
        let options = ReadOptions { host_bits, holder: self.holder.clone() };
        let read = if is_stdin(file) {
            read(io::stdin().lock(), &options)
        } else {
            let opened = File::open(file).map_err(|error| failure::unreadable(file, &error))?;
            read(BufReader::new(opened), &options)
        };
        read.map_err(|error| {
            Failure::new(Kind::Refused, output::safe(&format!("{}: {error}", file.display())).into_owned())
        })
    }

    /// What these files hold together.
    fn union(&self, files: &[PathBuf]) -> Result<AddressSet, Failure> {
        files.iter().try_fold(AddressSet::default(), |all, file| Ok(all.union(&self.source(file)?.set)))
    }
}

/// The word for a kind of file.
fn kind_word(kind: SourceKind) -> &'static str {
    match kind {
        SourceKind::Cloud => "cloud",
        SourceKind::Rdap => "rdap",
        SourceKind::Delegated => "delegated",
        SourceKind::List => "list",
    }
}
