//! `/v1/sockets/{id}/origins`: the origins that edges dial themselves.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{CreateDirectOrigin, DirectOrigin, Page, PageQuery, Problem, UpdateDirectOrigin};
use sallyport_model::{DirectOriginId, Scope, SocketId};
use sallyport_store::Creation;

use crate::{
    App,
    auth::Caller,
    clock::date,
    extract::{Input, PageOf, json},
    problem::ApiError,
    replay::located,
};

fn location(socket: SocketId, id: DirectOriginId) -> String {
    format!("/v1/sockets/{socket}/origins/{id}")
}

fn shown(app: &App, origin: sallyport_model::DirectOrigin) -> DirectOrigin {
    DirectOrigin {
        id: origin.id,
        socket_id: origin.socket,
        address: origin.address.to_string(),
        region: origin.region,
        weight: origin.weight,
        tls: Some(origin.tls).filter(|tls| !tls.is_empty()),
        path: origin.path.prefix,
        rewrite_path: origin.path.rewrite,
        created_at: date(origin.created_at),
        healthy: app.directory.health(origin.id),
        failure: app.direct_origin_failure(origin.id),
    }
}

/// The socket's direct origins, oldest first
#[utoipa::path(
    get, path = "/v1/sockets/{id}/origins", tag = "origins", operation_id = "list_direct_origins",
    params(("id" = String, Path, description = "The socket's id, DNS name or name; or the beginning of its id."), PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<DirectOrigin>),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
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
    Ok(json(StatusCode::OK, &page.page(rows, |origin| shown(&app, origin))))
}

/// Make a direct origin at a socket
///
/// Edges dial its address themselves, beside the socket's tunnels. The operator says into which networks they may.
#[utoipa::path(
    post, path = "/v1/sockets/{id}/origins", tag = "origins", operation_id = "create_direct_origin",
    params(
        ("id" = String, Path, description = "The socket's id, DNS name or name; or the beginning of its id."),
        ("idempotency-key" = Option<String>, Header, description = "Makes the request repeatable for 24 hours.",
         min_length = 1, max_length = 128, pattern = "^[!-~]+$"),
    ),
    request_body = CreateDirectOrigin,
    responses(
        (status = 201, description = "The origin; the edge of `up` knows it already, edges on other machines hear of it a moment later.", body = DirectOrigin),
        (status = 403, description = "`direct-origins-off`: the operator allows none.", body = Problem,
         content_type = "application/problem+json"),
        (status = 409, description = "`origin-taken` or `limit-reached`", body = Problem,
         content_type = "application/problem+json"),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
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
    Ok(located(json(status, &shown(&app, origin)), &location))
}

/// One direct origin
#[utoipa::path(
    get, path = "/v1/sockets/{id}/origins/{origin_id}", tag = "origins", operation_id = "get_direct_origin",
    params(
        ("id" = String, Path, description = "The socket's id, DNS name or name; or the beginning of its id."),
        ("origin_id" = uuid::Uuid, Path, description = "The origin's id."),
    ),
    responses(
        (status = 200, description = "The origin.", body = DirectOrigin),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
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
    Ok(json(StatusCode::OK, &shown(&app, origin)))
}

/// Change a direct origin
#[utoipa::path(
    patch, path = "/v1/sockets/{id}/origins/{origin_id}", tag = "origins", operation_id = "update_direct_origin",
    params(
        ("id" = String, Path, description = "The socket's id, DNS name or name; or the beginning of its id."),
        ("origin_id" = uuid::Uuid, Path, description = "The origin's id."),
    ),
    request_body = UpdateDirectOrigin,
    responses(
        (status = 200, description = "The origin as it is now; the edge of `up` knows it already, edges on other machines hear of it a moment later.", body = DirectOrigin),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
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
    Ok(json(StatusCode::OK, &shown(&app, origin)))
}

/// Delete a direct origin
///
/// What runs there finishes.
#[utoipa::path(
    delete, path = "/v1/sockets/{id}/origins/{origin_id}", tag = "origins", operation_id = "delete_direct_origin",
    params(
        ("id" = String, Path, description = "The socket's id, DNS name or name; or the beginning of its id."),
        ("origin_id" = uuid::Uuid, Path, description = "The origin's id."),
    ),
    responses(
        (status = 204, description = "It is gone; the edge of `up` knows it already, edges on other machines hear of it a moment later."),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
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
