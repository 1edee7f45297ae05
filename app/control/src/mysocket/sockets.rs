//! `/socket` and `/connect`.

use std::{fmt::Display, str::FromStr};

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{CreateSocket, CreateTunnel, Protect, UpdateSocket};
use sallyport_bus::ssh_login_name;
use sallyport_model::{IdentitySettings, SocketType};
use sallyport_store::{Creation, MAX_SOCKETS_PER_ACCOUNT, NameConflict};

use super::{
    Caller,
    messages::{Entries, Socket, SocketRequest, Tunnel},
};
use crate::{
    problem::ApiError,
    request::{
        etag::IfMatch,
        extract::{Input, json},
    },
    service::Lifetime,
    state::App,
};

impl App {
    /// The socket in the form of these clients.
    fn mysocket(&self, socket: sallyport_model::Socket) -> Socket {
        let route = self.routes.get(socket.id);
        let tunnels = route.as_ref().map(|route| route.tunnels.as_slice()).unwrap_or_default();
        let shared = Some(self.config.public_port)
            .filter(|_| matches!(socket.socket_type, SocketType::Http | SocketType::Https | SocketType::Tls));
        let identity = socket.settings.identity;
        let emails = identity.iter().flat_map(|identity| &identity.email_addresses);
        let domains = identity.iter().flat_map(|identity| &identity.email_domains);
        Socket {
            socket_id: socket.id,
            dnsname: self.dns_name(&socket.name),
            name: socket.display_name.into(),
            socket_type: socket.socket_type,
            socket_tcp_ports: shared.into_iter().chain(socket.port).collect(),
            protected_socket: socket.basic_auth.is_some(),
            protected_username: socket.basic_auth.map(|basic| basic.username).unwrap_or_default(),
            protected_password: String::new(),
            cloud_authentication_enabled: identity.is_some(),
            cloud_authentication_email_allowed_addressses: emails.map(ToString::to_string).collect(),
            cloud_authentication_email_allowed_domains: domains.map(|domain| domain.as_str().to_owned()).collect(),
            ssh_ca: self.authorities.of(socket.account).ssh.unwrap_or_default(),
            tunnels: tunnels.iter().map(|tunnel| self.mysocket_tunnel(tunnel.id, tunnel.forward_port)).collect(),
            user_name: ssh_login_name(socket.account),
        }
    }

    /// The tunnel in the form of these clients.
    pub(super) fn mysocket_tunnel(&self, tunnel_id: sallyport_model::TunnelId, local_port: u16) -> Tunnel {
        let (host, port) = match &self.config.ssh {
            Some(ssh) => (&ssh.host, ssh.port),
            None => (&self.config.tunnel_host, 22),
        };
        Tunnel { tunnel_id, local_port, tunnel_server: host.clone(), tunnel_server_port: port }
    }

    async fn create_mysocket(
        &self,
        caller: &Caller,
        request: SocketRequest,
    ) -> Result<sallyport_model::Socket, ApiError> {
        let identity = cloud_authentication(&request, None)?.flatten();
        let protected = protection(&request)?;
        let name = request.name.ok_or_else(|| ApiError::field("name", "it is missing"))?;
        let create = CreateSocket {
            protected,
            identity,
            ..CreateSocket::new(name, request.socket_type.unwrap_or(SocketType::Http))
        };
        // These clients do not expect unique names.
        let kind = (Lifetime::Lasting, NameConflict::AddNumber);
        match self.create_socket(caller.account.id, create, kind, None, true).await? {
            Creation::Made((socket, _)) => Ok(socket),
            Creation::Repeated(_) => Err(ApiError::internal("a repetition without a key")),
        }
    }
}

/// The identity setting after the request, where `now` is the present one; `None` if it stays.
fn cloud_authentication(
    request: &SocketRequest,
    now: Option<IdentitySettings>,
) -> Result<Option<Option<IdentitySettings>>, ApiError> {
    fn entries<T: FromStr<Err: Display>>(
        field: &str,
        given: &Option<Entries>,
        now: Vec<T>,
    ) -> Result<Vec<T>, ApiError> {
        let Some(given) = given else { return Ok(now) };
        given.texts().map(|text| text.parse().map_err(|error| ApiError::field(field, error))).collect()
    }
    let has_lists = request.cloud_authentication_email_allowed_addressses.is_some()
        || request.cloud_authentication_email_allowed_domains.is_some();
    match request.cloud_authentication_enabled {
        Some(false) => return Ok(Some(None)),
        None if now.is_none() || !has_lists => return Ok(None),
        _ => {}
    }
    let now = now.unwrap_or_default();
    let email_addresses = entries(
        "cloud_authentication_email_allowed_addressses",
        &request.cloud_authentication_email_allowed_addressses,
        now.email_addresses,
    )?;
    let email_domains = entries(
        "cloud_authentication_email_allowed_domains",
        &request.cloud_authentication_email_allowed_domains,
        now.email_domains,
    )?;
    Ok(Some(Some(IdentitySettings { email_addresses, email_domains, ..now })))
}

/// The user name and password of a protected socket.
fn protection(request: &SocketRequest) -> Result<Option<Protect>, ApiError> {
    if request.protected_socket != Some(true) {
        return Ok(None);
    }
    let missing = |field| ApiError::field(field, "a protected socket needs it");
    let username = request.protected_username.clone().ok_or_else(|| missing("protected_username"))?;
    let password = request.protected_password.clone().ok_or_else(|| missing("protected_password"))?;
    Ok(Some(Protect { username, password }))
}

/// The account's sockets, oldest first.
pub(super) async fn list(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    let rows = app.store.sockets(caller.account.id, 0, MAX_SOCKETS_PER_ACCOUNT as u32).await?;
    let sockets: Vec<_> = rows.into_iter().map(|(_, socket)| app.mysocket(socket)).collect();
    Ok(json(StatusCode::OK, &sockets))
}

/// Makes a socket.
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    input: Input<SocketRequest>,
) -> Result<Response, ApiError> {
    let socket = app.create_mysocket(&caller, input.value).await?;
    Ok(json(StatusCode::OK, &app.mysocket(socket)))
}

/// Makes a socket with a tunnel.
pub(super) async fn connect(
    State(app): State<App>,
    caller: Caller,
    input: Input<SocketRequest>,
) -> Result<Response, ApiError> {
    let socket = app.create_mysocket(&caller, input.value).await?;
    if let Err(error) = app.create_tunnel(&socket, CreateTunnel::default(), None, None).await {
        app.delete_socket(&socket, &IfMatch::ANY).await?;
        return Err(error);
    }
    Ok(json(StatusCode::OK, &app.mysocket(socket)))
}

/// One socket.
pub(super) async fn get(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Response, ApiError> {
    let socket = app.find_socket(caller.account.id, &id).await?;
    Ok(json(StatusCode::OK, &app.mysocket(socket)))
}

/// Changes a socket; absent fields stay. These clients cannot send force, so `cloud_authentication_enabled: false`
/// always removes the identity setting. A protected socket without a new password keeps its password.
pub(super) async fn update(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    input: Input<SocketRequest>,
) -> Result<Response, ApiError> {
    let request = input.value;
    let known = app.find_socket(caller.account.id, &id).await?;
    let known = known.basic_auth;
    let has_password = request.protected_password.as_ref().is_some_and(|password| !password.expose().is_empty());
    let same_user = known.is_some_and(|known| {
        let given = request.protected_username.as_deref().unwrap_or_default();
        given.is_empty() || given == known.username
    });
    let protected = match request.protected_socket {
        None => None,
        Some(false) => Some(None),
        Some(true) if same_user && !has_password => None,
        Some(true) => Some(protection(&request)?),
    };
    let (name, socket_type) = (request.name.clone(), request.socket_type);
    let update = UpdateSocket { name, socket_type, protected, force: true, ..UpdateSocket::default() };
    let identity = |now: &sallyport_model::Socket| cloud_authentication(&request, now.settings.identity.clone());
    let socket = app.update_socket_by(caller.account.id, &id, update, identity).await?;
    Ok(json(StatusCode::OK, &app.mysocket(socket)))
}

/// Deletes a socket with its tunnels.
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let socket = app.find_socket(caller.account.id, &id).await?;
    app.delete_socket(&socket, &IfMatch::ANY).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
