//! `/v1/account/password`, `/v1/account/totp`, `/v1/account/sessions`, and `/v1/accounts/forgot`, `/reset`,
//! `/password`: the password and the other credentials of an account's owner.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{
    AccountReset, AccountSession, BeginTotp, BegunTotp, ChangePassword, ConfirmTotp, EndedAccountSessions,
    ForgotPassword, Page, ProveTotp, RecoveryCodes, ResetAccount, SetPassword,
};
use sallyport_model::Scope;
use sallyport_store::{SessionId, StoredSession};
use uuid::Uuid;

use crate::{
    clock::date,
    mail::Delivery,
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, json},
    },
    security::client::Client,
    service::CreatedReset,
    state::App,
};

fn session_to_api(session: StoredSession, current: SessionId) -> AccountSession {
    AccountSession {
        id: Uuid::from_bytes(session.id),
        current: session.id == current,
        created_at: date(session.created_at),
        last_used_at: session.last_used_at.map(date),
        expires_at: date(session.expires_at),
        address: session.client.address,
        client: session.client.program,
    }
}

fn codes_to_api(codes: Vec<String>) -> RecoveryCodes {
    RecoveryCodes { recovery_codes: codes.into_iter().map(Into::into).collect() }
}

/// Change the password
///
/// The request shows the present password. The other sessions end at once. API tokens and ssh keys stay.
#[utoipa::path(
    post, path = "/v1/account/password", tag = "accounts", operation_id = "change_account_password",
    request_body = ChangePassword,
    responses(
        (status = 204, description = "The password is changed."),
        (status = 403, description = "`wrong-password`; `login-needed`: an API token is not enough."),
        (status = 409, description = "`changed-meanwhile`"),
        (status = 429, description = "Too many attempts."),
    )
)]
pub(crate) async fn change_password(
    State(app): State<App>,
    client: Client,
    caller: Caller,
    input: Input<ChangePassword>,
) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    let session = caller.require_login()?;
    let ChangePassword { current_password, new_password } = input.value;
    app.change_password(client, &caller.who, session, (current_password, new_password)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Send a message with a reset code to the owner of an account
///
/// The message has a link and a code to set another password. The server's mail hook sends the message. The response is
/// the same whether the account exists or not.
#[utoipa::path(
    post, path = "/v1/accounts/forgot", tag = "accounts", operation_id = "forgot_account_password", security(()),
    request_body = ForgotPassword,
    responses(
        (status = 202, description = "If there is such an account, the server sends a message."),
        (status = 429, description = "Too many attempts."),
        (status = 501, description = "`no-mail-hook`: this server sends no messages."),
    )
)]
pub(crate) async fn forgot(
    State(app): State<App>,
    client: Client,
    input: Input<ForgotPassword>,
) -> Result<Response, ApiError> {
    app.forgot_password(client, input.value.email)?;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// Remove an account's password, and make a code for another one
///
/// Only the account that owns the installation may do so. All sessions of the account end at once. API tokens and ssh
/// keys stay.
#[utoipa::path(
    post, path = "/v1/accounts/reset", tag = "accounts", operation_id = "reset_account", request_body = ResetAccount,
    responses(
        (status = 200, description = "The result, with a code that is good for an hour.", body = AccountReset),
        (status = 403, description = "`not-owner`; `login-needed`: an API token is not enough."),
    )
)]
pub(crate) async fn reset(
    State(app): State<App>,
    caller: Caller,
    input: Input<ResetAccount>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    caller.require_login()?;
    let ResetAccount { email, totp } = input.value;
    let CreatedReset { link, code, expires_at, sent } = app.reset_account(&email, totp).await?;
    let is_sent = sent == Delivery::Delivered;
    let shown = AccountReset {
        email,
        sent: is_sent,
        problem: if let Delivery::Failed(problem) = sent { Some(problem) } else { None },
        link: (!is_sent).then(|| link.into()),
        code: (!is_sent).then_some(code),
        expires_at: date(expires_at),
    };
    Ok(json(StatusCode::OK, &shown))
}

/// Set a password by the code of a reset
///
/// All sessions of the account end. The code is good once.
#[utoipa::path(
    post, path = "/v1/accounts/password", tag = "accounts", operation_id = "set_account_password", security(()),
    request_body = SetPassword,
    responses(
        (status = 204, description = "The password is set."),
        (status = 404, description = "`bad-code`"),
    )
)]
pub(crate) async fn set_password(
    State(app): State<App>,
    client: Client,
    input: Input<SetPassword>,
) -> Result<Response, ApiError> {
    app.limits.login_step(client, app.clock.now().monotonic)?;
    let SetPassword { code, new_password } = input.value;
    app.set_password(client, code.expose().trim(), new_password).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Begin to use codes of an authenticator
///
/// Nothing changes before the account confirms the first code.
#[utoipa::path(
    post, path = "/v1/account/totp", tag = "accounts", operation_id = "begin_account_totp", request_body = BeginTotp,
    responses(
        (status = 200, description = "The secret for the authenticator.", body = BegunTotp),
        (status = 403, description = "`wrong-password`; `login-needed`: an API token is not enough."),
        (status = 409, description = "`totp-on`"),
    )
)]
pub(crate) async fn begin_totp(
    State(app): State<App>,
    client: Client,
    caller: Caller,
    input: Input<BeginTotp>,
) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    caller.require_login()?;
    let begun = app.enrol_account(client, &caller.who, input.value.current_password).await?;
    let shown = BegunTotp {
        secret: begun.secret.into(),
        uri: begun.uri.into(),
        enrolment: begun.sealed.into(),
        expires_at: date(begun.expires_at),
    };
    Ok(json(StatusCode::OK, &shown))
}

/// Confirm the first code of an authenticator
///
/// From then on, a login needs a code. The other sessions end at once. API tokens need no codes.
#[utoipa::path(
    post, path = "/v1/account/totp/confirm", tag = "accounts", operation_id = "confirm_account_totp",
    request_body = ConfirmTotp,
    responses(
        (status = 200, description = "Recovery codes.", body = RecoveryCodes),
        (status = 403, description = "`wrong-code`; `login-needed`: an API token is not enough."),
        (status = 409, description = "`totp-on`"),
        (status = 429, description = "Too many attempts."),
    )
)]
pub(crate) async fn confirm_totp(
    State(app): State<App>,
    client: Client,
    caller: Caller,
    input: Input<ConfirmTotp>,
) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    let session = caller.require_login()?;
    let ConfirmTotp { enrolment, code } = input.value;
    let codes = app.confirm_totp(client, &caller.who, session, (enrolment.expose(), code.expose())).await?;
    Ok(json(StatusCode::OK, &codes_to_api(codes)))
}

/// Stop the use of codes
#[utoipa::path(
    post, path = "/v1/account/totp/disable", tag = "accounts", operation_id = "disable_account_totp",
    request_body = ProveTotp,
    responses(
        (status = 204, description = "A login needs the password alone."),
        (status = 403, description = "`wrong-password`; `wrong-code`; `login-needed`: an API token is not enough."),
        (status = 409, description = "`totp-off`"),
        (status = 429, description = "Too many attempts."),
    )
)]
pub(crate) async fn disable_totp(
    State(app): State<App>,
    client: Client,
    caller: Caller,
    input: Input<ProveTotp>,
) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    caller.require_login()?;
    let ProveTotp { current_password, code } = input.value;
    app.disable_totp(client, &caller.who, (current_password, code.expose())).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Get new recovery codes
///
/// The former codes are no longer good.
#[utoipa::path(
    post, path = "/v1/account/totp/codes", tag = "accounts", operation_id = "renew_account_recovery_codes",
    request_body = ProveTotp,
    responses(
        (status = 200, description = "Recovery codes.", body = RecoveryCodes),
        (status = 403, description = "`wrong-password`; `wrong-code`; `login-needed`: an API token is not enough."),
        (status = 409, description = "`totp-off`"),
        (status = 429, description = "Too many attempts."),
    )
)]
pub(crate) async fn renew_codes(
    State(app): State<App>,
    client: Client,
    caller: Caller,
    input: Input<ProveTotp>,
) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    caller.require_login()?;
    let ProveTotp { current_password, code } = input.value;
    let codes = app.renew_recovery_codes(client, &caller.who, (current_password, code.expose())).await?;
    Ok(json(StatusCode::OK, &codes_to_api(codes)))
}

/// The sessions of the account, the oldest first
///
/// All on one page, 100 at most.
#[utoipa::path(
    get, path = "/v1/account/sessions", tag = "sessions", operation_id = "list_account_sessions",
    responses(
        (status = 200, description = "All sessions.", body = Page<AccountSession>),
        (status = 403, description = "`login-needed`: an API token is not enough."),
    )
)]
pub(crate) async fn list_sessions(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require(Scope::AccountRead)?;
    let current = caller.require_login()?;
    let sessions = app.store.account_sessions(caller.who.id, app.clock.now().unix_seconds).await?;
    let items = sessions.into_iter().map(|session| session_to_api(session, current)).collect();
    Ok(json(StatusCode::OK, &Page { items, next: None }))
}

/// End a session of the account
#[utoipa::path(
    delete, path = "/v1/account/sessions/{id}", tag = "sessions", operation_id = "end_account_session",
    params(("id" = uuid::Uuid, Path, description = "The session's id.")),
    responses(
        (status = 204, description = "The tokens of the session are no longer good."),
        (status = 403, description = "`login-needed`: an API token is not enough."),
    )
)]
pub(crate) async fn end_session(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    caller.require_login()?;
    let id: Uuid = id.parse().map_err(|_| ApiError::not_found("session"))?;
    app.end_session_of(&caller.who, id.into_bytes()).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// End all sessions of the account but the one of the request
#[utoipa::path(
    post, path = "/v1/account/sessions/end-others", tag = "sessions", operation_id = "end_other_account_sessions",
    responses(
        (status = 200, description = "The number of sessions that ended.", body = EndedAccountSessions),
        (status = 403, description = "`login-needed`: an API token is not enough."),
    )
)]
pub(crate) async fn end_others(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    let current = caller.require_login()?;
    let ended = app.end_other_sessions(&caller.who, current).await?;
    Ok(json(StatusCode::OK, &EndedAccountSessions { ended: u32::try_from(ended).unwrap_or(u32::MAX) }))
}
