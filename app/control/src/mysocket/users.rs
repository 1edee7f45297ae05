//! `/user` and `/login`.

use axum::{
    extract::{Path, State},
    response::Response,
};
use http::StatusCode;
use sallyport_api::CreateAccount;
use sallyport_bus::ssh_login_name;
use sallyport_model::{Account, AccountId};

use super::{
    Caller,
    messages::{Login, NewUser, Nothing, Token, User},
};
use crate::{
    problem::ApiError,
    request::extract::{Input, OptionalInput, json},
    security::{
        client::{Client, ClientInfo},
        mysocket_token::MysocketClaims,
    },
    service::SessionKind,
    state::App,
};

async fn to_api(app: &App, account: &Account) -> Result<User, ApiError> {
    let keys = app.store.ssh_keys(account.id, 0, 1).await?;
    Ok(User {
        name: account.name.clone(),
        email: account.email.to_string(),
        user_id: account.id.uuid(),
        user_name: ssh_login_name(account.id),
        sshkey: keys.into_iter().next().map(|(_, key)| key.public_key).unwrap_or_default(),
    })
}

/// Makes an account.
pub(super) async fn create(
    State(app): State<App>,
    client: Client,
    input: Input<NewUser>,
) -> Result<Response, ApiError> {
    let NewUser { name, email, password, sshkey, invitation, setup_token } = input.value;
    let ssh_key = sshkey.filter(|key| !key.trim().is_empty());
    let create = CreateAccount { name, email, password, ssh_key, invitation, setup_token };
    let account = app.create_account(client, create).await?;
    Ok(json(StatusCode::OK, &to_api(&app, &account).await?))
}

/// The account of the caller; others are not found.
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(user_id): Path<String>,
) -> Result<Response, ApiError> {
    if user_id.parse::<AccountId>() != Ok(caller.account.id) {
        return Err(ApiError::not_found("user"));
    }
    Ok(json(StatusCode::OK, &to_api(&app, &caller.account).await?))
}

/// A token for a password.
pub(super) async fn login(
    State(app): State<App>,
    client: Client,
    ClientInfo(from): ClientInfo,
    input: Input<Login>,
) -> Result<Response, ApiError> {
    let Login { email, password, code } = input.value;
    let (account, revision) = app.check_login(client, &email, password, code.as_ref()).await?;
    // These clients cannot use a refresh token, so the session's own is dropped.
    let (session, _refresh) = app.begin_session(SessionKind::REFRESHED, (account.id, revision), from).await?;
    let logged_in_at = app.clock.now().unix_seconds;
    token(&app, MysocketClaims { account: account.id, session, logged_in_at })
}

/// The next token for a valid one.
pub(super) async fn refresh(
    State(app): State<App>,
    client: Client,
    caller: Caller,
    _input: OptionalInput<Nothing>,
) -> Result<Response, ApiError> {
    app.limits.refresh(client, app.clock.now().monotonic)?;
    token(&app, caller.shown)
}

fn token(app: &App, shown: MysocketClaims) -> Result<Response, ApiError> {
    let token = app.mysocket_tokens.issue(shown, app.clock.now().unix_seconds).map_err(ApiError::internal)?;
    let token = token.ok_or_else(|| {
        ApiError::new(StatusCode::UNAUTHORIZED, "logged-out", "this login is 30 days old: log in again")
    })?;
    Ok(json(StatusCode::OK, &Token { token }))
}
