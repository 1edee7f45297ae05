//! `sallyport lab simulate`: steering and its solver in virtual time, and steering by DNS.

use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use clap::{Args, Subcommand};
use sallyport_cli::{
    duration,
    failure::{Failure, Kind},
    output,
};
use sallyport_lab::simulate::{
    Arrivals, Impairments, InstanceOptions, InstanceReport, MAX_INSTANCE_EDGES, MAX_INSTANCE_ORIGINS, MAX_LOSS_PERCENT,
    MAX_REPORT_DELAY, PolicyReport, Scenario, SteeringOptions, SteeringReport, draw, instance, simulate, solve,
};
use serde::Serialize;
use serde_json::json;

use super::{Context, simulate_dns};

/// The most misses that are listed.
const MAX_LISTED: usize = 20;

/// What can be simulated.
#[derive(Debug, Subcommand)]
pub(crate) enum SimulateCommand {
    /// Run scenarios of steering in virtual time, beside other ways of steering, and check the result
    Steering(SteeringArgs),
    /// Solve a random problem of the size of a large installation, and print the time
    Solver(SolverArgs),
    /// Let clients on a map ask the name server before and after dials of regions, and count where they go
    Dns(simulate_dns::DnsArgs),
}

/// Options of `lab simulate steering`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(crate) struct SteeringArgs {
    /// What happens: one of those that --list shows, or all
    #[arg(long, value_name = "NAME", default_value = "all")]
    scenario: String,
    /// List the scenarios
    #[arg(long, conflicts_with_all = ["scenario", "seeds", "svg"])]
    list: bool,
    /// The seed of edges, origins, arrivals and lost messages
    #[arg(id = "steering_seed", long = "seed", value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Run Sallyport's steering alone with these seeds, such as 0..10000, and print a summary; the last one is not run
    #[arg(long, value_name = "RANGE", value_parser = seeds, conflicts_with_all = ["steering_seed", "svg"])]
    seeds: Option<Range<u64>>,
    /// With --seeds: give each seed one scenario by turns, and impairments of its own, several at once
    #[arg(
        long, requires = "seeds",
        conflicts_with_all = ["report_delay", "message_loss", "reorder", "skew", "failover", "even"]
    )]
    mixed: bool,
    /// How late reports are, 10s at the most
    #[arg(id = "report_delay", long = "delay", value_name = "TIME", default_value = "0s", value_parser = late)]
    delay: Duration,
    /// How many messages of a hundred are lost, 50 at the most
    #[arg(
        id = "message_loss", long = "loss", value_name = "PERCENT", default_value_t = 0, value_parser = loss
    )]
    loss: u8,
    /// Let messages overtake each other
    #[arg(long)]
    reorder: bool,
    /// Set the clocks of edges wrong, and let some of them run 1 percent fast
    #[arg(long)]
    skew: bool,
    /// Let the leader fall silent at the worst moment, another one take over, and both believe that they lead
    #[arg(long)]
    failover: bool,
    /// Let requests come evenly, so that nothing in the figures is chance
    #[arg(long)]
    even: bool,
    /// Write a drawing of load, share and latency to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Options of `lab simulate solver`.
#[derive(Debug, Args)]
pub(crate) struct SolverArgs {
    /// How many edges
    #[arg(
        id = "instance_edges", long = "edges", value_name = "COUNT", default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_INSTANCE_EDGES))
    )]
    edges: u32,
    /// How many origins
    #[arg(
        long, value_name = "COUNT", default_value_t = 200,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_INSTANCE_ORIGINS))
    )]
    origins: u32,
    /// The demand, in percent of what all origins can carry
    #[arg(
        id = "instance_load", long = "load", value_name = "PERCENT", default_value_t = 95,
        value_parser = clap::value_parser!(u32).range(1..=200)
    )]
    load: u32,
    /// The seed of places and capacities
    #[arg(id = "instance_seed", long = "seed", value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

fn late(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text)?;
    (time <= MAX_REPORT_DELAY).then_some(time).ok_or_else(|| "expected 10s at the most".to_owned())
}

fn loss(text: &str) -> Result<u8, String> {
    let percent = text.parse().ok().filter(|percent| *percent <= MAX_LOSS_PERCENT);
    percent.ok_or_else(|| format!("expected a whole number from 0 to {MAX_LOSS_PERCENT}"))
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let parts = text.split_once("..").and_then(|(start, end)| Some(start.parse().ok()?..end.parse().ok()?));
    let range: Range<u64> = parts.ok_or("expected two whole numbers, such as 0..100")?;
    if range.is_empty() { Err(format!("{text} has no seed: the second number is not run")) } else { Ok(range) }
}

/// Runs the command.
pub(super) fn run(context: &Context, command: &SimulateCommand) -> anyhow::Result<()> {
    match command {
        SimulateCommand::Steering(args) if args.list => {
            let rows: Vec<_> = Scenario::ALL
                .iter()
                .map(|scenario| json!({ "scenario": scenario, "about": scenario.about() }))
                .collect();
            context.output.list(&rows, "", |_| {
                let rows = Scenario::ALL.map(|scenario| [scenario.to_string(), scenario.about().to_owned()]);
                output::table(["SCENARIO", "WHAT HAPPENS"], rows)
            })
        }
        SimulateCommand::Steering(args) => steering(context, args),
        SimulateCommand::Solver(args) => solver(context, args),
        SimulateCommand::Dns(args) => simulate_dns::run(context, args),
    }
}

fn steering(context: &Context, args: &SteeringArgs) -> anyhow::Result<()> {
    let scenarios = match args.scenario.as_str() {
        "all" => Scenario::ALL.to_vec(),
        name => vec![
            name.parse().map_err(|error: sallyport_lab::simulate::ScenarioError| Failure::usage(error.to_string()))?,
        ],
    };
    let impairments = Impairments {
        delay: args.delay,
        loss_percent: args.loss,
        has_reorder: args.reorder,
        has_skew: args.skew,
        has_failover: args.failover,
    };
    let arrivals = if args.even { Arrivals::Even } else { Arrivals::Random };
    let options = |scenario, seed| {
        let (arrivals, impairments) = match args.mixed {
            true => (Arrivals::of_seed(seed), Impairments::of_seed(seed)),
            false => (arrivals, impairments),
        };
        SteeringOptions { scenario, seed, arrivals, impairments, has_baselines: args.seeds.is_none() }
    };
    if let Some(seeds) = &args.seeds {
        let runs = |seed| match (args.mixed, scenarios.as_slice()) {
            (true, [one]) => vec![options(*one, seed)],
            (true, _) => vec![options(Scenario::of_seed(seed), seed)],
            (false, all) => all.iter().map(|scenario| options(*scenario, seed)).collect(),
        };
        return many(context, seeds, runs);
    }
    if args.svg.is_some() && scenarios.len() > 1 {
        return Err(Failure::usage("a drawing shows one scenario: choose one with --scenario").into());
    }
    let reports: Vec<SteeringReport> =
        scenarios.into_iter().map(|scenario| simulate(&options(scenario, args.seed))).collect();
    if let (Some(file), Some(report)) = (&args.svg, reports.first()) {
        write(file, &draw(report))?;
    }
    context.output.data(&reports, |reports| reports.iter().map(show).collect::<Vec<_>>().join("\n\n"))?;
    let missing: Vec<_> = reports.iter().filter(|report| !report.misses.is_empty()).collect();
    match missing.first() {
        None => Ok(()),
        Some(first) => {
            let text = format!("{} of {} scenarios missed a target", missing.len(), reports.len());
            let step = format!("draw it with --scenario {} --seed {} --svg FILE", first.scenario, first.seed);
            Err(Failure::new(Kind::Failed, text).next(step).into())
        }
    }
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let refused = |error| Failure::new(Kind::Failed, format!("cannot write {}: {error}", file.display()));
    std::fs::write(file, text).map_err(refused)
}

/// The summary of many seeds in one scenario.
#[derive(Debug, Default, Serialize)]
struct Summary {
    seeds: u64,
    missed: u64,
    /// The greatest of each figure.
    gap_percent: f64,
    leases_percent: f64,
    peak_percent: f64,
    settled_s: usize,
    reversals: u32,
    overload_seconds: u32,
}

/// A target that a seed missed.
#[derive(Debug, Serialize)]
struct Miss {
    scenario: Scenario,
    seed: u64,
    arrivals: Arrivals,
    impairments: Impairments,
    misses: Vec<String>,
}

impl Miss {
    /// The options that run it again.
    fn options(&self) -> String {
        let Impairments { delay, loss_percent, has_reorder, has_skew, has_failover } = self.impairments;
        let mut text = format!("--scenario {} --seed {}", self.scenario, self.seed);
        if !delay.is_zero() {
            text += &format!(" --delay {}ms", delay.as_millis());
        }
        if loss_percent > 0 {
            text += &format!(" --loss {loss_percent}");
        }
        let is_even = self.arrivals == Arrivals::Even;
        for (has, option) in
            [(has_reorder, "reorder"), (has_skew, "skew"), (has_failover, "failover"), (is_even, "even")]
        {
            if has {
                text += &format!(" --{option}");
            }
        }
        text
    }
}

impl Summary {
    fn add(&mut self, report: &PolicyReport, is_missed: bool) {
        self.seeds += 1;
        self.missed += u64::from(is_missed);
        self.gap_percent = self.gap_percent.max(report.gap_percent.unwrap_or(0.0));
        self.leases_percent = self.leases_percent.max(report.leases_percent.unwrap_or(0.0));
        self.peak_percent = self.peak_percent.max(report.peak_percent);
        self.settled_s = self.settled_s.max(report.settled_s.unwrap_or(0));
        self.reversals = self.reversals.max(report.reversals);
        self.overload_seconds = self.overload_seconds.max(report.overload_seconds);
    }
}

fn many(
    context: &Context,
    seeds: &Range<u64>,
    runs: impl Fn(u64) -> Vec<SteeringOptions> + Sync,
) -> anyhow::Result<()> {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut reports = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return reports;
            }
            for options in runs(seed) {
                let SteeringReport { scenario, policies, misses, arrivals, impairments, .. } = simulate(&options);
                let miss = Miss { scenario, seed, arrivals, impairments, misses };
                let miss = (!miss.misses.is_empty()).then_some(miss);
                reports.extend(policies.into_iter().next().map(|ours| (scenario, seed, ours, miss)));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut reports = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect::<Vec<_>>()
    });
    reports.sort_by_key(|(scenario, seed, ..)| (scenario.name(), *seed));
    let expected = (seeds.end - seeds.start) * runs(seeds.start).len() as u64;
    if reports.len() as u64 != expected {
        return Err(Failure::new(Kind::Failed, "a simulation ended early").into());
    }
    let mut sums = BTreeMap::<&str, Summary>::new();
    let mut misses = Vec::new();
    for (scenario, _, ours, miss) in reports {
        sums.entry(scenario.name()).or_default().add(&ours, miss.is_some());
        misses.extend(miss);
    }
    let count = misses.len();
    let data = json!({ "scenarios": sums, "misses": misses });
    context.output.data(&data, |_| summary(&sums, &misses))?;
    if count == 0 {
        return Ok(());
    }
    Err(Failure::new(Kind::Failed, format!("{count} of {expected} simulations missed a target")).into())
}

fn summary(sums: &BTreeMap<&str, Summary>, misses: &[Miss]) -> String {
    let header = ["SCENARIO", "SEEDS", "MISSED", "REVERSALS", "S ABOVE 105 %", "SETTLED", "PEAK", "GAP", "LEASES"];
    let rows = sums.iter().map(|(scenario, sum)| {
        [
            (*scenario).to_owned(),
            sum.seeds.to_string(),
            sum.missed.to_string(),
            sum.reversals.to_string(),
            sum.overload_seconds.to_string(),
            format!("{} s", sum.settled_s),
            format!("{:.0} %", sum.peak_percent),
            format!("{:.2} %", sum.gap_percent),
            format!("{:.1} %", sum.leases_percent),
        ]
    });
    let mut text = output::table(header, rows);
    for miss in misses.iter().take(MAX_LISTED) {
        text += &format!("\nmissed  {}: {}", miss.options(), miss.misses.join("; "));
    }
    if misses.len() > MAX_LISTED {
        text += &format!("\nmissed  {} more", misses.len() - MAX_LISTED);
    }
    text
}

fn show(report: &SteeringReport) -> String {
    let SteeringReport { scenario, seed, edges, origins, policies, misses, .. } = report;
    let header =
        ["POLICY", "REVERSALS", "S ABOVE 105 %", "SETTLED", "PEAK", "LATENCY", "REFUSED", "AVOIDABLE", "GAP", "LEASES"];
    let percent =
        |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$} %"));
    let rows = policies.iter().map(|row| {
        [
            row.policy.to_owned(),
            row.reversals.to_string(),
            row.overload_seconds.to_string(),
            row.settled_s.map_or("never".to_owned(), |seconds| format!("{seconds} s")),
            percent(Some(row.peak_percent), 0),
            format!("{:.1} ms", row.mean_ms),
            row.refused.to_string(),
            row.avoidable.to_string(),
            percent(row.gap_percent, 2),
            percent(row.leases_percent, 1),
        ]
    });
    let result = if misses.is_empty() { "pass".to_owned() } else { format!("FAIL: {}", misses.join("; ")) };
    format!(
        "{scenario}, seed {seed}, {edges} edges, {origins} origins: {}\n{}\n{result}",
        scenario.about(),
        output::table(header, rows)
    )
}

#[derive(Debug, Serialize)]
struct Solved {
    #[serde(flatten)]
    report: InstanceReport,
    milliseconds: f64,
}

fn solver(context: &Context, args: &SolverArgs) -> anyhow::Result<()> {
    let SolverArgs { edges, origins, load, seed } = *args;
    let options = InstanceOptions { edges, origins, load_percent: load, seed };
    let problem = instance(&options);
    let began = Instant::now();
    let report = solve(&options, &problem).map_err(|error| Failure::new(Kind::Failed, error.to_string()))?;
    let solved = Solved { report, milliseconds: began.elapsed().as_secs_f64() * 1_000.0 };
    context.output.data(&solved, |Solved { report, milliseconds }| {
        output::pairs(&[
            ("problem", format!("{edges} edges, {origins} origins, {load} percent load, seed {seed}")),
            ("time", format!("{milliseconds:.1} ms")),
            ("gap", format!("{:.6} %", report.gap_percent)),
            ("ways in use", report.pairs.to_string()),
            ("not to the nearest", format!("{:.1} %", report.moved_percent)),
            ("refused", format!("{:.1} %", report.shed_percent)),
            ("mean round trip", format!("{:.1} ms", report.mean_ms)),
        ])
    })
}
