//! `/account`: the logins of this browser and their services; for persons of this installation, also the password and
//! codes.

use std::{collections::HashMap, sync::Arc};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode};
use sallyport_api::Secret;
use sallyport_http::page::Escaped;
use sallyport_identity::{Purpose, TOTP_SECRET_BYTES};
use sallyport_model::{LoginSession, PersonId, ProviderKind};
use sallyport_store::{LocalPerson, PersonSecrets, StoredProvider};
use serde::{Deserialize, Serialize};

use super::{
    form,
    local::{
        PasswordOutcome, attempt, check_code, check_new_password, check_password, enrolment, new_password_fields,
        shown_recovery_codes,
    },
    logout::logins,
    page::{self, LoginError, other_way, page, ways_on, wrong as wrong_text},
    services::ways_to,
};
use crate::{
    security::{
        attempts::Attempt,
        client::{Client, ClientAddress},
        random,
    },
    state::App,
};

/// How long the setup of codes may take, in seconds.
const SETTING_UP_SECONDS: i64 = 600;
/// How many logins of a browser are shown.
const MAX_SHOWN_LOGINS: usize = 10;

/// A setup of codes in progress, sealed in the form.
#[derive(Serialize, Deserialize)]
struct TotpSetup {
    person: PersonId,
    secret: [u8; TOTP_SECRET_BYTES],
    at: i64,
}

/// A login in this browser of a person with a password of this installation.
struct LocalSession {
    session: Arc<LoginSession>,
    provider: StoredProvider,
    person: LocalPerson,
    secrets: PersonSecrets,
}

/// The valid logins of this browser.
async fn signed_on_sessions(app: &App, headers: &HeaderMap) -> Result<Vec<Arc<LoginSession>>, LoginError> {
    let now = app.clock.now().unix_seconds;
    let all = logins(app, headers).await?.into_iter();
    Ok(all.filter(|session| session.expires_at > now).take(MAX_SHOWN_LOGINS).collect())
}

/// Those of the logins with a password of this installation.
async fn local_sessions(app: &App, sessions: &[Arc<LoginSession>]) -> Result<Vec<LocalSession>, LoginError> {
    let mut found = Vec::new();
    for session in sessions.iter().cloned() {
        let Some(provider) = app.store.provider(session.organisation, &session.person.provider).await? else {
            continue;
        };
        let id =
            session.person.subject.parse::<PersonId>().ok().filter(|_| provider.config.kind == ProviderKind::Local);
        let Some(id) = id else { continue };
        if let Some((person, secrets)) = app.store.person(session.organisation, id).await?
            && person.may_log_in()
            && person.email == session.person.email
        {
            found.push(LocalSession { session, provider, person, secrets });
        }
    }
    Ok(found)
}

/// The response to a form of a person who has logged out meanwhile.
fn not_logged_in() -> LoginError {
    LoginError::new(
        StatusCode::FORBIDDEN,
        "Not logged in",
        "Nobody is logged in in this browser with a password that is kept here.",
    )
    .link("/account", "Log in")
}

/// A page on which a person without a login names a service. The form leads on to an identity provider.
fn way_in() -> Response {
    let text = "<p>Nobody is logged in in this browser. With which service do you want to log in?</p><form \
                action=\"/sign-on\"><input type=\"hidden\" name=\"to\" value=\"/account\"><label>Address of the \
                service <input name=\"socket\" maxlength=\"300\" autocapitalize=\"none\" spellcheck=\"false\" required \
                autofocus></label><div class=\"acts\"><button>Log in</button></div></form>";
    page::written(StatusCode::FORBIDDEN, "Not logged in", text.to_owned()).forms_lead(None).into_response()
}

fn current_password() -> &'static str {
    "<label>Current password <input name=\"current\" type=\"password\" autocomplete=\"current-password\" \
     maxlength=\"1024\" required></label>"
}

/// A form about one login of this browser.
fn section(mine: &LocalSession, action: &str, title: &str, fields: &str, button: &str) -> String {
    format!(
        "<h2>{title}</h2><form method=\"post\" action=\"/account\"><input type=\"hidden\" name=\"session\" \
         value=\"{}\"><input type=\"hidden\" name=\"action\" value=\"{action}\">{fields}<div class=\"acts\">\
         <button>{button}</button></div></form>",
        mine.session.id
    )
}

pub(super) async fn show(
    State(app): State<App>,
    client: Client,
    ClientAddress(address): ClientAddress,
    headers: HeaderMap,
) -> Result<Response, LoginError> {
    app.limits.login_step(client, app.clock.now().monotonic)?;
    let known = signed_on_sessions(&app, &headers).await?;
    if known.is_empty() {
        return Ok(way_in());
    }
    let mine = local_sessions(&app, &known).await?;
    let mut text = String::new();
    for session in &known {
        let by = Escaped(session.person.provider.as_str());
        text.push_str(&format!(
            "<p>Logged in as <code>{}</code> by <code>{by}</code>.</p>",
            Escaped(session.person.email.as_str())
        ));
        let services = app.services_for(session.organisation, &session.person, address).await?;
        if !services.is_empty() {
            text.push_str("\n<p>You may use:</p>");
            text.push_str(&ways_to(&services, "Go to"));
        }
        let own = mine.iter().find(|one| one.session.id == session.id);
        text.push_str(&own.map(own_sections).unwrap_or_default());
    }
    text.push_str(&other_way("/logout", "Log out"));
    Ok(page(StatusCode::OK, "Your account", text))
}

/// The page again, with the error of a form.
fn written(mine: &[LocalSession], status: StatusCode, says: Option<&str>) -> Response {
    let mut text = wrong_text(says);
    for one in mine {
        text.push_str(&format!("<p>Logged in as <code>{}</code>.</p>", Escaped(one.person.email.as_str())));
        text.push_str(&own_sections(one));
    }
    page(status, "Your account", text)
}

/// The forms for a person's own password and codes.
fn own_sections(one: &LocalSession) -> String {
    let fields = format!("{}{}", current_password(), new_password_fields());
    let mut text = section(one, "password", "Another password", &fields, "Set it");
    let code = "<label>Code <input name=\"code\" autocomplete=\"one-time-code\" maxlength=\"40\" required></label>";
    let off = format!("{}{code}", current_password());
    text.push_str(&match (one.person.has_totp, one.provider.config.require_totp) {
        (true, true) => format!(
            "<p>Logins need a code besides your password, as the operator of the services requires; {} recovery codes \
             are left.</p>",
            one.person.recovery_codes
        ),
        (true, false) => {
            let title = format!("Codes ({} recovery codes are left)", one.person.recovery_codes);
            section(one, "totp-off", &title, &off, "Require no codes any more")
        }
        (false, _) => section(one, "totp-on", "Codes", current_password(), "Require a code besides the password"),
    });
    text.push_str(&section(one, "sign-out", "Everywhere", "", "Log out everywhere"));
    text
}

pub(super) async fn change(
    State(app): State<App>,
    client: Client,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, LoginError> {
    app.limits.login_step(client, app.clock.now().monotonic)?;
    let given = form::read(&app, &headers, body).await?;
    let all = local_sessions(&app, &signed_on_sessions(&app, &headers).await?).await?;
    if all.is_empty() {
        return Err(not_logged_in());
    }
    // The form must be about a current login of this browser.
    let wanted = given.get("session").ok_or_else(form::not_valid)?;
    let one = all.iter().find(|one| one.session.id.to_string() == *wanted).ok_or_else(not_logged_in)?;
    match given.get("action").map(String::as_str) {
        Some("password") => set_password(&app, client, &all, one, &given).await,
        Some("totp-on") => set_up(&app, client, &all, one, &given).await,
        Some("totp-confirm") => confirm(&app, client, one, &given).await,
        Some("totp-off") => end_codes(&app, client, &all, one, &given).await,
        Some("sign-out") => {
            app.end_logins_of(&one.person).await?;
            app.audit_person(one.person.organisation, one.person.email.as_str(), "person.sign-out");
            Ok(ended("Logged out", "All your logins have ended."))
        }
        _ => Err(form::not_valid()),
    }
}

/// Checks the current password: a login alone is not enough, because a browser may be left open.
async fn verify_password(
    app: &App,
    client: Client,
    one: &LocalSession,
    given: &HashMap<String, String>,
) -> Result<Option<Attempt>, LoginError> {
    let current = given.get("current").ok_or_else(form::not_valid)?;
    let (organisation, provider) = (one.person.organisation, one.provider.name.as_str());
    match check_password(app, client, organisation, one.person.email.as_str(), current, provider).await? {
        PasswordOutcome::Right { attempt, .. } => Ok(Some(attempt)),
        PasswordOutcome::Wrong => Ok(None),
    }
}

/// The page after all logins have ended.
fn ended(title: &str, sentence: &str) -> Response {
    let ways = ways_on(&[("/account", "Log in again")]);
    page(StatusCode::OK, title, format!("<p>{}</p>{ways}", Escaped(sentence)))
}

fn wrong_password(all: &[LocalSession]) -> Response {
    written(all, StatusCode::FORBIDDEN, Some("The current password is wrong."))
}

async fn set_password(
    app: &App,
    client: Client,
    all: &[LocalSession],
    one: &LocalSession,
    given: &HashMap<String, String>,
) -> Result<Response, LoginError> {
    let (password, again) = given.get("password").zip(given.get("again")).ok_or_else(form::not_valid)?;
    let Some(attempt) = verify_password(app, client, one, given).await? else { return Ok(wrong_password(all)) };
    app.attempts.record_success(attempt);
    if let Err(wrong) = check_new_password(&one.person, password, again) {
        return Ok(written(all, StatusCode::UNPROCESSABLE_ENTITY, Some(&wrong)));
    }
    let hash = app.passwords.hash(Secret::from(password.as_str())).await?;
    let former = one.secrets.password_hash.as_deref().unwrap_or_default();
    let now = app.clock.now().unix_seconds;
    if !app.store.change_person_password(one.person.id, former, &hash, now).await? {
        return Err(not_logged_in());
    }
    app.end_logins_of(&one.person).await?;
    app.audit_person(one.person.organisation, one.person.email.as_str(), "person.password");
    Ok(ended("Password set", "Your password is another one now, and all your logins have ended."))
}

fn setting_up(
    app: &App,
    one: &LocalSession,
    secret: &[u8; TOTP_SECRET_BYTES],
    wrong: Option<&str>,
) -> Result<Response, LoginError> {
    let form = TotpSetup { person: one.person.id, secret: *secret, at: app.clock.now().unix_seconds };
    let sealed = app.seal(Purpose::Form, &form)?;
    let fields = format!(
        "<input type=\"hidden\" name=\"form\" value=\"{sealed}\"><label>The code that it shows <input name=\"code\" \
         autocomplete=\"one-time-code\" maxlength=\"40\" required autofocus></label>"
    );
    let text = format!(
        "{}{}{}",
        wrong_text(wrong),
        enrolment(app, one.person.email.as_str(), secret),
        section(one, "totp-confirm", "Its first code", &fields, "Require codes from now on")
    );
    Ok(page(if wrong.is_some() { StatusCode::FORBIDDEN } else { StatusCode::OK }, "Set up your codes", text))
}

async fn set_up(
    app: &App,
    client: Client,
    all: &[LocalSession],
    one: &LocalSession,
    given: &HashMap<String, String>,
) -> Result<Response, LoginError> {
    let Some(attempt) = verify_password(app, client, one, given).await? else { return Ok(wrong_password(all)) };
    app.attempts.record_success(attempt);
    if one.person.has_totp {
        return Ok(written(all, StatusCode::CONFLICT, Some("Codes are required already.")));
    }
    setting_up(app, one, &random::bytes()?, None)
}

async fn confirm(
    app: &App,
    client: Client,
    one: &LocalSession,
    given: &HashMap<String, String>,
) -> Result<Response, LoginError> {
    let (sealed, code) = given.get("form").zip(given.get("code")).ok_or_else(form::not_valid)?;
    let now = app.clock.now();
    let form: Option<TotpSetup> = app.sealer.open(Purpose::Form, sealed);
    let form = form.filter(|form| form.person == one.person.id && now.unix_seconds <= form.at + SETTING_UP_SECONDS);
    let form = form.ok_or_else(form::not_valid)?;
    let person = &one.person;
    let attempt = attempt(app, client, person.organisation, person.email.as_str())?;
    let Some(codes) = app.begin_codes(person, &form.secret, code).await? else {
        let wrong = "This is not the current code: is the clock of the phone right?";
        return setting_up(app, one, &form.secret, Some(wrong));
    };
    app.limits.record_right_person_login(client, now.monotonic);
    app.attempts.record_success(attempt);
    let back = ways_on(&[("/account", "Back to your account")]);
    Ok(page(StatusCode::OK, "Your recovery codes", shown_recovery_codes(&codes.recovery) + &back))
}

async fn end_codes(
    app: &App,
    client: Client,
    all: &[LocalSession],
    one: &LocalSession,
    given: &HashMap<String, String>,
) -> Result<Response, LoginError> {
    let code = given.get("code").ok_or_else(form::not_valid)?;
    if one.provider.config.require_totp || !one.person.has_totp {
        return Err(form::not_valid());
    }
    let Some(attempt) = verify_password(app, client, one, given).await? else { return Ok(wrong_password(all)) };
    if !check_code(app, &one.person, &one.secrets, code).await? {
        return Ok(written(all, StatusCode::FORBIDDEN, Some("The code is wrong, too old, or was used before.")));
    }
    app.attempts.record_success(attempt);
    app.store.end_totp(one.person.id, app.clock.now().unix_seconds).await?;
    app.audit_person(one.person.organisation, one.person.email.as_str(), "person.totp-off");
    let back = ways_on(&[("/account", "Back to your account")]);
    Ok(page(StatusCode::OK, "Codes are off", format!("<p>No codes are required any more.</p>{back}")))
}
