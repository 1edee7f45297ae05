//! `sallyport edge`: the edges of an installation, and running one.

use clap::{Args, Subcommand};
use sallyport_api::{CreateEdgeToken, CreatedEdgeToken, Edge, EdgeState};
use sallyport_client::ApiClient;
use sallyport_model::{EdgeId, EdgeName, RegionName};
use serde_json::json;

use super::utc;
use crate::{
    context::Context,
    edge_role::EdgeArgs,
    failure::{self, Failure, Kind},
    output,
};

/// Run an edge, or look after those of an installation.
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
    /// Remove an edge: it gets no new certificates, and may change nothing
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// What can be done with tokens with which edges join.
#[derive(Debug, Subcommand)]
pub(crate) enum EdgeTokenCommand {
    /// Make a token with which one edge may join; it is shown this once
    Create(CreateArgs),
}

/// Options of `edge token create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// What the edge will be called; it may say so itself when this is absent
    #[arg(id = "edge_name", long = "name", value_name = "NAME")]
    name: Option<EdgeName>,
    /// The region that it will be in; it must say so itself when this is absent
    #[arg(id = "edge_region", long = "region", value_name = "REGION")]
    region: Option<RegionName>,
    /// In how many minutes the token ends [default: 60]
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(1..=10_080))]
    minutes: Option<u32>,
}

/// Options of `edge rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The name of the edge, or its id
    #[arg(value_name = "EDGE")]
    edge: String,
}

/// Does it.
pub(crate) async fn run(context: &Context, command: EdgesCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        EdgesCommand::Token(EdgeTokenCommand::Create(args)) => {
            let CreateArgs { name, region, minutes } = args;
            let created = client.create_edge_token(&CreateEdgeToken { name, region, minutes }).await?;
            context.output.data(&created, show)?;
            context.output.hint(
                "on the machine of the edge: sallyport edge --join TOKEN --region REGION --data DIR. The token is good once",
            );
            Ok(())
        }
        EdgesCommand::Ls => {
            let empty = "no edges: `sallyport edge token create` makes a token with which one joins";
            context.output.list(&client.edges().await?, empty, list)
        }
        EdgesCommand::Rm(args) => {
            let id = find(&client, &args.edge).await?;
            client.delete_edge(id).await.map_err(|error| failure::about(error, &id))?;
            context.output.data(&json!({ "deleted": id }), |_| format!("deleted {id}"))
        }
    }
}

async fn find(client: &ApiClient, edge: &str) -> anyhow::Result<EdgeId> {
    if let Ok(id) = edge.parse() {
        return Ok(id);
    }
    let edges = client.edges().await?;
    let found = edges.iter().find(|known| known.name.as_str() == edge);
    let found = found.ok_or_else(|| {
        Failure::new(Kind::NotFound, format!("there is no edge {edge:?}")).next("see `sallyport edge ls`")
    })?;
    Ok(found.id)
}

fn show(created: &CreatedEdgeToken) -> String {
    let said = |name: Option<String>| name.unwrap_or_else(|| "for the edge to say".to_owned());
    output::pairs(&[
        ("token", created.token.expose().to_owned()),
        ("name", said(created.name.as_ref().map(ToString::to_string))),
        ("region", said(created.region.as_ref().map(ToString::to_string))),
        ("expires", utc(created.expires_at)),
    ])
}

fn state(edge: &Edge) -> &'static str {
    match edge.state {
        EdgeState::Up => "up",
        EdgeState::Down => "down",
        EdgeState::Unknown => "unknown",
    }
}

fn list(edges: &[Edge]) -> String {
    output::table(
        ["EDGE", "NAME", "REGION", "STATE", "ADDRESSES", "VERSION", "TUNNELS", "SINCE"],
        edges.iter().map(|edge| {
            [
                edge.id.to_string(),
                edge.name.to_string(),
                edge.region.to_string(),
                state(edge).to_owned(),
                edge.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
                edge.version.clone().unwrap_or_default(),
                edge.tunnels.to_string(),
                edge.since.map(utc).unwrap_or_default(),
            ]
        }),
    )
}
