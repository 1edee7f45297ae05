//! `sallyport flow`: the connections that run now, and what ended lately.

use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{EndedFlow, EndedFlowQuery, Flow, SilentEdge};
use sallyport_client::{ApiClient, SocketRef};
use serde_json::json;
use time::OffsetDateTime;

use crate::{
    command::socket::stats::ms,
    context::{Context, candidates},
    failure,
    output::{self, Format, Output},
    view::columns::{self, Column},
};

/// How often new entries are requested.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// What can be done with flows.
#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// List the open connections, flows of datagrams and WebSockets, with their clients
    #[command(alias = "list")]
    Ls,
    /// Cut an open connection or flow
    Kill(KillArgs),
    /// List the flows and requests that ended recently
    Log(LogArgs),
}

/// Options of `flow kill`.
#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// The id of the flow, as `flow ls` shows it
    #[arg(value_name = "ID")]
    id: String,
}

/// Options of `flow log`.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Only flows of this socket: its name, id or DNS name
    #[arg(long, value_name = "NAME")]
    #[arg(add = ArgValueCompleter::new(candidates::sockets))]
    socket: Option<SocketRef>,
    /// The number of flows, newest first
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
    /// Show flows that end from now on, until this command is stopped
    #[arg(long, short)]
    follow: bool,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: FlowCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        FlowCommand::Ls => {
            let (mut flows, silent) = client.flows().await?;
            flows.sort_by_key(|flow| flow.began);
            print_silent(&silent);
            context
                .output
                .list(&flows, "nothing runs now", |flows| list(&context.output, flows, OffsetDateTime::now_utc()))
        }
        FlowCommand::Kill(KillArgs { id }) => {
            client.kill_flow(&id).await.map_err(|error| failure::about(error, &id))?;
            context.output.data(&json!({ "killed": id }), |_| format!("cut {id}"))?;
            context
                .output
                .hint("the client may connect again: to keep it out, end its login, or change the access rules");
            Ok(())
        }
        FlowCommand::Log(args) => log(context, &client, args).await,
    }
}

async fn log(context: &Context, client: &ApiClient, args: LogArgs) -> anyhow::Result<()> {
    let socket = args.socket.map(|socket| socket.to_string());
    let mut query = EndedFlowQuery { socket: socket.clone(), limit: Some(args.limit), after: None };
    let about = |error| match &socket {
        Some(socket) => failure::about(error, socket),
        None => error.into(),
    };
    let mut page = client.ended_flows(&query).await.map_err(about)?;
    print_silent(&page.silent);
    if !args.follow {
        let empty = "nothing has ended lately, as far as the edges remember";
        return context
            .output
            .list(&page.items, empty, |ended| columns::table(&context.output, LOG_COLUMNS, ended.iter().map(log_row)));
    }
    loop {
        for ended in &page.items {
            let text = match context.output.format {
                Format::Table => log_row(ended).map(|cell| output::safe(&cell).into_owned()).join("  "),
                Format::Json | Format::Yaml => serde_json::to_string(ended)?,
            };
            output::line(&text)?;
        }
        tokio::time::sleep(FOLLOW_EVERY).await;
        query.after = Some(page.next);
        query.limit = None;
        page = client.ended_flows(&query).await.map_err(about)?;
    }
}

const LOG_COLUMNS: [Column; 9] = [
    Column::Plain("ENDED"),
    Column::Cut("SOCKET"),
    Column::Cut("WHAT"),
    Column::Cut("VERDICT"),
    Column::Plain("TOOK"),
    Column::Wide("IN"),
    Column::Plain("OUT"),
    Column::Wide("EDGE"),
    Column::Cut("WHO"),
];

fn log_row(ended: &EndedFlow) -> [String; 9] {
    let none = || "-".to_owned();
    let what = match (&ended.method, &ended.path, ended.status) {
        (Some(method), Some(path), Some(status)) => format!("{status} {method} {path}"),
        _ => ended.transport.clone(),
    };
    let who = ended.identity.clone().or_else(|| ended.client.map(|client| client.to_string()));
    [
        clock(ended.ended),
        ended.socket_name.clone(),
        what,
        ended.verdict.clone(),
        ms(ended.duration_ms),
        ended.bytes_in.to_string(),
        ended.bytes_out.to_string(),
        ended.edge.as_ref().map_or_else(none, ToString::to_string),
        who.unwrap_or_else(none),
    ]
}

/// The time of day, to the second (UTC).
fn clock(at: OffsetDateTime) -> String {
    let (hour, minute, second) = at.to_offset(time::UtcOffset::UTC).to_hms();
    format!("{hour:02}:{minute:02}:{second:02}")
}

/// Lists the edges that did not answer, on the standard error.
pub(super) fn print_silent(silent: &[SilentEdge]) {
    for one in silent {
        output::note(&format!("{} did not respond ({}): its flows are missing here", one.edge, output::safe(&one.why)));
    }
}

fn list(output: &Output, flows: &[Flow], now: OffsetDateTime) -> String {
    let columns = [
        Column::Plain("ID"),
        Column::Cut("WHO"),
        Column::Cut("SOCKET"),
        Column::Plain("TYPE"),
        Column::Wide("EDGE"),
        Column::Plain("FROM"),
        Column::Wide("ORIGIN"),
        Column::Plain("AGE"),
        Column::Plain("BYTES"),
    ];
    let rows = flows.iter().map(|flow| {
        [
            flow.id.clone(),
            flow.identity.clone().unwrap_or_else(|| "-".to_owned()),
            flow.socket_name.clone(),
            flow.transport.clone(),
            flow.edge.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            flow.client.to_string(),
            origin(flow),
            age((now - flow.began).whole_seconds()),
            flow.bytes.to_string(),
        ]
    });
    columns::table(output, columns, rows)
}

/// The tunnel of the flow, or the address that the edge dialed.
fn origin(flow: &Flow) -> String {
    let tunnel = flow.tunnel.map(|tunnel| tunnel.to_string());
    let direct = || flow.direct_origin.map(|id| format!("direct:{id}"));
    tunnel.or_else(|| flow.direct_origin_address.clone()).or_else(direct).unwrap_or_else(|| "-".to_owned())
}

/// An age for people: `59s`, `1m01s`, `2h01m`, `3d04h`.
pub(super) fn age(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{}s", seconds.max(0)),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        assert_eq!([age(-1), age(59), age(61), age(7_260), age(273_600)], ["0s", "59s", "1m01s", "2h01m", "3d04h"]);
    }
}
