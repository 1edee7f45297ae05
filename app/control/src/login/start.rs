//! `/start`: a socket sends a browser here. The browser goes on to its session, to a provider, or to a choice of
//! providers.

use std::collections::HashMap;

use axum::{
    extract::{RawQuery, State},
    response::Response,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, StatusCode, header};
use percent_encoding::percent_decode_str;
use sallyport_http::page::Escaped;
use sallyport_identity::{LoginRequest, Purpose, safe_return_to, validate_session};
use sallyport_model::{AccountId, IdentitySettings, ProviderId, ProviderKind};
use sallyport_oidc::{AuthorizationRequest, OidcError, Prompt, with_query};
use sallyport_store::{MAX_PROVIDERS_PER_ORGANISATION, StoredProvider};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    cookies,
    page::{LoginError, equal_ways, page, see_other},
};
use crate::{
    security::{client::Client, random},
    state::App,
};

/// A login at a provider that has begun, sealed in a cookie of its browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProviderLogin {
    /// The request of the edge.
    pub(super) request: LoginRequest,
    /// The organisation of the provider.
    pub(super) organisation: AccountId,
    /// The provider of the login.
    pub(super) provider: ProviderId,
    /// The `state` of the request to the provider.
    pub(super) state: [u8; 16],
    /// The `nonce` of the request to the provider.
    pub(super) nonce: [u8; 16],
    /// The code verifier (RFC 7636).
    pub(super) verifier: [u8; 32],
    /// When the login began, in seconds since 1970 (UTC).
    pub(super) at: i64,
}

impl ProviderLogin {
    pub(super) fn state_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.state)
    }

    pub(super) fn nonce_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.nonce)
    }

    pub(super) fn verifier_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.verifier)
    }
}

/// The parameters of a query; `None` if one occurs twice or is no text.
pub(crate) fn parameters(query: Option<&str>) -> Option<HashMap<String, String>> {
    let decoded =
        |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8().ok().map(std::borrow::Cow::into_owned);
    let mut found = HashMap::new();
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if found.insert(decoded(name)?, decoded(value)?).is_some() {
            return None;
        }
    }
    Some(found)
}

/// The response to an address that no edge has made.
pub(super) fn not_ours() -> LoginError {
    LoginError::new(
        StatusCode::BAD_REQUEST,
        "This link does not work",
        "The address is not one that a service made here.",
    )
    .next("Open the address of the service that you want to use, and follow it from there.")
}

/// The response to a login that took too long.
fn too_old(service: &str) -> LoginError {
    LoginError::new(StatusCode::BAD_REQUEST, "This link is too old", "Logging in took longer than ten minutes.")
        .link(service, "Begin again")
}

/// The page about a failed provider.
pub(super) fn failed(error: &OidcError, service: &str) -> LoginError {
    let status = match error {
        OidcError::Person(_) => StatusCode::FORBIDDEN,
        OidcError::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
        OidcError::Token(_) | OidcError::Refused { .. } => StatusCode::BAD_REQUEST,
        _ => StatusCode::BAD_GATEWAY,
    };
    let title = if status == StatusCode::FORBIDDEN { "This account cannot be used" } else { "The login did not work" };
    let sentence = error.to_string();
    let mut letters = sentence.chars();
    let detail: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    let page = LoginError::new(status, title, &format!("{detail}."));
    let page = if status == StatusCode::FORBIDDEN {
        // The same account would fail in the same way.
        page.next("When that is repaired there, log in again; or use another account.")
            .link(&format!("{service}/.sallyport/login?switch=1"), "Use another account")
    } else {
        page.link(service, "Try again")
    };
    // The refused e-mail address is in the sentence, and must not be in the log.
    if status == StatusCode::FORBIDDEN { page } else { page.inside(error) }
}

pub(super) async fn start(
    State(app): State<App>,
    client: Client,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, LoginError> {
    let now = app.clock.now();
    app.limits.login_step(client, now.monotonic)?;
    let parameters = parameters(query.as_deref()).ok_or_else(not_ours)?;
    let sealed = parameters.get("request").ok_or_else(not_ours)?;
    let request: LoginRequest = app.sealer.open(Purpose::LoginRequest, sealed).ok_or_else(not_ours)?;
    let route = app.socket_of(&request).await?;
    let service = app.requested_url(&route, &request);
    if !request.is_fresh(now.unix_seconds) {
        return Err(too_old(&service));
    }
    let (organisation, asks) = (route.account, App::asks(&route));
    let wanted = parameters.get("provider");
    if !request.switch
        && wanted.is_none()
        && let Some(session) = app.signed_on(&headers, organisation).await?
        && validate_session(&session, organisation, &asks, now.unix_seconds).is_ok()
    {
        return app.grant(&route, &request, session.id);
    }
    // A browser that has logged out asks the person before the next login.
    let has_logged_out = cookies::one(&headers, &cookies::logged_out_name(organisation)).is_some();
    let mut providers = app.providers_for(organisation, &asks).await?;
    if let Some(wanted) = wanted {
        providers.retain(|provider| provider.name.as_str() == wanted);
        if providers.is_empty() {
            return Err(not_ours());
        }
    }
    match providers.as_slice() {
        [] => Err(LoginError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "Nobody can log in here yet",
            "This service requires a login, and there is no identity provider for it yet.",
        )
        .next("Contact the operator of the service.")
        .inside("a socket requires a login, and its organisation has no identity provider that it accepts")),
        [one]
            if wanted.is_some() || !(request.switch || (has_logged_out && one.config.kind != ProviderKind::Local)) =>
        {
            let provider = one.clone();
            let prompt = match (request.switch, has_logged_out) {
                (true, _) => Prompt::SelectAccount,
                (false, true) => Prompt::Always,
                (false, false) => Prompt::IfNeeded,
            };
            match provider.config.kind {
                ProviderKind::Local => app.begin_local(&headers, &provider, request),
                _ => app.send_to(&headers, &service, provider, request, prompt).await,
            }
        }
        several => Ok(chooser(&service, sealed, several, has_logged_out && !request.switch)),
    }
}

/// Sends a page of this host through a login, and back to the page.
pub(super) async fn sign_on(
    State(app): State<App>,
    client: Client,
    RawQuery(query): RawQuery,
) -> Result<Response, LoginError> {
    let now = app.clock.now();
    app.limits.login_step(client, now.monotonic)?;
    let parameters = parameters(query.as_deref()).ok_or_else(not_ours)?;
    let (socket, to) = parameters.get("socket").zip(parameters.get("to")).ok_or_else(not_ours)?;
    let (route, _) = app
        .asking_socket(host_in(socket))
        .await
        .map_err(|error| if error.status() == StatusCode::NOT_FOUND { no_such_service() } else { error.into() })?;
    let is_ours = |page: &str| to == page || to.strip_prefix(page).is_some_and(|rest| rest.starts_with(['?', '/']));
    if safe_return_to(to) != to || !super::PAGES.iter().any(|page| is_ours(page)) {
        return Err(not_ours());
    }
    let request = LoginRequest {
        socket: route.id,
        binding: [0; 32],
        return_to: to.clone(),
        host: None,
        switch: parameters.contains_key("switch"),
        is_of_login_host: true,
        at: now.unix_seconds,
    };
    let sealed = app.seal(Purpose::LoginRequest, &request)?;
    see_other(&with_query("/start", &[("request", &sealed)]))
}

/// The host in a text that a person typed or pasted: a host or a URL.
fn host_in(typed: &str) -> &str {
    let typed = typed.trim();
    let behind = typed.split_once("://").map_or(typed, |(_, behind)| behind);
    behind.split(['/', ':', '?', '#']).next().unwrap_or_default()
}

fn no_such_service() -> LoginError {
    LoginError::new(StatusCode::NOT_FOUND, "No such service", "There is no service at this address.")
        .next("Check the address for mistakes.")
        .link("/account", "Try again")
}

/// A page with a link for each provider: links, because forms may not lead to another host.
fn chooser(service: &str, sealed: &str, providers: &[StoredProvider], has_logged_out: bool) -> Response {
    let mut text = format!("<p>The service <code>{}</code> requires a login.</p>", Escaped(host_of(service)));
    if has_logged_out {
        text.push_str("\n<p>You have logged out in this browser.</p>");
    }
    let mut ways = Vec::with_capacity(providers.len());
    for provider in providers {
        let href = with_query("/start", &[("request", sealed), ("provider", provider.name.as_str())]);
        let label = match provider.config.kind {
            ProviderKind::Oidc => provider.name.to_string(),
            ProviderKind::Google => "Google".to_owned(),
            ProviderKind::Microsoft => "Microsoft".to_owned(),
            ProviderKind::Github => "GitHub".to_owned(),
            ProviderKind::Facebook => "Facebook".to_owned(),
            ProviderKind::Local => "a password".to_owned(),
        };
        let name = provider.name.as_str();
        let has_one_name = matches!(provider.config.kind, ProviderKind::Oidc | ProviderKind::Local);
        let alias = if label.eq_ignore_ascii_case(name) || has_one_name { String::new() } else { format!(" ({name})") };
        let label = format!("Log in with {label}{alias}");
        ways.push((href, label));
    }
    let ways: Vec<_> = ways.iter().map(|(href, label)| (href.as_str(), label.as_str())).collect();
    text.push_str(&equal_ways(&ways));
    page(StatusCode::OK, "Log in", text)
}

/// The address of a service without `https://`.
pub(super) fn host_of(service: &str) -> &str {
    service.strip_prefix("https://").unwrap_or(service)
}

impl App {
    /// The providers that a socket with these settings accepts.
    pub(super) async fn providers_for(
        &self,
        organisation: AccountId,
        asks: &IdentitySettings,
    ) -> Result<Vec<StoredProvider>, LoginError> {
        let limit = u32::try_from(MAX_PROVIDERS_PER_ORGANISATION).unwrap_or(u32::MAX);
        let all = self.store.providers(organisation, 0, limit).await?;
        let may = |provider: &StoredProvider| asks.providers.is_empty() || asks.providers.contains(&provider.name);
        Ok(all.into_iter().map(|(_, provider)| provider).filter(may).collect())
    }

    /// Redirects the browser to a provider, with a cookie for the return.
    async fn send_to(
        &self,
        headers: &HeaderMap,
        service: &str,
        provider: StoredProvider,
        request: LoginRequest,
        prompt: Prompt,
    ) -> Result<Response, LoginError> {
        let organisation = provider.organisation;
        let login = ProviderLogin {
            organisation,
            provider: provider.id,
            state: random::bytes()?,
            nonce: random::bytes()?,
            verifier: random::bytes()?,
            at: self.clock.now().unix_seconds,
            request,
        };
        let (state, nonce) = (login.state_text(), login.nonce_text());
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(login.verifier_text()));
        let authorization = AuthorizationRequest {
            redirect_uri: &self.redirect_uri(organisation, &provider.name),
            state: &state,
            nonce: &nonce,
            challenge: &challenge,
            prompt,
        };
        let to =
            self.providers.begin(&provider.config, authorization).await.map_err(|error| failed(&error, service))?;
        let mut response = see_other(&to)?;
        make_room(headers, &mut response);
        let sealed = self.seal(Purpose::ProviderLogin, &login)?;
        response.headers_mut().append(header::SET_COOKIE, cookies::begun(&state, &sealed)?);
        Ok(response)
    }
}

/// Deletes the cookies of unfinished logins if there are too many.
pub(super) fn make_room(headers: &HeaderMap, response: &mut Response) {
    let begun: Vec<&str> =
        cookies::all(headers).map(|(name, _)| name).filter(|name| name.starts_with(cookies::LOGIN_PREFIX)).collect();
    if begun.len() < cookies::MAX_BEGUN_LOGINS {
        return;
    }
    for name in begun.iter().take(2 * cookies::MAX_BEGUN_LOGINS) {
        if let Ok(gone) = cookies::gone(name) {
            response.headers_mut().append(header::SET_COOKIE, gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_paste_whole_addresses() {
        for typed in
            ["app.example.com", " https://app.example.com/a?b#c", "app.example.com:8443", "http://app.example.com:80/"]
        {
            assert_eq!(host_in(typed), "app.example.com", "{typed}");
        }
        assert_eq!(host_in("://"), "");
    }

    #[test]
    fn a_query_is_read_once_and_whole() {
        let read = parameters(Some("a=1%26&b=x+y&c")).unwrap();
        assert_eq!((read["a"].as_str(), read["b"].as_str(), read["c"].as_str()), ("1&", "x y", ""));
        assert!(parameters(None).unwrap().is_empty());
        for bad in ["a=1&a=2", "a=%ff", "a=1&%61=2"] {
            assert!(parameters(Some(bad)).is_none(), "{bad}");
        }
    }
}
