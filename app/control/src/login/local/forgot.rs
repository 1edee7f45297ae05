//! A forgotten password. The response is the same for every address.

use axum::{
    body::Body,
    extract::{RawQuery, State},
    response::Response,
};
use http::{HeaderMap, StatusCode};
use sallyport_model::PersonEmail;

use super::PendingLogin;
use crate::{
    login::{
        form,
        page::{LoginError, page, ways_on},
        start::{not_ours, parameters},
    },
    security::client::Client,
    service::LinkPurpose,
    state::App,
};

/// The response if there is no hook to send messages.
fn no_hook() -> LoginError {
    LoginError::new(StatusCode::NOT_FOUND, "No such page", "No messages are sent here.")
        .next("Ask the operator of the service for a new link.")
}

pub(super) async fn ask(
    State(app): State<App>,
    client: Client,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, LoginError> {
    app.limits.login_step(client, app.clock.now().monotonic)?;
    let parameters = parameters(query.as_deref()).ok_or_else(not_ours)?;
    let pending = app.pending(&headers, parameters.get("login")).await?;
    if pending.provider.config.hook.is_none() {
        return Err(no_hook());
    }
    let text = format!(
        "<p>You get a message with a link, with which you set a new password.</p><form method=\"post\" \
         action=\"/local/forgot\"><input type=\"hidden\" name=\"login\" value=\"{}\"><label>E-mail address <input \
         name=\"email\" type=\"email\" autocomplete=\"username\" maxlength=\"254\" required autofocus></label>\
         <div class=\"acts\"><button>Send it</button></div></form>",
        pending.state
    );
    Ok(page(StatusCode::OK, "A new password", text))
}

pub(super) async fn send(
    State(app): State<App>,
    client: Client,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, LoginError> {
    let now = app.clock.now().monotonic;
    app.limits.login_step(client, now)?;
    let given = form::read(&app, &headers, body).await?;
    let pending = app.pending(&headers, given.get("login")).await?;
    if pending.provider.config.hook.is_none() {
        return Err(no_hook());
    }
    let email = given.get("email").ok_or_else(form::not_valid)?;
    app.limits.take_message_request(client, now).map_err(|error| form::limited(&error))?;
    let state = pending.state.clone();
    // Work that depends on the address begins after the response, so that its time reveals nothing.
    if let Ok(email) = email.trim().parse::<PersonEmail>() {
        match app.hook_turns.clone().try_acquire_owned() {
            Ok(turn) => {
                let app = app.clone();
                tokio::spawn(async move {
                    tell(&app, &pending, &email).await;
                    drop(turn);
                });
            }
            Err(_) => tracing::warn!("too many messages to persons are under way: one was not sent"),
        }
    }
    let text = "<p>If this address may log in here, a message is on its way to it. The link in the message is valid \
                for a day.</p>";
    let back = ways_on(&[(&format!("/local?login={}", state), "Back to the login")]);
    Ok(page(StatusCode::OK, "Look into your mail", format!("{text}{back}")))
}

async fn tell(app: &App, pending: &PendingLogin, email: &PersonEmail) {
    let found = match app.store.person_by_email(pending.login.organisation, email).await {
        Ok(found) => found.map(|(person, _)| person),
        Err(error) => return tracing::warn!(%error, "cannot look for a person who forgot the password"),
    };
    let Some(person) = found.filter(|person| !person.disabled && person.provider == pending.provider.id) else {
        return;
    };
    if !app.limits.message(person.id, app.clock.now().monotonic) {
        return tracing::info!(person = %person.id, "too many messages were requested: one was not sent");
    }
    // A person without a password has lost the invitation.
    let why = if person.verified_at.is_some() { LinkPurpose::PasswordReset } else { LinkPurpose::Invitation };
    if let Err(error) = app.send_link(&pending.provider, &person, why).await {
        tracing::warn!(person = %person.id, error = error.sentence(), "a link was not made");
    }
    app.audit_person(person.organisation, person.email.as_str(), "person.forgot-password");
}
