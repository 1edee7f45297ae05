//! `sallyport socket origin`: addresses that edges dial themselves.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{CreateDirectOrigin, DirectOrigin, UpdateDirectOrigin};
use sallyport_client::{ApiClient, SocketRef};
use sallyport_model::{
    DirectOriginId, MAX_ORIGIN_CA_BYTES, MAX_WEIGHT, OriginAddr, OriginTlsSettings, PathPrefix, RegionName, ShortId,
};
use sallyport_net::Fingerprint;
use serde_json::json;

use super::settings::OFF;
use crate::{
    args::{
        capacity::{self, CapacityArgs},
        service::{RewriteArgs, ShownPath},
    },
    command::{health::why, hold::origin_pin, options::confirm::YesArg},
    context::{Context, candidates},
    failure::{self, Failure, Kind},
    output::Output,
    view::columns::{self, Column},
};

/// What can be done with direct origins.
#[derive(Debug, Subcommand)]
pub(crate) enum SocketOriginCommand {
    /// Add an address that edges dial themselves, besides the socket's tunnels
    #[command(alias = "create")]
    Add(AddArgs),
    /// List the socket's direct origins
    #[command(alias = "list")]
    Ls(ListArgs),
    /// Change a direct origin
    Edit(EditArgs),
    /// Remove a direct origin; its open requests finish
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// Options of `socket origin add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The socket: its id, or its name such as wandering-shape-7752
    #[arg(value_name = "SOCKET")]
    #[arg(add = ArgValueCompleter::new(candidates::sockets))]
    socket: SocketRef,
    /// The address of the origin for edges: HOST:PORT
    #[arg(value_name = "HOST:PORT")]
    address: OriginAddr,
    /// The region of the origin [default: that of each edge that dials it]
    #[arg(long, value_name = "REGION")]
    region: Option<RegionName>,
    /// The weight of the origin among the socket's origins, 0 to 1000; 0 takes nothing new [default: 100]
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=i64::from(MAX_WEIGHT)))]
    weight: Option<u16>,
    /// Serve only this path of the socket and all paths beneath it (http and https) [default: /]
    #[arg(long, value_name = "PATH")]
    path: Option<PathPrefix>,
    #[command(flatten)]
    rewrite: RewriteArgs,
    #[command(flatten)]
    capacity: CapacityArgs,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Options of `socket origin ls`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// The socket: its id, or its name such as wandering-shape-7752
    #[arg(value_name = "SOCKET")]
    #[arg(add = ArgValueCompleter::new(candidates::sockets))]
    socket: SocketRef,
}

/// Options of `socket origin edit`.
#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// The socket: its id, or its name such as wandering-shape-7752
    #[arg(value_name = "SOCKET")]
    #[arg(add = ArgValueCompleter::new(candidates::sockets))]
    socket: SocketRef,
    /// The origin: its address or its id, as `socket origin ls` shows them
    #[arg(value_name = "ORIGIN")]
    origin: String,
    /// The new address: HOST:PORT
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<OriginAddr>,
    /// The region of the origin; off: that of each edge that dials it
    #[arg(long, value_name = "REGION", value_parser = region_or_off)]
    region: Option<RegionOrOff>,
    /// The weight of the origin among the socket's origins, 0 to 1000; 0 takes nothing new
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=i64::from(MAX_WEIGHT)))]
    weight: Option<u16>,
    /// Serve only this path of the socket and all paths beneath it; /: every path (http and https)
    #[arg(long, value_name = "PATH")]
    path: Option<PathPrefix>,
    #[command(flatten)]
    rewrite: RewriteArgs,
    /// Send the path to the service as clients send it
    #[arg(long, conflicts_with_all = ["strip_path", "rewrite_path"])]
    keep_path: bool,
    #[command(flatten)]
    capacity: CapacityArgs,
    #[command(flatten)]
    tls: TlsArgs,
    /// Verify the certificate by default again: for the origin's host, by the authorities of the edges' machines
    #[arg(long, conflicts_with_all = ["origin_ca", "origin_pin", "origin_server_name"])]
    plain_tls: bool,
}

/// Options of `socket origin rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The socket: its id, or its name such as wandering-shape-7752
    #[arg(value_name = "SOCKET")]
    #[arg(add = ArgValueCompleter::new(candidates::sockets))]
    socket: SocketRef,
    /// The origin: its address or its id, as `socket origin ls` shows them
    #[arg(value_name = "ORIGIN")]
    origin: String,
    #[command(flatten)]
    yes: YesArg,
}

/// How an origin proves its identity.
#[derive(Debug, Args)]
struct TlsArgs {
    /// For an https socket: the root certificate of the origin's authority, in PEM, instead of the edges' own
    #[arg(long, value_name = "FILE", conflicts_with = "origin_pin")]
    origin_ca: Option<PathBuf>,
    /// For an https socket: the SHA-256 of the one certificate to accept from the origin, whatever its content
    #[arg(long, value_name = "FINGERPRINT", value_parser = origin_pin)]
    origin_pin: Option<Fingerprint>,
    /// For an https socket: the name that the origin's certificate must have [default: its host]
    #[arg(long, value_name = "NAME")]
    origin_server_name: Option<String>,
}

/// A region, or none.
#[derive(Debug, Clone)]
struct RegionOrOff(Option<RegionName>);

fn region_or_off(text: &str) -> Result<RegionOrOff, String> {
    if text == OFF {
        return Ok(RegionOrOff(None));
    }
    text.parse()
        .map(|region| RegionOrOff(Some(region)))
        .map_err(|error: sallyport_model::EdgeNameError| error.to_string())
}

impl TlsArgs {
    /// The TLS settings, if any option was given.
    fn get(self) -> anyhow::Result<Option<OriginTlsSettings>> {
        let tls = OriginTlsSettings {
            ca: self.origin_ca.as_deref().map(read_ca).transpose()?,
            pin: self.origin_pin.map(|pin| pin.to_string()),
            server_name: self.origin_server_name,
        };
        Ok(Some(tls).filter(|tls| !tls.is_empty()))
    }
}

fn read_ca(path: &Path) -> anyhow::Result<String> {
    let size = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len();
    if size > MAX_ORIGIN_CA_BYTES as u64 {
        let says = format!("{} is larger than {MAX_ORIGIN_CA_BYTES} bytes", path.display());
        return Err(Failure::usage(says)
            .next("name a file with the one root that has signed the origin's certificate")
            .into());
    }
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: SocketOriginCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        SocketOriginCommand::Add(args) => {
            let create = CreateDirectOrigin {
                address: args.address.to_string(),
                region: args.region,
                weight: args.weight,
                tls: args.tls.get()?,
                path: args.path,
                rewrite_path: args.rewrite.replacement(None)?,
                capacity: args.capacity.change(None),
            };
            let origin = client.create_direct_origin(&args.socket, &create).await;
            let origin = origin.map_err(|error| failure::about(error, &args.socket))?;
            context.output.data(&origin, |origin| list(&context.output, std::slice::from_ref(origin)))
        }
        SocketOriginCommand::Ls(ListArgs { socket }) => {
            let origins = client.direct_origins(&socket).await.map_err(|error| failure::about(error, &socket))?;
            let empty =
                format!("no direct origins: `sallyport socket origin add {socket} HOST:PORT` lets edges dial one");
            context.output.list(&origins, &empty, |origins| list(&context.output, origins))?;
            for (origin, failure) in origins.iter().filter_map(|origin| Some((origin, origin.failure.as_ref()?))) {
                context.output.hint(&format!("{} gets nothing: {}", origin.address, why(failure)));
            }
            Ok(())
        }
        SocketOriginCommand::Edit(args) => {
            let DirectOrigin { id, capacity, .. } = find(&client, &args.socket, &args.origin).await?;
            let update = UpdateDirectOrigin {
                address: args.address.map(|address| address.to_string()),
                region: args.region.map(|region| region.0),
                weight: args.weight,
                tls: if args.plain_tls { Some(None) } else { args.tls.get()?.map(Some) },
                path: args.path.map(Some),
                rewrite_path: if args.keep_path { Some(None) } else { args.rewrite.replacement(None)?.map(Some) },
                capacity: args.capacity.change(capacity).map(Some),
            };
            if update.is_empty() {
                let failure = Failure::usage("nothing to change").next("see `sallyport socket origin edit --help`");
                return Err(failure.into());
            }
            let changed = client.update_direct_origin(&args.socket, id, &update).await;
            let changed = changed.map_err(|error| failure::about(error, &args.socket))?;
            context.output.data(&changed, |changed| list(&context.output, std::slice::from_ref(changed)))
        }
        SocketOriginCommand::Rm(RmArgs { socket, origin, yes }) => {
            let found = find(&client, &socket, &origin).await?;
            yes.confirm(&format!("Remove the origin {} of {socket}, with its settings?", found.address))?;
            let outcome = client.delete_direct_origin(&socket, found.id).await;
            outcome.map_err(|error| failure::about(error, &socket))?;
            context.output.data(&json!({ "deleted": found.id }), |_| format!("deleted {}", found.address))
        }
    }
}

/// The socket's direct origin with this address or id.
async fn find(client: &ApiClient, socket: &SocketRef, wanted: &str) -> anyhow::Result<DirectOrigin> {
    let origins = client.direct_origins(socket).await.map_err(|error| failure::about(error, socket))?;
    let (id, address) = (wanted.parse::<DirectOriginId>().ok(), wanted.parse::<OriginAddr>().ok());
    let start = wanted.parse::<ShortId>().ok();
    let is_short = |origin: &DirectOrigin| start.as_ref().is_some_and(|start| start.begins(origin.id.uuid()));
    let address = address.map(|address| address.to_string());
    let is_it =
        |origin: &DirectOrigin| Some(origin.id) == id || is_short(origin) || Some(&origin.address) == address.as_ref();
    origins.into_iter().find(is_it).ok_or_else(|| {
        Failure::new(Kind::NotFound, format!("{socket} has no direct origin {wanted}"))
            .next(format!("`sallyport socket origin ls {socket}` lists those that it has"))
            .into()
    })
}

fn list(output: &Output, origins: &[DirectOrigin]) -> String {
    let path = |origin: &DirectOrigin| ShownPath(&origin.path, origin.rewrite_path.as_ref()).to_string();
    let has_paths = origins.iter().any(|origin| path(origin) != "/");
    let has_capacities = origins.iter().any(|origin| origin.capacity.is_some());
    columns::table(
        output,
        [
            Column::Id("ORIGIN"),
            Column::Cut("ADDRESS"),
            Column::cut_if(has_paths, "PATH"),
            Column::Plain("REGION"),
            Column::Plain("WEIGHT"),
            Column::cut_if(has_capacities, "CAPACITY"),
            Column::Plain("HEALTH"),
            Column::Plain("CREATED"),
        ],
        origins.iter().map(|origin| {
            [
                origin.id.to_string(),
                origin.address.clone(),
                path(origin),
                origin.region.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
                origin.weight.to_string(),
                origin.capacity.as_ref().map_or_else(|| "-".to_owned(), capacity::words),
                origin.healthy.map_or("-", |healthy| if healthy { "healthy" } else { "unhealthy" }).to_owned(),
                columns::minute(origin.created_at),
            ]
        }),
    )
}
