//! `/v1/service-tokens`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{CreateServiceToken, CreatedServiceToken, Page, PageQuery, Problem, ServiceToken};
use sallyport_model::{Scope, ServiceTokenId};
use sallyport_store::{Creation, NewServiceToken, StoredServiceToken};

use crate::{
    App,
    auth::Caller,
    clock::date,
    extract::{Input, PageOf, json},
    problem::ApiError,
    random,
    replay::{located, secret_already_shown},
};

/// What secrets of service tokens begin with.
const SECRET_PREFIX: &str = "sps_";
/// How many sockets a token may name.
const MAX_TOKEN_SOCKETS: usize = 100;

fn shown(token: StoredServiceToken) -> ServiceToken {
    ServiceToken {
        id: token.id,
        name: token.name,
        sockets: token.sockets,
        created_at: date(token.created_at),
        expires_at: token.expires_at.map(date),
    }
}

fn location(id: ServiceTokenId) -> String {
    format!("/v1/service-tokens/{id}")
}

/// The organisation's service tokens, oldest first
#[utoipa::path(
    get, path = "/v1/service-tokens", tag = "identity", operation_id = "list_service_tokens", params(PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<ServiceToken>),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, page: PageOf) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityRead)?;
    let rows = app.store.service_tokens(caller.organisation, page.after, page.rows()).await?;
    Ok(json(StatusCode::OK, &page.page(rows, shown)))
}

/// Make a service token, with which a machine comes to sockets that ask who comes
///
/// Its secret is in the answer and never shown again. A repetition with the same idempotency key therefore gets 409
/// `secret-already-shown` and the token's location. What it may do is for policies to say, which name it.
#[utoipa::path(
    post, path = "/v1/service-tokens", tag = "identity", operation_id = "create_service_token",
    params(("idempotency-key" = Option<String>, Header, description = "Makes the request repeatable for 24 hours.",
         min_length = 1, max_length = 128, pattern = "^[!-~]+$")),
    request_body = CreateServiceToken,
    responses(
        (status = 201, description = "The token, with its secret.", body = CreatedServiceToken),
        (status = 409, description = "`secret-already-shown`, `name-taken` or `limit-reached`", body = Problem,
         content_type = "application/problem+json"),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateServiceToken>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    app.limits.create(caller.organisation, app.clock.now().monotonic)?;
    let CreateServiceToken { name, mut sockets, expires_at } = input.value;
    let now = app.clock.now().unix_seconds;
    let expires_at = expires_at.map(|end| end.unix_timestamp());
    if expires_at.is_some_and(|end| end <= now) {
        return Err(ApiError::field("expires_at", "it is in the past"));
    }
    sockets.sort_unstable();
    sockets.dedup();
    if sockets.len() > MAX_TOKEN_SOCKETS {
        let detail = format!("a token names at most {MAX_TOKEN_SOCKETS} sockets: leave them out for all");
        return Err(ApiError::field("sockets", detail));
    }
    for socket in &sockets {
        if app.store.socket(caller.organisation, *socket).await?.is_none() {
            return Err(ApiError::field("sockets", format!("there is no socket {socket}")));
        }
    }
    let (secret, hash) = random::secret(SECRET_PREFIX)?;
    let id = ServiceTokenId::from_random(random::bytes()?);
    let token = StoredServiceToken { id, name, sockets, created_at: now, expires_at };
    let new = NewServiceToken { organisation: caller.organisation, token, hash };
    // What edges know follows the store, also while that is read again.
    let _turn = app.publishing.lock().await;
    match app.store.create_service_token(&new, input.keyed.as_ref()).await? {
        Creation::Made(()) => {
            app.identities.put_token(new.route());
            tracing::info!(token = %id, organisation = %caller.organisation, "a service token was made");
            let created = CreatedServiceToken { details: shown(new.token), secret };
            Ok(located(json(StatusCode::CREATED, &created), &location(id)))
        }
        Creation::Repeated(stored) => Err(secret_already_shown(
            "service token",
            "delete it and make a new one",
            &location(ServiceTokenId::from_bytes(stored.resource)),
        )),
    }
}

/// Delete a service token
///
/// Whoever came in with it is cut off.
#[utoipa::path(
    delete, path = "/v1/service-tokens/{id}", tag = "identity", operation_id = "delete_service_token",
    params(("id" = uuid::Uuid, Path, description = "The token's id.")),
    responses(
        (status = 204, description = "It is good for nothing now."),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let id: ServiceTokenId = id.parse().map_err(|_| ApiError::not_found("service token"))?;
    let _turn = app.publishing.lock().await;
    if !app.store.delete_service_token(caller.organisation, id).await? {
        return Err(ApiError::not_found("service token"));
    }
    app.identities.remove_token(id);
    tracing::info!(token = %id, organisation = %caller.organisation, "a service token was deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}
