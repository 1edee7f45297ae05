//! The paths of the original clients (`mysocketctl`), which translate to what `/v1` does.
//!
//! May use: `service`, `request`, and what those may use.
//!
//! No prefix, the token in `x-access-token`, errors as `{"error_message", "status_code"}`, plain lists. The work is in
//! [`crate::service`], as for `/v1`. Unknown fields are ignored, as by the original server.

mod client;
mod messages;
mod sockets;
mod tunnels;
mod users;

use axum::{
    Router,
    extract::FromRequestParts,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::{HeaderName, StatusCode, header, request::Parts};
use sallyport_model::Account;

use crate::{
    audit::{self, Actor},
    problem::ApiError,
    security::{mysocket_token::MysocketClaims, signed_token::TokenError},
    state::App,
};

/// The header field of the token.
const ACCESS_TOKEN: HeaderName = HeaderName::from_static("x-access-token");
/// The paths of the original clients.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/user", post(users::create))
        .route("/user/{user_id}", get(users::get))
        .route("/login", post(users::login))
        .route("/login/refresh", post(users::refresh))
        .route("/connect", get(sockets::list).post(sockets::connect))
        .route("/socket", get(sockets::list).post(sockets::create))
        .route("/socket/{id}", get(sockets::get).put(sockets::update).delete(sockets::delete))
        .route("/socket/{id}/tunnel", get(tunnels::list).post(tunnels::create))
        .route("/socket/{id}/tunnel/{tunnel_id}", get(tunnels::get).delete(tunnels::delete))
        .route("/socket/{id}/tunnel/{tunnel_id}/signkey", post(tunnels::sign_key))
        .route("/latest_version.txt", get(latest_version))
        .route("/mtls-ca/socket/{dnsname}/auth", get(client::auth))
        .route("/mtls-ca/socket/{dnsname}/csr", post(client::csr))
        .route("/mtls-ca/socket/{dnsname}/ssh", post(client::ssh))
}

/// The Go clients request a version before the login, and stop without one. For another version than their own they
/// report an update.
async fn latest_version() -> Response {
    let text = concat!(env!("CARGO_PKG_VERSION"), "\n");
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

/// The account of the `x-access-token`, always for its own organisation.
pub(crate) struct Caller {
    account: Account,
    shown: MysocketClaims,
}

impl FromRequestParts<App> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let refuse = |detail: &str| ApiError::new(StatusCode::UNAUTHORIZED, "not-logged-in", detail);
        let mut values = parts.headers.get_all(ACCESS_TOKEN).iter();
        let token = values.next().and_then(|value| value.to_str().ok()).filter(|_| values.next().is_none());
        let token = token.ok_or_else(|| refuse("log in first: send the token of the login in x-access-token"))?;
        let shown = app.mysocket_tokens.verify(token.trim(), app.clock.now().unix_seconds).map_err(|error| {
            refuse(match error {
                TokenError::Expired => "the token has expired: log in again",
                TokenError::Invalid => {
                    audit::report_bad_token("a token of an original client that is none", None);
                    "the token is not valid: log in again"
                }
            })
        })?;
        match app.store.session_account(shown.session).await? {
            Some(account) if account.id == shown.account => {
                audit::set_actor(Actor::own(&account));
                Ok(Self { account, shown })
            }
            _ => Err(refuse("this login has ended: log in again")),
        }
    }
}
