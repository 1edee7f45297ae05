//! `sallyport connect`: a tunnel for as long as the command runs, with a temporary socket or a named one that stays.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{CreateSocket, Socket};
use sallyport_client::{ApiClient, SocketRef};
use sallyport_model::{OriginProtocol, SocketType};

use super::{
    display_name,
    hold::{self, Credential, OriginArgs},
    options::{LabelArg, PortArgs, ProtectArgs, labels::LabelsArgs, origin_protocol, socket_type},
    tunnel,
};
use crate::{
    args::{inspect::InspectArgs, service::PathsArgs},
    command::socket::{identity::PoliciesArg, request::SocketRequest, settings::SettingsArgs},
    context::{Context, candidates},
    failure::{self, Failure, Kind},
    inspector::Inspection,
    screen::{Screen, ScreenArgs},
    signals::Signals,
    view::live::Live,
};

/// Options of `connect`.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// The name of the socket. A socket with a name stays: the next `connect` with this name has the same public name,
    /// and a concurrent one shares the requests. Without a name, the command removes the socket at the end
    #[arg(long, add = ArgValueCompleter::new(candidates::sockets))]
    name: Option<String>,
    #[command(flatten)]
    label: LabelArg,
    /// The type of the service: http, https, tcp, tls or udp [default: that of its address, or of the socket with this
    /// name, else http]
    #[arg(long = "type", value_name = "TYPE", value_parser = socket_type())]
    socket_type: Option<SocketType>,
    /// The HTTP version of requests to the service: auto, http1 or http2 [default: auto]
    #[arg(long, value_name = "PROTOCOL", value_parser = origin_protocol(), hide_possible_values = true)]
    origin_protocol: Option<OriginProtocol>,
    #[command(flatten)]
    port: PortArgs,
    #[command(flatten)]
    protect: ProtectArgs,
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    policies: PoliciesArg,
    #[command(flatten)]
    labels: LabelsArgs,
    #[command(flatten)]
    paths: PathsArgs,
    #[command(flatten)]
    origin: OriginArgs,
}

/// Options of the command itself, which a file of services does not have.
#[derive(Debug, Args)]
pub(crate) struct ConnectCommand {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    inspect: InspectArgs,
    #[command(flatten)]
    screen: ScreenArgs,
}

impl ConnectArgs {
    /// The requested socket, and the services behind it.
    ///
    /// # Errors
    /// Options that exclude each other.
    pub(super) fn read(self) -> anyhow::Result<SocketRequest> {
        let name = match &self.name {
            Some(name) => display_name(name)?,
            None => display_name(&self.origin.address().to_string())?,
        };
        let socket_type = self.origin.socket_type(self.socket_type)?;
        self.origin.capacity().get()?;
        let (path, others) = self.paths.read(self.origin.service())?;
        let mut create = CreateSocket {
            origin_protocol: self.origin_protocol.unwrap_or_default(),
            protected: self.protect.read(socket_type, None)?,
            port: self.port.public_port,
            policies: self.policies.get(),
            label: self.label.name_label,
            labels: self.labels.get()?,
            ..CreateSocket::new(name, socket_type)
        };
        let set = self.settings.clone().set(&mut create);
        let request = SocketRequest {
            create,
            is_named: self.name.is_some(),
            socket_type: self.socket_type,
            origin_protocol: self.origin_protocol,
            settings: self.settings,
            labels: self.labels,
            path,
            others,
            origin: self.origin,
        };
        // Only the API knows an existing socket's type and settings.
        if !request.is_named {
            set?;
        }
        if !request.is_named || request.socket_type.is_some() {
            request.services(socket_type)?;
        }
        Ok(request)
    }

    /// Whether the command would have to prompt for a password.
    pub(super) fn asks_for_password(&self) -> bool {
        self.protect.asks()
    }
}

/// Serves the service under a public name. At the end a temporary socket is removed, and a named one stays.
pub(crate) async fn run(context: &Context, args: ConnectCommand) -> anyhow::Result<()> {
    let request = args.connect.read()?;
    let addresses = request.addresses();
    let is_shown = context.output.terminal && request.create.socket_type.is_http();
    let inspection = Inspection::start(&args.inspect, is_shown, &addresses).await?;
    let target = context.target()?;
    let client = context.client(&target)?;
    // From here on the socket must be removed, whatever ends the command.
    let mut signals = Signals::take()?;
    tracing::debug!("making a socket");
    let found = tokio::select! {
        found = request.socket(&client) => found?,
        () = signals.next() => return Err(given_up().into()),
    };
    let socket = found.socket;
    let mut live = match request.others.is_empty() {
        true => Live::new(context.output, context.offset),
        false => Live::of_paths(context.output, context.offset),
    };
    let mut made = Vec::new();
    let outcome = async {
        let services = request.services(socket.socket_type)?;
        if args.screen.is_wanted(&context.output) && socket.socket_type.is_http() {
            live.set_screen(Screen::start(&context.output, context.offset, inspection.as_ref())?);
        }
        let origins: Vec<_> = services.iter().map(|one| (one.path.clone(), one.origin.to_string())).collect();
        live.header(&socket, &origins)?;
        if let Some(inspection) = &inspection {
            live.inspector(&inspection.url())?;
        }
        if !found.is_new && socket.tunnels_up > 0 {
            let already =
                format!("{} has a service already: requests are shared among all that are there", socket.name);
            live.hint(&already);
        }
        let reference = socket.id.into();
        let mut tunnels = Vec::new();
        for service in services {
            let create = service.tunnel();
            let tunnel = tokio::select! {
                made = client.create_tunnel(&reference, &create) => made?,
                () = signals.next() => return Ok(()),
            };
            made.push(tunnel.details.id);
            live.name(tunnel.details.id, service.path.prefix.as_str());
            if let Some(inspection) = &inspection {
                inspection.name(tunnel.details.id, socket.name.as_str(), &service.origin.to_string());
            }
            tunnels.push((Credential::from(tunnel), service.origin));
        }
        hold::hold(&target, tunnels, &mut live, &mut signals, inspection.as_ref()).await
    }
    .await;
    live.end_screen();
    let (removed, text) = match request.is_named {
        false => (remove(&client, &socket, &mut signals).await, "socket removed".to_owned()),
        true => (tunnel::remove(&client, &socket.id.into(), &made, &mut signals).await, stays(&socket)),
    };
    match (outcome, removed) {
        (outcome, Ok(())) => {
            context.output.hint(&text);
            outcome
        }
        (Ok(()), Err(failure)) => Err(failure.into()),
        (Err(error), Err(failure)) => {
            context.output.failure(&failure);
            Err(error)
        }
    }
}

/// The note that the socket stays.
fn stays(socket: &Socket) -> String {
    let name = crate::view::quoted(socket.name.as_str());
    format!(
        "the socket {name} stays, for the next `connect --name {name}`; `sallyport socket delete {name}` removes it"
    )
}

/// The failure if the command is stopped before the API has answered.
pub(super) fn given_up() -> Failure {
    Failure::new(Kind::Failed, "stopped before the API answered: the socket may exist")
        .next("look with `sallyport socket ls`, and remove it with `sallyport socket delete`")
}

/// Removes the socket. A further signal ends that.
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

/// The failure if the socket was not removed.
pub(super) fn remains(socket: &Socket, why: &str) -> Failure {
    let name = socket.label().map_or_else(|| socket.id.to_string(), |label| label.to_string());
    Failure::new(Kind::Failed, format!("the socket {name} may still be there: {why}"))
        .next(format!("unless its account was deleted, remove it with `sallyport socket delete {name}`"))
}
