//! `sallyport lab simulate dns`: clients on a map ask the name server before and after dials.

use clap::Args;
use sallyport_cli::{
    failure::{Failure, Kind},
    output,
};
use sallyport_lab::simulate::{DnsOptions, DnsReport, MAX_DNS_CLIENTS, simulate_dns};
use sallyport_model::RegionName;

use super::Context;

/// Options of `lab simulate dns`.
#[derive(Debug, Args)]
pub(crate) struct DnsArgs {
    /// How many clients ask, each from a network of its own
    #[arg(
        id = "dns_clients", long = "clients", value_name = "COUNT", default_value_t = 500,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DNS_CLIENTS))
    )]
    clients: u32,
    /// How much of what comes to a region stays there, such as eu=50; the rest goes to the next best region
    #[arg(id = "dns_dial", long = "dial", value_name = "REGION=PERCENT", value_delimiter = ',', value_parser = percent)]
    dials: Vec<(RegionName, u8)>,
    /// What a region with too much load keeps of that, such as eu=80
    #[arg(id = "dns_share", long = "share", value_name = "REGION=PERCENT", value_delimiter = ',', value_parser = percent)]
    shares: Vec<(RegionName, u8)>,
    /// A region without edges
    #[arg(id = "dns_down", long = "down", value_name = "REGION", value_delimiter = ',')]
    down: Vec<RegionName>,
    /// The seed of the places of clients
    #[arg(id = "dns_seed", long = "seed", value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

fn percent(text: &str) -> Result<(RegionName, u8), String> {
    let expected = || "expected REGION=PERCENT, such as eu=50".to_owned();
    let (region, number) = text.split_once('=').ok_or_else(expected)?;
    let number: u8 = number.parse().ok().filter(|number| *number <= 100).ok_or_else(expected)?;
    Ok((region.parse().map_err(|error| format!("{error}"))?, number))
}

/// Runs the command.
pub(super) fn run(context: &Context, args: &DnsArgs) -> anyhow::Result<()> {
    let options = DnsOptions {
        clients: args.clients,
        seed: args.seed,
        dials: args.dials.iter().cloned().collect(),
        shares: args.shares.iter().cloned().collect(),
        down: args.down.iter().cloned().collect(),
    };
    let report = simulate_dns(&options).map_err(|error| Failure::usage(error.to_string()))?;
    context.output.data(&report, show)?;
    match report.misses.first() {
        None => Ok(()),
        Some(first) => {
            Err(Failure::new(Kind::Failed, format!("the answers are not as they should be: {first}")).into())
        }
    }
}

fn show(report: &DnsReport) -> String {
    let header = ["REGION", "KEEPS", "CLIENTS BEFORE", "STAYED", "CLIENTS AFTER"];
    let rows = report.regions.iter().map(|one| {
        [
            one.region.to_string(),
            if one.is_up { format!("{} %", one.keeps_percent) } else { "no edges".to_owned() },
            one.before.to_string(),
            one.stayed.to_string(),
            one.after.to_string(),
        ]
    });
    let mut text = output::table(header, rows);
    for one in &report.moves {
        text += &format!("\nmoved  {} from {} to {}", one.clients, one.from, one.to);
    }
    text += &format!(
        "\n{} queries; mean round trip {:.1} ms before, {:.1} ms after",
        report.queries, report.mean_ms_before, report.mean_ms_after
    );
    let scopes: Vec<_> = report.scopes.iter().map(|(scope, count)| format!("/{scope} {count}")).collect();
    text += &format!("\nanswers by scope: {}", scopes.join(", "));
    report.misses.iter().for_each(|miss| text += &format!("\nFAIL  {miss}"));
    text
}
