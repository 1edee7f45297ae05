//! `sallyport lab capacity`: figures of a laboratory that runs.

use std::time::Duration;

use clap::Subcommand;
use sallyport_cli::output;
use sallyport_lab::{ByProcess, DirectoryFigures, Lab, LoadFigures, MAX_CONNECTIONS, MAX_TUNNELS, TunnelFigures};

use super::{Context, LabSelector, failure};

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum CapacityCommand {
    /// Measure how soon all edges know that a tunnel was opened, and that it was closed
    Directory {
        /// The number of rounds
        #[arg(
            long, value_name = "COUNT", default_value_t = 100,
            value_parser = clap::value_parser!(u32).range(1..=10_000)
        )]
        rounds: u32,
    },
    /// Measure the cost of many tunnels, and how soon all are known again after an edge was killed
    Tunnels {
        /// The number of tunnels, spread over the regions
        #[arg(
            long, value_name = "COUNT", default_value_t = 1_500,
            value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_TUNNELS))
        )]
        count: u32,
    },
    /// Measure the cost of requests at a fixed rate
    Requests {
        /// Requests per second; 0: as many as possible
        #[arg(id = "request_rate", long = "rate", value_name = "COUNT", default_value_t = 500)]
        rate: u32,
        /// The duration in seconds
        #[arg(
            long, value_name = "COUNT", default_value_t = 20,
            value_parser = clap::value_parser!(u32).range(2..=3_600)
        )]
        seconds: u32,
    },
    /// Measure the cost of connections that clients keep open
    Connections {
        /// The number of connections
        #[arg(
            long, value_name = "COUNT", default_value_t = 1_000,
            value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CONNECTIONS))
        )]
        count: u16,
    },
}

/// Runs the command.
pub(super) fn run(context: &Context, which: &LabSelector, command: &CapacityCommand) -> anyhow::Result<()> {
    let mut lab = Lab::open(&which.dir, &which.name).map_err(failure)?;
    let mut tell = |what: &str| context.output.hint(what);
    match command {
        CapacityCommand::Directory { rounds } => {
            let figures = lab.measure_directory(*rounds, &mut tell).map_err(failure)?;
            context.output.data(&figures, directory)
        }
        CapacityCommand::Tunnels { count } => {
            let figures = lab.measure_tunnels(*count, &mut tell).map_err(failure)?;
            context.output.data(&figures, tunnels)
        }
        CapacityCommand::Requests { rate, seconds } => {
            let args = ["--rate".to_owned(), rate.to_string(), "--connections".into(), "16".into()];
            let figures = lab.measure_load(&args, Duration::from_secs((*seconds).into())).map_err(failure)?;
            context.output.data(&figures, |figures| load(figures, figures.report.requests, "request"))
        }
        CapacityCommand::Connections { count } => {
            // Each sends a request every ten seconds, so the connections are open and idle.
            let (rate, connections) = (u64::from(*count).div_ceil(10), u64::from(*count));
            let args = ["--rate".to_owned(), rate.to_string(), "--connections".into(), connections.to_string()];
            let figures = lab.measure_load(&args, Duration::from_secs(30)).map_err(failure)?;
            context.output.data(&figures, |figures| load(figures, connections, "connection"))
        }
    }
}

fn ms(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1e3)
}

fn directory(figures: &DirectoryFigures) -> String {
    output::table(
        ["KNOWN AT ALL EDGES", "ROUNDS", "MEDIAN", "P99", "LONGEST"],
        [("a tunnel has come", &figures.up), ("a tunnel has gone", &figures.down)].map(|(what, soon)| {
            [what.to_owned(), soon.rounds.to_string(), ms(soon.median_us), ms(soon.p99_us), ms(soon.most_us)]
        }),
    )
}

/// A row for each process that used something.
fn processes(taken: &ByProcess, each: f64, of: &str) -> String {
    let rows = taken.iter().map(|(name, taken)| {
        [
            name.clone(),
            format!("{:.1} MiB", taken.memory_bytes as f64 / 1_048_576.0),
            format!("{:.1} KiB", taken.memory_bytes as f64 / 1_024.0 / each),
            format!("{:.2} s", taken.cpu_us as f64 / 1e6),
            format!("{:.0} us", taken.cpu_us as f64 / each),
        ]
    });
    let (memory, cpu) = (format!("FOR EACH {of}"), format!("FOR EACH {of} "));
    output::table(["PROCESS", "MEMORY", &memory.to_uppercase(), "CPU", &cpu.to_uppercase()], rows)
}

fn tunnels(figures: &TunnelFigures) -> String {
    let each = f64::from(figures.tunnels);
    format!(
        "{} tunnels, known at all edges after {}\n\n{}\n\nat rest, in {}\n\n{}\n\n{} killed: the others knew of {} in \
         the least, and of all again after {}; {} were held by edges before, and again after {}",
        figures.tunnels,
        ms(figures.until_known_ms * 1_000),
        processes(&figures.coming, each, "tunnel"),
        ms(figures.rest_ms * 1_000),
        processes(&figures.rest, each, "tunnel"),
        figures.killed,
        figures.least_known,
        ms(figures.until_back_ms * 1_000),
        figures.holds,
        ms(figures.until_held_ms * 1_000),
    )
}

fn load(figures: &LoadFigures, count: u64, of: &str) -> String {
    format!(
        "{} requests, {} failed, median {}, p99 {}\n\n{}",
        figures.report.requests,
        figures.report.failed(),
        ms(figures.report.median_us),
        ms(figures.report.p99_us),
        processes(&figures.taken, count.max(1) as f64, of),
    )
}
