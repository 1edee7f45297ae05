//! The second step of a local login: codes of an authenticator, and their enrolment.

use std::collections::HashMap;

use axum::response::Response;
use http::{HeaderMap, StatusCode};
use sallyport_http::page::Escaped;
use sallyport_identity::{TOTP_SECRET_BYTES, base32, otpauth_uri};
use sallyport_model::PersonId;
use sallyport_store::{LocalPerson, PersonSecrets};

use super::{
    PendingLogin, Step,
    password::{attempt, locked},
    qr, step_form,
};
use crate::{
    login::{
        form,
        page::{LoginError, wrong as wrong_text},
    },
    metrics::LoginOutcome,
    security::client::Client,
    service::second_factor::{CodeCheck, TotpState, in_groups},
    state::App,
};

/// Codes that were turned on.
pub(in crate::login) struct NewCodes {
    /// The recovery codes, which the person sees once.
    pub(in crate::login) recovery: Vec<String>,
}

fn code_field(label: &str) -> String {
    format!(
        "<label>{label} <input name=\"code\" autocomplete=\"one-time-code\" autocapitalize=\"characters\" \
         spellcheck=\"false\" maxlength=\"40\" required autofocus></label>"
    )
}

fn status_of(wrong: Option<&str>) -> StatusCode {
    if wrong.is_some() { StatusCode::FORBIDDEN } else { StatusCode::OK }
}

pub(super) fn page(app: &App, pending: &PendingLogin, wrong: Option<&str>) -> Result<Response, LoginError> {
    let text = format!(
        "{}<p>Type the code that your authenticator shows now, or one of your recovery codes.</p>{}",
        wrong_text(wrong),
        step_form(pending, &code_field("Code"), "Log in")
    );
    app.step_page(pending, status_of(wrong), "Your code", text)
}

/// The setup of an authenticator: a QR code, and the secret as text.
pub(in crate::login) fn enrolment(app: &App, email: &str, secret: &[u8; TOTP_SECRET_BYTES]) -> String {
    let uri = otpauth_uri(secret, &app.config.domain, email);
    let text = in_groups(&base32(secret), " ");
    format!(
        "<p>Add this account to an authenticator on your phone: scan the picture, or type the secret.</p>{}\
         <p>Secret <code id=\"secret\">{}</code></p><p><a href=\"{}\">Open in an authenticator of this device</a></p>",
        qr::svg(&uri).unwrap_or_default(),
        Escaped(&text),
        Escaped(&uri)
    )
}

pub(super) fn enrol_page(
    app: &App,
    pending: &PendingLogin,
    email: &str,
    secret: &[u8; TOTP_SECRET_BYTES],
    wrong: Option<&str>,
) -> Result<Response, LoginError> {
    let text = format!(
        "{}<p>Logging in here takes a code beside the password.</p>{}{}",
        wrong_text(wrong),
        enrolment(app, email, secret),
        step_form(pending, &code_field("The code that it shows"), "Go on")
    );
    app.step_page(pending, status_of(wrong), "Set up your codes", text)
}

/// The recovery codes as HTML, shown once.
pub(in crate::login) fn shown_recovery_codes(codes: &[String]) -> String {
    let mut text =
        "<p>Logins need a code from now on. Keep these recovery codes where you find them without your phone: each \
         replaces a code of the authenticator once. They are shown only now.</p><p>"
            .to_owned();
    for code in codes {
        text.push_str(&format!("<code class=\"recovery\">{code}</code><br>"));
    }
    text + "</p>"
}

/// Whether this is a valid code or recovery code of the person. Uses the code up.
pub(in crate::login) async fn check_code(
    app: &App,
    person: &LocalPerson,
    secrets: &PersonSecrets,
    typed: &str,
) -> Result<bool, LoginError> {
    let kept =
        TotpState { owner: person.id.into(), sealed: secrets.totp_secret.as_deref(), used_step: secrets.totp_step };
    let checked = app.check_totp(kept, typed).await?;
    if checked == CodeCheck::Recovery {
        app.audit_person(person.organisation, person.email.as_str(), "person.recovery-code");
    }
    Ok(checked != CodeCheck::Wrong)
}

impl App {
    /// Turns codes on if the first one is right.
    pub(in crate::login) async fn begin_codes(
        &self,
        person: &LocalPerson,
        secret: &[u8; TOTP_SECRET_BYTES],
        first: &str,
    ) -> Result<Option<NewCodes>, LoginError> {
        let Some(recovery) = self.begin_totp(person.id.into(), secret, first).await? else { return Ok(None) };
        self.audit_person(person.organisation, person.email.as_str(), "person.totp-on");
        tracing::info!(account = %person.organisation, person = %person.id, "a person has codes from now on");
        Ok(Some(NewCodes { recovery }))
    }
}

pub(super) async fn check(
    app: &App,
    client: Client,
    headers: &HeaderMap,
    pending: PendingLogin,
    who: (PersonId, i64),
    given: &HashMap<String, String>,
) -> Result<Response, LoginError> {
    let code = given.get("code").ok_or_else(form::not_valid)?;
    let (person, secrets) = app.person_since(&pending, who.0, who.1).await?;
    let attempt = attempt(app, client, person.organisation, person.email.as_str())?;
    if !check_code(app, &person, &secrets, code).await? {
        app.metrics.person_login(LoginOutcome::Failed);
        let why = locked("wrong code", &attempt);
        app.audit_login(person.organisation, person.email.as_str(), pending.provider.name.as_str(), Some(&why));
        return page(app, &pending, Some("This code is wrong, too old, or was used before."));
    }
    app.limits.record_right_person_login(client, app.clock.now().monotonic);
    app.attempts.record_success(attempt);
    app.finish_local(headers, &pending, person.id, who.1).await
}

pub(super) async fn enrol(
    app: &App,
    client: Client,
    mut pending: PendingLogin,
    who: (PersonId, i64),
    secret: [u8; TOTP_SECRET_BYTES],
    given: &HashMap<String, String>,
) -> Result<Response, LoginError> {
    let code = given.get("code").ok_or_else(form::not_valid)?;
    let now = app.clock.now();
    let (person, _) = app.person_since(&pending, who.0, who.1).await?;
    let attempt = attempt(app, client, person.organisation, person.email.as_str())?;
    let Some(codes) = app.begin_codes(&person, &secret, code).await? else {
        let wrong = "This is not the current code: is the clock of the phone right?";
        return enrol_page(app, &pending, person.email.as_str(), &secret, Some(wrong));
    };
    app.limits.record_right_person_login(client, now.monotonic);
    app.attempts.record_success(attempt);
    pending.login.step = Step::Done { person: person.id, since: now.unix_seconds };
    let text =
        format!("{}{}", shown_recovery_codes(&codes.recovery), step_form(&pending, "", "I have kept them: go on"));
    let response = app.step_page(&pending, StatusCode::OK, "Your recovery codes", text)?;
    app.keep(&pending.login, &pending.state, response)
}
