//! The second step: codes of an authenticator, and having them from now on.

use std::collections::HashMap;

use axum::response::Response;
use http::{HeaderMap, StatusCode};
use sallyport_http::page::Escaped;
use sallyport_identity::{Purpose, TOTP_DIGITS, TOTP_SECRET_BYTES, base32, otpauth_uri, totp_step_of};
use sallyport_model::PersonId;
use sallyport_store::{LocalPerson, PersonSecrets, RECOVERY_CODES, SecretHash};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    Going, Step,
    password::{attempt, locked},
    qr, step_form,
};
use crate::{
    App,
    limits::Client,
    login::{
        form,
        page::{LoginError, wrong as wrong_text},
    },
    metrics::LoginOutcome,
    problem::ApiError,
    random,
};

/// How many random bytes a recovery code has: 80 bits, which nobody finds by trying, not even with its hash.
const RECOVERY_BYTES: usize = 10;
/// How many characters are written together.
const GROUP_CHARS: usize = 4;

/// A secret with whose it is: one that is moved to another row of the store does not open there.
#[derive(Serialize, Deserialize)]
struct KeptCodes {
    person: PersonId,
    totp: [u8; TOTP_SECRET_BYTES],
}

/// Codes that are to be asked for from now on.
pub(in crate::login) struct NewCodes {
    /// What the person sees once.
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

pub(super) fn page(app: &App, going: &Going, wrong: Option<&str>) -> Result<Response, LoginError> {
    let text = format!(
        "{}<p>Type the code that your authenticator shows now, or one of your recovery codes.</p>{}",
        wrong_text(wrong),
        step_form(going, &code_field("Code"), "Log in")
    );
    app.step_page(going, status_of(wrong), "Your code", text)
}

/// What a person needs to have codes of this secret: a picture, and the secret as text.
pub(in crate::login) fn enrolment(app: &App, email: &str, secret: &[u8; TOTP_SECRET_BYTES]) -> String {
    let uri = otpauth_uri(secret, &app.config.domain, email);
    let text = base32(secret);
    let groups: Vec<&str> =
        (0..text.len()).step_by(GROUP_CHARS).filter_map(|at| text.get(at..at + GROUP_CHARS)).collect();
    format!(
        "<p>Add this account to an authenticator on your phone: scan the picture, or type the secret.</p>{}\
         <p>Secret <code id=\"secret\">{}</code></p><p><a href=\"{}\">Open in an authenticator of this device</a></p>",
        qr::svg(&uri).unwrap_or_default(),
        Escaped(&groups.join(" ")),
        Escaped(&uri)
    )
}

pub(super) fn enrol_page(
    app: &App,
    going: &Going,
    email: &str,
    secret: &[u8; TOTP_SECRET_BYTES],
    wrong: Option<&str>,
) -> Result<Response, LoginError> {
    let text = format!(
        "{}<p>Logging in here takes a code beside the password.</p>{}{}",
        wrong_text(wrong),
        enrolment(app, email, secret),
        step_form(going, &code_field("The code that it shows"), "Go on")
    );
    app.step_page(going, status_of(wrong), "Set up your codes", text)
}

/// Fresh recovery codes, as they are shown and as they are kept.
pub(in crate::login) fn recovery_codes(person: PersonId) -> Result<(Vec<String>, Vec<SecretHash>), ApiError> {
    let (mut shown, mut kept) = (Vec::with_capacity(RECOVERY_CODES), Vec::with_capacity(RECOVERY_CODES));
    for _ in 0..RECOVERY_CODES {
        let code = base32(&random::bytes::<RECOVERY_BYTES>()?).to_ascii_lowercase();
        kept.push(recovery_hash(person, &code));
        let groups: Vec<&str> =
            (0..code.len()).step_by(GROUP_CHARS).filter_map(|at| code.get(at..at + GROUP_CHARS)).collect();
        shown.push(groups.join("-"));
    }
    Ok((shown, kept))
}

fn recovery_hash(person: PersonId, code: &str) -> SecretHash {
    Sha256::new().chain_update(person.as_bytes()).chain_update(code).finalize().into()
}

/// Recovery codes on a page, once.
pub(in crate::login) fn shown_recovery_codes(codes: &[String]) -> String {
    let mut text =
        "<p>Codes are asked for from now on. Keep these recovery codes where you find them without your phone: \
                    each lets you in once in the place of a code. They are shown only now.</p><p>"
            .to_owned();
    for code in codes {
        text.push_str(&format!("<code class=\"recovery\">{code}</code><br>"));
    }
    text + "</p>"
}

/// Whether this is a code or recovery code of the person; it is used up by this.
pub(in crate::login) async fn check_code(
    app: &App,
    person: &LocalPerson,
    secrets: &PersonSecrets,
    typed: &str,
) -> Result<bool, LoginError> {
    let plain: String =
        typed.chars().filter(|c| !c.is_whitespace() && *c != '-').collect::<String>().to_ascii_lowercase();
    if plain.len() != TOTP_DIGITS as usize {
        let is_code = plain.len() == RECOVERY_BYTES * 8 / 5 && plain.is_ascii();
        let taken = is_code && app.store.take_recovery_code(person.id, recovery_hash(person.id, &plain)).await?;
        if taken {
            app.audit_person(person.organisation, person.email.as_str(), "person.recovery-code");
        }
        return Ok(taken);
    }
    let Some(sealed) = &secrets.totp_secret else { return Ok(false) };
    let kept: Option<KeptCodes> = app.sealer.open(Purpose::StoredSecret, sealed);
    let Some(kept) = kept.filter(|kept| kept.person == person.id) else {
        tracing::error!(account = %person.organisation, person = %person.id, "the secret of codes cannot be read any more");
        return Ok(false);
    };
    let now = app.clock.now().unix_seconds;
    match totp_step_of(&kept.totp, &plain, secrets.totp_step, now) {
        Some(step) => Ok(app.store.take_totp_step(person.id, step).await?),
        None => Ok(false),
    }
}

impl App {
    /// Has codes asked for from now on, when the first one is right.
    pub(in crate::login) async fn begin_codes(
        &self,
        person: &LocalPerson,
        secret: &[u8; TOTP_SECRET_BYTES],
        first: &str,
    ) -> Result<Option<NewCodes>, LoginError> {
        let now = self.clock.now().unix_seconds;
        let Some(step) = totp_step_of(secret, first.trim(), 0, now) else { return Ok(None) };
        let kept = KeptCodes { person: person.id, totp: *secret };
        let sealed = self.seal(Purpose::StoredSecret, &kept)?;
        let (recovery, hashes) = recovery_codes(person.id)?;
        if !self.store.begin_person_totp(person.id, &sealed, step, &hashes, now).await? {
            return Ok(None);
        }
        self.audit_person(person.organisation, person.email.as_str(), "person.totp-on");
        tracing::info!(account = %person.organisation, person = %person.id, "a person has codes from now on");
        Ok(Some(NewCodes { recovery }))
    }
}

pub(super) async fn check(
    app: &App,
    client: Client,
    headers: &HeaderMap,
    going: Going,
    who: (PersonId, i64),
    given: &HashMap<String, String>,
) -> Result<Response, LoginError> {
    let code = given.get("code").ok_or_else(form::not_valid)?;
    let (person, secrets) = app.person_since(&going, who.0, who.1).await?;
    let attempt = attempt(app, client, person.organisation, person.email.as_str())?;
    if !check_code(app, &person, &secrets, code).await? {
        app.metrics.person_login(LoginOutcome::Failed);
        let why = locked("wrong code", &attempt);
        app.audit_login(person.organisation, person.email.as_str(), going.provider.name.as_str(), Some(&why));
        return page(app, &going, Some("This code is wrong, too old, or was used before."));
    }
    app.limits.person_login_was_right(client, app.clock.now().monotonic);
    app.attempts.was_right(attempt);
    app.finish_local(headers, &going, person.id, who.1).await
}

pub(super) async fn enrol(
    app: &App,
    client: Client,
    mut going: Going,
    who: (PersonId, i64),
    secret: [u8; TOTP_SECRET_BYTES],
    given: &HashMap<String, String>,
) -> Result<Response, LoginError> {
    let code = given.get("code").ok_or_else(form::not_valid)?;
    let now = app.clock.now();
    let (person, _) = app.person_since(&going, who.0, who.1).await?;
    let attempt = attempt(app, client, person.organisation, person.email.as_str())?;
    let Some(codes) = app.begin_codes(&person, &secret, code).await? else {
        let wrong = "This is not the current code: is the clock of the phone right?";
        return enrol_page(app, &going, person.email.as_str(), &secret, Some(wrong));
    };
    app.limits.person_login_was_right(client, now.monotonic);
    app.attempts.was_right(attempt);
    going.login.step = Step::Done { person: person.id, since: now.unix_seconds };
    let text = format!("{}{}", shown_recovery_codes(&codes.recovery), step_form(&going, "", "I have kept them: go on"));
    let response = app.step_page(&going, StatusCode::OK, "Your recovery codes", text)?;
    app.keep(&going.login, &going.state, response)
}
