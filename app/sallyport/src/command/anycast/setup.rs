//! Adding and removing prefixes and routers.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use sallyport_api::{AnycastBfd, AnycastPeer, AnycastPrefix, CreateAnycastPeer, CreateAnycastPrefix};
use sallyport_client::ApiClient;
use serde_json::json;

use super::orders::place;
use crate::{
    command::options::confirm::YesArg,
    context::Context,
    failure::{self, Failure, Kind},
    output,
};

/// The default of `--bfd-interval`, and its multiplier.
const BFD: AnycastBfd = AnycastBfd { interval_ms: 100, multiplier: 3 };
/// The longest file with a password, in bytes.
const MAX_PASSWORD_FILE_BYTES: u64 = 4_096;

/// Options of `anycast prefix add`.
#[derive(Debug, Args)]
pub(crate) struct AddPrefixArgs {
    /// The prefix: within one that the operator allows with --anycast-allow
    #[arg(value_name = "PREFIX")]
    prefix: String,
    /// The addresses at which edges serve [default: the first host of the prefix]
    #[arg(id = "service_address", long = "address", value_name = "ADDR", value_delimiter = ',')]
    addresses: Vec<String>,
    /// The regions that announce it [default: all]
    #[arg(id = "announcing_region", long = "region", value_name = "REGION", value_delimiter = ',')]
    regions: Vec<String>,
    /// Communities of each announcement, such as 64500:1 or 64500:1:2
    #[arg(long = "community", value_name = "COMMUNITY", value_delimiter = ',')]
    communities: Vec<String>,
    /// How many regions announce it at least: the last ones do not withdraw on order, or for a cause that all share
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    min_sites: u16,
}

/// Options of `anycast peer add`.
#[derive(Debug, Args)]
pub(crate) struct AddPeerArgs {
    /// A name for the router: a small letter, then small letters, digits and -
    #[arg(value_name = "NAME")]
    name: String,
    /// The address of the router
    #[arg(id = "router_address", long = "address", value_name = "ADDR")]
    address: String,
    /// The autonomous system of the router
    #[arg(long = "as", value_name = "NUMBER")]
    remote_as: u32,
    /// The autonomous system of the edges
    #[arg(long, value_name = "NUMBER")]
    local_as: u32,
    /// The edges that speak with it: everywhere, region:NAME or edge:NAME
    #[arg(long = "at", value_name = "PLACE", default_value = "everywhere")]
    place: String,
    /// What it is to you (RFC 9234): provider, peer, route-server, customer or none
    #[arg(id = "router_role", long = "role", value_name = "ROLE", default_value = "provider")]
    role: String,
    /// A file with the password of the session (TCP MD5); - reads it from the standard input
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// How many hops away it is; one hop is guarded by GTSM
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    hops: u8,
    /// Notice within 300 ms that it is gone (BFD)
    #[arg(long)]
    bfd: bool,
    /// How often BFD sends, in milliseconds [default: 100]
    #[arg(long, value_name = "MS", requires = "bfd")]
    bfd_interval: Option<u32>,
    /// The most routes that it may send before its session ends
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    max_prefixes: u32,
    /// Communities of announcements to it
    #[arg(long = "community", value_name = "COMMUNITY", value_delimiter = ',')]
    communities: Vec<String>,
    /// Communities of deprioritised announcements to it, beside GRACEFUL_SHUTDOWN
    #[arg(long = "drain-community", value_name = "COMMUNITY", value_delimiter = ',')]
    drain_communities: Vec<String>,
    /// How often the own number is prepended
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    prepend: u8,
    /// It sends the routes to no other network
    #[arg(long)]
    no_export: bool,
}

/// Options of `anycast prefix rm` and `anycast peer rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The prefix or the name, as `ls` shows it
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    yes: YesArg,
}

fn given(texts: Vec<String>) -> Option<Vec<String>> {
    (!texts.is_empty()).then_some(texts)
}

fn print_notes(notes: &[String]) {
    notes.iter().for_each(|note| output::note(&output::safe(note)));
}

/// Adds a prefix.
pub(super) async fn add_prefix(context: &Context, client: &ApiClient, args: AddPrefixArgs) -> anyhow::Result<()> {
    let create = CreateAnycastPrefix {
        prefix: args.prefix.clone(),
        addresses: given(args.addresses),
        regions: given(args.regions),
        communities: given(args.communities),
        min_sites: Some(args.min_sites),
    };
    let made = client.create_anycast_prefix(&create).await.map_err(|error| failure::about(error, &args.prefix))?;
    context.output.data(&made, |made: &AnycastPrefix| {
        let addresses: Vec<_> = made.addresses.iter().map(ToString::to_string).collect();
        format!("{} is announced where edges are well, with the addresses {}", made.prefix, addresses.join(", "))
    })?;
    print_notes(&made.notes);
    context.output.hint("`sallyport anycast status` shows how it stands at each edge, and who has heard of it");
    Ok(())
}

/// Adds a router.
pub(super) async fn add_peer(context: &Context, client: &ApiClient, args: AddPeerArgs) -> anyhow::Result<()> {
    let bfd = args.bfd.then(|| AnycastBfd { interval_ms: args.bfd_interval.unwrap_or(BFD.interval_ms), ..BFD });
    let password = args.password_file.as_deref().map(read_password).transpose()?;
    let create = CreateAnycastPeer {
        name: args.name.clone(),
        place: Some(place(&args.place)),
        address: args.address,
        remote_as: args.remote_as,
        local_as: args.local_as,
        role: Some(args.role),
        password: password.map(Into::into),
        hops: Some(args.hops),
        bfd,
        max_prefixes: Some(args.max_prefixes),
        communities: given(args.communities),
        drain_communities: given(args.drain_communities),
        prepend: Some(args.prepend),
        no_export: args.no_export,
    };
    let made = client.create_anycast_peer(&create).await.map_err(|error| failure::about(error, &args.name))?;
    context.output.data(&made, |made: &AnycastPeer| {
        format!("edges speak BGP with {} at {} (AS{})", made.name, made.address, made.remote_as)
    })?;
    print_notes(&made.notes);
    context.output.hint("`sallyport anycast status` shows whether the session stands");
    Ok(())
}

fn read_password(file: &std::path::Path) -> anyhow::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().lock().take(MAX_PASSWORD_FILE_BYTES).read_to_string(&mut text)
    } else {
        let opened = std::fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        opened.take(MAX_PASSWORD_FILE_BYTES).read_to_string(&mut text)
    };
    read.with_context(|| format!("cannot read {}", file.display()))?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(Failure::usage(format!("{} has no password", file.display())).into());
    }
    Ok(password.to_owned())
}

/// Removes a prefix.
pub(super) async fn remove_prefix(context: &Context, client: &ApiClient, args: RmArgs) -> anyhow::Result<()> {
    let all = client.anycast_prefixes().await?;
    let found = all.iter().find(|one| one.prefix == args.name || one.id.to_string() == args.name);
    let Some(found) = found else { return Err(missing("prefix", &args.name).into()) };
    let prefix = &found.prefix;
    args.yes.confirm(&format!("Withdraw {prefix}? Clients of its addresses are not served any more."))?;
    client.delete_anycast_prefix(found.id).await.map_err(|error| failure::about(error, prefix))?;
    context.output.data(&json!({ "deleted": prefix }), |_| format!("edges withdraw {prefix}"))
}

/// Removes a router.
pub(super) async fn remove_peer(context: &Context, client: &ApiClient, args: RmArgs) -> anyhow::Result<()> {
    let all = client.anycast_peers().await?;
    let found = all.iter().find(|one| one.name == args.name || one.id.to_string() == args.name);
    let Some(found) = found else { return Err(missing("peer", &args.name).into()) };
    let name = &found.name;
    args.yes.confirm(&format!("End the sessions with {name}? It hears of no prefix any more."))?;
    client.delete_anycast_peer(found.id).await.map_err(|error| failure::about(error, name))?;
    context.output.data(&json!({ "deleted": name }), |_| format!("edges end their sessions with {name}"))
}

fn missing(what: &str, name: &str) -> Failure {
    let thing = if what == "peer" { "router" } else { what };
    Failure::new(Kind::NotFound, format!("there is no {thing} {:?}", output::safe(name)))
        .next(format!("`sallyport anycast {what} ls` lists them"))
}
