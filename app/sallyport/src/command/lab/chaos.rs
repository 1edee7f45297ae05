//! `sallyport lab chaos`: faults at random under load, counted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clap::Args;
use sallyport_lab::{
    Act, ChaosLoad, ChaosReport, ChaosWish, FaultReport, Lab, MAX_CONNECTIONS, Seen, Target, WrkReport,
};

use super::{Which, failure};
use crate::{
    context::Context,
    duration,
    failure::{Failure, Kind},
    output,
};

/// Options of `lab chaos`.
#[derive(Debug, Args)]
pub(crate) struct ChaosArgs {
    /// For how long things are broken, one after the other; what mending takes comes on top
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = duration::parse_positive)]
    time: Duration,
    /// Which faults come: a number, for the same ones again [default: others each time]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Only do these: kill, pause, partition, slow
    #[arg(long, value_name = "ACT", value_delimiter = ',')]
    only: Vec<Act>,
    /// Only to these: edge, control, bus, database, connector, origin, region, link (between two regions)
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    among: Vec<Target>,
    /// By how many connections the client of each region asks
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CONNECTIONS)))]
    connections: u16,
    /// Requests in a second of each client, all connections together
    #[arg(id = "request_rate", long = "rate", value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// How long a request may take, its connection included
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_positive)]
    patience: Duration,
    /// Long transfers of each client, each of a mebibyte a second
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=1_000))]
    transfers: u16,
    /// Besides, wrk at each client with so many connections during each fault, as fast as it goes; it has to be installed
    #[arg(long, value_name = "CONNECTIONS", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    wrk: Option<u16>,
}

/// Does it.
pub(super) async fn run(context: &Context, which: &Which, args: ChaosArgs) -> anyhow::Result<()> {
    let mut random = [0_u8; 4];
    getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("there is no randomness: {error}"))?;
    let wish = ChaosWish {
        time: args.time,
        seed: args.seed.unwrap_or_else(|| u32::from_ne_bytes(random).into()),
        acts: if args.only.is_empty() { Act::ALL.to_vec() } else { args.only },
        targets: if args.among.is_empty() { Target::ALL.to_vec() } else { args.among },
        load: ChaosLoad {
            connections: args.connections,
            rate: args.rate,
            patience: args.patience,
            transfers: args.transfers,
            wrk: args.wrk,
        },
    };
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = stop.clone();
    // What is broken is mended before it ends.
    tokio::spawn(async move {
        drop(tokio::signal::ctrl_c().await);
        stopping.store(true, Ordering::Relaxed);
    });
    let report = tokio::task::block_in_place(|| {
        let mut lab = Lab::open(&which.dir, &which.name).map_err(failure)?;
        context.output.hint(&format!("seed {}: the same faults come again with --seed {}", wish.seed, wish.seed));
        lab.chaos(&wish, &stop, &mut |fault| context.output.hint(&one(fault))).map_err(failure)
    })?;
    context.output.data(&report, show)?;
    if report.is_within {
        return Ok(());
    }
    let told = Failure::new(Kind::Failed, "more failed than may, or not all was as before in the end");
    Err(told.next("the lines marked with ! above; logs are in the laboratory's folder `logs`").into())
}

fn seconds(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1e3)
}

/// What came of a fault, in a line, and what wrk saw and how requests failed in further ones.
fn one(report: &FaultReport) -> String {
    let FaultReport { fault, seen, .. } = report;
    let may = report.may_fail.map_or_else(|| "any number".to_owned(), |may| may.to_string());
    let mark = if report.is_within() { ' ' } else { '!' };
    let by = seen.failed_by.iter().map(|(client, failed)| format!("{client} {failed}")).collect::<Vec<_>>();
    let by = if by.is_empty() { String::new() } else { format!(" ({})", by.join(", ")) };
    let back = |ms: Option<u64>| ms.map_or_else(|| "never".to_owned(), seconds);
    let mut text = format!(
        "{mark} {:>7}  {fault} for {}: {} of {} requests failed{by}, {may} may, the last after {}; longest without an answer {}; \
         {} transfers cut; all answered {}, and all as before {} after it was mended",
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
        let WrkReport { requests, refused, connect, read, write, timeout } = wrk;
        text += &format!(
            "\n             wrk at {client}: {requests} answers, {refused} of them refusals; connect {connect}, read {read}, \
             write {write}, timeout {timeout}"
        );
    }
    text
}

fn show(report: &ChaosReport) -> String {
    let Seen { requests, failed, transfers, transfers_cut, transfer_bytes, longest_gap_ms, .. } = &report.all;
    let outside = report.faults.iter().filter(|fault| !fault.is_within()).count();
    let longest = |of: fn(&FaultReport) -> Option<u64>| report.faults.iter().filter_map(of).max().unwrap_or_default();
    output::pairs(&[
        ("seed", report.seed.to_string()),
        ("faults", format!("{} of {}, {outside} of them outside their bound", report.faults.len(), report.planned)),
        ("requests", requests.to_string()),
        ("failed", format!("{failed}, {} of them while nothing was broken", report.between.failed)),
        ("longest without an answer", seconds(*longest_gap_ms)),
        (
            "all answered",
            format!("{} after a fault was mended at the latest", seconds(longest(|fault| fault.answered_ms))),
        ),
        ("all as before", format!("{} after it at the latest", seconds(longest(|fault| fault.whole_ms)))),
        ("transfers", format!("{transfers}, {transfers_cut} cut off, {:.1} MiB", *transfer_bytes as f64 / 1_048_576.0)),
    ])
}
