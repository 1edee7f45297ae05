//! `sallyport tunnel`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{
    ConnectTo, CreateSshCertificate, CreateTunnel, CreatedTunnel, Secret, Socket, Tunnel, TunnelStatus, UpdateTunnel,
};
use sallyport_client::{ApiClient, ClientError, SocketRef, TunnelRef};
use sallyport_model::{MAX_WEIGHT, PathPrefix, PathRoute, SocketType, TunnelId};
use serde_json::json;
use time::OffsetDateTime;

use super::{
    display_name,
    flow::age,
    health::why,
    hold::{self, Credential, OriginArgs},
    options::{NamedSocketArg, SocketArg, TunnelArg, socket_type},
    ssh_key, tunnel_view,
};
use crate::{
    args::{
        capacity::{self, CapacityArgs},
        service::{RewriteArgs, ShownPath},
    },
    command::{
        options::{
            confirm::YesArg,
            labels::{ChangedLabelsArgs, LabelSelectorArgs, LabelsArgs},
        },
        socket::{request::PathService, stats::ms},
    },
    context::{Context, candidates},
    failure::{self, Failure, Kind},
    output::{self, Output},
    signals::Signals,
    view::{
        columns::{self, Column},
        live::Live,
        utc,
    },
};

/// What can be done with tunnels.
#[derive(Debug, Subcommand)]
pub(crate) enum TunnelCommand {
    /// Make a tunnel; its credential is shown only once
    Create(CreateArgs),
    /// List the tunnels of a socket, or of all
    #[command(alias = "list")]
    Ls(LsArgs),
    /// Show a tunnel and the links that carry it: round trip, loss, bytes, path MTU
    Show(ShowArgs),
    /// Change a tunnel: its name, its share of the socket's traffic, its paths
    Edit(EditArgs),
    /// Delete a tunnel and stop its connector
    #[command(alias = "rm")]
    Delete(DeleteArgs),
    /// Sign an ssh key, which may serve this one tunnel for five minutes without being a key of the account
    SignKey(SignKeyArgs),
    /// Carry a socket's requests to a service near you until this command is stopped
    Connect(Box<ConnectArgs>),
}

/// Options of `tunnel create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    socket: SocketArg,
    /// The name, unique in the organisation
    #[arg(long)]
    name: Option<String>,
    /// The weight of the tunnel among the socket's tunnels, 0 to 1000; 0 takes nothing new [default: 100]
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=i64::from(MAX_WEIGHT)))]
    weight: Option<u16>,
    #[command(flatten)]
    path: TunnelPathArgs,
    #[command(flatten)]
    capacity: CapacityArgs,
    #[command(flatten)]
    labels: LabelsArgs,
}

/// The paths of a tunnel.
#[derive(Debug, Args)]
pub(crate) struct TunnelPathArgs {
    /// Serve only this path of the socket and all paths beneath it (http and https) [default: /]
    #[arg(long, value_name = "PATH")]
    path: Option<PathPrefix>,
    #[command(flatten)]
    rewrite: RewriteArgs,
}

impl TunnelPathArgs {
    /// The paths; `of_address` is the path in the address of the service.
    fn get(&self, of_address: Option<&PathPrefix>) -> Result<PathRoute, Failure> {
        let rewrite = self.rewrite.replacement(of_address)?;
        Ok(PathRoute { prefix: self.path.clone().unwrap_or_default(), rewrite })
    }

    fn is_empty(&self) -> bool {
        self.path.is_none() && !self.rewrite.strip_path && self.rewrite.rewrite_path.is_none()
    }
}

/// Options of `tunnel show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    tunnel: TunnelArg,
    /// The tunnel, by its name
    #[arg(long, add = ArgValueCompleter::new(candidates::tunnels))]
    name: Option<TunnelRef>,
}

/// Options of `tunnel edit`.
#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    #[command(flatten)]
    tunnel: TunnelArg,
    /// The new name; empty for none
    #[arg(long)]
    name: Option<String>,
    /// The weight of the tunnel among the socket's tunnels, 0 to 1000; 0 takes nothing new
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
    labels: ChangedLabelsArgs,
}

/// Options of `tunnel ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    socket: ListedSocketArg,
    #[command(flatten)]
    labels: LabelSelectorArgs,
}

/// The socket of the tunnels in a list.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct ListedSocketArg {
    /// The socket: its name, its public name, or its id [default: all sockets]
    #[arg(value_name = "SOCKET", add = ArgValueCompleter::new(candidates::sockets))]
    socket: Option<SocketRef>,
    /// The same, as an option
    #[arg(long, alias = "socket", value_name = "SOCKET", add = ArgValueCompleter::new(candidates::sockets))]
    socket_id: Option<SocketRef>,
    /// The same, by its name
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(candidates::sockets))]
    name: Option<SocketRef>,
}

/// Options of `tunnel delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    tunnel: TunnelArg,
    /// The tunnel, by its name
    #[arg(long, add = ArgValueCompleter::new(candidates::tunnels))]
    name: Option<TunnelRef>,
    #[command(flatten)]
    yes: YesArg,
}

/// Options of `tunnel sign-key`.
#[derive(Debug, Args)]
pub(crate) struct SignKeyArgs {
    #[command(flatten)]
    tunnel: TunnelArg,
    /// The tunnel, by its name
    #[arg(long, add = ArgValueCompleter::new(candidates::tunnels))]
    name: Option<TunnelRef>,
    /// The file with the public key, - for the standard input [default: ~/.ssh/id_ed25519.pub, id_ecdsa.pub or
    /// id_rsa.pub]
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
}

/// Options of `tunnel connect`.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    #[command(flatten)]
    socket: NamedSocketArg,
    /// The tunnel to connect, by its id or its name; it gets a new credential. Without one, the command creates a
    /// temporary tunnel
    #[arg(long, alias = "tunnel", value_name = "TUNNEL", add = ArgValueCompleter::new(candidates::tunnels))]
    tunnel_id: Option<TunnelRef>,
    /// The credential from `tunnel create`, to connect without a login; best in the environment
    #[arg(
        long,
        value_name = "CREDENTIAL",
        env = "SALLYPORT_TUNNEL_CREDENTIAL",
        hide_env_values = true,
        requires = "tunnel_id"
    )]
    tunnel_credential: Option<String>,
    /// The type of the service, with --tunnel-credential only; otherwise that of the socket
    #[arg(long = "type", value_name = "TYPE", requires = "tunnel_credential", value_parser = socket_type())]
    socket_type: Option<SocketType>,
    #[command(flatten)]
    path: TunnelPathArgs,
    #[command(flatten)]
    origin: OriginArgs,
}

/// A tunnel to connect.
pub(super) struct Connection {
    /// The socket.
    pub(super) socket: SocketRef,
    /// The tunnel, if it exists already.
    pub(super) tunnel: Option<TunnelRef>,
    /// Its credential, if given.
    pub(super) credential: Option<Secret>,
    /// The type of the service, if the API is not asked.
    pub(super) socket_type: Option<SocketType>,
    /// The paths of a tunnel that is created.
    pub(super) path: PathRoute,
    /// The service.
    pub(super) origin: OriginArgs,
}

impl ConnectArgs {
    /// Reads the options.
    ///
    /// # Errors
    /// No socket is named, or paths or limits are given for an existing tunnel.
    pub(super) fn read(self) -> anyhow::Result<Connection> {
        let of_address = self.origin.service().path.as_ref();
        if let Some(tunnel) = &self.tunnel_id
            && (of_address.is_some() || !self.path.is_empty())
        {
            let failure = Failure::usage("a tunnel that there is has its paths already");
            let how = format!(
                "leave the path out; `sallyport tunnel edit SOCKET --tunnel-id {tunnel} --path PATH` changes it"
            );
            return Err(failure.next(how).into());
        }
        if let Some(tunnel) = self.tunnel_id.as_ref().filter(|_| !self.origin.capacity().is_empty()) {
            let failure = Failure::usage("a tunnel that there is has its limits already");
            let how = format!(
                "leave them out; `sallyport tunnel edit SOCKET --tunnel-id {tunnel}` has --max-rps, --max-connections and \
                 --shared-capacity"
            );
            return Err(failure.next(how).into());
        }
        self.origin.capacity().get()?;
        Ok(Connection {
            path: self.path.get(of_address)?,
            socket: self.socket.get()?.clone(),
            tunnel: self.tunnel_id,
            credential: self.tunnel_credential.filter(|text| !text.is_empty()).map(Secret::from),
            socket_type: self.socket_type,
            origin: self.origin,
        })
    }
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: TunnelCommand) -> anyhow::Result<()> {
    match command {
        TunnelCommand::Create(args) => {
            let socket = args.socket.get()?;
            let client = context.client(&context.target()?)?;
            let name = args.name.as_deref().map(display_name).transpose()?;
            let PathRoute { prefix, rewrite } = args.path.get(None)?;
            let path = (!prefix.is_root()).then_some(prefix);
            let capacity = args.capacity.change(None);
            let labels = args.labels.get()?;
            let create = CreateTunnel { name, weight: args.weight, path, rewrite_path: rewrite, capacity, labels };
            let created = client.create_tunnel(socket, &create).await.map_err(|error| failure::about(error, socket))?;
            context.output.data(&created, show)?;
            context.output.hint("keep the credential now: it is not shown again");
            Ok(())
        }
        TunnelCommand::Ls(args) => {
            let ListedSocketArg { socket, socket_id, name } = args.socket;
            let socket = &socket.or(socket_id).or(name).unwrap_or(SocketRef::Any);
            let client = context.client(&context.target()?)?;
            let tunnels = client
                .tunnels_with(socket, &args.labels.labels)
                .await
                .map_err(|error| failure::about(error, socket))?;
            let named = if *socket == SocketRef::Any { "SOCKET".to_owned() } else { socket.to_string() };
            let empty = format!("no tunnels yet: `sallyport tunnel connect {named} PORT` attaches a service");
            context.output.list(&tunnels, &empty, |tunnels| list(&context.output, tunnels))?;
            for (tunnel, failure) in tunnels.iter().filter_map(|tunnel| Some((tunnel, tunnel.failure.as_ref()?))) {
                let called = tunnel.name.as_ref().map_or_else(|| tunnel.id.to_string(), ToString::to_string);
                context.output.hint(&format!("{called} gets nothing: {}", why(failure)));
            }
            Ok(())
        }
        TunnelCommand::Show(args) => {
            let (socket, tunnel) = args.tunnel.get(args.name.as_ref())?;
            let client = context.client(&context.target()?)?;
            let shown = client.tunnel(&socket, &tunnel).await;
            let shown = shown.map_err(|error| failure::about(error, &of(&socket, &tunnel)))?;
            context
                .output
                .data(&shown, |shown| tunnel_view::whole(&context.output, shown, status(shown), shown_path(shown)))
        }
        TunnelCommand::Edit(args) => {
            let (socket, tunnel) = args.tunnel.get(None)?;
            let name = match args.name.as_deref() {
                None => None,
                Some("") => Some(None),
                Some(name) => Some(Some(display_name(name)?)),
            };
            let rewrite = args.rewrite.replacement(None)?.map(Some);
            let rewrite_path = if args.keep_path { Some(None) } else { rewrite };
            let (weight, path) = (args.weight, args.path.map(Some));
            let mut update = UpdateTunnel { name, weight, path, rewrite_path, ..UpdateTunnel::default() };
            let is_relative = !args.capacity.is_empty() || !args.labels.is_empty();
            if update.is_empty() && !is_relative {
                let failure = Failure::usage("nothing to change").next("see `sallyport tunnel edit --help`");
                return Err(failure.into());
            }
            let client = context.client(&context.target()?)?;
            if is_relative {
                let known = client.tunnel(&socket, &tunnel).await;
                let known = known.map_err(|error| failure::about(error, &of(&socket, &tunnel)))?;
                update.labels = args.labels.change(&known.labels)?.map(Some);
                if !args.capacity.is_empty() {
                    update.capacity = args.capacity.change(known.capacity).map(Some);
                }
            }
            let changed = client.update_tunnel(&socket, &tunnel, &update).await;
            let changed = changed.map_err(|error| failure::about(error, &of(&socket, &tunnel)))?;
            context.output.data(&changed, |changed| list(&context.output, std::slice::from_ref(changed)))
        }
        TunnelCommand::Delete(args) => delete_named(context, args).await,
        TunnelCommand::SignKey(args) => {
            let (socket, tunnel) = args.tunnel.get(args.name.as_ref())?;
            let key = CreateSshCertificate { public_key: ssh_key::read(args.public_key)? };
            let client = context.client(&context.target()?)?;
            let signed = client.sign_ssh_key(&socket, &tunnel, &key).await;
            let signed = signed.map_err(|error| failure::about(error, &of(&socket, &tunnel)))?;
            context.output.data(&signed, |signed| signed.certificate.clone())?;
            context.output.hint(&format!(
                "good until {}: write it to a file, and `ssh -o CertificateFile=FILE -R {}:localhost:PORT -l {} …`",
                utc(signed.valid_until),
                signed.forward_port,
                signed.user
            ));
            Ok(())
        }
        TunnelCommand::Connect(args) => connect(context, *args).await,
    }
}

/// The tunnel's name in failures.
fn of(socket: &SocketRef, tunnel: &TunnelRef) -> String {
    if *socket == SocketRef::Any { format!("tunnel {tunnel}") } else { format!("tunnel {tunnel} of {socket}") }
}

async fn delete_named(context: &Context, args: DeleteArgs) -> anyhow::Result<()> {
    let (socket, tunnel) = args.tunnel.get(args.name.as_ref())?;
    let about = |error| failure::about(error, &of(&socket, &tunnel));
    let client = context.client(&context.target()?)?;
    let mut known = tunnel.clone();
    if args.yes.asks() {
        let found = client.tunnel(&socket, &tunnel).await.map_err(about)?;
        let host = found.host.map(|host| format!(", which {host} holds")).unwrap_or_default();
        args.yes.confirm(&format!("Delete the tunnel {tunnel}{host}? Its credential is not valid any more then."))?;
        known = found.id.into();
    }
    client.delete_tunnel(&socket, &known).await.map_err(about)?;
    context.output.data(&json!({ "deleted": tunnel.to_string() }), |_| format!("deleted {tunnel}"))
}

async fn connect(context: &Context, args: ConnectArgs) -> anyhow::Result<()> {
    let args = args.read()?;
    let reference = &args.socket;
    let target = context.target()?;
    if let (Some(tunnel), Some(credential)) = (&args.tunnel, args.credential) {
        let tunnel = whole_id(tunnel)?;
        // With a credential no login is needed, but the socket's type is not known either.
        let connect = edge_of(&context.anonymous_client(&target)?).await?;
        let origin = args.origin.prepare(args.socket_type.unwrap_or(SocketType::Http))?;
        let credential = Credential { tunnel, credential, connect };
        let mut live = Live::new(context.output, context.offset);
        return hold::hold(&target, vec![(credential, origin)], &mut live, &mut Signals::take()?, None).await;
    }
    let client = context.client(&target)?;
    let socket = client.socket(reference).await.map_err(|error| failure::about(error, reference))?;
    let service = PathService { path: args.path, origin: args.origin.prepare(socket.socket_type)? };
    let mut signals = Signals::take()?;
    let reference = SocketRef::from(socket.id);
    let tunnel = renew_or_create(&client, &socket, args.tunnel.as_ref(), &service.tunnel()).await?;
    let id = tunnel.details.id;
    let mut live = Live::new(context.output, context.offset);
    let outcome = async {
        let path = PathRoute { prefix: tunnel.details.path.clone(), rewrite: tunnel.details.rewrite_path.clone() };
        live.header(&socket, &[(path, service.origin.to_string())])?;
        hold::hold(&target, vec![(Credential::from(tunnel), service.origin)], &mut live, &mut signals, None).await
    }
    .await;
    if args.tunnel.is_some() {
        return outcome;
    }
    match (outcome, remove(&client, &reference, &[id], &mut signals).await) {
        (outcome, Ok(())) => {
            context.output.hint("tunnel removed");
            outcome
        }
        (Ok(()), Err(failure)) => Err(failure.into()),
        (Err(error), Err(failure)) => {
            context.output.failure(&failure);
            Err(error)
        }
    }
}

/// The address that connectors dial.
///
/// # Errors
/// Those of the API.
pub(super) async fn edge_of(client: &ApiClient) -> Result<ConnectTo, ClientError> {
    let info = client.info().await?;
    let edges = Vec::new();
    Ok(ConnectTo {
        host: info.tunnel_host,
        port: info.tunnel_port,
        quic_port: info.tunnel_quic_port,
        edges,
        ca_pem: info.ca_pem,
    })
}

/// The id of a tunnel, without a request to the API.
///
/// # Errors
/// It is no complete id.
pub(super) fn whole_id(tunnel: &TunnelRef) -> Result<TunnelId, Failure> {
    match tunnel {
        TunnelRef::Id(id) => Ok(*id),
        TunnelRef::Called(name) => Err(Failure::usage(format!("{name:?} is no whole id of a tunnel"))
            .next("with --tunnel-credential names cannot be looked up: give --tunnel-id as `tunnel create` shows it")),
    }
}

/// Gives the tunnel a new credential, or makes a tunnel if none is named.
///
/// # Errors
/// Those of the API.
pub(super) async fn renew_or_create(
    client: &ApiClient,
    socket: &Socket,
    tunnel: Option<&TunnelRef>,
    create: &CreateTunnel,
) -> anyhow::Result<CreatedTunnel> {
    let reference = SocketRef::from(socket.id);
    Ok(match tunnel {
        Some(tunnel) => client
            .renew_credential(&reference, tunnel)
            .await
            .map_err(|error| failure::about(error, &format_args!("tunnel {tunnel} of {}", socket.dns_name)))?,
        None => client.create_tunnel(&reference, create).await?,
    })
}

/// Removes the tunnels that were made for this connection. A further signal ends that.
pub(super) async fn remove(
    client: &ApiClient,
    socket: &SocketRef,
    tunnels: &[TunnelId],
    signals: &mut Signals,
) -> Result<(), Failure> {
    let mut first = Ok(());
    for tunnel in tunnels {
        let removed = tokio::select! {
            outcome = delete(client, socket, *tunnel) => outcome,
            () = signals.next() => return first.and(Err(remains(socket, *tunnel, "it was not waited for"))),
        };
        first = first.and(removed);
    }
    first
}

/// Removes the tunnel, unless it is gone already.
pub(super) async fn delete(client: &ApiClient, socket: &SocketRef, tunnel: TunnelId) -> Result<(), Failure> {
    match client.delete_tunnel(socket, &tunnel.into()).await {
        Ok(()) => Ok(()),
        Err(error) if error.status() == Some(404) => Ok(()),
        Err(error) => {
            let failure = failure::of_client(&error);
            Err(Failure { kind: failure.kind, ..remains(socket, tunnel, &failure.message) })
        }
    }
}

/// The tunnel was not removed.
pub(super) fn remains(socket: &SocketRef, tunnel: TunnelId, why: &str) -> Failure {
    Failure::new(Kind::Failed, format!("the tunnel {tunnel} may still be there: {why}")).next(format!(
        "unless its account was deleted, remove it with `sallyport tunnel delete {socket} --tunnel-id {tunnel}`"
    ))
}

fn show(created: &CreatedTunnel) -> String {
    output::pairs(&[
        ("tunnel", created.details.id.to_string()),
        ("name", created.details.name.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)),
        ("socket", created.details.socket_id.to_string()),
        ("credential", created.credential.expose().to_owned()),
        ("weight", created.details.weight.to_string()),
        ("path", shown_path(&created.details)),
        ("ssh forward port", created.details.forward_port.to_string()),
        ("connects to", format!("{}:{}", created.connect.host, created.connect.port)),
    ])
}

/// The state of the tunnel and of its origin.
fn status(tunnel: &Tunnel) -> &'static str {
    match (tunnel.status, tunnel.healthy) {
        (TunnelStatus::Up, _) if tunnel.failure.as_ref().is_some_and(|failure| failure.code == "ejected") => "left out",
        (TunnelStatus::Up, Some(false)) => "unwell",
        (TunnelStatus::Up, _) => "up",
        (TunnelStatus::Down, _) => "down",
    }
}

fn list(output: &Output, tunnels: &[Tunnel]) -> String {
    let now = OffsetDateTime::now_utc();
    let columns = [
        Column::Id("TUNNEL"),
        Column::Cut("NAME"),
        Column::Cut("HOST"),
        Column::cut_if(tunnels.iter().any(|tunnel| shown_path(tunnel) != "/"), "PATH"),
        Column::Plain("STATUS"),
        Column::Cut("EDGE"),
        Column::Wide("REGION"),
        Column::Plain("RTT"),
        Column::Plain("AGE"),
        Column::Wide("WEIGHT"),
        Column::cut_if(tunnels.iter().any(|tunnel| tunnel.capacity.is_some()), "CAPACITY"),
        Column::Wide("SSH PORT"),
        Column::Wide("NOW"),
        Column::Wide("SINCE"),
        Column::Wide("CONNECTOR"),
        Column::Wide("LINKS"),
        Column::Wide("PROGRAM"),
        Column::Wide("SOCKET"),
    ];
    columns::table(output, columns, tunnels.iter().map(|tunnel| row(tunnel, now)))
}

/// The paths that the tunnel serves.
fn shown_path(tunnel: &Tunnel) -> String {
    ShownPath(&tunnel.path, tunnel.rewrite_path.as_ref()).to_string()
}

fn row(tunnel: &Tunnel, now: OffsetDateTime) -> [String; 18] {
    let mut regions: Vec<_> = tunnel.holders.iter().map(|one| one.region.as_str()).collect();
    regions.dedup();
    let edges: Vec<_> = tunnel.holders.iter().map(|one| one.edge.as_str()).collect();
    let mut links: Vec<_> = tunnel.links.iter().map(|link| link.name.as_str()).collect();
    links.dedup();
    let none = || "-".to_owned();
    [
        tunnel.id.to_string(),
        tunnel.name.as_ref().map_or_else(none, ToString::to_string),
        tunnel.host.clone().unwrap_or_else(none),
        shown_path(tunnel),
        status(tunnel).to_owned(),
        edges.join(","),
        regions.join(","),
        tunnel.round_trip_ms.map(ms).unwrap_or_default(),
        tunnel.since.map(|since| age((now - since).whole_seconds())).unwrap_or_default(),
        tunnel.weight.to_string(),
        tunnel.capacity.as_ref().map_or_else(none, capacity::words),
        tunnel.forward_port.to_string(),
        tunnel.live.map(|live| live.to_string()).unwrap_or_default(),
        tunnel.since.map(utc).unwrap_or_default(),
        tunnel.connector_addr.map(|address| address.to_string()).unwrap_or_default(),
        links.join(","),
        tunnel.agent.clone().unwrap_or_default(),
        tunnel.socket_id.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_with_a_failing_health_check_is_shown_as_failing() {
        let tunnel = |more: &str| -> Tunnel {
            let id = "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11";
            let json = format!(
                r#"{{"id":"{id}","socket_id":"{id}","forward_port":6000,"created_at":"2026-01-01T12:00:00Z"{more}}}"#
            );
            serde_json::from_str(&json).unwrap()
        };
        assert_eq!(status(&tunnel(r#","status":"up""#)), "up");
        assert_eq!(status(&tunnel(r#","status":"up","healthy":true"#)), "up");
        assert_eq!(status(&tunnel(r#","status":"up","healthy":false"#)), "unwell");
        assert_eq!(status(&tunnel(r#","status":"down""#)), "down");
    }
}
