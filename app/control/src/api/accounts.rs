//! `/v1/accounts` and `/v1/account`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{Account, CreateAccount};
use sallyport_bus::ssh_login_name;
use sallyport_model::Scope;
use sallyport_store::AccountAccess;

use crate::{
    clock::date,
    problem::ApiError,
    request::{
        caller::Caller,
        creation::located,
        extract::{Input, json},
    },
    security::client::Client,
    state::App,
};

fn to_api(account: &sallyport_model::Account, access: Option<&AccountAccess>) -> Account {
    Account {
        id: account.id,
        name: account.name.clone(),
        email: account.email.clone(),
        ssh_user: ssh_login_name(account.id),
        totp: access.is_some_and(|access| access.totp_secret.is_some()),
        recovery_codes: access.map_or(0, |access| access.recovery_codes),
        created_at: date(account.created_at),
    }
}

/// Make an account
///
/// The first account of a server that others can reach takes the server's setup token. Where sign-up is closed, every
/// other account takes an invitation of its address (`member add`).
///
/// The request takes no idempotency key: an e-mail address has one account.
#[utoipa::path(
    post, path = "/v1/accounts", tag = "accounts", operation_id = "create_account", security(()),
    request_body = CreateAccount,
    responses(
        (status = 201, description = "The account.", body = Account),
        (status = 403, description = "`sign-up-closed`; `no-invitation`: no invitation of this address has this \
             code; `setup-token-needed`: the first account of a server that others can reach needs the setup token."),
        (status = 409, description = "`email-taken`"),
        (status = 429, description = "Too many attempts."),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    client: Client,
    input: Input<CreateAccount>,
) -> Result<Response, ApiError> {
    let account = app.create_account(client, input.value).await?;
    Ok(located(json(StatusCode::CREATED, &to_api(&account, None)), "/v1/account"))
}

/// Show the account of the token
#[utoipa::path(
    get, path = "/v1/account", tag = "accounts", operation_id = "get_account",
    responses(
        (status = 200, description = "The account.", body = Account),
    )
)]
pub(crate) async fn get(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require(Scope::AccountRead)?;
    let access = app.store.account_access(&caller.who.email).await?.map(|(_, access)| access);
    Ok(json(StatusCode::OK, &to_api(&caller.who, access.as_ref())))
}

/// Delete the account of the token, with its organisation and everything in it
#[utoipa::path(
    delete, path = "/v1/account", tag = "accounts", operation_id = "delete_account",
    responses(
        (status = 204, description = "The removal is done."),
        (status = 409, description = "`has-members`: the organisation has other members; remove them first. \
             `owns-installation`: name another owner first."),
    )
)]
pub(crate) async fn delete(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    caller.require_own()?;
    app.delete_account(caller.who.id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
