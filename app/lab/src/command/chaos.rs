//! `sallyport lab chaos`: faults at random under load, counted.

use std::{sync::Arc, time::Duration};

use clap::Args;
use sallyport_cli::{
    duration,
    failure::{Failure, Kind},
    output,
    signals::Signals,
};
use sallyport_lab::{
    Act, ChaosLoad, ChaosOptions, ChaosReport, ClientFigures, FaultReport, Lab, MAX_CHAOS_TIME, MAX_CONNECTIONS, Stop,
    Target, WrkReport,
};

use super::{Context, LabSelector, failure};

/// Options of `lab chaos`.
#[derive(Debug, Args)]
pub(crate) struct ChaosArgs {
    /// The total length of the faults, at most 12h; the time of the repairs is added
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = some_time)]
    time: Duration,
    /// The seed of the faults: a number, which repeats them in a laboratory of the same kind [default: a random one]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Only these faults: kill, pause, partition, slow
    #[arg(long, value_name = "ACT", value_delimiter = ',')]
    only: Vec<Act>,
    /// Only these targets: edge, control, bus, database, connector, origin, region, link (between two regions)
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    among: Vec<Target>,
    /// The number of connections of the client of each region
    #[arg(
        long, value_name = "COUNT", default_value_t = 8,
        value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CONNECTIONS))
    )]
    connections: u16,
    /// Requests per second of each client, all connections together
    #[arg(
        id = "request_rate", long = "rate", value_name = "COUNT", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    rate: u32,
    /// How long a request may take, its connection included
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_positive)]
    patience: Duration,
    /// Long transfers of each client, each of a mebibyte a second
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=1_000))]
    transfers: u16,
    /// Run wrk too at each client during each fault, with so many connections, as fast as possible; wrk must be
    /// installed
    #[arg(long, value_name = "CONNECTIONS", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    wrk: Option<u16>,
}

fn some_time(text: &str) -> Result<Duration, String> {
    let time = duration::parse_positive(text)?;
    (time <= MAX_CHAOS_TIME).then_some(time).ok_or_else(|| "expected 12h at the most".to_owned())
}

/// Runs the command.
pub(super) async fn run(context: &Context, which: &LabSelector, args: ChaosArgs) -> anyhow::Result<()> {
    let mut random = [0_u8; 4];
    getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("there is no randomness: {error}"))?;
    let options = ChaosOptions {
        time: args.time,
        seed: args.seed.unwrap_or_else(|| u32::from_ne_bytes(random).into()),
        acts: if args.only.is_empty() { Act::ALL.to_vec() } else { args.only },
        targets: if args.among.is_empty() { Target::ALL.to_vec() } else { args.among },
        load: ChaosLoad {
            connections: args.connections,
            rate: args.rate,
            timeout: args.patience,
            transfers: args.transfers,
            wrk: args.wrk,
        },
    };
    let stop = Arc::new(Stop::default());
    let (stopping, output) = (stop.clone(), context.output);
    let mut signals = Signals::take()?;
    tokio::spawn(async move {
        signals.next().await;
        stopping.ask();
        output.hint("ending after the repair of the present fault; press Ctrl-C again to end at once");
        signals.next().await;
        stopping.ask();
    });
    let report = tokio::task::block_in_place(|| {
        let mut lab = Lab::open(&which.dir, &which.name).map_err(failure)?;
        let again = "with the same --for, --only and --among, in such a laboratory";
        output
            .hint(&format!("seed {}: the same faults come again with --seed {}, {again}", options.seed, options.seed));
        lab.chaos(&options, &stop, &mut |fault| output.hint(&one(fault))).map_err(failure)
    })?;
    output.data(&report, show)?;
    why_not(&report).map_or(Ok(()), |failure| Err(failure.into()))
}

/// The failure for a run that was not within its bounds.
fn why_not(report: &ChaosReport) -> Option<Failure> {
    if report.is_within {
        return None;
    }
    let logs = "logs are in the laboratory's folder `logs`";
    let failed = |text: String, step: String| Some(Failure::new(Kind::Failed, text).next(step));
    if let Some(why) = &report.broken_off {
        return failed(
            format!("it was broken off: {why}"),
            format!("`sallyport lab status` shows what is there; {logs}"),
        );
    }
    if report.faults.iter().any(|fault| !fault.is_within()) {
        let text = "more failed than may, or not all was as before in the end";
        return failed(text.to_owned(), format!("the lines marked with ! above; {logs}"));
    }
    failed(format!("{} requests failed while nothing was broken", report.between.failed), logs.to_owned())
}

fn seconds(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1e3)
}

/// The report of a fault: a line, and further ones for wrk and for failures.
fn one(report: &FaultReport) -> String {
    let FaultReport { fault, seen, .. } = report;
    let may = report.may_fail.map_or_else(|| "any number".to_owned(), |may| may.to_string());
    let mark = if report.is_within() { ' ' } else { '!' };
    let by = seen.failed_by.iter().map(|(client, failed)| format!("{client} {failed}")).collect::<Vec<_>>();
    let by = if by.is_empty() { String::new() } else { format!(" ({})", by.join(", ")) };
    let back = |ms: Option<u64>| ms.map_or_else(|| "never".to_owned(), seconds);
    let mut text = format!(
        "{mark} {:>7}  {fault} for {}: {} of {} requests failed{by}, {may} may, the last after {}; longest time \
         without a response {}; {} transfers cut; all requests served {}, and all as before {} after the repair",
        seconds(report.at_ms),
        seconds(fault.lasts_ms),
        seen.failed,
        seen.requests,
        seconds(report.failing_ms),
        seconds(seen.longest_gap_ms),
        seen.transfers_cut,
        back(report.answered_ms),
        back(report.whole_ms),
    );
    for why in &seen.told {
        text += &format!("\n             {why}");
    }
    for (client, wrk) in &report.wrk {
        let WrkReport { requests, refused, connect, read, write, timeout, instead } = wrk;
        if let Some(why) = instead {
            text += &format!("\n             wrk at {client}: {why}");
            continue;
        }
        text += &format!(
            "\n             wrk at {client}: {requests} responses, {refused} of them refusals; connect {connect}, read \
             {read}, write {write}, timeout {timeout}"
        );
    }
    text
}

fn show(report: &ChaosReport) -> String {
    let ClientFigures { requests, failed, transfers, transfers_cut, transfer_bytes, longest_gap_ms, .. } = &report.all;
    let outside = report.faults.iter().filter(|fault| !fault.is_within()).count();
    let faults = if report.faults.is_empty() {
        format!("0 of {}: nothing was broken", report.planned)
    } else {
        format!("{} of {}, {outside} of them outside their bound", report.faults.len(), report.planned)
    };
    let longest = |of: fn(&FaultReport) -> Option<u64>| {
        let longest = report.faults.iter().filter_map(of).max();
        longest.map_or_else(|| "-".to_owned(), |ms| format!("{} after a repair at the latest", seconds(ms)))
    };
    output::pairs(&[
        ("seed", report.seed.to_string()),
        ("faults", faults),
        ("requests", requests.to_string()),
        ("failed", format!("{failed}, {} of them while nothing was broken", report.between.failed)),
        ("longest without a response", seconds(*longest_gap_ms)),
        ("all served", longest(|fault| fault.answered_ms)),
        ("all as before", longest(|fault| fault.whole_ms)),
        ("transfers", format!("{transfers}, {transfers_cut} cut off, {:.1} MiB", *transfer_bytes as f64 / 1_048_576.0)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_run_reports_the_reason() {
        let mut report = ChaosReport {
            seed: 7,
            planned: 3,
            faults: Vec::new(),
            between: ClientFigures { failed: 2, ..ClientFigures::default() },
            all: ClientFigures::default(),
            is_within: true,
            broken_off: None,
        };
        assert!(show(&report).contains("0 of 3: nothing was broken"), "{}", show(&report));
        assert!(why_not(&report).is_none());
        report.is_within = false;
        let failed = |report: &ChaosReport| why_not(report).unwrap().message;
        assert_eq!(failed(&report), "2 requests failed while nothing was broken");
        report.broken_off = Some("the load of eu-client has ended".into());
        assert_eq!(failed(&report), "it was broken off: the load of eu-client has ended");
    }
}
