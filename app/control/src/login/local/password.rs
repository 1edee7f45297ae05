//! The first step of a local login: address and password.

use std::collections::HashMap;

use axum::response::Response;
use http::{HeaderMap, StatusCode};
use sallyport_api::Secret;
use sallyport_http::page::Escaped;
use sallyport_model::{AccountId, MAX_PASSWORD_BYTES, PersonEmail};
use sallyport_store::LocalPerson;

use super::{PendingLogin, Step, step_form};
use crate::{
    login::{
        form,
        page::{LoginError, wrong as wrong_text},
    },
    metrics::LoginOutcome,
    security::{attempts::Attempt, client::Client, random},
    state::App,
};

/// How much of a typed address is kept, in characters, as the field allows.
const MAX_TYPED_CHARS: usize = 254;

/// The outcome for an address and a password.
pub(in crate::login) enum PasswordOutcome {
    /// Both are right. The attempt lasts until a code was checked.
    Right { person: Box<LocalPerson>, attempt: Attempt },
    /// They are wrong, for whatever reason.
    Wrong,
}

/// The password page. After a wrong attempt it shows the error and keeps the address.
pub(super) fn page(app: &App, pending: &PendingLogin, wrong: Option<(&str, &str)>) -> Result<Response, LoginError> {
    let (what, typed) = wrong.unzip();
    let typed: String = typed.unwrap_or_default().chars().take(MAX_TYPED_CHARS).collect();
    // With the address filled in, the password is next.
    let (at_email, at_password) = if typed.is_empty() { (" autofocus", "") } else { ("", " autofocus") };
    let fields = format!(
        "<label>E-mail address <input name=\"email\" type=\"email\" autocomplete=\"username\" maxlength=\"254\" \
         value=\"{}\" required{at_email}></label><label>Password <input name=\"password\" type=\"password\" \
         autocomplete=\"current-password\" maxlength=\"1024\" required{at_password}></label>",
        Escaped(&typed)
    );
    let mut text = wrong_text(what);
    text.push_str(&step_form(pending, &fields, "Log in"));
    text.push_str(&if pending.provider.config.hook.is_some() {
        format!("<p><a href=\"/local/forgot?login={}\">Forgot the password?</a></p>", pending.state)
    } else {
        "<p>Forgot the password? Ask the operator of the service for a new link.</p>".to_owned()
    });
    let status = if what.is_some() { StatusCode::FORBIDDEN } else { StatusCode::OK };
    app.step_page(pending, status, "Log in", text)
}

/// Begins an attempt, or refuses it until a wait is over.
pub(in crate::login) fn attempt(
    app: &App,
    client: Client,
    organisation: AccountId,
    address: &str,
) -> Result<Attempt, LoginError> {
    let now = app.clock.now().monotonic;
    let limited = |later| {
        app.metrics.person_login(LoginOutcome::Limited);
        later
    };
    app.limits.person_login(client, now).map_err(|error| limited(form::limited(&error)))?;
    app.attempts.begin(organisation, address, client, now).map_err(|wait| limited(form::later(wait)))
}

/// Checks an address and a password. Work and outcome are the same whether or not a person has the address.
pub(in crate::login) async fn check_password(
    app: &App,
    client: Client,
    organisation: AccountId,
    address: &str,
    password: &str,
    provider: &str,
) -> Result<PasswordOutcome, LoginError> {
    let now = app.clock.now().monotonic;
    let attempt = attempt(app, client, organisation, address)?;
    let email = address.parse::<PersonEmail>().ok();
    let found = match &email {
        Some(email) => app.store.person_by_email(organisation, email).await?,
        None => None,
    };
    let may = |person: &LocalPerson| person.may_log_in() && password.len() <= MAX_PASSWORD_BYTES;
    let hash = found.as_ref().filter(|(person, _)| may(person)).and_then(|(_, secrets)| secrets.password_hash.clone());
    let password: String = if password.len() <= MAX_PASSWORD_BYTES { password.to_owned() } else { String::new() };
    let is_right = app.passwords.verify(Secret::from(password), hash).await?;
    match found {
        Some((person, _)) if is_right => {
            app.limits.record_right_person_login(client, now);
            Ok(PasswordOutcome::Right { person: Box::new(person), attempt })
        }
        found => {
            let why = match &found {
                None => "no person has this address",
                Some((person, _)) if person.disabled => "the person is disabled",
                Some((person, _)) if !person.may_log_in() => "the person has no password yet",
                Some(_) => "wrong password",
            };
            let why = locked(why, &attempt);
            app.metrics.person_login(LoginOutcome::Failed);
            app.audit_login(organisation, email.as_ref().map_or("", PersonEmail::as_str), provider, Some(&why));
            Ok(PasswordOutcome::Wrong)
        }
    }
}

/// The reason of a refusal, with the wait that follows for this client or for unknown clients.
pub(super) fn locked(why: &str, attempt: &Attempt) -> String {
    match (attempt.locks_for, attempt.waits_for) {
        (Some(wait), _) => {
            format!("{why}; too many were wrong, so attempts of new clients are refused for {} seconds", wait.as_secs())
        }
        (None, Some(wait)) => {
            format!("{why}; too many were wrong, so attempts of this client are refused for {} seconds", wait.as_secs())
        }
        (None, None) => why.to_owned(),
    }
}

pub(super) async fn check(
    app: &App,
    client: Client,
    headers: &HeaderMap,
    mut pending: PendingLogin,
    given: &HashMap<String, String>,
) -> Result<Response, LoginError> {
    let (email, password) = given.get("email").zip(given.get("password")).ok_or_else(form::not_valid)?;
    let (organisation, provider) = (pending.login.organisation, pending.provider.name.clone());
    let tried = check_password(app, client, organisation, email.trim(), password, provider.as_str()).await?;
    let PasswordOutcome::Right { person, attempt } = tried else {
        return page(app, &pending, Some(("The e-mail address or the password is wrong.", email.trim())));
    };
    let now = app.clock.now();
    let since = now.unix_seconds;
    if !person.has_totp && !pending.provider.config.require_totp {
        app.attempts.record_success(attempt);
        return app.finish_local(headers, &pending, person.id, since).await;
    }
    app.attempts.record_step(attempt, now.monotonic);
    pending.login.step = if person.has_totp {
        Step::Code { person: person.id, since }
    } else {
        Step::Enrol { person: person.id, secret: random::bytes()?, since }
    };
    let response = crate::login::page::see_other(&format!("/local?login={}", pending.state))?;
    app.keep(&pending.login, &pending.state, response)
}
