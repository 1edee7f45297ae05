//! `sallyport balancer`: virtual addresses that the edges of a site share.

use std::{collections::BTreeMap, net::IpAddr};

use clap::{Args, Subcommand};
use sallyport_api::{
    BalancedEdgeState, BalancedProtocol, BalancedService, Balancer, BalancerEncapsulation, SetBalancer,
};
use sallyport_client::ApiClient;
use sallyport_model::{EdgeName, Encapsulation};
use serde_json::json;

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

/// Examples of the help.
const EXAMPLES: &str = "Examples:
  sallyport balancer set eu --address 198.51.100.1,2001:db8::1 --from 192.0.2.5
  sallyport balancer set eu --address 198.51.100.1 --from 192.0.2.5,192.0.2.6 --weight eu-1=200

Each machine that balances then runs `sallyport packet balance run --control URL --token-file FILE --site SITE`,
and each edge runs with --behind-balancer.";

/// What can be done with balancers of sites.
#[derive(Debug, Subcommand)]
pub(crate) enum BalancerCommand {
    /// Give a site virtual addresses, which machines that balance share out among its edges
    #[command(after_help = EXAMPLES)]
    Set(SetArgs),
    /// List the sites with balancers
    #[command(alias = "list")]
    Ls,
    /// Show the services and the edges behind the balancer of a site
    Show(ShowArgs),
    /// Remove the balancer of a site
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// Options of `balancer set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The site: a region in which an edge has joined
    #[arg(value_name = "SITE")]
    site: String,
    /// The virtual addresses, IPv4 or IPv6
    #[arg(id = "virtual_address", long = "address", value_name = "ADDR", value_delimiter = ',', required = true)]
    addresses: Vec<String>,
    /// The addresses of the machines that balance: edges take encapsulated packets from them
    #[arg(id = "balancer_address", long = "from", value_name = "ADDR", value_delimiter = ',', required = true)]
    from: Vec<String>,
    /// How packets get to edges: gue or ipip [default: as before, and gue at first]
    #[arg(long, value_name = "gue|ipip")]
    encapsulation: Option<Encapsulation>,
    /// The share of an edge, such as eu-1=200; a share of 100 is usual, and 0 gets no new flows [default: as before]
    #[arg(long = "weight", value_name = "EDGE=SHARE", value_delimiter = ',', value_parser = share)]
    weights: Vec<(String, u16)>,
}

/// Options of `balancer show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The site
    #[arg(value_name = "SITE")]
    site: String,
}

/// Options of `balancer rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The site
    #[arg(value_name = "SITE")]
    site: String,
    #[command(flatten)]
    yes: YesArg,
}

/// An edge and its share.
fn share(text: &str) -> Result<(String, u16), String> {
    let wrong = || "expected EDGE=SHARE such as eu-1=200, with a share of 0 to 1000".to_owned();
    let (edge, share) = text.split_once('=').ok_or_else(wrong)?;
    edge.parse::<EdgeName>().map_err(|error| error.to_string())?;
    Ok((edge.to_owned(), share.parse().map_err(|_| wrong())?))
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: BalancerCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        BalancerCommand::Set(args) => set(context, &client, args).await,
        BalancerCommand::Ls => list(context, &client).await,
        BalancerCommand::Show(args) => show(context, &client, &args.site).await,
        BalancerCommand::Rm(args) => remove(context, &client, args).await,
    }
}

fn print_notes(balancer: &Balancer) {
    balancer.notes.iter().for_each(|note| output::note(&output::safe(note)));
}

async fn set(context: &Context, client: &ApiClient, args: SetArgs) -> anyhow::Result<()> {
    let weights: BTreeMap<_, _> = args.weights.into_iter().collect();
    let set = SetBalancer {
        addresses: args.addresses,
        balancers: args.from,
        encapsulation: args.encapsulation.map(|encapsulation| match encapsulation {
            Encapsulation::Ipip => BalancerEncapsulation::Ipip,
            Encapsulation::Gue => BalancerEncapsulation::Gue,
        }),
        weights: (!weights.is_empty()).then_some(weights),
    };
    let made = client.set_balancer(&args.site, &set).await.map_err(|error| failure::about(error, &args.site))?;
    context.output.data(&made, |made: &Balancer| {
        format!("the edges of {} share {}, behind {}", made.site, joined(&made.addresses), joined(&made.balancers))
    })?;
    print_notes(&made);
    context.output.hint(&format!("`sallyport balancer show {}` shows the edges behind it", made.site));
    Ok(())
}

async fn list(context: &Context, client: &ApiClient) -> anyhow::Result<()> {
    let all = client.balancers().await?;
    all.iter().for_each(print_notes);
    let empty = "no balancers: `sallyport balancer set SITE --address ADDR --from ADDR` gives a site one";
    context.output.list(&all, empty, |all| table(&context.output, all))
}

async fn show(context: &Context, client: &ApiClient, site: &str) -> anyhow::Result<()> {
    let balancer = client.balancer(site).await.map_err(|error| failure::about(error, &site))?;
    print_notes(&balancer);
    context.output.data(&balancer, |balancer: &Balancer| shown(&context.output, balancer))
}

async fn remove(context: &Context, client: &ApiClient, args: RmArgs) -> anyhow::Result<()> {
    let site = &args.site;
    args.yes.confirm(&format!("Remove the balancer of {site}? Its edges take no more packets from it."))?;
    client.delete_balancer(site).await.map_err(|error| failure::about(error, &site))?;
    context.output.data(&json!({ "deleted": site }), |_| format!("{site} has no balancer any more"))
}

fn joined(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn encapsulation_name(encapsulation: BalancerEncapsulation) -> &'static str {
    match encapsulation {
        BalancerEncapsulation::Ipip => "ipip",
        BalancerEncapsulation::Gue => "gue",
    }
}

fn state_name(state: BalancedEdgeState) -> &'static str {
    match state {
        BalancedEdgeState::Serving => "serving",
        BalancedEdgeState::Draining => "draining",
        BalancedEdgeState::Down => "down",
    }
}

fn table(output: &Output, all: &[Balancer]) -> String {
    let serving = |one: &Balancer| one.edges.iter().filter(|edge| edge.state == BalancedEdgeState::Serving).count();
    columns::table(
        output,
        [
            Column::Plain("SITE"),
            Column::Cut("ADDRESSES"),
            Column::Cut("BALANCERS"),
            Column::Plain("ENCAPSULATION"),
            Column::Plain("SERVING"),
            Column::Wide("CREATED"),
        ],
        all.iter().map(|one| {
            [
                one.site.clone(),
                joined(&one.addresses),
                joined(&one.balancers),
                encapsulation_name(one.encapsulation).to_owned(),
                format!("{} of {}", serving(one), one.edges.len()),
                utc(one.created_at),
            ]
        }),
    )
}

/// Ports, as people write them.
fn ports(services: &[BalancedService], protocol: BalancedProtocol) -> String {
    let range = |service: &BalancedService| match service.first_port == service.last_port {
        true => service.first_port.to_string(),
        false => format!("{}-{}", service.first_port, service.last_port),
    };
    let all: Vec<_> = services.iter().filter(|service| service.protocol == protocol).map(range).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(",") }
}

fn shown(output: &Output, balancer: &Balancer) -> String {
    let edges = columns::table(
        output,
        [
            Column::Plain("EDGE"),
            Column::Plain("ADDRESS"),
            Column::Plain("SERVER"),
            Column::Plain("WEIGHT"),
            Column::Plain("STATE"),
            Column::Cut("WHY"),
        ],
        balancer.edges.iter().map(|edge| {
            [
                edge.name.clone(),
                edge.address.map_or_else(|| "-".to_owned(), |address| address.to_string()),
                edge.server.to_string(),
                edge.weight.to_string(),
                state_name(edge.state).to_owned(),
                edge.why.as_deref().map(|why| output::safe(why).into_owned()).unwrap_or_default(),
            ]
        }),
    );
    format!(
        "addresses {}\nbalancers {}, by {}\nTCP ports {}\nUDP ports {}\n{edges}",
        joined(&balancer.addresses),
        joined(&balancer.balancers),
        encapsulation_name(balancer.encapsulation),
        ports(&balancer.services, BalancedProtocol::Tcp),
        ports(&balancer.services, BalancedProtocol::Udp),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_numbers_of_edges() {
        assert_eq!(share("eu-1=2").unwrap(), ("eu-1".to_owned(), 2));
        for bad in ["", "eu-1", "eu-1=", "=2", "eu-1=x", "eu-1=70000", "EU=1"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ports_are_ranges() {
        let of = |protocol, first_port, last_port| BalancedService { protocol, first_port, last_port, quic: false };
        let all = [of(BalancedProtocol::Tcp, 80, 80), of(BalancedProtocol::Tcp, 21_000, 21_002)];
        assert_eq!(ports(&all, BalancedProtocol::Tcp), "80,21000-21002");
        assert_eq!(ports(&all, BalancedProtocol::Udp), "none");
    }
}
