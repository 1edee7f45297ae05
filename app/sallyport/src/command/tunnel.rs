//! `sallyport tunnel`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sallyport_api::{
    ConnectTo, CreateSshCertificate, CreateTunnel, CreatedTunnel, Secret, Socket, Tunnel, TunnelStatus, UpdateTunnel,
};
use sallyport_client::{ApiClient, ClientError, SocketRef};
use sallyport_model::{MAX_WEIGHT, PathPrefix, PathRoute, SocketType, TunnelId};
use serde_json::json;
use time::OffsetDateTime;

use super::{
    connect::PathService,
    flow::age,
    hold::{self, Credential, OriginArgs},
    options::{SocketArg, socket_type},
    socket_stats::ms,
    ssh_key, utc,
};
use crate::{
    context::Context,
    failure::{self, Failure, Kind},
    live::Live,
    output,
    service::{RewriteArgs, ShownPath},
    signals::Signals,
};

/// What can be done with tunnels.
#[derive(Debug, Subcommand)]
pub(crate) enum TunnelCommand {
    /// Make a tunnel; its credential is shown this once
    Create(CreateArgs),
    /// List the tunnels of a socket
    #[command(alias = "list")]
    Ls(SocketOnly),
    /// Change a tunnel: its share of the socket's traffic, its paths
    Edit(EditArgs),
    /// Delete a tunnel; its connector is told to go
    #[command(alias = "rm")]
    Delete(DeleteArgs),
    /// Sign an ssh key: for five minutes it logs in to serve this one tunnel, without being a key of the account
    SignKey(SignKeyArgs),
    /// Carry a socket's requests to a service near you until this command is stopped
    Connect(Box<ConnectArgs>),
}

/// Options of `tunnel create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    socket: SocketArg,
    /// Its share of the socket's traffic beside the other tunnels, 0 to 1000; 0 takes nothing new [default: 100]
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=i64::from(MAX_WEIGHT)))]
    weight: Option<u16>,
    #[command(flatten)]
    path: TunnelPathArgs,
}

/// Which paths of its socket a tunnel serves.
#[derive(Debug, Args)]
pub(crate) struct TunnelPathArgs {
    /// Serve this path of the socket and what is beneath it, and nothing else (http and https) [default: /]
    #[arg(long, value_name = "PATH")]
    path: Option<PathPrefix>,
    #[command(flatten)]
    rewrite: RewriteArgs,
}

impl TunnelPathArgs {
    /// The paths; `of_address`: what the address of the service says.
    fn get(&self, of_address: Option<&PathPrefix>) -> Result<PathRoute, Failure> {
        let rewrite = self.rewrite.replacement(of_address)?;
        Ok(PathRoute { prefix: self.path.clone().unwrap_or_default(), rewrite })
    }

    fn is_empty(&self) -> bool {
        self.path.is_none() && !self.rewrite.strip_path && self.rewrite.rewrite_path.is_none()
    }
}

/// Options of `tunnel edit`.
#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    #[command(flatten)]
    socket: SocketArg,
    /// The id of the tunnel, as `tunnel ls` shows it
    #[arg(long)]
    tunnel_id: TunnelId,
    /// Its share of the socket's traffic beside the other tunnels, 0 to 1000; 0 takes nothing new
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=i64::from(MAX_WEIGHT)))]
    weight: Option<u16>,
    /// Serve this path of the socket and what is beneath it; /: every path (http and https)
    #[arg(long, value_name = "PATH")]
    path: Option<PathPrefix>,
    #[command(flatten)]
    rewrite: RewriteArgs,
    /// Ask the service with the path as clients ask for it
    #[arg(long, conflicts_with_all = ["strip_path", "rewrite_path"])]
    keep_path: bool,
}

/// Options of `tunnel ls`.
#[derive(Debug, Args)]
pub(crate) struct SocketOnly {
    #[command(flatten)]
    socket: SocketArg,
}

/// Options of `tunnel delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    socket: SocketArg,
    /// The id of the tunnel, as `tunnel ls` shows it
    #[arg(long)]
    tunnel_id: TunnelId,
}

/// Options of `tunnel sign-key`.
#[derive(Debug, Args)]
pub(crate) struct SignKeyArgs {
    #[command(flatten)]
    socket: SocketArg,
    /// The id of the tunnel, as `tunnel ls` shows it
    #[arg(long)]
    tunnel_id: TunnelId,
    /// The file with the public key, - for the standard input [default: ~/.ssh/id_ed25519.pub, id_ecdsa.pub or id_rsa.pub]
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
}

/// Options of `tunnel connect`.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    #[command(flatten)]
    socket: SocketArg,
    /// The tunnel to hold; it gets a new credential. Without it, one is made for the time of the connection
    #[arg(long)]
    tunnel_id: Option<TunnelId>,
    /// The credential that `tunnel create` showed, to connect without a login; best in the environment
    #[arg(
        long,
        value_name = "CREDENTIAL",
        env = "SALLYPORT_TUNNEL_CREDENTIAL",
        hide_env_values = true,
        requires = "tunnel_id"
    )]
    tunnel_credential: Option<String>,
    /// What the service speaks; only with --tunnel-credential, else the socket says it
    #[arg(long = "type", value_name = "TYPE", requires = "tunnel_credential", value_parser = socket_type())]
    socket_type: Option<SocketType>,
    #[command(flatten)]
    path: TunnelPathArgs,
    #[command(flatten)]
    origin: OriginArgs,
}

/// What `tunnel connect` is to do.
pub(super) struct Connection {
    /// The socket.
    pub(super) socket: SocketRef,
    /// The tunnel, when it was made before.
    pub(super) tunnel: Option<TunnelId>,
    /// Its credential, when that is known.
    pub(super) credential: Option<Secret>,
    /// What the service speaks, when nobody is asked.
    pub(super) socket_type: Option<SocketType>,
    /// Which paths of the socket the service has, where the tunnel is made for it.
    pub(super) path: PathRoute,
    /// The service.
    pub(super) origin: OriginArgs,
}

impl ConnectArgs {
    /// What is to be done.
    ///
    /// # Errors
    /// No socket is named, or paths are for a tunnel that has its own.
    pub(super) fn read(self) -> anyhow::Result<Connection> {
        let of_address = self.origin.service().path.as_ref();
        if let Some(tunnel) = self.tunnel_id
            && (of_address.is_some() || !self.path.is_empty())
        {
            let failure = Failure::usage("a tunnel that there is has its paths already");
            let how = format!(
                "leave the path out; `sallyport tunnel edit SOCKET --tunnel-id {tunnel} --path PATH` changes it"
            );
            return Err(failure.next(how).into());
        }
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

/// Does it.
pub(crate) async fn run(context: &Context, command: TunnelCommand) -> anyhow::Result<()> {
    match command {
        TunnelCommand::Create(args) => {
            let socket = args.socket.get()?;
            let client = context.client(&context.target()?)?;
            let PathRoute { prefix, rewrite } = args.path.get(None)?;
            let path = (!prefix.is_root()).then_some(prefix);
            let create = CreateTunnel { weight: args.weight, path, rewrite_path: rewrite };
            let created = client.create_tunnel(socket, &create).await.map_err(|error| failure::about(error, socket))?;
            context.output.data(&created, show)?;
            context.output.hint("keep the credential now: it is not shown again");
            Ok(())
        }
        TunnelCommand::Ls(args) => {
            let socket = args.socket.get()?;
            let client = context.client(&context.target()?)?;
            let tunnels = client.tunnels(socket).await.map_err(|error| failure::about(error, socket))?;
            let empty = format!("no tunnels yet: `sallyport tunnel connect {socket} PORT` attaches a service");
            let shown = |tunnels: &[Tunnel]| list(tunnels, context.output.is_wide);
            context.output.list(&tunnels, &empty, shown)
        }
        TunnelCommand::Edit(args) => {
            let (socket, tunnel) = (args.socket.get()?, args.tunnel_id);
            let client = context.client(&context.target()?)?;
            let rewrite = args.rewrite.replacement(None)?.map(Some);
            let rewrite_path = if args.keep_path { Some(None) } else { rewrite };
            let update = UpdateTunnel { weight: args.weight, path: args.path.map(Some), rewrite_path };
            if update.is_empty() {
                let failure = Failure::usage("nothing to change").next("see `sallyport tunnel edit --help`");
                return Err(failure.into());
            }
            let changed = client.update_tunnel(socket, tunnel, &update).await;
            let changed =
                changed.map_err(|error| failure::about(error, &format_args!("tunnel {tunnel} of {socket}")))?;
            context.output.data(&changed, |changed| list(std::slice::from_ref(changed), context.output.is_wide))
        }
        TunnelCommand::Delete(args) => {
            let (socket, tunnel) = (args.socket.get()?, args.tunnel_id);
            let client = context.client(&context.target()?)?;
            let outcome = client.delete_tunnel(socket, tunnel).await;
            outcome.map_err(|error| failure::about(error, &format_args!("tunnel {tunnel} of {socket}")))?;
            context.output.data(&json!({ "deleted": tunnel }), |_| format!("deleted {tunnel}"))
        }
        TunnelCommand::SignKey(args) => {
            let (socket, tunnel) = (args.socket.get()?, args.tunnel_id);
            let key = CreateSshCertificate { public_key: ssh_key::read(args.public_key)? };
            let client = context.client(&context.target()?)?;
            let signed = client.sign_ssh_key(socket, tunnel, &key).await;
            let signed = signed.map_err(|error| failure::about(error, &format_args!("tunnel {tunnel} of {socket}")))?;
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

async fn connect(context: &Context, args: ConnectArgs) -> anyhow::Result<()> {
    let args = args.read()?;
    let reference = &args.socket;
    let target = context.target()?;
    if let (Some(tunnel), Some(credential)) = (args.tunnel, args.credential) {
        // Whoever has the credential needs no login, but cannot ask for the socket's type either.
        let connect = edge_of(&context.client_of_nobody(&target)?).await?;
        let origin = args.origin.prepare(args.socket_type.unwrap_or(SocketType::Http))?;
        let credential = Credential { tunnel, credential, connect };
        let mut live = Live::new(context.output, context.offset);
        return hold::hold(&target, vec![(credential, origin)], &mut live, &mut Signals::take()?).await;
    }
    let client = context.client(&target)?;
    let socket = client.socket(reference).await.map_err(|error| failure::about(error, reference))?;
    let service = PathService { path: args.path, origin: args.origin.prepare(socket.socket_type)? };
    let mut signals = Signals::take()?;
    let reference = SocketRef::from(socket.id);
    let tunnel = renew_or_create(&client, &socket, args.tunnel, &service.tunnel()).await?;
    let id = tunnel.details.id;
    let mut live = Live::new(context.output, context.offset);
    let held = async {
        let path = PathRoute { prefix: tunnel.details.path.clone(), rewrite: tunnel.details.rewrite_path.clone() };
        live.header(&socket, &[(path, service.origin.to_string())])?;
        hold::hold(&target, vec![(Credential::from(tunnel), service.origin)], &mut live, &mut signals).await
    }
    .await;
    if args.tunnel.is_some() {
        return held;
    }
    match (held, remove(&client, &reference, id, &mut signals).await) {
        (held, Ok(())) => {
            context.output.hint("tunnel removed");
            held
        }
        (Ok(()), Err(failure)) => Err(failure.into()),
        (Err(error), Err(failure)) => {
            context.output.failure(&failure);
            Err(error)
        }
    }
}

/// Where connectors dial to.
///
/// # Errors
/// Those of the API.
pub(super) async fn edge_of(client: &ApiClient) -> Result<ConnectTo, ClientError> {
    let info = client.info().await?;
    let edges = Vec::new();
    Ok(ConnectTo { host: info.tunnel_host, port: info.tunnel_port, quic_port: info.tunnel_quic_port, edges })
}

/// The tunnel with a new credential, or a new tunnel where none is named.
///
/// # Errors
/// Those of the API.
pub(super) async fn renew_or_create(
    client: &ApiClient,
    socket: &Socket,
    tunnel: Option<TunnelId>,
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

/// Removes the tunnel that was made for this connection; the next signal gives up.
async fn remove(
    client: &ApiClient,
    socket: &SocketRef,
    tunnel: TunnelId,
    signals: &mut Signals,
) -> Result<(), Failure> {
    tokio::select! {
        outcome = delete(client, socket, tunnel) => outcome,
        () = signals.next() => Err(remains(socket, tunnel, "it was not waited for")),
    }
}

/// Removes the tunnel, unless it is gone already.
pub(super) async fn delete(client: &ApiClient, socket: &SocketRef, tunnel: TunnelId) -> Result<(), Failure> {
    match client.delete_tunnel(socket, tunnel).await {
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
        "unless its account is gone, remove it with `sallyport tunnel delete {socket} --tunnel-id {tunnel}`"
    ))
}

fn show(created: &CreatedTunnel) -> String {
    output::pairs(&[
        ("tunnel", created.details.id.to_string()),
        ("socket", created.details.socket_id.to_string()),
        ("credential", created.credential.expose().to_owned()),
        ("weight", created.details.weight.to_string()),
        ("path", shown_path(&created.details)),
        ("ssh forward port", created.details.forward_port.to_string()),
        ("connects to", format!("{}:{}", created.connect.host, created.connect.port)),
    ])
}

/// Whether it is up, and whether what is behind it is well.
fn status(tunnel: &Tunnel) -> &'static str {
    match (tunnel.status, tunnel.healthy) {
        (TunnelStatus::Up, Some(false)) => "unwell",
        (TunnelStatus::Up, _) => "up",
        (TunnelStatus::Down, _) => "down",
    }
}

fn list(tunnels: &[Tunnel], is_wide: bool) -> String {
    let now = OffsetDateTime::now_utc();
    if !is_wide {
        let header = ["TUNNEL", "STATUS", "EDGE", "REGION", "RTT", "AGE"];
        if tunnels.iter().any(|tunnel| shown_path(tunnel) != "/") {
            let [id, status, edge, region, rtt, age] = header;
            let header = [id, "PATH", status, edge, region, rtt, age];
            return output::table(
                header,
                tunnels.iter().map(|tunnel| {
                    let [id, status, edge, region, rtt, age] = narrow(tunnel, now);
                    [id, shown_path(tunnel), status, edge, region, rtt, age]
                }),
            );
        }
        return output::table(header, tunnels.iter().map(|tunnel| narrow(tunnel, now)));
    }
    let header = [
        "TUNNEL",
        "STATUS",
        "EDGE",
        "REGION",
        "RTT",
        "AGE",
        "WEIGHT",
        "PATH",
        "SSH PORT",
        "NOW",
        "SINCE",
        "CONNECTOR",
        "PROGRAM",
    ];
    output::table(
        header,
        tunnels.iter().map(|tunnel| {
            let [id, status, edge, region, rtt, age] = narrow(tunnel, now);
            [
                id,
                status,
                edge,
                region,
                rtt,
                age,
                tunnel.weight.to_string(),
                shown_path(tunnel),
                tunnel.forward_port.to_string(),
                tunnel.live.map(|live| live.to_string()).unwrap_or_default(),
                tunnel.since.map(utc).unwrap_or_default(),
                tunnel.connector_addr.map(|address| address.to_string()).unwrap_or_default(),
                tunnel.agent.clone().unwrap_or_default(),
            ]
        }),
    )
}

/// The paths that the tunnel serves.
fn shown_path(tunnel: &Tunnel) -> String {
    ShownPath(&tunnel.path, tunnel.rewrite_path.as_ref()).to_string()
}

/// What fits a narrow terminal.
fn narrow(tunnel: &Tunnel, now: OffsetDateTime) -> [String; 6] {
    let mut regions: Vec<_> = tunnel.holders.iter().map(|one| one.region.as_str()).collect();
    regions.dedup();
    let edges: Vec<_> = tunnel.holders.iter().map(|one| one.edge.as_str()).collect();
    [
        tunnel.id.to_string(),
        status(tunnel).to_owned(),
        edges.join(","),
        regions.join(","),
        tunnel.round_trip_ms.map(ms).unwrap_or_default(),
        tunnel.since.map(|since| age((now - since).whole_seconds())).unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_whose_service_fails_its_health_check_does_not_look_well() {
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
