//! `sallyport network create`, `ls`, `show` and `rm`.

use clap::Args;
use sallyport_api::{CreateNetwork, Machine, Network, NetworkPolicy};
use serde::Serialize;
use serde_json::json;

use super::{NetworkArg, counted, machine, stored};
use crate::{
    command::options::confirm::YesArg,
    context::Context,
    failure,
    output::{self, Output},
    view::{
        columns::{self, Column},
        utc,
    },
};

/// Options of `create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The name: lower-case letters, digits and hyphens
    #[arg(value_name = "NAME")]
    name: String,
    /// A range of addresses, one of each family [default: free private ones]
    #[arg(long = "range", value_name = "PREFIX")]
    ranges: Vec<String>,
}

/// Options of `rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    network: NetworkArg,
    /// Remove the network although it has machines, which lose their addresses
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    yes: YesArg,
}

/// A network with its machines.
#[derive(Debug, Serialize)]
struct NetworkView {
    #[serde(flatten)]
    network: Network,
    #[serde(rename = "members")]
    machines: Vec<Machine>,
    policy: Option<NetworkPolicy>,
}

/// Makes a network.
pub(super) async fn create(context: &Context, args: CreateArgs) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    let create = CreateNetwork { name: args.name, ranges: Some(args.ranges).filter(|ranges| !ranges.is_empty()) };
    let network = client.create_network(&create).await.map_err(failure::of_value)?;
    context.output.data(&network, |network| output::pairs(&rows(network)))?;
    context.output.hint(&format!("`sallyport network policy set {} FILE` says what may talk to what", network.name));
    Ok(())
}

/// Lists the networks.
pub(super) async fn ls(context: &Context) -> anyhow::Result<()> {
    let networks = context.client(&context.target()?)?.networks().await?;
    let empty = "no networks yet: `sallyport network create NAME` makes one";
    context.output.list(&networks, empty, |networks| table(&context.output, networks))
}

/// Shows a network.
pub(super) async fn show(context: &Context, name: &str) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    let network = client.network(name).await.map_err(|error| failure::about(error, &name))?;
    let machines = client.machines(name).await.map_err(|error| failure::about(error, &name))?;
    let policy = stored::policy(&client, &network).await?;
    let view = NetworkView { network, machines, policy };
    context.output.data(&view, |view| {
        let mut rows = rows(&view.network);
        rows.push((
            "policy",
            match &view.policy {
                Some(policy) => format!("{}; what none allows is denied", counted(policy.rules, "rule")),
                None => "none: the machines may all talk to each other".to_owned(),
            },
        ));
        let mut shown = output::pairs(&rows);
        if !view.machines.is_empty() {
            shown.push_str("\n\n");
            shown.push_str(&machine::table(&context.output, &view.machines));
        }
        shown
    })
}

/// Removes a network.
pub(super) async fn rm(context: &Context, args: &RmArgs) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    let name = &args.network.network;
    args.yes.confirm(&format!("Remove the network {name}?"))?;
    client.delete_network(name, args.force).await.map_err(|error| failure::about(error, name))?;
    context.output.data(&json!({ "deleted": name }), |_| format!("removed the network {name}"))
}

fn rows(network: &Network) -> Vec<(&'static str, String)> {
    vec![
        ("network", network.name.clone()),
        ("ranges", network.ranges.join(", ")),
        ("domain", network.domain.clone()),
        ("machines", network.machines.to_string()),
        ("created", utc(network.created_at)),
    ]
}

fn table(output: &Output, networks: &[Network]) -> String {
    let columns =
        [Column::Plain("NETWORK"), Column::Plain("RANGES"), Column::Plain("MACHINES"), Column::Plain("POLICY")];
    let rows = networks.iter().map(|network| {
        let policy = if network.has_policy { "yes" } else { "none" };
        [network.name.clone(), network.ranges.join(" "), network.machines.to_string(), policy.to_owned()]
    });
    columns::table(output, columns, rows)
}
