//! `sallyport network policy set`, `get` and `unset`: the policy that control keeps of a network.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use ipnet::IpNet;
use sallyport_api::{Network, NetworkPolicy, SetNetworkPolicy};
use sallyport_client::ApiClient;
use sallyport_network::{
    name::Name,
    policy::{Document, Endpoint, Policy, Unknown},
};
use serde_json::json;

use super::{NetworkArg, counted, policy::read_text};
use crate::{command::options::confirm::YesArg, context::Context, failure};

/// Options of `set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    network: NetworkArg,
    /// The file, without endpoints: these are the machines of the network
    file: PathBuf,
    /// Take a file whose rules name machines and groups that are not there yet
    #[arg(long)]
    force: bool,
}

/// Options of `unset`.
#[derive(Debug, Args)]
pub(crate) struct UnsetArgs {
    #[command(flatten)]
    network: NetworkArg,
    #[command(flatten)]
    yes: YesArg,
}

/// Sets the policy of a network.
pub(super) async fn set(context: &Context, args: &SetArgs) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    let name = &args.network.network;
    let policy = SetNetworkPolicy { document: read_text(&args.file)?, force: args.force };
    let set = client.set_network_policy(name, &policy).await.map_err(|error| match error.status() {
        Some(404) => failure::about(error, name),
        _ => failure::of_value(error),
    })?;
    let said =
        |set: &NetworkPolicy| format!("network {name}: {}; what none allows is denied", counted(set.rules, "rule"));
    context.output.data(&set, said)
}

/// Prints the policy of a network.
pub(super) async fn get(context: &Context, args: &NetworkArg) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    let policy = client.network_policy(&args.network).await.map_err(|error| failure::about(error, &args.network))?;
    context.output.data(&policy, |policy| policy.document.trim_end().to_owned())
}

/// Removes the policy of a network.
pub(super) async fn unset(context: &Context, args: &UnsetArgs) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    let name = &args.network.network;
    args.yes.confirm(&format!("Remove the policy of {name}? Its machines may then all talk to each other."))?;
    client.delete_network_policy(name).await.map_err(|error| failure::about(error, name))?;
    context.output.data(&json!({ "network": name }), |_| format!("the machines of {name} may all talk to each other"))
}

/// The policy of a network, if one is set.
pub(super) async fn policy(client: &ApiClient, network: &Network) -> anyhow::Result<Option<NetworkPolicy>> {
    if !network.has_policy {
        return Ok(None);
    }
    Ok(Some(client.network_policy(&network.name).await.map_err(|error| failure::about(error, &network.name))?))
}

/// What the policy of a network means with its present machines.
pub(super) async fn compiled(client: &ApiClient, name: &str) -> anyhow::Result<Policy> {
    let network = client.network(name).await.map_err(|error| failure::about(error, &name))?;
    let machines = client.machines(name).await.map_err(|error| failure::about(error, &name))?;
    let mut endpoints = Vec::with_capacity(machines.len());
    for machine in machines {
        let routes = machine.routes.iter().map(|route| route.parse()).collect::<Result<Vec<IpNet>, _>>()?;
        endpoints.push(Endpoint {
            name: machine.name.parse()?,
            networks: machine.addresses.into_iter().map(IpNet::from).chain(routes).collect(),
            groups: machine.groups.iter().map(|group| group.parse()).collect::<Result<_, _>>()?,
            device: None,
        });
    }
    let name: Name = network.name.parse()?;
    match policy(client, &network).await? {
        Some(set) => Document::from_toml(&set.document)?
            .with_endpoints(&name, endpoints, Unknown::IsNobody)
            .context("the policy does not fit the machines"),
        None => Ok(Policy::trusting(name, endpoints)?),
    }
}
