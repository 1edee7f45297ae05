//! `/reset`: the owner of an account sets a new password, by a link from a message or from the operator.

use axum::{
    body::Body,
    extract::{RawQuery, State},
    response::Response,
};
use http::{HeaderMap, StatusCode};
use sallyport_api::Secret;
use sallyport_model::Account;

use super::{
    form,
    local::{check_new_password_of, password_page},
    page::{LoginError, page},
    start::parameters,
};
use crate::{problem::ApiError, security::client::Client, state::App};

/// The response to a link that is not valid, the same for every reason.
fn not_good() -> LoginError {
    LoginError::new(
        StatusCode::NOT_FOUND,
        "This link does not work any more",
        "It was used already, it is older than an hour, or a newer one has taken its place.",
    )
    .next("Ask for another one where you log in.")
}

async fn account_of(app: &App, key: Option<&String>) -> Result<Account, LoginError> {
    let key = key.ok_or_else(not_good)?;
    app.account_of_reset(key).await.map_err(as_login_error)
}

fn as_login_error(error: ApiError) -> LoginError {
    if error.status() == StatusCode::NOT_FOUND { not_good() } else { error.into() }
}

fn asking(account: &Account, key: &str, wrong: Option<&str>) -> Response {
    password_page("/reset", account.email.as_str(), key, wrong)
}

/// Opening a link does not use it up, because mail scanners open links too.
pub(super) async fn show(
    State(app): State<App>,
    client: Client,
    RawQuery(query): RawQuery,
) -> Result<Response, LoginError> {
    app.limits.login_step(client, app.clock.now().monotonic)?;
    let parameters = parameters(query.as_deref()).ok_or_else(not_good)?;
    let key = parameters.get("key");
    let account = account_of(&app, key).await?;
    Ok(asking(&account, key.map(String::as_str).unwrap_or_default(), None))
}

pub(super) async fn set(
    State(app): State<App>,
    client: Client,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, LoginError> {
    app.limits.login_step(client, app.clock.now().monotonic)?;
    let given = form::read(&app, &headers, body).await?;
    let account = account_of(&app, given.get("key")).await?;
    let key = given.get("key").map(String::as_str).unwrap_or_default();
    let (password, again) = given.get("password").zip(given.get("again")).ok_or_else(form::not_valid)?;
    if let Err(wrong) = check_new_password_of(&account.email, password, again) {
        return Ok(asking(&account, key, Some(&wrong)));
    }
    app.set_password(client, key, Secret::from(password.as_str())).await.map_err(as_login_error)?;
    let text = "<p>Your password is set, and all your sessions have ended. Log in with it where you work.</p>";
    Ok(page(StatusCode::OK, "Password set", text.to_owned()))
}
