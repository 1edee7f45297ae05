//! `/v1/sockets/{id}/origins`: the origins that edges dial themselves.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{CreateDirectOrigin, DirectOrigin, Page, PageQuery, UpdateDirectOrigin};
use sallyport_model::{DirectOriginId, Scope, SocketId};
use sallyport_store::Creation;

use super::params::{IdempotencyHeader, OriginPath, SocketPath};
use crate::{
    clock::date,
    problem::ApiError,
    request::{
        caller::Caller,
        creation::located,
        extract::{Input, PageOf, json},
    },
    state::App,
};

fn location(socket: SocketId, id: DirectOriginId) -> String {
    format!("/v1/sockets/{socket}/origins/{id}")
}

fn to_api(app: &App, origin: sallyport_model::DirectOrigin) -> DirectOrigin {
    DirectOrigin {
        id: origin.id,
        socket_id: origin.socket,
        address: origin.address.to_string(),
        region: origin.region,
        weight: origin.weight,
        tls: Some(origin.tls).filter(|tls| !tls.is_empty()),
        path: origin.path.prefix,
        rewrite_path: origin.path.rewrite,
        capacity: Some(origin.capacity).filter(|capacity| !capacity.is_empty()),
        created_at: date(origin.created_at),
        healthy: app.directory.health(origin.id),
        failure: app.direct_origin_failure(origin.id),
    }
}

/// The socket's direct origins, oldest first
#[utoipa::path(
    get, path = "/v1/sockets/{id}/origins", tag = "origins", operation_id = "list_direct_origins",
    params(SocketPath, PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<DirectOrigin>),
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(socket): Path<String>,
    page: PageOf,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let socket = app.find_socket(caller.organisation, &socket).await?;
    let rows = app.store.direct_origins(socket.id, page.after, page.rows()).await?;
    Ok(json(StatusCode::OK, &page.page(rows, |origin| to_api(&app, origin))))
}

/// Make a direct origin at a socket
///
/// Edges dial the address themselves, beside the socket's tunnels. The operator decides which networks edges may dial.
#[utoipa::path(
    post, path = "/v1/sockets/{id}/origins", tag = "origins", operation_id = "create_direct_origin",
    params(SocketPath, IdempotencyHeader),
    request_body = CreateDirectOrigin,
    responses(
        (status = 201, description = "The origin. The edge of `up` uses it already; edges on other machines do a \
             moment later.", body = DirectOrigin),
        (status = 403, description = "`direct-origins-off`: the operator allows none."),
        (status = 409, description = "`origin-taken` or `limit-reached`"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    Path(socket): Path<String>,
    input: Input<CreateDirectOrigin>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let socket = app.find_socket(caller.organisation, &socket).await?;
    let (status, origin) = match app.create_direct_origin(&socket, input.value, input.keyed.as_ref()).await? {
        Creation::Made(origin) => (StatusCode::CREATED, origin),
        // There is no secret in it: it is shown as it is now.
        Creation::Repeated(stored) => {
            let id = DirectOriginId::from_bytes(stored.resource).to_string();
            (StatusCode::CREATED, app.find_direct_origin(&socket, &id).await?)
        }
    };
    let location = location(socket.id, origin.id);
    Ok(located(json(status, &to_api(&app, origin)), &location))
}

/// One direct origin
#[utoipa::path(
    get, path = "/v1/sockets/{id}/origins/{origin_id}", tag = "origins", operation_id = "get_direct_origin",
    params(OriginPath),
    responses(
        (status = 200, description = "The origin.", body = DirectOrigin),
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path((socket, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let socket = app.find_socket(caller.organisation, &socket).await?;
    let origin = app.find_direct_origin(&socket, &id).await?;
    Ok(json(StatusCode::OK, &to_api(&app, origin)))
}

/// Change a direct origin
#[utoipa::path(
    patch, path = "/v1/sockets/{id}/origins/{origin_id}", tag = "origins", operation_id = "update_direct_origin",
    params(OriginPath),
    request_body = UpdateDirectOrigin,
    responses(
        (status = 200, description = "The origin after the change. The edge of `up` applies the change already; \
             edges on other machines do a moment later.", body = DirectOrigin),
    )
)]
pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    Path((socket, id)): Path<(String, String)>,
    input: Input<UpdateDirectOrigin>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let socket = app.find_socket(caller.organisation, &socket).await?;
    let origin = app.update_direct_origin(&socket, &id, input.value).await?;
    Ok(json(StatusCode::OK, &to_api(&app, origin)))
}

/// Delete a direct origin
///
/// Running requests finish.
#[utoipa::path(
    delete, path = "/v1/sockets/{id}/origins/{origin_id}", tag = "origins", operation_id = "delete_direct_origin",
    params(OriginPath),
    responses(
        (status = 204, description = "The removal is done. The edge of `up` applies it already; edges on other \
             machines do a moment later."),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path((socket, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let socket = app.find_socket(caller.organisation, &socket).await?;
    app.delete_direct_origin(&socket, &id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
