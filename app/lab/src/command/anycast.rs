//! `sallyport lab anycast`: where clients land, and what becomes of them when edges come and go.

use std::{net::IpAddr, time::Duration};

use clap::{Args, Subcommand};
use http::Uri;
use sallyport_cli::{duration, failure::Failure, output};
use sallyport_lab::{AskOptions, Asked, Drill, DrillReport, GrowReport, Lab, Landing, MAX_ASK_RATE, MAX_CONNECTIONS};

use super::{Context, LabSelector, failure};

/// What can be done with an anycast laboratory.
#[derive(Debug, Subcommand)]
pub(crate) enum AnycastCommand {
    /// Show at which site each client network lands, by requests over IPv4 and IPv6
    Status,
    /// Add edges to a site while its clients hold connections, and count those that break
    Grow(GrowArgs),
    /// Take an edge away while clients of its site send new requests, count the lost ones, and bring the edge back
    Drill(DrillArgs),
    /// The requests, from the node where this command runs
    #[command(hide = true)]
    Ask(AskArgs),
}

/// Options of `lab anycast grow`.
#[derive(Debug, Args)]
pub(crate) struct GrowArgs {
    /// The site, such as london
    #[arg(value_name = "SITE")]
    site: String,
    /// How many edges it has afterwards
    #[arg(value_name = "COUNT")]
    edges: u8,
    /// How many connections are open meanwhile
    #[arg(
        long, value_name = "COUNT", default_value_t = 200,
        value_parser = clap::value_parser!(u16).range(2..=i64::from(MAX_CONNECTIONS))
    )]
    flows: u16,
}

/// Options of `lab anycast drill`.
#[derive(Debug, Args)]
pub(crate) struct DrillArgs {
    /// withdraw: an operator drains the edge; kill: its processes end; silent: it says and hears nothing any more
    #[arg(value_name = "DRILL")]
    drill: Drill,
    /// The edge, such as london-1
    #[arg(value_name = "EDGE")]
    edge: String,
    /// New requests per second over IPv4, and as many over IPv6
    #[arg(
        id = "request_rate", long = "rate", value_name = "COUNT", default_value_t = 40,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ASK_RATE))
    )]
    rate: u32,
    /// How long a request may take; less than the second after which the kernel sends a SYN again (RFC 6298) counts
    /// each lost SYN
    #[arg(long, value_name = "TIME", default_value = "900ms", value_parser = duration::parse_positive)]
    patience: Duration,
}

/// Options of `lab anycast ask`.
#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    url: Uri,
    #[arg(long)]
    address: IpAddr,
    #[arg(id = "request_rate", long = "rate")]
    rate: u32,
    #[arg(long, value_parser = duration::parse)]
    time: Duration,
    #[arg(long)]
    requests: Option<u64>,
    #[arg(long, value_parser = duration::parse_positive)]
    patience: Duration,
    #[arg(long, default_value_t = 0)]
    flows: u16,
}

/// Runs the command.
pub(super) async fn run(context: &Context, which: &LabSelector, command: AnycastCommand) -> anyhow::Result<()> {
    if let AnycastCommand::Ask(args) = command {
        let ca = context.ca.clone().ok_or_else(|| Failure::usage("which root certificate?").next("add --ca FILE"))?;
        let AskArgs { url, address, rate, time, requests, patience, flows } = args;
        let options = AskOptions { url, address, rate, time, requests, patience, flows, ca };
        // Ctrl-C ends the requests early; their report is printed.
        let stop = async { drop(tokio::signal::ctrl_c().await) };
        let asked = sallyport_lab::run_ask(options, stop).await.map_err(failure)?;
        return context.output.data(&asked, |asked| format!("{asked:?}"));
    }
    tokio::task::block_in_place(|| match command {
        AnycastCommand::Status => {
            let landings = Lab::look(&which.dir, &which.name).and_then(|lab| lab.landings()).map_err(failure)?;
            context.output.list(&landings, "no clients", |_| landed(&landings))
        }
        AnycastCommand::Grow(args) => {
            let mut lab = Lab::open(&which.dir, &which.name).map_err(failure)?;
            let report = lab.grow(&args.site, args.edges, args.flows).map_err(failure)?;
            context.output.data(&report, grown)
        }
        AnycastCommand::Drill(args) => {
            let mut lab = Lab::open(&which.dir, &which.name).map_err(failure)?;
            let report = lab.drill(args.drill, &args.edge, args.rate, args.patience).map_err(failure)?;
            context.output.data(&report, drilled)
        }
        AnycastCommand::Ask(_) => Ok(()),
    })
}

fn ms(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1e3)
}

fn landed(landings: &[Landing]) -> String {
    let rows = landings.iter().map(|landing| {
        let sites = landing.by_site.iter();
        let mut sites: Vec<_> = match landing.by_site.len() {
            1 => sites.map(|(site, _)| site.clone()).collect(),
            _ => sites.map(|(site, count)| format!("{site} {count}")).collect(),
        };
        if landing.failed > 0 {
            sites.push(format!("{} failed", landing.failed));
        }
        let path: Vec<_> = landing.path.iter().map(u32::to_string).collect();
        [
            landing.clients.clone(),
            format!("AS{}", landing.asn),
            landing.family.to_string(),
            sites.join(", "),
            ms(landing.median_us),
            path.join(" "),
        ]
    });
    output::table(["CLIENTS", "NETWORK", "FAMILY", "SITE", "REQUEST", "PATH"], rows)
}

fn grown(report: &GrowReport) -> String {
    let percent = report.broken as f64 * 100.0 / report.flows.max(1) as f64;
    format!(
        "{}: {} to {} edges\n{} connections, {} broke ({percent:.1} %); the least that can move is {:.1} %",
        report.site, report.before, report.after, report.flows, report.broken, report.ideal_percent
    )
}

fn drilled(report: &DrillReport) -> String {
    let rows =
        report.asked.iter().map(|(family, Asked { requests, failed, again, failing_ms, longest_gap_ms, .. })| {
            [
                family.to_string(),
                requests.to_string(),
                failed.to_string(),
                again.to_string(),
                format!("{failing_ms} ms"),
                format!("{longest_gap_ms} ms"),
            ]
        });
    let heads = ["FAMILY", "REQUESTS", "FAILED", "SENT AGAIN", "FIRST TO LAST FAILURE", "LONGEST WITHOUT A RESPONSE"];
    let mut text =
        format!("{} {}, asked from {}\n\n", report.drill, report.edge, report.clients) + &output::table(heads, rows);
    for why in report.asked.iter().flat_map(|(_, asked)| &asked.told) {
        text += &format!("\nfailure  {why}");
    }
    text
}
