//! `/socket/{id}/tunnel`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::CreateTunnel;
use sallyport_model::MAX_TUNNELS_PER_SOCKET;
use sallyport_store::Creation;

use super::{
    Caller,
    messages::{KeyToSign, Nothing, SignedKey},
};
use crate::{
    problem::ApiError,
    request::extract::{Input, OptionalInput, json},
    state::App,
};

/// The socket's tunnels, oldest first.
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(socket): Path<String>,
) -> Result<Response, ApiError> {
    let socket = app.find_socket(caller.account.id, &socket).await?;
    let rows = app.store.tunnels(socket.id, &[], 0, MAX_TUNNELS_PER_SOCKET as u32).await?;
    let tunnels: Vec<_> =
        rows.into_iter().map(|(_, tunnel)| app.mysocket_tunnel(tunnel.id, tunnel.forward_port)).collect();
    Ok(json(StatusCode::OK, &tunnels))
}

/// Makes a tunnel.
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    Path(socket): Path<String>,
    _input: OptionalInput<Nothing>,
) -> Result<Response, ApiError> {
    let socket = app.find_socket(caller.account.id, &socket).await?;
    match app.create_tunnel(&socket, CreateTunnel::default(), None, None).await? {
        // The client logs in with an ssh key; the credential is for connectors, which can request another one.
        Creation::Made((tunnel, _credential)) => {
            Ok(json(StatusCode::OK, &app.mysocket_tunnel(tunnel.id, tunnel.forward_port)))
        }
        Creation::Repeated(_) => Err(ApiError::internal("a repetition without a key")),
    }
}

/// One tunnel.
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path((socket, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let tunnel = app.find_tunnel(caller.account.id, &socket, &id).await?;
    Ok(json(StatusCode::OK, &app.mysocket_tunnel(tunnel.id, tunnel.forward_port)))
}

/// Deletes a tunnel.
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path((socket, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let tunnel = app.find_tunnel(caller.account.id, &socket, &id).await?;
    app.delete_tunnel(tunnel.socket, tunnel.id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Signs an ssh key for this one tunnel.
pub(super) async fn sign_key(
    State(app): State<App>,
    caller: Caller,
    Path((socket, id)): Path<(String, String)>,
    input: Input<KeyToSign>,
) -> Result<Response, ApiError> {
    let account = caller.account.id;
    let tunnel = app.find_tunnel(account, &socket, &id).await?;
    let signed = app.sign_ssh_key(account, &tunnel, "ssh_public_key", &input.value.ssh_public_key)?;
    Ok(json(StatusCode::OK, &SignedKey { signed_ssh_cert: signed.certificate }))
}
