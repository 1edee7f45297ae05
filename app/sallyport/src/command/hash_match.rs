//! `sallyport match`: the nearest known hash of each given one, without a server.
//!
//! May use what `command` may use.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Read as _},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use sallyport_hashmatch::{HASH_BYTES, Hash, MAX_ROWS, Threshold, parse, read, search, write};
use serde::Serialize;

use crate::{
    failure::{self, Failure, Kind},
    output::{self, Output},
};

/// The bytes of a line, at most: a hash and spaces around it.
const MAX_LINE_BYTES: u64 = 1_024;

/// What can be done with hashes.
#[derive(Debug, Subcommand)]
pub(crate) enum MatchCommand {
    /// Make an index of known hashes
    Build(BuildArgs),
    /// Find the nearest known hash of each given one, within a distance
    #[command(after_help = "\
Examples:
  sallyport match build known.txt --out known.idx
  sallyport match query known.idx new.txt
  sallyport match query known.idx new.bin --raw --threshold 180 -o json")]
    Query(QueryArgs),
}

/// The form of hashes.
#[derive(Debug, Args)]
struct FormArgs {
    /// The file has hashes of 144 bytes without anything between, instead of lines of 288 hexadecimal digits
    #[arg(long)]
    raw: bool,
}

/// Options of `match build`.
#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The file with the hashes; - for the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The index to write; an existing file is replaced
    #[arg(long, value_name = "INDEX")]
    out: PathBuf,
    #[command(flatten)]
    form: FormArgs,
}

/// Options of `match query`.
#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    /// The index
    #[arg(value_name = "INDEX")]
    index: PathBuf,
    /// The file with the hashes to look up; - for the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The Euclidean distance up to which a hash matches, at most 3060
    #[arg(long, value_name = "DISTANCE", default_value = "220")]
    threshold: Threshold,
    #[command(flatten)]
    form: FormArgs,
}

/// A query with a match. Numbers begin at 0.
#[derive(Debug, Serialize)]
struct Found {
    query: usize,
    row: u32,
    squared_distance: u32,
    distance: f64,
}

/// What an index has.
#[derive(Debug, Serialize)]
struct Built {
    index: String,
    hashes: usize,
}

/// Runs the command.
pub(crate) fn run(output: &Output, command: MatchCommand) -> anyhow::Result<()> {
    match command {
        MatchCommand::Build(args) => build(output, &args),
        MatchCommand::Query(args) => query(output, &args),
    }
}

/// Writes beside the index first, so that an index is whole or not there.
fn build(output: &Output, args: &BuildArgs) -> anyhow::Result<()> {
    let hashes = args.form.hashes(&args.file)?;
    let mut beside = args.out.clone().into_os_string();
    beside.push(".new");
    let unwritable = |error: &dyn std::fmt::Display| {
        Failure::new(Kind::Failed, format!("cannot write {}: {error}", args.out.display()))
    };
    let file = File::create(&beside).map_err(|error| unwritable(&error))?;
    let written = write(&hashes, BufWriter::new(file)).map_err(|error| unwritable(&error));
    let placed = written.and_then(|()| fs::rename(&beside, &args.out).map_err(|error| unwritable(&error)));
    if let Err(failure) = placed {
        let _ = fs::remove_file(&beside);
        return Err(failure.into());
    }
    let built = Built { index: args.out.display().to_string(), hashes: hashes.len() };
    output.data(&built, |built| format!("{} has {} hashes", output::safe(&built.index), built.hashes))
}

fn query(output: &Output, args: &QueryArgs) -> anyhow::Result<()> {
    let file = File::open(&args.index).map_err(|error| failure::unreadable(&args.index, &error))?;
    let rows = read(BufReader::new(file)).map_err(|error| refused(&args.index, &error))?;
    let queries = args.form.hashes(&args.file)?;
    let mut filter = sallyport_vector::fastest(&rows);
    let matches = search(&rows, &mut *filter, &queries, args.threshold);
    let found = matches.iter().enumerate().filter_map(|(query, found)| {
        let found = (*found)?;
        let distance = f64::from(found.squared).sqrt();
        Some(Found { query, row: found.row, squared_distance: found.squared, distance })
    });
    let found: Vec<_> = found.collect();
    output.hint(&format!(
        "{} of {} match one of {} hashes ({})",
        found.len(),
        queries.len(),
        rows.len(),
        filter.name()
    ));
    output.list(&found, "nothing matches", |found| {
        output::table(
            ["QUERY", "ROW", "DISTANCE", "SQUARED"],
            found.iter().map(|one| {
                [
                    one.query.to_string(),
                    one.row.to_string(),
                    format!("{:.2}", one.distance),
                    one.squared_distance.to_string(),
                ]
            }),
        )
    })
}

fn refused(file: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Kind::Refused, format!("{}: {error}", output::safe(&file.display().to_string())))
}

impl FormArgs {
    /// Reads the hashes of a file.
    fn hashes(&self, file: &Path) -> Result<Vec<Hash>, Failure> {
        if file == Path::new("-") {
            return self.read(io::stdin().lock(), file);
        }
        let opened = File::open(file).map_err(|error| failure::unreadable(file, &error))?;
        self.read(BufReader::new(opened), file)
    }

    fn read(&self, mut input: impl BufRead, file: &Path) -> Result<Vec<Hash>, Failure> {
        let mut hashes = Vec::new();
        let mut bytes = Vec::new();
        for line in 1_usize.. {
            bytes.clear();
            let read = if self.raw {
                input.by_ref().take(HASH_BYTES as u64).read_to_end(&mut bytes)
            } else {
                input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes)
            };
            if read.map_err(|error| failure::unreadable(file, &error))? == 0 {
                break;
            }
            let hash = if self.raw {
                let short = || format!("its last hash has {} of {HASH_BYTES} bytes", bytes.len());
                Some(Hash::try_from(bytes.as_slice()).map_err(|_| refused(file, &short()))?)
            } else {
                of_line(&bytes).map_err(|error| refused(file, &format!("line {line}: {error}")))?
            };
            hashes.extend(hash);
            if hashes.len() > MAX_ROWS {
                return Err(refused(file, &format!("there are more than {MAX_ROWS} hashes: split the file")));
            }
        }
        Ok(hashes)
    }
}

/// The hash of a line; `None` if the line is empty or a comment.
fn of_line(line: &[u8]) -> Result<Option<Hash>, String> {
    let text = String::from_utf8_lossy(line);
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    parse(text).map(Some).map_err(|error| error.to_string())
}
