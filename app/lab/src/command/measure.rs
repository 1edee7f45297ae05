//! `sallyport lab measure`: the published articles, measured again on this machine.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
};

use clap::{Args, builder::PossibleValuesParser};
use sallyport_cli::{
    failure::{Failure, Kind},
    output,
    signals::{INTERRUPTED, Signals},
};
use sallyport_lab::measurements::{
    CATALOGUE, Entry, Scale,
    drawing::page,
    frame::{Outcome, Report},
};
use serde_json::json;

use super::{Context, failure};

/// Options of `lab measure`.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// What to measure: one of those that --list shows
    #[arg(
        value_name = "NAME",
        value_parser = PossibleValuesParser::new(CATALOGUE.iter().map(|entry| entry.name)),
        hide_possible_values = true,
        required_unless_present_any = ["list", "all_measurements"]
    )]
    name: Option<String>,
    /// List the measurements with the articles that they repeat
    #[arg(long, conflicts_with_all = ["name", "all_measurements"])]
    list: bool,
    /// Run all measurements, one after the other
    #[arg(id = "all_measurements", long = "all", conflicts_with = "name")]
    all: bool,
    /// Run fewer variants, in fewer and shorter rounds
    #[arg(long)]
    quick: bool,
    /// How often each variant runs [default: 3, or 1 with --quick]
    #[arg(
        id = "measured_rounds",
        long = "rounds",
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    rounds: Option<u32>,
    /// Write the reports to this file, as -o json prints them
    #[arg(id = "json_file", long = "json", value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the drawing of the measurement to this file
    #[arg(id = "measured_svg", long = "svg", value_name = "FILE", conflicts_with = "all_measurements")]
    svg: Option<PathBuf>,
    /// Write one page with all tables and drawings to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs the command. A signal ends this process at once: the kernel then removes its namespaces, devices and programs.
pub(super) async fn run(context: &Context, args: MeasureArgs) -> anyhow::Result<()> {
    if args.list {
        return list(context);
    }
    let mut signals = Signals::take()?;
    let context = Context { output: context.output, ca: None };
    let measured = tokio::task::spawn_blocking(move || measure(&context, &args));
    tokio::select! {
        measured = measured => measured?,
        () = signals.next() => std::process::exit(INTERRUPTED),
    }
}

fn list(context: &Context) -> anyhow::Result<()> {
    let row = |entry: &Entry| json!({ "name": entry.name, "article": entry.article, "about": entry.about });
    let rows: Vec<_> = CATALOGUE.iter().map(row).collect();
    context.output.list(&rows, "", |_| {
        let rows = CATALOGUE.iter().map(|entry| [entry.name, entry.article.title, entry.about].map(str::to_owned));
        output::table(["NAME", "ARTICLE", "WHAT IT SHOWS"], rows)
    })
}

fn measure(context: &Context, args: &MeasureArgs) -> anyhow::Result<()> {
    let files = [&args.json, &args.svg, &args.html];
    files.into_iter().flatten().try_for_each(|file| check_writable(file))?;
    let scale = if args.quick { Scale::Quick } else { Scale::Full };
    let is_chosen = |entry: &&Entry| args.all || args.name.as_deref() == Some(entry.name);
    let mut reports = Vec::new();
    for entry in CATALOGUE.iter().filter(is_chosen) {
        let mut tell = |words: &str| context.output.hint(&format!("{}, {words}", entry.name));
        reports.push(entry.measure(scale, args.rounds, &mut tell).map_err(failure)?);
    }
    // What was measured is printed first, in case that a file cannot be written.
    context.output.data(&reports, |reports| reports.iter().map(show).collect::<Vec<_>>().join("\n\n"))?;
    if let Some(file) = &args.json {
        write(file, &serde_json::to_string_pretty(&reports)?)?;
    }
    if let (Some(file), Some(report)) = (&args.svg, reports.first()) {
        write(file, &report.drawing)?;
    }
    if let Some(file) = &args.html {
        write(file, &page(&reports))?;
    }
    judge(&reports)
}

/// Fails if a claim does not hold.
fn judge(reports: &[Report]) -> anyhow::Result<()> {
    let verdicts = || reports.iter().flat_map(|report| &report.verdicts);
    let failed = verdicts().filter(|verdict| verdict.outcome == Outcome::Fail).count();
    if failed == 0 {
        return Ok(());
    }
    let text = format!("{failed} of {} claims did not hold", verdicts().count());
    let step = "repeat it on a machine without other load; docs/measurements.md says what each claim depends on";
    Err(Failure::new(Kind::Failed, text).next(step).into())
}

/// Checks that a file can be written, before anything is measured. What it holds stays.
fn check_writable(file: &Path) -> Result<(), Failure> {
    let was_there = file.exists();
    OpenOptions::new().append(true).create(true).open(file).map_err(|error| refused(file, &error))?;
    if !was_there {
        drop(fs::remove_file(file));
    }
    Ok(())
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text).map_err(|error| refused(file, &error))
}

fn refused(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Kind::Failed, format!("cannot write {}: {error}", file.display())).next("choose another file")
}

/// A report for people.
fn show(report: &Report) -> String {
    let quick = if report.is_quick { ", quick" } else { "" };
    let heads = report.columns.iter().map(|column| format!("{} {}", column.name, column.unit).trim().to_uppercase());
    let mut lines =
        vec![["VARIANT".to_owned()].into_iter().chain(heads).chain(["NOTE".to_owned()]).collect::<Vec<_>>()];
    for row in &report.rows {
        let figures = (0..report.columns.len())
            .map(|column| row.figures.get(column).map_or_else(|| "-".to_owned(), |spread| spread.words()));
        let note = output::safe(row.note()).into_owned();
        lines.push([row.variant.clone()].into_iter().chain(figures).chain([note]).collect());
    }
    let verdicts = report.verdicts.iter().map(|verdict| format!("\n{}", verdict.words())).collect::<String>();
    format!(
        "{}{quick}, repeats \"{}\", rounds: {}\n{}\n{}{verdicts}",
        report.name,
        report.article.title,
        report.rounds,
        report.machine.words(),
        output::lines_of(lines),
    )
}
