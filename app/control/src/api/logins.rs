//! `/v1/login`, `/v1/login/refresh` and `/v1/logout`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{Login, Logout, Refresh, Secret, Session};
use sallyport_store::Rotation;

use crate::{
    clock::date,
    problem::ApiError,
    request::extract::{Input, json},
    security::{
        access_token::Bearer,
        client::{Client, ClientInfo},
        random,
    },
    service::{REFRESH_SECONDS, REFRESH_TOKEN_PREFIX, SessionKind},
    state::App,
};

/// Log in with a password
#[utoipa::path(
    post, path = "/v1/login", tag = "sessions", operation_id = "login", security(()),
    request_body = Login,
    responses(
        (status = 200, description = "A session.", body = Session),
        (status = 401, description = "`wrong-login`; `code-needed`: the account needs a code of its authenticator, \
             too; `wrong-code`."),
        (status = 429, description = "Too many attempts."),
    )
)]
pub(crate) async fn login(
    State(app): State<App>,
    client: Client,
    ClientInfo(from): ClientInfo,
    input: Input<Login>,
) -> Result<Response, ApiError> {
    let Login { email, password, code } = input.value;
    let (account, revision) = app.check_login(client, &email, password, code.as_ref()).await?;
    let (session, refresh) = app.begin_session(SessionKind::REFRESHED, (account.id, revision), from).await?;
    let now = app.clock.now();
    answer(&app, Bearer { account: account.id, session }, refresh, now.unix_seconds)
}

/// Get the next session
///
/// Each refresh token is good once. A second use shows that somebody stole the token, so that all sessions of its login
/// end.
#[utoipa::path(
    post, path = "/v1/login/refresh", tag = "sessions", operation_id = "refresh", security(()),
    request_body = Refresh,
    responses(
        (status = 200, description = "The next session.", body = Session),
        (status = 401, description = "`bad-refresh-token` or `refresh-token-reused`"),
    )
)]
pub(crate) async fn refresh(
    State(app): State<App>,
    client: Client,
    ClientInfo(from): ClientInfo,
    input: Input<Refresh>,
) -> Result<Response, ApiError> {
    let now = app.clock.now();
    app.limits.refresh(client, now.monotonic)?;
    let token = input.value.refresh_token.expose();
    // The secrets of other sessions are no refresh tokens.
    if !token.starts_with(REFRESH_TOKEN_PREFIX) {
        return Err(bad_refresh_token());
    }
    let old = random::hash(token);
    let (next, hash) = random::secret(REFRESH_TOKEN_PREFIX)?;
    let ends = now.unix_seconds + REFRESH_SECONDS;
    match app.store.rotate_refresh(old, hash, now.unix_seconds, ends, &from).await? {
        Rotation::Done { session, account } => answer(&app, Bearer { account, session }, next, now.unix_seconds),
        Rotation::Reused { account } => {
            tracing::warn!(%account, "a refresh token was used twice: its session was ended");
            let detail = "this refresh token was used before, so its session was ended: log in again";
            Err(ApiError::unauthorized("refresh-token-reused", detail))
        }
        Rotation::Invalid => Err(bad_refresh_token()),
    }
}

fn bad_refresh_token() -> ApiError {
    ApiError::unauthorized("bad-refresh-token", "this refresh token is not valid any more: log in again")
}

/// Log out
///
/// Ends the session at once, its access token included. Doing it twice does no harm.
#[utoipa::path(
    post, path = "/v1/logout", tag = "sessions", operation_id = "logout", security(()),
    request_body = Logout,
    responses(
        (status = 204, description = "The session has ended."),
    )
)]
pub(crate) async fn logout(State(app): State<App>, client: Client, input: Input<Logout>) -> Result<Response, ApiError> {
    app.limits.refresh(client, app.clock.now().monotonic)?;
    let ended = app.store.end_session(random::hash(input.value.refresh_token.expose())).await?;
    if let Some(account) = ended
        && let Some(account) = app.store.account(account).await?
    {
        app.audit_account_logout(account.id, account.email.as_str());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn answer(app: &App, bearer: Bearer, refresh_token: Secret, now: i64) -> Result<Response, ApiError> {
    let (access_token, expires_at) = app.tokens.issue(bearer, now).map_err(ApiError::internal)?;
    let session = Session {
        access_token: access_token.into(),
        expires_at: date(expires_at),
        refresh_token,
        refresh_expires_at: date(now + REFRESH_SECONDS),
    };
    Ok(json(StatusCode::OK, &session))
}
