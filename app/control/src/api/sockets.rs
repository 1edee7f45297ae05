//! `/v1/sockets`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode};
use sallyport_api::{CreateSocket, LabelQuery, Page, PageQuery, Socket, UpdateSocket};
use sallyport_model::{Scope, SocketId};
use sallyport_store::{Creation, NameConflict};

use super::params::{IdempotencyHeader, IfMatchHeader, SocketPath};
use crate::{
    problem::ApiError,
    request::{
        caller::Caller,
        creation::located,
        etag::IfMatch,
        extract::{Input, Labelled, json, json_text},
        lines::{AsLines, LINES_AT_ONCE, lines},
        once::REPLAYED,
    },
    service::Lifetime,
    state::App,
};

fn location(id: SocketId) -> String {
    format!("/v1/sockets/{id}")
}

/// The organisation's sockets, oldest first
#[utoipa::path(
    get, path = "/v1/sockets", tag = "sockets", operation_id = "list_sockets", params(PageQuery, LabelQuery),
    responses(
        (status = 200, description = "One page; all items, one in each line, for `Accept: application/x-ndjson`.",
            content((Page<Socket> = "application/json"), (Socket = "application/x-ndjson"))),
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Labelled { page, labels }: Labelled,
    AsLines(as_lines): AsLines,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    if as_lines {
        let (organisation, is_own) = (caller.organisation, caller.is_own());
        return lines(page.after, move |after| {
            let (app, labels) = (app.clone(), labels.clone());
            async move {
                let rows = app.store.sockets_with(organisation, &labels, after, LINES_AT_ONCE).await?;
                let lacks = app.lacks_provider(organisation, rows.iter().map(|(_, socket)| &socket.settings)).await?;
                let shown = rows.into_iter().map(|(at, socket)| (at, app.socket_to_api(socket, is_own, lacks)));
                Ok(shown.collect())
            }
        })
        .await;
    }
    let rows = app.store.sockets_with(caller.organisation, &labels, page.after, page.rows()).await?;
    let lacks = app.lacks_provider(caller.organisation, rows.iter().map(|(_, socket)| &socket.settings)).await?;
    Ok(json(StatusCode::OK, &page.page(rows, |socket| app.socket_to_api(socket, caller.is_own(), lacks))))
}

/// Make a socket
///
/// A repetition with the same idempotency key gets the first response again.
#[utoipa::path(
    post, path = "/v1/sockets", tag = "sockets", operation_id = "create_socket",
    params(IdempotencyHeader),
    request_body = CreateSocket,
    responses(
        (status = 201, description = "The socket. The edge of `up` serves it already; edges on other machines do a \
             moment later.", body = Socket),
        (status = 409, description = "`limit-reached`, `name-taken`, `port-taken` or `ports-exhausted`"),
        (status = 422, description = "`invalid-request` or `idempotency-key-reused`"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateSocket>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let by_own = caller.is_own();
    let kind = (Lifetime::Lasting, NameConflict::Refuse);
    match app.create_socket(caller.organisation, input.value, kind, input.keyed.as_ref(), by_own).await? {
        Creation::Made((socket, answer)) => Ok(located(json_text(StatusCode::CREATED, answer), &location(socket.id))),
        Creation::Repeated(stored) => {
            let answer = stored.answer.ok_or_else(|| ApiError::internal("a response was not stored"))?;
            let location = location(SocketId::from_bytes(stored.resource));
            let mut response = located(json_text(StatusCode::CREATED, answer), &location);
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            Ok(response)
        }
    }
}

/// One socket
#[utoipa::path(
    get, path = "/v1/sockets/{id}", tag = "sockets", operation_id = "get_socket",
    params(SocketPath),
    responses(
        (status = 200, description = "The socket.", body = Socket),
    )
)]
pub(crate) async fn get(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Response, ApiError> {
    caller.require_or_connect(Scope::SocketsRead)?;
    let socket = app.find_socket(caller.organisation, &id).await?;
    let lacks = app.lacks_provider(caller.organisation, std::iter::once(&socket.settings)).await?;
    let tag = app.socket_tag(&socket)?;
    Ok(tag.on(json(StatusCode::OK, &app.socket_to_api(socket, caller.is_own(), lacks))))
}

/// Change a socket
#[utoipa::path(
    patch, path = "/v1/sockets/{id}", tag = "sockets", operation_id = "update_socket",
    params(SocketPath, IfMatchHeader),
    request_body = UpdateSocket,
    responses(
        (status = 200, description = "The socket after the change. The edge of `up` applies the change already; \
             edges on other machines do a moment later.", body = Socket),
        (status = 412, description = "`precondition-failed`"),
    )
)]
pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    if_match: IfMatch,
    input: Input<UpdateSocket>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    // A caller that may only serve sockets can set or change a password, but not remove the gate.
    if input.value.identity.is_some() || matches!(input.value.protected, Some(None)) {
        caller.require(Scope::IdentityWrite)?;
    }
    let socket = app.update_socket(caller.organisation, &id, input.value, &if_match).await?;
    let lacks = app.lacks_provider(caller.organisation, std::iter::once(&socket.settings)).await?;
    let tag = app.socket_tag(&socket)?;
    Ok(tag.on(json(StatusCode::OK, &app.socket_to_api(socket, caller.is_own(), lacks))))
}

/// Delete a socket with its tunnels
///
/// No other organisation ever gets the name.
#[utoipa::path(
    delete, path = "/v1/sockets/{id}", tag = "sockets", operation_id = "delete_socket",
    params(SocketPath, IfMatchHeader),
    responses(
        (status = 204, description = "The removal is done. The edge of `up` applies it already; edges on other \
             machines do a moment later."),
        (status = 412, description = "`precondition-failed`"),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    if_match: IfMatch,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let socket = app.find_socket(caller.organisation, &id).await?;
    app.delete_socket(&socket, &if_match).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
