//! `sallyport anycast resolve`: which region the name server would answer a client, and why.

use std::net::IpAddr;

use clap::Args;
use sallyport_api::{AnycastResolution, AnycastResolveQuery, ResolutionReason};
use sallyport_client::ApiClient;

use crate::{context::Context, output};

/// Options of `anycast resolve`.
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// The address of the client, or its network, such as 192.0.2.0/24
    #[arg(value_name = "ADDRESS")]
    client: String,
    /// The name that it asks for [default: one with the addresses of all edges]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The address of its resolver, for clients whose own network was not measured
    #[arg(long, value_name = "ADDRESS")]
    resolver: Option<IpAddr>,
}

/// Runs the command.
pub(super) async fn run(context: &Context, client: &ApiClient, args: ResolveArgs) -> anyhow::Result<()> {
    let ResolveArgs { client: of, name, resolver } = args;
    let query = AnycastResolveQuery { client: of, resolver: resolver.map(|address| address.to_string()), name };
    context.output.data(&client.resolve_anycast(&query).await?, show)
}

fn show(found: &AnycastResolution) -> String {
    let reason = found.reason.map_or("-", |reason| match reason {
        ResolutionReason::Subnet => "client's network",
        ResolutionReason::Resolver => "resolver's clients",
        ResolutionReason::Network => "resolver's network",
        ResolutionReason::Global => "nothing was measured",
    });
    let addresses: Vec<_> = found.addresses.iter().map(ToString::to_string).collect();
    let text = output::pairs(&[
        ("client", found.client.clone()),
        ("region", found.region.clone().unwrap_or_else(|| "-".to_owned())),
        ("by", reason.to_owned()),
        ("scope", format!("/{}", found.scope)),
        ("addresses", addresses.join(", ")),
        ("why", found.why.clone()),
    ]);
    if found.regions.is_empty() {
        return text;
    }
    let rows = found.regions.iter().map(|one| {
        let edges = if one.has_edges { "yes" } else { "no" };
        [one.region.clone(), edges.to_owned(), format!("{} %", one.dial), format!("{} %", one.share)]
    });
    format!("{text}\n{}", output::table(["REGION", "EDGES", "DIAL", "SHARE"], rows))
}
