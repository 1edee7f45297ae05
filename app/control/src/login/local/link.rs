//! A link from an e-mail. The person who opens it owns the address, and sets the password.

use std::net::IpAddr;

use axum::{
    body::Body,
    extract::{RawQuery, State},
    response::Response,
};
use http::{HeaderMap, StatusCode};
use sallyport_api::Secret;
use sallyport_http::page::Escaped;
use sallyport_model::{Email, IdentitySettings, Person, check_password};
use sallyport_store::LocalPerson;

use crate::{
    login::{
        form,
        page::{LoginError, page, wrong as wrong_text},
        services::{Service, ways_to},
        start::parameters,
    },
    problem::ApiError,
    security::{
        client::{Client, ClientAddress},
        random,
    },
    service::LINK_PREFIX,
    state::App,
};

/// Longer keys of links are refused unread, in bytes.
const MAX_KEY_BYTES: usize = 64;

/// The response to a link that is not valid, the same for every reason.
fn not_good() -> LoginError {
    LoginError::new(
        StatusCode::NOT_FOUND,
        "This link does not work any more",
        "It was used already, it is older than a day, a newer one has taken its place, or its person may not log in \
         now.",
    )
    .next("Ask the operator of the service for a new one.")
    .link("/account", "Your account")
}

async fn person_of(app: &App, key: Option<&String>) -> Result<(LocalPerson, [u8; 32]), LoginError> {
    let key = key.filter(|key| key.starts_with(LINK_PREFIX) && key.len() <= MAX_KEY_BYTES).ok_or_else(not_good)?;
    let hash = random::hash(key);
    let found = app.store.person_of_link(hash, app.clock.now().unix_seconds).await?;
    found.map(|person| (person, hash)).ok_or_else(not_good)
}

/// The form fields for a new password.
pub(in crate::login) fn new_password_fields() -> &'static str {
    "<label>New password <input name=\"password\" type=\"password\" autocomplete=\"new-password\" minlength=\"10\" \
     maxlength=\"1024\" required></label><label>The same again <input name=\"again\" type=\"password\" \
     autocomplete=\"new-password\" maxlength=\"1024\" required></label>"
}

/// Checks a person's new password. The error is a sentence.
pub(in crate::login) fn check_new_password(person: &LocalPerson, password: &str, again: &str) -> Result<(), String> {
    let email: Email = person.email.as_str().parse().map_err(|_| "The address cannot be used.".to_owned())?;
    check_new_password_of(&email, password, again)
}

/// Checks a new password for this address. The error is a sentence.
pub(in crate::login) fn check_new_password_of(email: &Email, password: &str, again: &str) -> Result<(), String> {
    if password != again {
        return Err("The two passwords are not the same.".to_owned());
    }
    check_password(password, email).map_err(|error| {
        let mut sentence = format!("{error}.");
        if let Some(first) = sentence.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        sentence
    })
}

/// The page for a new password, for the owner of this address with the key of a link. Its form leads to `action`.
pub(in crate::login) fn password_page(action: &str, email: &str, key: &str, wrong: Option<&str>) -> Response {
    let (email, key) = (Escaped(email), Escaped(key));
    let text = format!(
        "{}<p>Set the password with which <code>{email}</code> logs in. Any sentence of at least 10 characters is \
         good.</p><form method=\"post\" action=\"{action}\"><input type=\"hidden\" name=\"key\" value=\"{key}\">\
         <input type=\"hidden\" name=\"email\" autocomplete=\"username\" value=\"{email}\">{}<div class=\"acts\">\
         <button>Set it</button></div></form>",
        wrong_text(wrong),
        new_password_fields()
    );
    page(if wrong.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK }, "Set your password", text)
}

fn asking(person: &LocalPerson, key: &str, wrong: Option<&str>) -> Response {
    password_page("/local/link", person.email.as_str(), key, wrong)
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
    let (person, _) = person_of(&app, key).await?;
    Ok(asking(&person, key.map(String::as_str).unwrap_or_default(), None))
}

pub(super) async fn set(
    State(app): State<App>,
    client: Client,
    ClientAddress(address): ClientAddress,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, LoginError> {
    app.limits.login_step(client, app.clock.now().monotonic)?;
    let given = form::read(&app, &headers, body).await?;
    let (person, hash) = person_of(&app, given.get("key")).await?;
    let (password, again) = given.get("password").zip(given.get("again")).ok_or_else(form::not_valid)?;
    if let Err(wrong) = check_new_password(&person, password, again) {
        return Ok(asking(&person, given.get("key").map(String::as_str).unwrap_or_default(), Some(&wrong)));
    }
    let password_hash = app.passwords.hash(Secret::from(password.as_str())).await?;
    let now = app.clock.now().unix_seconds;
    if !app.store.use_person_link(hash, now, &password_hash).await.map_err(ApiError::from)? {
        return Err(not_good());
    }
    app.attempts.record_proof(person.organisation, person.email.as_str(), client);
    // Logins with the former password end.
    app.end_logins_of(&person).await?;
    app.audit_person(person.organisation, person.email.as_str(), "person.password");
    tracing::info!(account = %person.organisation, person = %person.id, "a person has set a password");
    let services = services_of(&app, &person, address).await?;
    let text = if services.is_empty() {
        "<p>Your password is set. Open the address of the service that you want to use, and log in with it.</p>"
    } else {
        "<p>Your password is set. Log in with it:</p>"
    };
    Ok(page(StatusCode::OK, "Password set", format!("{text}{}", ways_to(&services, "Log in to"))))
}

/// The services that admit the person with a new login.
async fn services_of(app: &App, person: &LocalPerson, address: IpAddr) -> Result<Vec<Service>, LoginError> {
    let providers = app.providers_for(person.organisation, &IdentitySettings::default()).await?;
    let Some(provider) = providers.into_iter().find(|provider| provider.id == person.provider) else {
        return Ok(Vec::new());
    };
    let known = Person {
        email: person.email.clone(),
        name: person.name.clone(),
        groups: person.groups.clone(),
        provider: provider.name,
        subject: person.id.to_string(),
        groups_stated: true,
    };
    Ok(app.services_for(person.organisation, &known, address).await?)
}
