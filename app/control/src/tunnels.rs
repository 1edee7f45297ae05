//! `/v1/sockets/{id}/tunnels`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{
    ConnectTo, CreateSshCertificate, CreateTunnel, CreatedTunnel, Page, PageQuery, Problem, Secret, SshCertificate,
    Tunnel, TunnelStatus, UpdateTunnel,
};
use sallyport_model::{Scope, SocketId, TunnelId};
use sallyport_store::Creation;

use crate::{
    App,
    auth::Caller,
    clock::date,
    edges::Via,
    extract::{Input, PageOf, json},
    problem::ApiError,
    replay::{located, secret_already_shown},
};

fn location(socket: SocketId, id: TunnelId) -> String {
    format!("/v1/sockets/{socket}/tunnels/{id}")
}

fn shown(app: &App, tunnel: &sallyport_model::Tunnel) -> Tunnel {
    let presence = app.directory.get(tunnel.id);
    let holder = app.fleet.holders(tunnel.id).into_iter().next();
    Tunnel {
        id: tunnel.id,
        socket_id: tunnel.socket,
        weight: tunnel.weight,
        forward_port: tunnel.forward_port,
        created_at: date(tunnel.created_at),
        status: if presence.is_some() { TunnelStatus::Up } else { TunnelStatus::Down },
        connector_addr: presence.as_ref().map(|presence| presence.connector_addr),
        since: presence.as_ref().map(|presence| date(presence.since)),
        agent: presence.map(|presence| presence.agent),
        healthy: app.directory.is_well(tunnel.id),
        edge: holder.as_ref().map(|card| card.name.clone()),
        region: holder.map(|card| card.region.clone()),
    }
}

fn shown_with_credential(app: &App, tunnel: &sallyport_model::Tunnel, credential: Secret, via: Via) -> CreatedTunnel {
    let config = &app.config;
    let (port, quic_port) = (via.port(app).unwrap_or(config.public_port), config.quic_port);
    let connect = ConnectTo { host: config.tunnel_host.clone(), port, quic_port };
    CreatedTunnel { details: shown(app, tunnel), credential, connect }
}

/// The socket's tunnels, oldest first
#[utoipa::path(
    get, path = "/v1/sockets/{id}/tunnels", tag = "tunnels", operation_id = "list_tunnels",
    params(("id" = String, Path, description = "The socket's id or DNS name."), PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<Tunnel>),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(socket): Path<String>,
    page: PageOf,
) -> Result<Response, ApiError> {
    caller.require_or_connect(Scope::SocketsRead)?;
    let socket = app.find_socket(caller.organisation, &socket).await?;
    let rows = app.store.tunnels(socket.id, page.after, page.rows()).await?;
    Ok(json(StatusCode::OK, &page.page(rows, |tunnel| shown(&app, &tunnel))))
}

/// Make a tunnel at a socket
///
/// Its credential is in the answer and never shown again. A repetition with the same idempotency key therefore gets 409
/// `secret-already-shown` and the tunnel's location, where a new credential can be had.
#[utoipa::path(
    post, path = "/v1/sockets/{id}/tunnels", tag = "tunnels", operation_id = "create_tunnel",
    params(
        ("id" = String, Path, description = "The socket's id or DNS name."),
        ("idempotency-key" = Option<String>, Header, description = "Makes the request repeatable for 24 hours.",
         min_length = 1, max_length = 128, pattern = "^[!-~]+$"),
    ),
    request_body = CreateTunnel,
    responses(
        (status = 201, description = "The tunnel, with its credential; edges know it already.", body = CreatedTunnel),
        (status = 409, description = "`secret-already-shown` or `limit-reached`", body = Problem,
         content_type = "application/problem+json"),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    via: Via,
    Path(socket): Path<String>,
    input: Input<CreateTunnel>,
) -> Result<Response, ApiError> {
    caller.require(Scope::TunnelsConnect)?;
    let socket = app.find_socket(caller.organisation, &socket).await?;
    match app.create_tunnel(&socket, input.value.weight, false, input.keyed.as_ref()).await? {
        Creation::Made((tunnel, credential)) => {
            let created = shown_with_credential(&app, &tunnel, credential, via);
            Ok(located(json(StatusCode::CREATED, &created), &location(socket.id, tunnel.id)))
        }
        Creation::Repeated(stored) => {
            let location = location(socket.id, TunnelId::from_bytes(stored.resource));
            Err(secret_already_shown("tunnel", "ask for a new credential", &location))
        }
    }
}

/// One tunnel
#[utoipa::path(
    get, path = "/v1/sockets/{id}/tunnels/{tunnel_id}", tag = "tunnels", operation_id = "get_tunnel",
    params(
        ("id" = String, Path, description = "The socket's id or DNS name."),
        ("tunnel_id" = uuid::Uuid, Path, description = "The tunnel's id."),
    ),
    responses(
        (status = 200, description = "The tunnel.", body = Tunnel),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path((socket, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    caller.require_or_connect(Scope::SocketsRead)?;
    let tunnel = app.find_tunnel(caller.organisation, &socket, &id).await?;
    Ok(json(StatusCode::OK, &shown(&app, &tunnel)))
}

/// Change a tunnel
#[utoipa::path(
    patch, path = "/v1/sockets/{id}/tunnels/{tunnel_id}", tag = "tunnels", operation_id = "update_tunnel",
    params(
        ("id" = String, Path, description = "The socket's id or DNS name."),
        ("tunnel_id" = uuid::Uuid, Path, description = "The tunnel's id."),
    ),
    request_body = UpdateTunnel,
    responses(
        (status = 200, description = "The tunnel as it is now; edges know it already.", body = Tunnel),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    Path((socket, id)): Path<(String, String)>,
    input: Input<UpdateTunnel>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let tunnel = app.find_tunnel(caller.organisation, &socket, &id).await?;
    let tunnel = app.change_weight(&tunnel, input.value.weight).await?;
    Ok(json(StatusCode::OK, &shown(&app, &tunnel)))
}

/// Give a tunnel a new credential
///
/// The old one is good for nothing from then on.
#[utoipa::path(
    post, path = "/v1/sockets/{id}/tunnels/{tunnel_id}/credential", tag = "tunnels",
    operation_id = "rotate_tunnel_credential",
    params(
        ("id" = String, Path, description = "The socket's id or DNS name."),
        ("tunnel_id" = uuid::Uuid, Path, description = "The tunnel's id."),
    ),
    responses(
        (status = 200, description = "The tunnel, with its new credential.", body = CreatedTunnel),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn rotate(
    State(app): State<App>,
    caller: Caller,
    via: Via,
    Path((socket, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let tunnel = app.find_tunnel(caller.organisation, &socket, &id).await?;
    let (tunnel, credential) = app.change_credential(&tunnel).await?;
    Ok(json(StatusCode::OK, &shown_with_credential(&app, &tunnel, credential, via)))
}

/// Sign an ssh key for a tunnel
///
/// With the certificate, a stock ssh client logs in within five minutes, serves this tunnel, and can do nothing else: the
/// key is not added to the account. Such a login ends with its tunnel.
#[utoipa::path(
    post, path = "/v1/sockets/{id}/tunnels/{tunnel_id}/ssh-certificate", tag = "tunnels",
    operation_id = "sign_ssh_key_for_tunnel",
    params(
        ("id" = String, Path, description = "The socket's id or DNS name."),
        ("tunnel_id" = uuid::Uuid, Path, description = "The tunnel's id."),
    ),
    request_body = CreateSshCertificate,
    responses(
        (status = 200, description = "The certificate; it is kept nowhere else.", body = SshCertificate),
        (status = 501, description = "`not-offered`: the server takes no ssh clients.", body = Problem,
         content_type = "application/problem+json"),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn sign_key(
    State(app): State<App>,
    caller: Caller,
    Path((socket, id)): Path<(String, String)>,
    input: Input<CreateSshCertificate>,
) -> Result<Response, ApiError> {
    caller.require(Scope::TunnelsConnect)?;
    let tunnel = app.find_tunnel(caller.organisation, &socket, &id).await?;
    let signed = app.sign_ssh_key(caller.organisation, &tunnel, "public_key", &input.value.public_key)?;
    Ok(json(StatusCode::OK, &signed))
}

/// Delete a tunnel
#[utoipa::path(
    delete, path = "/v1/sockets/{id}/tunnels/{tunnel_id}", tag = "tunnels", operation_id = "delete_tunnel",
    params(
        ("id" = String, Path, description = "The socket's id or DNS name."),
        ("tunnel_id" = uuid::Uuid, Path, description = "The tunnel's id."),
    ),
    responses(
        (status = 204, description = "It is gone; edges know it already."),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path((socket, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    caller.require_or_connect(Scope::SocketsWrite)?;
    let tunnel = app.find_tunnel(caller.organisation, &socket, &id).await?;
    app.delete_tunnel(tunnel.socket, tunnel.id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
