//! `sallyport connect`: a socket and its tunnel for as long as the command runs.

use clap::Args;
use sallyport_api::{CreateSocket, CreateTunnel, Socket};
use sallyport_client::{ApiClient, SocketRef};
use sallyport_model::{OriginAddr, OriginProtocol, PathRoute, SocketType};

use super::{
    display_name,
    hold::{self, Credential, Origin, OriginArgs},
    identity::PoliciesArg,
    options::{PortArgs, ProtectArgs, idempotency_key, origin_protocol, socket_type},
    settings::SettingsArgs,
};
use crate::{
    context::Context,
    failure::{self, Failure, Kind},
    live::Live,
    service::{PathsArgs, ServiceAddress},
    signals::Signals,
};

/// Options of `connect`.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// What to call the socket [default: host and port of the service]
    #[arg(long)]
    name: Option<String>,
    /// What the service speaks: http, https, tcp, tls or udp [default: as its address says, else http]
    #[arg(long = "type", value_name = "TYPE", value_parser = socket_type())]
    socket_type: Option<SocketType>,
    /// Which HTTP version the service is spoken to with
    #[arg(long, value_name = "PROTOCOL", default_value = "auto", value_parser = origin_protocol())]
    origin_protocol: OriginProtocol,
    #[command(flatten)]
    port: PortArgs,
    #[command(flatten)]
    protect: ProtectArgs,
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    policies: PoliciesArg,
    #[command(flatten)]
    paths: PathsArgs,
    #[command(flatten)]
    origin: OriginArgs,
}

/// A service, and which paths of the socket it has.
#[derive(Debug, Clone)]
pub(super) struct PathService {
    /// The paths.
    pub(super) path: PathRoute,
    /// The service.
    pub(super) origin: Origin,
}

impl PathService {
    /// The tunnel to make for it.
    pub(super) fn tunnel(&self) -> CreateTunnel {
        let PathRoute { prefix, rewrite } = self.path.clone();
        CreateTunnel { path: (!prefix.is_root()).then_some(prefix), rewrite_path: rewrite, ..CreateTunnel::default() }
    }
}

/// A socket to make, and the services behind it.
#[derive(Debug)]
pub(super) struct Connection {
    /// The socket.
    pub(super) create: CreateSocket,
    /// The service that the command names.
    pub(super) own: PathService,
    /// Those of other paths.
    pub(super) others: Vec<PathService>,
}

impl Connection {
    /// Every service.
    pub(super) fn services(&self) -> impl Iterator<Item = &PathService> {
        std::iter::once(&self.own).chain(&self.others)
    }
}

impl ConnectArgs {
    /// The socket to make, and the services behind it.
    ///
    /// # Errors
    /// Options that do not go together.
    pub(super) fn read(self) -> anyhow::Result<Connection> {
        let name = match &self.name {
            Some(name) => display_name(name)?,
            None => display_name(&self.origin.address().to_string())?,
        };
        let socket_type = self.origin.socket_type(self.socket_type)?;
        let (path, others) = self.paths.read(self.origin.service())?;
        if !socket_type.is_http() && !(others.is_empty() && path.is_plain()) {
            let failure =
                Failure::usage(format!("paths are for http and https sockets, and this is a {socket_type} socket"));
            return Err(failure.next("leave --path and what goes with it out").into());
        }
        let address = |service: &ServiceAddress| self.origin.address_of(service);
        let others: Vec<_> = others.into_iter().map(|(path, service)| (path, address(&service), service)).collect();
        let origin = self.origin.prepare(socket_type)?;
        let beside = |(path, address, service): (PathRoute, OriginAddr, ServiceAddress)| {
            Ok(PathService { path, origin: origin.beside(address, &service)? })
        };
        let others = others.into_iter().map(beside).collect::<Result<Vec<_>, Failure>>()?;
        let mut create = CreateSocket {
            origin_protocol: self.origin_protocol,
            protected: self.protect.read(socket_type, None)?,
            port: self.port.public_port,
            policies: self.policies.get(),
            ..CreateSocket::new(name, socket_type)
        };
        self.settings.set(&mut create)?;
        Ok(Connection { create, own: PathService { path, origin }, others })
    }

    /// Whether somebody would have to be asked for a password.
    pub(super) fn asks_for_password(&self) -> bool {
        self.protect.asks()
    }
}

/// Gives the service a public name, and takes it back at the end.
pub(crate) async fn run(context: &Context, args: ConnectArgs) -> anyhow::Result<()> {
    let connection = args.read()?;
    let target = context.target()?;
    let client = context.client(&target)?;
    // From here on the socket must be taken back, whatever ends us.
    let mut signals = Signals::take()?;
    let key = idempotency_key()?;
    tracing::debug!("making a socket");
    let socket = tokio::select! {
        made = client.create_socket(&connection.create, &key) => made?,
        () = signals.next() => return Err(given_up().into()),
    };
    let mut live = match connection.others.is_empty() {
        true => Live::new(context.output, context.offset),
        false => Live::of_paths(context.output, context.offset),
    };
    let held = async {
        let origins: Vec<_> = connection.services().map(|one| (one.path.clone(), one.origin.to_string())).collect();
        live.header(&socket, &origins)?;
        let reference = socket.id.into();
        let mut held = Vec::new();
        for service in connection.services() {
            let create = service.tunnel();
            let tunnel = tokio::select! {
                made = client.create_tunnel(&reference, &create) => made?,
                () = signals.next() => return Ok(()),
            };
            live.name(tunnel.details.id, service.path.prefix.as_str());
            held.push((Credential::from(tunnel), service.origin.clone()));
        }
        hold::hold(&target, held, &mut live, &mut signals).await
    }
    .await;
    let removed = remove(&client, &socket, &mut signals).await;
    match (held, removed) {
        (held, Ok(())) => {
            context.output.hint("socket removed");
            held
        }
        (Ok(()), Err(failure)) => Err(failure.into()),
        (Err(error), Err(failure)) => {
            context.output.failure(&failure);
            Err(error)
        }
    }
}

/// The API has not said yet whether there is a socket.
pub(super) fn given_up() -> Failure {
    Failure::new(Kind::Failed, "stopped before the API said whether it made the socket")
        .next("look with `sallyport socket ls`, and remove it with `sallyport socket delete`")
}

/// Removes the socket; the next signal gives up.
async fn remove(client: &ApiClient, socket: &Socket, signals: &mut Signals) -> Result<(), Failure> {
    tokio::select! {
        outcome = delete(client, socket) => outcome,
        () = signals.next() => Err(remains(socket, "it was not waited for")),
    }
}

/// Removes the socket, unless it is gone already.
pub(super) async fn delete(client: &ApiClient, socket: &Socket) -> Result<(), Failure> {
    match client.delete_socket(&SocketRef::from(socket.id)).await {
        Ok(()) => Ok(()),
        Err(error) if error.status() == Some(404) => Ok(()),
        Err(error) => {
            let failure = failure::of_client(&error);
            Err(Failure { kind: failure.kind, ..remains(socket, &failure.message) })
        }
    }
}

/// The socket was not removed.
pub(super) fn remains(socket: &Socket, why: &str) -> Failure {
    let name = socket.label().map_or_else(|| socket.id.to_string(), |label| label.to_string());
    Failure::new(Kind::Failed, format!("the socket {name} may still be there: {why}"))
        .next(format!("unless its account is gone, remove it with `sallyport socket delete {name}`"))
}
