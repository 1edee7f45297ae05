//! `sallyport edge`: the edges of an installation, and running one.
//!
//! May use what `command` may use.

mod clients;
mod ways;

use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{CreateEdgeToken, CreatedEdgeToken, DrainEdge, Edge, EdgeState, EdgeToken, EdgeTokenState};
use sallyport_client::ApiClient;
use sallyport_model::{EdgeId, EdgeName, RegionName};
use serde_json::json;
use time::OffsetDateTime;

use self::{clients::ClientsArgs, ways::WaysArgs};
use super::flow;
use crate::{
    command::{
        options::{confirm::YesArg, pick::Pick},
        socket::stats::ms,
    },
    context::{Context, candidates},
    duration, failure,
    output::{self, Output},
    roles::edge::EdgeArgs,
    view::{
        columns::{self, Column},
        utc,
    },
};

/// Run an edge, or manage the edges of an installation.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct EdgeCommand {
    #[command(subcommand)]
    pub(crate) command: Option<EdgesCommand>,
    #[command(flatten)]
    pub(crate) run: EdgeArgs,
}

/// What can be done with edges.
#[derive(Debug, Subcommand)]
pub(crate) enum EdgesCommand {
    /// Tokens with which edges join
    #[command(subcommand)]
    Token(EdgeTokenCommand),
    /// List the edges
    #[command(alias = "list")]
    Ls,
    /// Show the round trips that edges measure: to other edges, to origins, and to a host that you name
    Ways(WaysArgs),
    /// Show where clients come from: their networks, the shortest round trip to each, and how many connections
    Clients(ClientsArgs),
    /// Drain an edge: clients and connectors move to other edges, and no request fails
    Drain(DrainArgs),
    /// Let a drained edge serve again
    Resume(ResumeArgs),
    /// Remove an edge: it gets no new certificates, and may change nothing
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// What can be done with tokens with which edges join.
#[derive(Debug, Subcommand)]
pub(crate) enum EdgeTokenCommand {
    /// Make a token with which one edge may join; it is shown only once
    Create(CreateArgs),
    /// List the tokens: unused ones, and used or expired ones of the last 30 days
    #[command(alias = "list")]
    Ls,
    /// Remove a token, so that no edge can join with it
    #[command(alias = "delete")]
    Rm(RmTokenArgs),
}

/// Options of `edge token rm`.
#[derive(Debug, Args)]
pub(crate) struct RmTokenArgs {
    /// The id of the token, as `edge token ls` shows it
    #[arg(id = "join_token", value_name = "ID")]
    token: String,
    #[command(flatten)]
    yes: YesArg,
}

/// Options of `edge token create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The name of the edge [default: the edge chooses]
    #[arg(id = "edge_name", long = "name", value_name = "NAME")]
    name: Option<EdgeName>,
    /// The region of the edge; without it the edge needs --region
    #[arg(id = "edge_region", long = "region", value_name = "REGION")]
    region: Option<RegionName>,
    /// The lifetime of the token in minutes [default: 60]
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(1..=10_080))]
    minutes: Option<u32>,
}

/// Options of `edge drain`.
#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// The name of the edge, or its id
    #[arg(value_name = "EDGE")]
    #[arg(add = ArgValueCompleter::new(candidates::edges))]
    edge: String,
    /// How long open requests and connections may take to finish, before the edge ends them
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration::parse)]
    within: Duration,
    /// Drain even when no other edge serves, or when that is unknown
    #[arg(long)]
    force: bool,
}

/// Options of `edge resume`.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The name of the edge, or its id
    #[arg(value_name = "EDGE")]
    #[arg(add = ArgValueCompleter::new(candidates::edges))]
    edge: String,
}

/// Options of `edge rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The name of the edge, or its id
    #[arg(value_name = "EDGE")]
    #[arg(add = ArgValueCompleter::new(candidates::edges))]
    edge: String,
    #[command(flatten)]
    yes: YesArg,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: EdgesCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        EdgesCommand::Token(EdgeTokenCommand::Create(args)) => {
            let CreateArgs { name, region, minutes } = args;
            let created = client.create_edge_token(&CreateEdgeToken { name, region, minutes }).await?;
            context.output.data(&created, show)?;
            context.output.hint(
                "on the machine of the edge: sallyport edge --join TOKEN --region REGION --data DIR. The token works \
                 once",
            );
            Ok(())
        }
        EdgesCommand::Token(EdgeTokenCommand::Ls) => {
            let empty = "no join tokens: `sallyport edge token create` makes one";
            context.output.list(&client.edge_tokens().await?, empty, |all| list_tokens(&context.output, all))
        }
        EdgesCommand::Token(EdgeTokenCommand::Rm(RmTokenArgs { token, yes })) => {
            yes.confirm(&format!("Remove the join token {token}? No edge joins with that token any more."))?;
            client.delete_edge_token(&token).await.map_err(|error| failure::about(error, &token))?;
            context.output.data(&json!({ "deleted": token }), |_| format!("deleted {token}"))
        }
        EdgesCommand::Ls => {
            let empty = "no edges: `sallyport edge token create` makes a token with which one joins";
            context.output.list(&client.edges().await?, empty, |edges| list(&context.output, edges))
        }
        EdgesCommand::Clients(args) => clients::run(context, &client, args).await,
        EdgesCommand::Ways(args) => ways::run(context, &client, args).await,
        EdgesCommand::Drain(args) => {
            let id = find(&client, &args.edge).await?;
            let within_seconds = u32::try_from(args.within.as_millis().div_ceil(1_000)).ok();
            let how = DrainEdge { within_seconds, force: args.force };
            let edge = client.drain_edge(id, &how).await.map_err(|error| failure::about(error, &id))?;
            context.output.data(&edge, |edge| {
                let until = edge.drain_until.map(utc).unwrap_or_default();
                format!("{} is emptied; what runs there may go on until {until}", edge.name)
            })?;
            context.output.hint("`sallyport edge ls` shows its tunnels go; `sallyport edge resume` has it serve again");
            Ok(())
        }
        EdgesCommand::Resume(args) => {
            let id = find(&client, &args.edge).await?;
            let edge = client.resume_edge(id).await.map_err(|error| failure::about(error, &id))?;
            context.output.data(&edge, |edge| format!("{} serves again", edge.name))
        }
        EdgesCommand::Rm(args) => {
            let id = find(&client, &args.edge).await?;
            args.yes.confirm(&format!(
                "Remove the edge {}? It gets no new certificates, and must join again.",
                args.edge
            ))?;
            client.delete_edge(id).await.map_err(|error| failure::about(error, &id))?;
            context.output.data(&json!({ "deleted": id }), |_| format!("deleted {id}"))
        }
    }
}

async fn find(client: &ApiClient, edge: &str) -> anyhow::Result<EdgeId> {
    if let Ok(id) = edge.parse() {
        return Ok(id);
    }
    let pick = Pick {
        what: "edge",
        list: "sallyport edge ls",
        id: &|edge: &Edge| edge.id.uuid(),
        names: &|edge| vec![edge.name.to_string()],
    };
    let found = pick.find(client.edges().await?, edge)?;
    Ok(found.id)
}

fn show(created: &CreatedEdgeToken) -> String {
    let or_unset = |name: Option<String>| name.unwrap_or_else(|| "chosen by the edge".to_owned());
    output::pairs(&[
        ("token", created.token.expose().to_owned()),
        ("name", or_unset(created.name.as_ref().map(ToString::to_string))),
        ("region", or_unset(created.region.as_ref().map(ToString::to_string))),
        ("expires", utc(created.expires_at)),
    ])
}

fn list_tokens(output: &Output, tokens: &[EdgeToken]) -> String {
    columns::table(
        output,
        [
            Column::Plain("TOKEN"),
            Column::Plain("STATE"),
            Column::Cut("NAME"),
            Column::Plain("REGION"),
            Column::Cut("USED BY"),
            Column::Wide("CREATED"),
            Column::Plain("EXPIRES"),
        ],
        tokens.iter().map(|token| {
            let state = match token.state {
                EdgeTokenState::Waiting => "waiting",
                EdgeTokenState::Used => "used",
                EdgeTokenState::Ended => "ended",
            };
            [
                token.id.clone(),
                state.to_owned(),
                token.name.as_ref().map(ToString::to_string).unwrap_or_default(),
                token.region.as_ref().map(ToString::to_string).unwrap_or_default(),
                match (&token.used_by, token.used_by_removed) {
                    (Some(name), Some(true)) => format!("{name}, removed"),
                    (name, _) => name.clone().unwrap_or_default(),
                },
                utc(token.created_at),
                columns::minute(token.expires_at),
            ]
        }),
    )
}

fn state(edge: &Edge) -> &'static str {
    match edge.state {
        EdgeState::Up => "up",
        EdgeState::Draining => "draining",
        EdgeState::Down => "down",
        EdgeState::Unknown => "unknown",
    }
}

fn list(output: &Output, edges: &[Edge]) -> String {
    let now = OffsetDateTime::now_utc();
    let ago = |at: OffsetDateTime| flow::age((now - at).whole_seconds());
    columns::table(
        output,
        [
            Column::Cut("NAME"),
            Column::Cut("REGION"),
            Column::Plain("STATE"),
            Column::Plain("TUNNELS"),
            Column::Plain("FLOWS"),
            Column::Plain("RTT"),
            Column::Wide("AGE"),
            Column::Plain("LAST SEEN"),
            Column::Plain("VERSION"),
            Column::Wide("SOCKETS"),
            Column::Wide("CLIENTS"),
            Column::Wide("MEMORY"),
            Column::Wide("CPU"),
            Column::Wide("SINCE"),
            Column::Wide("ADDRESSES"),
            Column::Wide("EDGE"),
        ],
        edges.iter().map(|edge| {
            [
                edge.name.to_string(),
                edge.region.to_string(),
                state(edge).to_owned(),
                edge.tunnels.to_string(),
                count(edge.flows),
                edge.round_trip_ms.map(ms).unwrap_or_default(),
                edge.since.map(ago).unwrap_or_default(),
                edge.heard_at.map(ago).unwrap_or_default(),
                edge.version.clone().unwrap_or_default(),
                count(edge.sockets),
                count(edge.connections),
                edge.memory_bytes.map(|bytes| format!("{}M", bytes >> 20)).unwrap_or_default(),
                edge.cpu_ms.map(|ms| flow::age(i64::try_from(ms / 1_000).unwrap_or(i64::MAX))).unwrap_or_default(),
                edge.since.map(utc).unwrap_or_default(),
                edge.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
                edge.id.to_string(),
            ]
        }),
    )
}

fn count(count: Option<u64>) -> String {
    count.map(|count| count.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Color, Format};

    #[test]
    fn the_longest_usual_line_of_an_edge_fits_eighty_columns() {
        let edge: Edge = serde_json::from_value(json!({
            "id": "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11", "name": "eu-central-9", "region": "eu-central-1",
            "state": "draining", "addresses": ["192.0.2.1:8443"], "version": "10.10.10", "tunnels": 10_000,
            "flows": 10_000, "round_trip_ms": 160.25, "since": "2026-01-01T00:00:00Z",
            "heard_at": "2026-01-01T00:00:00Z",
            "created_at": "2026-01-01T00:00:00Z"
        }))
        .unwrap();
        let table = list(&Output::new(Format::Table, Color::Never), &[edge]);
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    }
}
