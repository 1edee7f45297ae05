//! `sallyport lab load`: steady requests, counted.

use std::{os::unix::process::CommandExt as _, time::Duration};

use clap::Args;
use http::Uri;
use sallyport_cli::{
    duration,
    failure::Failure,
    output::{self, Format},
};
use sallyport_lab::{Lab, LoadOptions, LoadReport, MAX_CONNECTIONS, Tick};

use super::{Context, LabSelector, failure};

/// Options of `lab load`.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// The requested URL [default: that of the socket of the laboratory]
    #[arg(value_name = "URL")]
    url: Option<Uri>,
    /// The node that sends the requests [default: the client of the first region]
    #[arg(long, value_name = "NODE", conflicts_with = "here")]
    from: Option<String>,
    /// The number of connections
    #[arg(
        long, value_name = "COUNT", default_value_t = 8,
        value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CONNECTIONS))
    )]
    connections: u16,
    /// The duration in seconds; Ctrl-C ends it earlier
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// The maximum number of requests
    #[arg(long, value_name = "COUNT")]
    requests: Option<u64>,
    /// Requests per second, all connections together; 0: as many as possible
    #[arg(id = "request_rate", long = "rate", value_name = "COUNT", default_value_t = 200)]
    rate: u32,
    /// How long a request may take, its connection included
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_positive)]
    patience: Duration,
    /// The number of long transfers besides, each of a mebibyte per second, begun again when they are cut off
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=1_000))]
    transfers: u16,
    /// Print the progress some times per second, as lines of JSON, and no report at the end
    #[arg(long, hide = true)]
    ticks: bool,
    /// Send the requests from the node where this command runs
    #[arg(long, hide = true)]
    here: bool,
}

/// Runs the command.
pub(super) async fn run(context: &Context, which: &LabSelector, args: LoadArgs) -> anyhow::Result<()> {
    if !args.here {
        return elsewhere(context, which, &args);
    }
    let url = args.url.ok_or_else(|| Failure::usage("which URL?"))?;
    let ca = context.ca.clone().ok_or_else(|| Failure::usage("which root certificate?").next("add --ca FILE"))?;
    let options = LoadOptions {
        url,
        connections: args.connections,
        time: Duration::from_secs(args.seconds.into()),
        requests: args.requests,
        rate: (args.rate > 0).then_some(args.rate),
        timeout: args.patience,
        transfers: args.transfers,
        ca,
    };
    // Ctrl-C ends the load early; its report is printed.
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    let tell = |tick: &Tick| !args.ticks || output::json_line(tick).is_ok();
    let report = sallyport_lab::run_load(options, tell, stop).await.map_err(failure)?;
    if args.ticks {
        return Ok(());
    }
    context.output.data(&report, show)
}

/// Runs this command on the node in place of this process.
fn elsewhere(context: &Context, which: &LabSelector, args: &LoadArgs) -> anyhow::Result<()> {
    let lab = Lab::look(&which.dir, &which.name).map_err(failure)?;
    let first = lab.plan.client(0).map(|node| node.name.clone()).unwrap_or_default();
    let from = args.from.as_deref().unwrap_or(&first);
    let program = lab.state.programs.lab.display().to_string();
    let mut command = lab.command_on(from, &program).map_err(failure)?;
    let url = args.url.as_ref().map_or_else(|| format!("https://{}/", lab.secrets.host), ToString::to_string);
    command.args(["load", "--here", &url, "--connections", &args.connections.to_string()]);
    command.args(["--seconds", &args.seconds.to_string(), "--rate", &args.rate.to_string()]);
    command.args(["--patience", &format!("{}ms", args.patience.as_millis())]);
    command.args(["--transfers", &args.transfers.to_string()]);
    if let Some(requests) = args.requests {
        command.args(["--requests", &requests.to_string()]);
    }
    match context.output.format {
        Format::Table => {}
        Format::Json => drop(command.args(["-o", "json"])),
        Format::Yaml => drop(command.args(["-o", "yaml"])),
    }
    Err(anyhow::Error::new(command.exec()).context("cannot run ip"))
}

fn show(report: &LoadReport) -> String {
    let ms = |us: u64| format!("{:.1} ms", us as f64 / 1e3);
    let counts = |pairs: Vec<(String, u64)>| {
        pairs.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    let mut rows = vec![
        ("requests", report.requests.to_string()),
        ("failed", report.failed().to_string()),
        ("unreachable", report.unreachable.to_string()),
        ("cut off", report.cut.to_string()),
        ("too late", report.late.to_string()),
        ("refused", counts(report.refused.iter().map(|(status, count)| (format!("{status}:"), *count)).collect())),
        ("answered by", counts(report.by_origin.iter().map(|(name, count)| (name.clone(), *count)).collect())),
        ("connections", report.connections.to_string()),
        ("median, p99", format!("{}, {}", ms(report.median_us), ms(report.p99_us))),
        ("longest without a response", format!("{} ms", report.longest_gap_ms)),
        ("first to last failure", format!("{} ms", report.failing_ms)),
    ];
    if report.transfers > 0 {
        let mebibytes = report.transfer_bytes as f64 / 1_048_576.0;
        rows.push(("transfers", format!("{}, {} cut off, {mebibytes:.1} MiB", report.transfers, report.transfers_cut)));
    }
    rows.extend(report.told.iter().map(|words| ("failure", words.clone())));
    output::pairs(&rows)
}
