//! `/v1/tokens`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{CreateToken, CreatedToken, Page, PageQuery, Token};
use sallyport_model::{Scope, TokenId};
use sallyport_store::{Creation, NewToken, StoredToken};

use super::params::{IdempotencyHeader, TokenPath};
use crate::{
    clock::date,
    problem::ApiError,
    request::{
        caller::{API_TOKEN_PREFIX, Caller},
        creation::{located, secret_already_shown},
        extract::{Input, PageOf, json},
    },
    security::random,
    state::App,
};

fn to_api(token: StoredToken) -> Token {
    Token {
        id: token.id,
        organisation: token.organisation,
        name: token.name,
        scopes: token.scopes,
        created_at: date(token.created_at),
        expires_at: token.expires_at.map(date),
    }
}

fn location(id: TokenId) -> String {
    format!("/v1/tokens/{id}")
}

/// The account's API tokens for the organisation, oldest first
#[utoipa::path(
    get, path = "/v1/tokens", tag = "tokens", operation_id = "list_tokens", params(PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<Token>),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, page: PageOf) -> Result<Response, ApiError> {
    caller.require(Scope::AccountRead)?;
    let rows = app.store.tokens(caller.who.id, caller.organisation, page.after, page.rows()).await?;
    Ok(json(StatusCode::OK, &page.page(rows, to_api)))
}

/// Make an API token, for one organisation
///
/// The token may do what its scopes and the present role of its maker both allow. The response has the secret, which
/// the API never shows again. A repetition with the same idempotency key therefore gets 409 `secret-already-shown` and
/// the token's location.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "tokens", operation_id = "create_token",
    params(IdempotencyHeader),
    request_body = CreateToken,
    responses(
        (status = 201, description = "The token, with its secret.", body = CreatedToken),
        (status = 403, description = "`missing-scope`: a token may not do more than its maker."),
        (status = 409, description = "`secret-already-shown` or `limit-reached`"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateToken>,
) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    app.limits.create(caller.who.id, app.clock.now().monotonic)?;
    let CreateToken { name, scopes, expires_at } = input.value;
    let now = app.clock.now().unix_seconds;
    let expires_at = expires_at.map(|end| end.unix_timestamp());
    if scopes.is_empty() {
        return Err(ApiError::field("scopes", "a token needs at least one scope"));
    }
    if expires_at.is_some_and(|end| end <= now) {
        return Err(ApiError::field("expires_at", "it is in the past"));
    }
    if let Some(more) = scopes.iter().find(|scope| !caller.scopes.allows(*scope)) {
        let detail = format!("a token may not do more than its maker, which lacks {more} here");
        return Err(ApiError::new(StatusCode::FORBIDDEN, "missing-scope", detail));
    }
    if let Some(end) = caller.ends_at
        && expires_at.is_none_or(|expires_at| expires_at > end)
    {
        let detail = format!("a token may not outlive the token that makes it: give an expires_at up to {}", date(end));
        return Err(ApiError::new(StatusCode::FORBIDDEN, "outlives-its-maker", detail));
    }
    let (secret, hash) = random::secret(API_TOKEN_PREFIX)?;
    let id = TokenId::from_random(random::bytes()?);
    let token = StoredToken { id, organisation: caller.organisation, name, scopes, created_at: now, expires_at };
    let new = NewToken { account: caller.who.id, token: token.clone(), hash };
    match app.store.create_token(new, input.keyed.as_ref()).await? {
        Creation::Made(()) => {
            let location = location(token.id);
            let created = CreatedToken { details: to_api(token), token: secret };
            Ok(located(json(StatusCode::CREATED, &created), &location))
        }
        Creation::Repeated(stored) => Err(secret_already_shown(
            "token",
            "delete it and make a new one",
            &location(TokenId::from_bytes(stored.resource)),
        )),
    }
}

/// Delete an API token
#[utoipa::path(
    delete, path = "/v1/tokens/{id}", tag = "tokens", operation_id = "delete_token",
    params(TokenPath),
    responses(
        (status = 204, description = "The token is no longer good."),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    let id: TokenId = id.parse().map_err(|_| ApiError::not_found("token"))?;
    if app.store.delete_token(caller.who.id, caller.organisation, id).await? {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        Err(ApiError::not_found("token"))
    }
}
