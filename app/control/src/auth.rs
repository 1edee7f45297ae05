//! Who asks, and what they may do.

use std::fmt::Display;

use axum::extract::FromRequestParts;
use http::{StatusCode, header, request::Parts};
use sallyport_model::{Account, Scope, ScopeSet};

use crate::{App, audit_trail, problem::ApiError, random, signed_token::TokenError};

/// How API tokens begin.
pub(crate) const API_TOKEN_PREFIX: &str = "spt_";

/// The account that asks, with what its token allows.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) account: Account,
    pub(crate) scopes: ScopeSet,
    /// When the API token that it shows ends, if it shows one that ends.
    pub(crate) ends_at: Option<i64>,
}

impl Caller {
    /// Refuses when the token does not allow this.
    pub(crate) fn require(&self, scope: Scope) -> Result<(), ApiError> {
        if self.scopes.allows(scope) { Ok(()) } else { Err(missing(scope)) }
    }

    /// Refuses unless the token allows this, or to hold tunnels: what a connector needs besides making its tunnel.
    pub(crate) fn require_or_connect(&self, scope: Scope) -> Result<(), ApiError> {
        if self.scopes.allows(scope) || self.scopes.allows(Scope::TunnelsConnect) {
            return Ok(());
        }
        Err(missing(format_args!("{scope} or {}", Scope::TunnelsConnect)))
    }
}

fn missing(scope: impl Display) -> ApiError {
    let detail = format!("this token may not do that: it needs the scope {scope}");
    ApiError::new(StatusCode::FORBIDDEN, "missing-scope", detail)
}

impl FromRequestParts<App> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Some(token) = bearer_token(parts)? else {
            let detail = "log in first: send Authorization: Bearer with an access token or an API token";
            return Err(ApiError::unauthorized("not-logged-in", detail));
        };
        if token.starts_with(API_TOKEN_PREFIX) {
            by_api_token(app, token).await
        } else {
            by_access_token(app, token).await
        }
    }
}

/// The token of the `Authorization` header (RFC 6750 section 2.1).
fn bearer_token(parts: &Parts) -> Result<Option<&str>, ApiError> {
    let mut values = parts.headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let token = value.to_str().ok().and_then(|value| value.split_once(' ')).and_then(|(scheme, token)| {
        let token = token.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
    });
    match (token, values.next()) {
        (Some(token), None) => Ok(Some(token)),
        _ => Err(ApiError::unauthorized("bad-token", "send one Authorization header of the form: Bearer TOKEN")),
    }
}

async fn by_api_token(app: &App, token: &str) -> Result<Caller, ApiError> {
    let Some((token, account)) = app.store.token_by_hash(random::hash(token)).await? else {
        return Err(ApiError::unauthorized("bad-token", "this API token is not known: it may have been deleted"));
    };
    if token.expires_at.is_some_and(|end| end <= app.clock.now().unix_seconds) {
        return Err(ApiError::unauthorized("expired-token", "this API token has expired: create a new one"));
    }
    audit_trail::acts(account.id, format!("token:{}", token.name));
    Ok(Caller { account, scopes: token.scopes, ends_at: token.expires_at })
}

async fn by_access_token(app: &App, token: &str) -> Result<Caller, ApiError> {
    let bearer = app.tokens.verify(token, app.clock.now().unix_seconds).map_err(|error| match error {
        TokenError::Expired => {
            ApiError::unauthorized("expired-token", "the access token has expired: refresh it or log in again")
        }
        TokenError::Invalid => ApiError::unauthorized("bad-token", "the access token is not valid: log in again"),
    })?;
    match app.store.session_account(bearer.session).await? {
        Some(account) if account.id == bearer.account => {
            audit_trail::acts(account.id, account.email.as_str().to_owned());
            Ok(Caller { account, scopes: ScopeSet::all(), ends_at: None })
        }
        _ => Err(ApiError::unauthorized("logged-out", "this session has ended: log in again")),
    }
}
