//! Logins with a password of this installation: the provider of kind `local`.
//!
//! A login goes from step to step ([`Step`]), each sealed in a cookie of its browser. At the end it is like every other
//! login: a [`sallyport_model::Person`], a session, a grant. All errors about an address or a password have the same
//! text and status, after the same work, so that they reveal nothing.
//!
//! May use: the forms and pages of `login`, and what `login` may use.

mod codes;
mod forgot;
mod link;
mod password;
mod qr;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{RawQuery, State},
    response::{IntoResponse, Response},
    routing::get,
};
use http::{HeaderMap, StatusCode, header};
use sallyport_http::page::Escaped;
use sallyport_identity::{CLOCK_LEEWAY_SECONDS, LOGIN_SECONDS, LoginRequest, Purpose, TOTP_SECRET_BYTES};
use sallyport_model::{AccountId, IdentitySettings, Person, PersonId, ProviderId, ProviderKind, SocketRoute};
use sallyport_store::{LocalPerson, PersonSecrets, StoredProvider};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

pub(super) use self::{
    codes::{check_code, enrolment, shown_recovery_codes},
    link::{check_new_password, check_new_password_of, new_password_fields, password_page},
    password::{PasswordOutcome, attempt, check_password},
};
use super::{
    callback::not_begun,
    cookies, form,
    page::{LoginError, see_other, written},
    start::{host_of, make_room, not_ours, parameters},
};
use crate::{
    metrics::LoginOutcome,
    security::{client::Client, random},
    state::App,
};

/// The step of a login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Step {
    /// The address and the password are needed.
    Password,
    /// The password was right; a code is needed.
    Code { person: PersonId, since: i64 },
    /// The password was right; the person must set up codes with this secret.
    Enrol { person: PersonId, secret: [u8; TOTP_SECRET_BYTES], since: i64 },
    /// Everything was right, and the person has seen the recovery codes.
    Done { person: PersonId, since: i64 },
}

/// A login in progress, sealed in a cookie of its browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LocalLogin {
    request: LoginRequest,
    organisation: AccountId,
    provider: ProviderId,
    state: [u8; 16],
    step: Step,
    /// The start of the login, in seconds since 1970 (UTC).
    at: i64,
}

/// A login in progress, with its socket and provider.
struct PendingLogin {
    login: LocalLogin,
    /// The state, for forms and the cookie's name.
    state: String,
    route: Arc<SocketRoute>,
    asks: IdentitySettings,
    provider: StoredProvider,
}

/// The pages.
pub(super) fn pages() -> Router<App> {
    Router::new()
        .route("/local", get(show).post(proceed))
        .route("/local/forgot", get(forgot::ask).post(forgot::send))
        .route("/local/link", get(link::show).post(link::set))
}

fn state_text(state: [u8; 16]) -> String {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    URL_SAFE_NO_PAD.encode(state)
}

impl App {
    /// Redirects the browser to the password page.
    pub(super) fn begin_local(
        &self,
        headers: &HeaderMap,
        provider: &StoredProvider,
        request: LoginRequest,
    ) -> Result<Response, LoginError> {
        let login = LocalLogin {
            request,
            organisation: provider.organisation,
            provider: provider.id,
            state: random::bytes()?,
            step: Step::Password,
            at: self.clock.now().unix_seconds,
        };
        let state = state_text(login.state);
        let mut response = see_other(&format!("/local?login={state}"))?;
        make_room(headers, &mut response);
        self.keep(&login, &state, response)
    }

    /// Adds the cookie with the login's step to the response.
    fn keep(&self, login: &LocalLogin, state: &str, mut response: Response) -> Result<Response, LoginError> {
        let sealed = self.seal(Purpose::LocalLogin, login)?;
        response.headers_mut().append(header::SET_COOKIE, cookies::begun(state, &sealed)?);
        Ok(response)
    }

    /// The login in progress with this state in this browser.
    async fn pending(&self, headers: &HeaderMap, state: Option<&String>) -> Result<PendingLogin, LoginError> {
        let state = state.ok_or_else(not_ours)?;
        let sealed = cookies::one(headers, &cookies::login_name(state)).ok_or_else(not_begun)?;
        let login: LocalLogin = self.sealer.open(Purpose::LocalLogin, sealed).ok_or_else(not_begun)?;
        let now = self.clock.now().unix_seconds;
        let is_state = bool::from(state_text(login.state).as_bytes().ct_eq(state.as_bytes()));
        let is_fresh = (login.at - CLOCK_LEEWAY_SECONDS..=login.at.saturating_add(LOGIN_SECONDS)).contains(&now);
        if !is_state || !is_fresh {
            return Err(not_begun());
        }
        let route = self.socket_of(&login.request).await?;
        let asks = Self::asks(&route);
        // The socket's owner or settings may have changed, and a new provider of the same name is another provider.
        let providers = self.providers_for(route.account, &asks).await?;
        let provider = providers
            .into_iter()
            .find(|provider| provider.id == login.provider && provider.config.kind == ProviderKind::Local)
            .filter(|provider| provider.organisation == login.organisation)
            .ok_or_else(not_begun)?;
        Ok(PendingLogin { state: state.clone(), login, route, asks, provider })
    }

    /// The person of a login, unless the person has changed since.
    async fn person_since(
        &self,
        pending: &PendingLogin,
        person: PersonId,
        since: i64,
    ) -> Result<(LocalPerson, PersonSecrets), LoginError> {
        let found = self.store.person(pending.login.organisation, person).await?;
        found
            .filter(|(person, _)| person.may_log_in() && person.changed_at <= since)
            .filter(|(person, _)| person.provider == pending.provider.id)
            .ok_or_else(not_begun)
    }

    /// Ends the login: the person gets a session, and the browser returns to the socket.
    async fn finish_local(
        &self,
        headers: &HeaderMap,
        pending: &PendingLogin,
        id: PersonId,
        since: i64,
    ) -> Result<Response, LoginError> {
        let (organisation, name) = (pending.login.organisation, &pending.provider.name);
        let (found, _) = self.person_since(pending, id, since).await?;
        if !self.is_first_use(organisation, pending.login.state, pending.login.at).await? {
            return Err(not_begun());
        }
        let person = Person {
            email: found.email.clone(),
            name: found.name.clone(),
            groups: found.groups.clone(),
            groups_stated: true,
            provider: name.clone(),
            subject: found.id.to_string(),
        };
        let former = self.signed_on(headers, organisation).await?.map(|session| session.id);
        let session = self.begin_login_session(organisation, person, &pending.asks, former, None).await?;
        // A change of the person meanwhile has ended all logins, but missed this new one.
        let now_there = self.store.person(organisation, id).await?.map(|(person, _)| person);
        let is_same = |there: &LocalPerson| {
            there.may_log_in() && there.changed_at <= since && there.groups == found.groups && there.name == found.name
        };
        if !now_there.as_ref().is_some_and(is_same) {
            self.end_login_sessions(organisation, Some(&found.email), Some(name)).await?;
            return Err(not_begun());
        }
        self.store.record_person_login(id, self.clock.now().unix_seconds).await?;
        self.metrics.person_login(LoginOutcome::Ok);
        self.audit_login(organisation, found.email.as_str(), name.as_str(), None);
        let mut response =
            self.with_sign_on(self.grant(&pending.route, &pending.login.request, session.id)?, &session)?;
        response.headers_mut().append(header::SET_COOKIE, cookies::gone(&cookies::login_name(&pending.state))?);
        Ok(response)
    }

    /// A page of a login. Its forms may lead to the socket, because Chromium applies `form-action` to redirects too.
    fn step_page(
        &self,
        pending: &PendingLogin,
        status: StatusCode,
        title: &str,
        text: String,
    ) -> Result<Response, LoginError> {
        let service = self.requested_url(&pending.route, &pending.login.request);
        let text = format!("<p>For the service <code>{}</code></p>\n{text}", Escaped(host_of(&service)));
        Ok(written(status, title, text).forms_lead(Some(&service)).into_response())
    }
}

/// The form of a step, with its fields and button.
fn step_form(pending: &PendingLogin, fields: &str, button: &str) -> String {
    format!(
        "<form method=\"post\" action=\"/local\"><input type=\"hidden\" name=\"login\" value=\"{}\">{fields}\
         <div class=\"acts\"><button>{button}</button></div></form>",
        Escaped(&pending.state)
    )
}

/// Shows the page of the login's step.
async fn show(
    State(app): State<App>,
    client: Client,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, LoginError> {
    app.limits.login_step(client, app.clock.now().monotonic)?;
    let parameters = parameters(query.as_deref()).ok_or_else(not_ours)?;
    let pending = app.pending(&headers, parameters.get("login")).await?;
    match &pending.login.step {
        Step::Password => password::page(&app, &pending, None),
        Step::Code { .. } => codes::page(&app, &pending, None),
        Step::Enrol { person, secret, since } => {
            let (person, _) = app.person_since(&pending, *person, *since).await?;
            codes::enrol_page(&app, &pending, person.email.as_str(), secret, None)
        }
        Step::Done { .. } => {
            let text = format!("<p>You are logged in.</p>{}", step_form(&pending, "", "Go on"));
            app.step_page(&pending, StatusCode::OK, "Logged in", text)
        }
    }
}

/// Handles the form of the login's step.
async fn proceed(
    State(app): State<App>,
    client: Client,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, LoginError> {
    app.limits.login_step(client, app.clock.now().monotonic)?;
    let given = form::read(&app, &headers, body).await?;
    let pending = app.pending(&headers, given.get("login")).await?;
    match pending.login.step.clone() {
        Step::Password => password::check(&app, client, &headers, pending, &given).await,
        Step::Code { person, since } => codes::check(&app, client, &headers, pending, (person, since), &given).await,
        Step::Enrol { person, secret, since } => {
            codes::enrol(&app, client, pending, (person, since), secret, &given).await
        }
        Step::Done { person, since } => app.finish_local(&headers, &pending, person, since).await,
    }
}
