//! Sessions of the desk: an opaque cookie, and a login session of the account in the store.
//!
//! The session is one of those that the account sees and ends (`/v1/account/sessions`). Another password or other codes
//! end it as they end every session.

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts};
use sallyport_api::Login;
use sallyport_model::Account;
use sallyport_store::SecretSession;
use serde::Serialize;
use time::OffsetDateTime;

use crate::{
    clock::date,
    login::cookies,
    problem::ApiError,
    request::extract::{Input, json},
    security::{
        access_token::Bearer,
        client::{Client, ClientInfo},
        random,
    },
    service::SessionKind,
    state::App,
};

/// The cookie, which browsers keep to this host, to TLS, and away from scripts.
const COOKIE: &str = "__Host-sallyport-desk";
/// How long a session lasts without a request, in seconds.
const IDLE_SECONDS: i64 = 3_600;
/// How long a session lasts at most, in seconds.
const MAX_SECONDS: i64 = 12 * 3_600;
/// The least time between two renewals in the store, in seconds.
const RENEW_SECONDS: i64 = 60;

/// How long after a login the session may do what [`FRESH`] lists, in seconds.
const FRESH_SECONDS: i64 = 15 * 60;
/// What a browser that was left open may not do: make secrets, change who owns things, and delete all.
const FRESH: [(Method, &str); 11] = [
    (Method::POST, "/v1/tokens"),
    (Method::POST, "/v1/service-tokens"),
    (Method::POST, "/v1/edge-tokens"),
    (Method::POST, "/v1/invitations"),
    (Method::POST, "/v1/persons"),
    (Method::POST, "/v1/providers"),
    (Method::POST, "/v1/ssh-keys"),
    (Method::PATCH, "/v1/members/"),
    (Method::DELETE, "/v1/members/"),
    (Method::PUT, "/v1/installation/owner"),
    (Method::DELETE, "/v1/account"),
];

/// Sessions of the desk.
const DESK: SessionKind = SessionKind { prefix: "spd_", seconds: IDLE_SECONDS };

/// The session of the browser, as its page sees it.
#[derive(Debug, Serialize)]
struct Shown {
    /// The account; `None` before a login.
    account: Option<ShownAccount>,
    /// Whether there is no account at all, so that the first one is to be made.
    is_new: bool,
    /// Whether the first account takes the setup token.
    needs_setup_token: bool,
}

#[derive(Debug, Serialize)]
struct ShownAccount {
    id: String,
    name: String,
    email: String,
    /// Whether the account owns the installation, and so its edges.
    owns_installation: bool,
    /// The end of the session at the latest.
    #[serde(with = "time::serde::rfc3339")]
    ends_at: OffsetDateTime,
}

/// `GET /session`: whose session it is. An answer without an account is no error: the page then asks for a login.
pub(super) async fn show(State(app): State<App>, headers: HeaderMap) -> Result<Response, ApiError> {
    match find(&app, &headers).await? {
        Some(found) => {
            let account = app.store.session_account(found.id).await?;
            shown(&app, account.as_ref().map(|account| (account, found.created_at + MAX_SECONDS))).await
        }
        None => shown(&app, None).await,
    }
}

/// `POST /session`: a login with a password and, if the account uses codes, a code.
pub(super) async fn begin(
    State(app): State<App>,
    client: Client,
    ClientInfo(from): ClientInfo,
    headers: HeaderMap,
    input: Input<Login>,
) -> Result<Response, ApiError> {
    let Login { email, password, code } = input.value;
    let (account, revision) = app.check_login(client, &email, password, code.as_ref()).await?;
    let (_, secret) = app.begin_session(DESK, (account.id, revision), from).await?;
    if let Some(former) = secret_of(&headers) {
        app.store.end_session(random::hash(former)).await?;
    }
    let ends_at = app.clock.now().unix_seconds + MAX_SECONDS;
    let mut response = shown(&app, Some((&account, ends_at))).await?;
    response.headers_mut().insert(header::SET_COOKIE, cookie(secret.expose(), "")?);
    Ok(response)
}

/// `DELETE /session`: the logout. Doing it twice does no harm.
pub(super) async fn end(State(app): State<App>, headers: HeaderMap) -> Result<Response, ApiError> {
    if let Some(secret) = secret_of(&headers)
        && let Some(account) = app.store.end_session(random::hash(secret)).await?
        && let Some(account) = app.store.account(account).await?
    {
        app.audit_account_logout(account.id, account.email.as_str());
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    response.headers_mut().insert(header::SET_COOKIE, cookie("", "; Max-Age=0")?);
    Ok(response)
}

/// Puts an access token of the session in the place of the cookie. Without a session, the request goes on without a
/// token. A token that the browser sent itself counts for nothing.
pub(super) async fn authorize(app: &App, request: &mut Parts) -> Result<(), ApiError> {
    let headers = &mut request.headers;
    headers.remove(header::AUTHORIZATION);
    if let Some(found) = find(app, headers).await? {
        let now = app.clock.now().unix_seconds;
        if needs_fresh_login(&request.method, request.uri.path()) && now - found.created_at > FRESH_SECONDS {
            let detail = "your login is older than fifteen minutes: give your password again";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "login-too-old", detail));
        }
        let bearer = Bearer { account: found.account, session: found.id };
        let (token, _) = app.tokens.issue(bearer, now).map_err(ApiError::internal)?;
        let value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(ApiError::internal)?;
        headers.insert(header::AUTHORIZATION, value);
    }
    headers.remove(header::COOKIE);
    Ok(())
}

/// Whether the request is one of [`FRESH`], in which a final slash stands for everything behind it.
fn needs_fresh_login(method: &Method, path: &str) -> bool {
    FRESH.iter().any(|(listed, place)| {
        listed == method && (path == *place || (place.ends_with('/') && path.starts_with(place)))
    })
}

/// The session of the browser's cookie, renewed.
async fn find(app: &App, headers: &HeaderMap) -> Result<Option<SecretSession>, ApiError> {
    let Some(secret) = secret_of(headers) else { return Ok(None) };
    let (hash, now) = (random::hash(secret), app.clock.now().unix_seconds);
    let Some(found) = app.store.session_by_secret(hash, now).await? else { return Ok(None) };
    let ends_at = found.created_at + MAX_SECONDS;
    if ends_at <= now {
        return Ok(None);
    }
    if now - found.last_used_at.unwrap_or(found.created_at) >= RENEW_SECONDS {
        app.store.renew_session(hash, now, ends_at.min(now + IDLE_SECONDS)).await?;
    }
    Ok(Some(found))
}

/// The secret in the cookie of a request; `None` also if there are two cookies.
fn secret_of(headers: &HeaderMap) -> Option<&str> {
    cookies::one(headers, COOKIE).filter(|secret| secret.starts_with(DESK.prefix))
}

async fn shown(app: &App, of: Option<(&Account, i64)>) -> Result<Response, ApiError> {
    let is_new = of.is_none() && app.store.count_accounts().await? == 0;
    let account = match of {
        Some((account, ends_at)) => Some(ShownAccount {
            id: account.id.to_string(),
            name: account.name.clone(),
            email: account.email.as_str().to_owned(),
            owns_installation: app.store.first_account().await? == Some(account.id),
            ends_at: date(ends_at),
        }),
        None => None,
    };
    let needs_setup_token = is_new && app.config.setup_token_file.is_some();
    Ok(json(StatusCode::OK, &Shown { account, is_new, needs_setup_token }))
}

/// The cookie, which lasts until the browser is closed, and which no link of another site takes along.
fn cookie(secret: &str, more: &str) -> Result<HeaderValue, ApiError> {
    let cookie = format!("{COOKIE}={secret}; Path=/; Secure; HttpOnly; SameSite=Strict{more}");
    HeaderValue::from_str(&cookie).map_err(ApiError::internal)
}
