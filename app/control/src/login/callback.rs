//! `/callback/...`: a browser returns from a provider.

use std::collections::HashMap;

use axum::{
    extract::{Path, RawQuery, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, header};
use sallyport_identity::{CLOCK_LEEWAY_SECONDS, LOGIN_SECONDS, Purpose};
use sallyport_model::{AccountId, ProviderName};
use sallyport_oidc::{AuthorizationResponse, OidcError};
use sallyport_store::LogoutSubject;
use subtle::ConstantTimeEq as _;

use super::{
    cookies,
    page::LoginError,
    start::{ProviderLogin, failed, not_ours, parameters},
};
use crate::{security::client::Client, state::App};

/// The longest code of a provider, in bytes.
const MAX_CODE_BYTES: usize = 4_096;

pub(super) async fn callback(
    State(app): State<App>,
    client: Client,
    Path((organisation, provider)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let parameters = parameters(query.as_deref()).unwrap_or_default();
    let state = parameters.get("state").cloned().unwrap_or_default();
    let place = organisation.parse().ok().zip(provider.parse().ok());
    let mut response = match come_back(&app, client, place, &parameters, &headers).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    };
    // Whatever the outcome, this login cannot return again.
    let name = cookies::login_name(&state);
    if cookies::all(&headers).any(|(found, _)| found == name)
        && let Ok(gone) = cookies::gone(&name)
    {
        response.headers_mut().append(header::SET_COOKIE, gone);
    }
    response
}

/// The response to a login that did not begin in this browser.
pub(super) fn not_begun() -> LoginError {
    LoginError::new(
        StatusCode::BAD_REQUEST,
        "This login is not known here",
        "The login did not begin in this browser, began more than ten minutes ago, or was completed already.",
    )
    .next("Open the address of the service again.")
}

impl App {
    /// Whether a login returns for the first time. The marks are stored, so a restart does not forget them.
    pub(super) async fn is_first_use(
        &self,
        organisation: AccountId,
        state: [u8; 16],
        at: i64,
    ) -> Result<bool, LoginError> {
        let until = at.saturating_add(LOGIN_SECONDS + CLOCK_LEEWAY_SECONDS);
        Ok(self.store.use_once(organisation, state, until, self.clock.now().unix_seconds).await?)
    }
}

/// The login with this state that began in this browser.
async fn begun(
    app: &App,
    place: Option<&(AccountId, ProviderName)>,
    state: &str,
    headers: &HeaderMap,
) -> Result<ProviderLogin, LoginError> {
    let sealed = cookies::one(headers, &cookies::login_name(state)).ok_or_else(not_begun)?;
    let login: ProviderLogin = app.sealer.open(Purpose::ProviderLogin, sealed).ok_or_else(not_begun)?;
    let now = app.clock.now().unix_seconds;
    let is_state = bool::from(login.state_text().as_bytes().ct_eq(state.as_bytes()));
    let is_fresh = (login.at - CLOCK_LEEWAY_SECONDS..=login.at.saturating_add(LOGIN_SECONDS)).contains(&now);
    let is_place = place.is_some_and(|(organisation, _)| *organisation == login.organisation);
    if !is_state || !is_fresh || !is_place || !app.is_first_use(login.organisation, login.state, login.at).await? {
        return Err(not_begun());
    }
    Ok(login)
}

async fn come_back(
    app: &App,
    client: Client,
    place: Option<(AccountId, ProviderName)>,
    parameters: &HashMap<String, String>,
    headers: &HeaderMap,
) -> Result<Response, LoginError> {
    let now = app.clock.now();
    app.limits.login_step(client, now.monotonic)?;
    let state = parameters.get("state").ok_or_else(not_ours)?;
    let login = begun(app, place.as_ref(), state, headers).await?;
    let route = app.socket_of(&login.request).await?;
    let (service, asks) = (app.requested_url(&route, &login.request), App::asks(&route));
    let organisation = login.organisation;
    let (_, name) = place.ok_or_else(not_ours)?;
    let provider = app
        .store
        .provider(organisation, &name)
        .await?
        // A new provider of the same name is another provider, and the socket's owner or settings may have changed.
        .filter(|provider| provider.id == login.provider && route.account == organisation)
        .filter(|provider| asks.providers.is_empty() || asks.providers.contains(&provider.name))
        .ok_or_else(not_begun)?;
    if let Some(error) = parameters.get("error") {
        return Err(provider_refused(error, &service));
    }
    let code = parameters.get("code").filter(|code| (1..=MAX_CODE_BYTES).contains(&code.len())).ok_or_else(not_ours)?;
    let secret = app.open_secret(&provider).ok_or_else(|| {
        LoginError::new(
            StatusCode::BAD_GATEWAY,
            "The login did not work",
            "The provider's secret cannot be read any more.",
        )
        .next("Contact the operator of the service.")
        .inside("the secret of a provider was sealed with another key: `sallyport provider edit` sets it again")
    })?;
    let authorization = AuthorizationResponse {
        redirect_uri: &app.redirect_uri(organisation, &name),
        code,
        issuer: parameters.get("iss").map(String::as_str),
        verifier: &login.verifier_text(),
        nonce: &login.nonce_text(),
        now: now.unix_seconds,
    };
    let finished = app.providers.finish(&provider.config, &name, &secret, authorization).await.map_err(|error| {
        if let OidcError::Person(refused) = &error {
            app.audit_login(organisation, "", name.as_str(), Some(&refused.to_string()));
        }
        failed(&error, &service)
    })?;
    let former = app.signed_on(headers, organisation).await?.map(|session| session.id);
    let (person, sid) = (finished.person.clone(), finished.sid.clone());
    let session = app.begin_login_session(organisation, person, &asks, former, Some((&provider, &finished))).await?;
    app.audit_login(organisation, session.person.email.as_str(), name.as_str(), None);
    // A change of the provider meanwhile has ended its logins, but missed this new one.
    let now_there = app.store.provider(organisation, &name).await?;
    if now_there.is_none_or(|there| there.id != provider.id || there.config != provider.config) {
        app.end_login_sessions(organisation, None, Some(&name)).await?;
        return Err(not_begun());
    }
    // A logout at the provider meanwhile could not end this login, which was not known yet.
    if let Some(sid) = &sid
        && app.has_ended_there(&provider, sid).await?
    {
        app.end_at_provider(&provider, LogoutSubject { subject: Some(&session.person.subject), sid: Some(sid) })
            .await?;
        return Err(not_begun());
    }
    app.with_sign_on(app.grant(&route, &login.request, session.id)?, &session)
}

/// The provider, or the person there, has refused (RFC 6749 section 4.1.2.1).
fn provider_refused(error: &str, service: &str) -> LoginError {
    if error == "access_denied" {
        let detail = "You did not log in at the identity provider, or it did not allow the login.";
        return LoginError::new(StatusCode::FORBIDDEN, "Not logged in", detail).link(service, "Try again");
    }
    let error: String = error.chars().filter(char::is_ascii_graphic).take(64).collect();
    LoginError::new(
        StatusCode::BAD_GATEWAY,
        "The login did not work",
        &format!("The identity provider refused to let you log in here: {error}."),
    )
    .next("If it stays so, contact the operator of the service.")
    .link(service, "Try again")
    .inside(format!("the provider reported {error}"))
}
