//! `sallyport catchment measure`: pings from an anycast address, and questions which server answers.

use std::{
    io::{IsTerminal as _, Write as _},
    net::IpAddr,
    path::PathBuf,
    time::Duration,
};

use clap::{ArgGroup, Args};
use sallyport_api::{
    ImportCatchment, MAX_MEASUREMENT_RATE, Measurement, MeasurementState, MeasuringEdge, StartMeasurement,
};
use sallyport_catchment::Prefix;
use sallyport_client::ApiClient;

use super::{
    chaos,
    import::lines,
    sites::{SiteArgs, send_in_parts},
};
use crate::{
    context::Context,
    failure::{Failure, Kind},
    output::{self, Output},
    view::{
        columns::{self, Column},
        utc,
    },
};

/// How often the measurement is asked how far it is.
const POLL: Duration = Duration::from_millis(500);
/// The most bytes of a file of addresses.
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;

/// Options of `catchment measure`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("how").required(true))]
pub(crate) struct MeasureArgs {
    /// Ping networks from this anycast address: replies come to where routing leads them
    #[arg(long, value_name = "ADDRESS", group = "how")]
    address: Option<IpAddr>,
    /// Ask these servers or resolvers, from here, which server answers (id.server CH TXT)
    #[arg(long, value_name = "ADDRESS", group = "how", num_args = 1..=64)]
    chaos: Vec<chaos::Server>,
    /// The edge that sends the pings [default: the first that has the address]
    #[arg(long, value_name = "EDGE", conflicts_with = "chaos")]
    from: Option<String>,
    /// A file with addresses to ping, one of each network; kept for later measurements [default: networks of clients]
    #[arg(long, value_name = "FILE", conflicts_with = "chaos")]
    targets: Option<PathBuf>,
    /// A file with networks that want no pings; kept for later measurements
    #[arg(long, value_name = "FILE", conflicts_with = "chaos")]
    opt_out: Option<PathBuf>,
    /// The most pings a second, of each edge
    #[arg(long, value_name = "COUNT", default_value_t = 500, conflicts_with = "chaos")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_MEASUREMENT_RATE)))]
    rate: u32,
    /// Do not measure the round trip of each edge to the networks
    #[arg(long, conflicts_with = "chaos")]
    landings_only: bool,
    /// Do not wait for the end
    #[arg(long, conflicts_with = "chaos")]
    no_wait: bool,
    /// The network that asks [default: the one of this machine's address]
    #[arg(long, value_name = "NETWORK", requires = "chaos", value_parser = network)]
    network: Option<Prefix>,
    #[command(flatten)]
    sites: SiteArgs,
}

fn network(text: &str) -> Result<Prefix, String> {
    let of_address = |_| text.parse().map(Prefix::of);
    text.parse().or_else(of_address).map_err(|_| "expected ADDRESS/24, ADDRESS/48, or an address".to_owned())
}

/// Runs the command.
pub(super) async fn run(context: &Context, client: &ApiClient, args: MeasureArgs) -> anyhow::Result<()> {
    let Some(address) = args.address else {
        let names = args.sites.names(client).await?;
        return chaos::run(context, client, &args.chaos, args.network, &names).await;
    };
    if let Some(file) = &args.opt_out {
        let networks = lines(file, MAX_LIST_BYTES)?;
        let put =
            |opt_outs, replaces_opt_outs| ImportCatchment { opt_outs, replaces_opt_outs, ..ImportCatchment::default() };
        if networks.is_empty() {
            client.import_catchment(&put(Vec::new(), true)).await?;
        }
        send_in_parts(client, &networks, put).await?;
    }
    if let Some(file) = &args.targets {
        let targets = lines(file, MAX_LIST_BYTES)?;
        let put =
            |targets, replaces_targets| ImportCatchment { targets, replaces_targets, ..ImportCatchment::default() };
        if targets.is_empty() {
            client.import_catchment(&put(Vec::new(), true)).await?;
        }
        send_in_parts(client, &targets, put).await?;
    }
    let start = StartMeasurement {
        address: address.to_string(),
        from: args.from,
        rate: Some(args.rate),
        wait_seconds: None,
        landings_only: args.landings_only,
    };
    let mut measurement = client.start_measurement(&start).await?;
    if !args.no_wait {
        while measurement.state == MeasurementState::Running {
            show_progress(&measurement);
            tokio::time::sleep(POLL).await;
            let known = client.measurements().await?.items;
            let Some(found) = known.into_iter().find(|one| one.id == measurement.id) else { break };
            measurement = found;
        }
        clear_progress();
    }
    if measurement.state == MeasurementState::Failed {
        let why = measurement.why.as_deref().unwrap_or("the measurement failed");
        return Err(Failure::new(Kind::Refused, output::safe(why)).into());
    }
    context.output.data(&measurement, |measurement| shown(&context.output, measurement))
}

/// Lists the last measurements.
pub(super) async fn list(context: &Context, client: &ApiClient) -> anyhow::Result<()> {
    let page = client.measurements().await?;
    let table = |items: &Vec<Measurement>| {
        columns::table(
            &context.output,
            [
                Column::Plain("STARTED"),
                Column::Plain("ADDRESS"),
                Column::Plain("STATE"),
                Column::Plain("NETWORKS"),
                Column::Plain("LANDED"),
                Column::Plain("SPLIT"),
                Column::Wide("FROM"),
                Column::Wide("WHY"),
                Column::Wide("ID"),
            ],
            items.iter().map(|one| {
                [
                    utc(one.started_at),
                    one.address.clone(),
                    state(one.state).to_owned(),
                    one.targets.to_string(),
                    one.landed.to_string(),
                    one.split.to_string(),
                    one.from.clone().unwrap_or_default(),
                    one.why.clone().unwrap_or_default(),
                    one.id.clone(),
                ]
            }),
        )
    };
    context.output.list(&page.items, "no measurements yet", |items| table(&items.to_vec()))
}

fn state(state: MeasurementState) -> &'static str {
    match state {
        MeasurementState::Running => "running",
        MeasurementState::Done => "done",
        MeasurementState::Failed => "failed",
    }
}

fn shown(output: &Output, measurement: &Measurement) -> String {
    let Measurement { targets, landed, split, opted_out, .. } = measurement;
    let mut text = format!("{landed} of {targets} networks have replied");
    if *split > 0 {
        text.push_str(&format!(", {split} to several sites"));
    }
    if *opted_out > 0 {
        text.push_str(&format!("; {opted_out} want no pings"));
    }
    text.push_str("\n\n");
    text.push_str(&table(output, &measurement.edges));
    text
}

fn table(output: &Output, edges: &[MeasuringEdge]) -> String {
    columns::table(
        output,
        [
            Column::Cut("EDGE"),
            Column::Cut("SITE"),
            Column::Plain("LANDED"),
            Column::Plain("TIMED"),
            Column::Plain("SENT"),
            Column::Plain("FORGED"),
            Column::Cut("WHY"),
            Column::Wide("UNSENT"),
            Column::Wide("REFUSED"),
            Column::Wide("DUPLICATES"),
        ],
        edges.iter().map(|one| {
            [
                one.edge.clone(),
                one.site.clone(),
                one.landed.to_string(),
                one.timed.to_string(),
                one.sent.to_string(),
                one.forged.to_string(),
                why(one),
                one.unsent.to_string(),
                one.refused.to_string(),
                one.duplicates.to_string(),
            ]
        }),
    )
}

fn why(edge: &MeasuringEdge) -> String {
    match (&edge.why, edge.refused) {
        (Some(why), _) => why.clone(),
        (None, 0) => String::new(),
        (None, refused) => format!("{refused} private addresses: --measure-private of the edge allows them"),
    }
}

fn show_progress(measurement: &Measurement) {
    if std::io::stderr().is_terminal() {
        let sent: u64 = measurement.edges.iter().map(|edge| edge.sent).sum();
        let mut errors = std::io::stderr().lock();
        let text = format!("\r\x1b[K{sent} of {} pings sent, {} replies", measurement.targets, measurement.landed);
        let _ = errors.write_all(text.as_bytes()).and_then(|()| errors.flush());
    }
}

fn clear_progress() {
    if std::io::stderr().is_terminal() {
        let mut errors = std::io::stderr().lock();
        let _ = errors.write_all(b"\r\x1b[K").and_then(|()| errors.flush());
    }
}
