//! `sallyport prefixes report`.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use sallyport_prefixes::{AddressSet, FamilyReport, Named, Part, Price, Report, SourceKind, draw};

use super::{ReadArgs, check_count, kind_word};
use crate::output::{self, Output};

/// Options of `prefixes report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The files: ip-ranges JSON of clouds, RDAP, delegated statistics, lists; - for the standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// What is in use, besides the ranges that clouds publish
    #[arg(long, value_name = "FILE")]
    used: Vec<PathBuf>,
    /// What is announced, such as a list of routes
    #[arg(long, value_name = "FILE")]
    announced: Vec<PathBuf>,
    /// The price of one IPv4 address, for the value of all
    #[arg(long, value_name = "PRICE")]
    price: Option<Price>,
    /// Draw the addresses along a Hilbert curve into this file; an existing file is replaced
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
    /// The title of the picture
    #[arg(long, value_name = "TEXT", default_value = "Addresses", requires = "picture")]
    title: String,
    #[command(flatten)]
    read: ReadArgs,
}

/// Runs the command.
pub(super) fn run(output: &Output, args: &ReportArgs) -> anyhow::Result<()> {
    check_count(&[&args.files, &args.used, &args.announced])?;
    let mut sources = Vec::new();
    for file in &args.files {
        sources.push(Named { name: file.display().to_string(), source: args.read.source(file)? });
    }
    let mut used = (!args.used.is_empty()).then(|| args.read.union(&args.used)).transpose()?;
    for source in sources.iter().map(|one| &one.source).filter(|source| source.kind == SourceKind::Cloud) {
        used = Some(used.unwrap_or_default().union(&source.set));
    }
    let announced = (!args.announced.is_empty()).then(|| args.read.union(&args.announced)).transpose()?;
    let report = Report::new(&sources, used.as_ref(), announced.as_ref(), args.price);
    if let Some(file) = &args.picture {
        let held = sources.iter().fold(AddressSet::default(), |all, one| all.union(&one.source.set));
        fs::write(file, draw(&held, used.as_ref(), &args.title))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    output.data(&report, tables)?;
    if let Some(file) = &args.picture {
        output.hint(&format!("drawn into {}", file.display()));
    }
    Ok(())
}

fn tables(report: &Report) -> String {
    let mut parts = vec![output::table(
        ["FILE", "KIND", "LISTED", "AGAIN", "NESTED", "IPV4 ADDRESSES", "IPV6 /64"],
        report.files.iter().map(|file| {
            [
                file.file.clone(),
                kind_word(file.kind).to_owned(),
                file.listed.to_string(),
                file.duplicates.to_string(),
                file.nested.to_string(),
                file.ipv4_addresses.to_string(),
                file.ipv6_networks.to_string(),
            ]
        }),
    )];
    if !report.overlaps.is_empty() {
        let rows = report.overlaps.iter().map(|overlap| {
            let [one, other] = overlap.files.clone();
            [one, other, overlap.ipv4_addresses.to_string(), overlap.ipv6_networks.to_string()]
        });
        parts.push(output::table(["BOTH IN", "AND IN", "IPV4 ADDRESSES", "IPV6 /64"], rows));
    }
    parts.extend(report.ipv4.as_ref().map(|family| of_family(family, "IPv4 addresses", 32, report.value)));
    parts.extend(report.ipv6.as_ref().map(|family| of_family(family, "IPv6 networks of 64 bits", 64, None)));
    parts.join("\n\n")
}

/// A family: its sums, and its prefixes by length. Units are prefixes of `unit_length` bits.
fn of_family(family: &FamilyReport, units: &str, unit_length: u32, value: Option<f64>) -> String {
    let mut rows = vec![(units, family.held.to_string()), ("Fewest prefixes", family.prefixes.to_string())];
    for (part, titles) in [
        (family.used, ["In use", "Not in use", "In use, not held"]),
        (family.announced, ["Announced", "Not announced", "Announced, not held"]),
    ] {
        let Some(Part { inside, outside, foreign }) = part else { continue };
        rows.extend([(titles[0], of_all(inside, family.held)), (titles[1], of_all(outside, family.held))]);
        if foreign > 0 {
            rows.push((titles[2], foreign.to_string()));
        }
    }
    rows.extend(value.map(|value| ("Value", format!("{value:.2}"))));
    let lengths = family.by_length.iter().map(|count| {
        let shift = unit_length.checked_sub(u32::from(count.length));
        let held = shift.map_or_else(|| "-".to_owned(), |shift| (u128::from(count.prefixes) << shift).to_string());
        [format!("/{}", count.length), count.prefixes.to_string(), held]
    });
    format!("{}\n\n{}", output::pairs(&rows), output::table(["LENGTH", "PREFIXES", &units.to_uppercase()], lengths))
}

/// A part, with its share in percent.
fn of_all(part: u64, all: u64) -> String {
    let thousandths = u128::from(part) * 1_000 / u128::from(all.max(1));
    format!("{part} ({}.{} %)", thousandths / 10, thousandths % 10)
}
