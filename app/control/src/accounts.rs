//! `/v1/accounts` and `/v1/account`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{Account, CreateAccount, Problem};
use sallyport_model::{AccountId, Scope, check_password};
use sallyport_store::NewAccount;
use tokio::sync::MutexGuard;

use crate::{
    App, SignUp,
    auth::Caller,
    clock::date,
    extract::{Input, json},
    limits::Client,
    problem::ApiError,
    random,
};

fn shown(account: &sallyport_model::Account) -> Account {
    Account {
        id: account.id,
        name: account.name.clone(),
        email: account.email.clone(),
        created_at: date(account.created_at),
    }
}

/// Make an account
#[utoipa::path(
    post, path = "/v1/accounts", tag = "accounts", operation_id = "create_account", security(()),
    request_body = CreateAccount,
    responses(
        (status = 201, description = "The account.", body = Account),
        (status = 403, description = "`sign-up-closed`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`email-taken`", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "Too many attempts.", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    client: Client,
    input: Input<CreateAccount>,
) -> Result<Response, ApiError> {
    let CreateAccount { name, email, password } = input.value;
    check_password(password.expose(), &email).map_err(|error| ApiError::field("password", error))?;
    let now = app.clock.now();
    app.limits.create_account(client, now.monotonic)?;
    let _turn = sign_up(&app).await?;
    let password_hash = app.passwords.hash(password).await?;
    let account = sallyport_model::Account {
        id: AccountId::from_random(random::bytes()?),
        name: name.into(),
        email,
        created_at: now.unix_seconds,
    };
    app.store.create_account(NewAccount { account: account.clone(), password_hash }).await?;
    app.metrics.accounts.inc();
    tracing::info!(account = %account.id, "account created");
    Ok(json(StatusCode::CREATED, &shown(&account)))
}

/// Whether another account may be made; where only the first may be, this one keeps others waiting until it is made.
async fn sign_up(app: &App) -> Result<Option<MutexGuard<'_, ()>>, ApiError> {
    if app.config.sign_up == SignUp::Open {
        return Ok(None);
    }
    let turn = app.signing_up.lock().await;
    if app.store.count_accounts().await? > 0 {
        let detail =
            "this API takes no new accounts: ask its operator, who opens it with `sallyport up --sign-up open`";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "sign-up-closed", detail));
    }
    Ok(Some(turn))
}

/// The account that asks
#[utoipa::path(
    get, path = "/v1/account", tag = "accounts", operation_id = "get_account",
    responses(
        (status = 200, description = "The account.", body = Account),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get(caller: Caller) -> Result<Response, ApiError> {
    caller.require(Scope::AccountRead)?;
    Ok(json(StatusCode::OK, &shown(&caller.account)))
}

/// Delete the account that asks, with its sockets, tunnels, tokens and sessions
#[utoipa::path(
    delete, path = "/v1/account", tag = "accounts", operation_id = "delete_account",
    responses(
        (status = 204, description = "It is gone."),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn delete(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    let gone = app.store.delete_account(caller.account.id).await?.ok_or_else(|| ApiError::not_found("account"))?;
    app.unpublish(&gone).await;
    app.metrics.accounts.dec();
    tracing::info!(account = %caller.account.id, sockets = gone.len(), "account deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}
