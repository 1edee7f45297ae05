//! `/logout`: ends the logins of a browser everywhere, and at the provider if the person wants that.

use std::sync::Arc;

use axum::{
    extract::{RawQuery, State},
    response::Response,
};
use http::{HeaderMap, StatusCode, header};
use sallyport_http::page::Escaped;
use sallyport_identity::{LOGIN_SECONDS, LogoutRequest, Purpose, SignOn};
use sallyport_model::{AccountId, LoginSession, ProviderKind, SocketId};
use sallyport_oidc::with_query;
use serde::{Deserialize, Serialize};

use super::{
    cookies,
    page::{LoginError, page, ways_on},
    start::parameters,
};
use crate::{problem::ApiError, security::client::Client, state::App};

/// The longest ID token in an address, in bytes: servers accept addresses of 8 KiB.
const MAX_HINT_BYTES: usize = 4_096;
/// How many logins of one browser are read.
const MAX_LOGINS: usize = 50;

/// The logins of this browser at all organisations.
pub(super) async fn logins(app: &App, headers: &HeaderMap) -> Result<Vec<Arc<LoginSession>>, ApiError> {
    let mut found = Vec::new();
    let signed_on = cookies::all(headers)
        .filter(|(name, _)| name.starts_with(cookies::SIGN_ON_PREFIX))
        .filter_map(|(_, sealed)| app.sealer.open::<SignOn>(Purpose::SignOn, sealed));
    for SignOn { session } in signed_on.take(MAX_LOGINS) {
        found.extend(app.session(session).await?);
    }
    Ok(found)
}

/// `GET`: ends the login of an edge's ticket, or shows a button.
pub(super) async fn ask(
    State(app): State<App>,
    client: Client,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, LoginError> {
    let now = app.clock.now();
    app.limits.login_step(client, now.monotonic)?;
    let ticket = parameters(query.as_deref()).and_then(|mut parameters| parameters.remove("ticket"));
    let ticket: Option<LogoutRequest> = ticket.and_then(|sealed| app.sealer.open(Purpose::Logout, &sealed));
    if let Some(ticket) = ticket.filter(|ticket| ticket.is_fresh(now.unix_seconds)) {
        return by_ticket(&app, &headers, &ticket).await;
    }
    let logins = logins(&app, &headers).await?;
    let from = came_from(&app, query.as_deref()).await?;
    if logins.is_empty() {
        let text = format!("<p>Nobody is logged in here with this browser.</p>{}", ways_back(from.as_ref()));
        return Ok(page(StatusCode::OK, "Not logged in", text));
    }
    let mut text = "<p>This browser is logged in as:</p>".to_owned();
    for session in logins {
        text.push_str(&format!("\n<p><code>{}</code></p>", Escaped(session.person.email.as_str())));
    }
    let path = from.as_ref().map(|(host, _)| with_query("/logout", &[("from", host)]));
    text.push_str(&format!(
        "\n<form method=\"post\" action=\"{}\"><div class=\"acts\"><button>Log out everywhere</button><a class=\"act \
         other\" href=\"{}\">Stay</a></div></form>",
        Escaped(path.as_deref().unwrap_or("/logout")),
        Escaped(from.as_ref().map_or("/account", |(_, url)| url.as_str()))
    ));
    Ok(page(StatusCode::OK, "Log out", text))
}

/// The service that the browser came from, by host and URL, if it is a service of this installation.
async fn came_from(app: &App, query: Option<&str>) -> Result<Option<(String, String)>, LoginError> {
    let Some(from) = parameters(query).and_then(|mut parameters| parameters.remove("from")) else { return Ok(None) };
    let found = app.asking_socket(&from).await.ok();
    Ok(found.map(|(route, host)| (host, format!("{}/", app.service_url(&route)))))
}

/// Links for a browser without a login.
fn ways_back(from: Option<&(String, String)>) -> String {
    match from {
        Some((host, url)) => ways_on(&[(url, &format!("Log in to {host}"))]),
        None => ways_on(&[("/account", "Log in")]),
    }
}

/// `POST`: ends the logins of this browser. A form of another site has another origin, and no cookies.
pub(super) async fn logout(
    State(app): State<App>,
    client: Client,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, LoginError> {
    app.limits.login_step(client, app.clock.now().monotonic)?;
    app.check_origin(&headers)?;
    let logins = logins(&app, &headers).await?;
    let mut left = RemainingLogouts::default();
    for session in &logins {
        end(&app, session, None, &mut left).await?;
    }
    let names: Vec<&str> =
        cookies::all(&headers).map(|(name, _)| name).filter(|name| name.starts_with(cookies::SIGN_ON_PREFIX)).collect();
    let from = came_from(&app, query.as_deref()).await?;
    done(&names, from.as_ref().map(|(_, url)| url.trim_end_matches('/')), &left)
}

async fn by_ticket(app: &App, headers: &HeaderMap, ticket: &LogoutRequest) -> Result<Response, LoginError> {
    let route = app.route(ticket.socket).await?;
    let mut left = RemainingLogouts::default();
    if let Some(session) = app.session(ticket.session).await?
        && route.as_ref().is_some_and(|route| route.account == session.organisation)
    {
        end(app, &session, Some(ticket.socket), &mut left).await?;
    }
    // A ticket of another person's login has no effect on this browser.
    let is_its = |sealed: &str| {
        app.sealer.open::<SignOn>(Purpose::SignOn, sealed).is_some_and(|sign_on| sign_on.session == ticket.session)
    };
    let names: Vec<&str> = cookies::all(headers)
        .filter(|(name, sealed)| name.starts_with(cookies::SIGN_ON_PREFIX) && is_its(sealed))
        .map(|(name, _)| name)
        .collect();
    done(&names, route.map(|route| app.service_url(&route)).as_deref(), &left)
}

/// What remains to be done after logins have ended.
#[derive(Default)]
struct RemainingLogouts {
    /// Organisations whose next login asks the person.
    organisations: Vec<AccountId>,
    /// Whether an external provider may still have a session.
    is_known_elsewhere: bool,
    /// Links for the logout there, as HTML.
    links: String,
}

/// Ends a login, and adds the link for the logout at the provider.
async fn end(
    app: &App,
    session: &LoginSession,
    socket: Option<SocketId>,
    left: &mut RemainingLogouts,
) -> Result<(), LoginError> {
    let provider = app.store.provider(session.organisation, &session.person.provider).await?;
    let tokens = app.store.provider_tokens(session.id).await?;
    app.store.end_person_sessions(session.organisation, Some(session.id), None, None).await?;
    app.identities.end_these(&[session.id]);
    app.audit_logout(session);
    tracing::info!(account = %session.organisation, session = %session.id, "a person logged out");
    left.organisations.push(session.organisation);
    let Some(provider) = provider.filter(|provider| provider.config.kind != ProviderKind::Local) else { return Ok(()) };
    left.is_known_elsewhere = true;
    let hint = tokens.and_then(|sealed| app.open_tokens(session.id, &sealed)).and_then(|tokens| tokens.id_token);
    if let Some(endpoint) = app.end_session_endpoint(&provider).await {
        let came_from = LogoutReturn { socket, at: app.clock.now().unix_seconds };
        let state = app.seal(Purpose::LoggedOut, &came_from)?;
        let back = app.post_logout_redirect_uri();
        let mut parameters = vec![("client_id", provider.config.client_id.as_str())];
        // By GET, which all providers accept; its length limits the tokens in it.
        parameters
            .extend(hint.as_deref().filter(|hint| hint.len() <= MAX_HINT_BYTES).map(|hint| ("id_token_hint", hint)));
        parameters.extend([("post_logout_redirect_uri", back.as_str()), ("state", state.as_str())]);
        let (to, label) = (with_query(&endpoint, &parameters), format!("Log out at {} too", provider.name));
        left.links.push_str(&format!("\n<p><a href=\"{}\">{}</a></p>", Escaped(&to), Escaped(&label)));
    }
    Ok(())
}

/// The socket from which a person logged out at a provider.
#[derive(Debug, Serialize, Deserialize)]
struct LogoutReturn {
    socket: Option<SocketId>,
    /// The time, in seconds since 1970 (UTC).
    at: i64,
}

/// `GET /logged-out`: a browser returns from the logout at a provider.
pub(super) async fn logged_out(
    State(app): State<App>,
    client: Client,
    RawQuery(query): RawQuery,
) -> Result<Response, LoginError> {
    let now = app.clock.now();
    app.limits.login_step(client, now.monotonic)?;
    let state = parameters(query.as_deref()).and_then(|mut parameters| parameters.remove("state"));
    let from: Option<LogoutReturn> = state.and_then(|sealed| app.sealer.open(Purpose::LoggedOut, &sealed));
    let is_fresh = |from: &LogoutReturn| (0..=LOGIN_SECONDS).contains(&now.unix_seconds.saturating_sub(from.at));
    let Some(from) = from.filter(is_fresh) else {
        let text = "<p>Whether this browser is still logged in is not known here.</p>".to_owned();
        return Ok(page(StatusCode::OK, "Log out", text + &ways_on(&[("/logout", "Log out")])));
    };
    let route = match from.socket {
        Some(socket) => app.route(socket).await?,
        None => None,
    };
    let text = "<p>You are logged out, here and at the identity provider.</p>".to_owned();
    Ok(page(StatusCode::OK, "Logged out", text + &again(route.map(|route| app.service_url(&route)).as_deref())))
}

fn again(service: Option<&str>) -> String {
    let to = service.map_or_else(|| "/account".to_owned(), |service| format!("{service}/"));
    ways_on(&[(&to, "Log in again")])
}

fn done(cookies_gone: &[&str], service: Option<&str>, left: &RemainingLogouts) -> Result<Response, LoginError> {
    let mut text = "<p>The login has ended, at every service that it was good for.".to_owned();
    if left.is_known_elsewhere {
        text.push_str(" The identity provider may still know you: log out there too when others use this browser.");
    }
    text.push_str("</p>");
    text.push_str(&left.links);
    text.push_str(&again(service));
    let mut response = page(StatusCode::OK, "Logged out", text);
    let headers = response.headers_mut();
    for name in cookies_gone {
        if let Ok(gone) = cookies::gone(name) {
            headers.append(header::SET_COOKIE, gone);
        }
    }
    for organisation in &left.organisations {
        headers.append(header::SET_COOKIE, cookies::logged_out(*organisation)?);
    }
    Ok(response)
}

impl App {
    /// Refuses a form of another site. Browsers send the origin with every POST; a request without one is refused too.
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> Result<(), LoginError> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let origin = origins.next().and_then(|origin| origin.to_str().ok()).unwrap_or_default();
        let is_same_site = headers.get("sec-fetch-site").is_none_or(|site| site == "same-origin");
        if origin == self.login_url() && origins.next().is_none() && is_same_site {
            return Ok(());
        }
        let detail = "This form was not sent from a page of this host.";
        Err(LoginError::new(StatusCode::FORBIDDEN, "Not from here", detail)
            .next("Open the page again and send it from there."))
    }
}
