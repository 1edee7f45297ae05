//! The paths under `/.sallyport/` at a socket with an identity or policies. The edge responds to them; none reaches
//! an origin.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderValue, Method, StatusCode, header::CACHE_CONTROL, request::Parts};
use sallyport_http::page::Action;
use sallyport_identity::{CLOCK_LEEWAY_SECONDS, GRANT_SECONDS, Grant, LogoutRequest, Purpose, safe_return_to};
use sallyport_model::{Identity, LoginSession};
use serde::Serialize;

use super::{
    Access, AccessPage, Denial, cookies,
    gate::{KnownIdentity, Sender, Visit},
};

use crate::policy::judge;

/// The path to which browsers return with a grant.
const CALLBACK: &str = "/.sallyport/callback";
/// How long to wait for the login of a grant, and how often to look for it.
const MAX_WAIT_FOR_LOGIN: Duration = Duration::from_secs(2);
const WAIT_FOR_LOGIN: Duration = Duration::from_millis(10);
const JSON: &str = "application/json";
/// How long verifiers of assertions may cache the keys.
const KEYS_CACHE_CONTROL: HeaderValue = HeaderValue::from_static("public, max-age=3600");

/// The response to a request under `/.sallyport/`. `may` decides whether an identity may use the socket now.
pub(super) fn respond(visit: &Visit<'_>, known: Option<&KnownIdentity>, may: impl Fn(&Identity) -> bool) -> Denial {
    let is_read = visit.head.method == Method::GET || visit.head.method == Method::HEAD;
    let name = visit.head.uri.path().strip_prefix("/.sallyport/").unwrap_or_default();
    match (name, &visit.head.method) {
        // Not for HEAD, which would use up the grant.
        ("callback", &Method::GET) => callback(visit, known).into(),
        ("login", _) if is_read => login(visit, known),
        ("logout", _) if is_read => ask_logout(visit).into(),
        ("logout", &Method::POST) => logout(visit, known).into(),
        ("whoami", _) if is_read => who_am_i(visit, known, may).into(),
        ("jwks.json", _) if is_read => {
            let keys = visit.parts.assertions.key_set();
            let page = AccessPage::plain("own-page", StatusCode::OK, JSON, keys, visit.id);
            page.replacing(CACHE_CONTROL, KEYS_CACHE_CONTROL).into()
        }
        _ => Denial::UnknownPath,
    }
}

/// Waits until the login of a grant has arrived from control, which announces logins to edges in its own time. Only a
/// browser that control has redirected has such a grant.
pub(crate) async fn let_login_arrive(access: &Access, head: &Parts) {
    if head.uri.path() != CALLBACK {
        return;
    }
    let Some(parts) = access.identity.parts() else { return };
    let text = head.uri.query().and_then(|query| parameter_of(query, "grant"));
    let grant: Option<Grant> = text.and_then(|text| parts.sealer.open(Purpose::Grant, text));
    let Some(grant) = grant else { return };
    let began = tokio::time::Instant::now();
    while parts.identities.session(grant.session).is_none() && began.elapsed() < MAX_WAIT_FOR_LOGIN {
        tokio::time::sleep(WAIT_FOR_LOGIN).await;
    }
}

/// The path that begins a login and returns to `wanted` afterwards.
pub(super) fn login_path(wanted: &str, switch: bool) -> String {
    let to = URL_SAFE_NO_PAD.encode(safe_return_to(wanted));
    format!("/.sallyport/login?to={to}{}", if switch { "&switch=1" } else { "" })
}

/// A parameter of the query, undecoded.
fn parameter<'a>(visit: &'a Visit<'_>, name: &str) -> Option<&'a str> {
    parameter_of(visit.head.uri.query()?, name)
}

fn parameter_of<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let pairs = query.split('&');
    pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn login(visit: &Visit<'_>, known: Option<&KnownIdentity>) -> Denial {
    let to = parameter(visit, "to").and_then(|to| String::from_utf8(URL_SAFE_NO_PAD.decode(to).ok()?).ok());
    let to = safe_return_to(to.as_deref().unwrap_or("/"));
    let switch = parameter(visit, "switch") == Some("1");
    match known {
        Some(_) if !switch => AccessPage::redirect("own-page", StatusCode::FOUND, to, visit.id).into(),
        _ => {
            visit.access.state.metrics.identity("login-wanted");
            visit.login(to, switch)
        }
    }
}

/// Accepts the grant with which a browser returns. The page does not say why a grant is refused, because only an
/// attacker could use the reason.
fn callback(visit: &Visit<'_>, known: Option<&KnownIdentity>) -> AccessPage {
    let grant: Option<Grant> = parameter(visit, "grant").and_then(|text| visit.parts.sealer.open(Purpose::Grant, text));
    let return_to = grant.as_ref().map_or("/", |grant| safe_return_to(&grant.return_to)).to_owned();
    if let Some(session) = grant.as_ref().and_then(|grant| accept(visit, grant)) {
        visit.access.state.metrics.identity("login-granted");
        tracing::debug!(id = %visit.id, socket = %visit.route.id, email = %session.person.email, "a person logged in");
        return AccessPage::redirect("own-page", StatusCode::SEE_OTHER, &return_to, visit.id)
            .with_cookies([visit.login_cookie(&session)]);
    }
    visit.access.state.metrics.identity("grant-refused");
    if grant.is_some() && known.is_some() {
        // Another tab logged in first: the browser keeps that login, and the grant stays unused.
        return AccessPage::redirect("own-page", StatusCode::SEE_OTHER, &return_to, visit.id);
    }
    let paragraphs = [
        "This login cannot be used: it is too old, was used before, or was begun in another browser.",
        "Your browser must accept the cookies of this site.",
    ];
    let actions = vec![Action::Link { href: login_path(&return_to, false).into(), label: "Log in again".into() }];
    let site = visit.access.state.site();
    let by = (visit.id, &*site);
    AccessPage::page("bad-grant", StatusCode::BAD_REQUEST, "Not logged in", &paragraphs, actions, by)
}

/// The login of a grant, if the grant is valid in this browser at this socket and unused.
fn accept(visit: &Visit<'_>, grant: &Grant) -> Option<std::sync::Arc<LoginSession>> {
    let binding = visit.binding()?;
    if !grant.is_for(visit.route.id, &binding, visit.now) {
        return None;
    }
    let session = visit.parts.identities.session(grant.session)?;
    if !judge::is_good_session(&session, visit.route, visit.asks, visit.now) {
        return None;
    }
    let good_until = grant.at.saturating_add(GRANT_SECONDS + CLOCK_LEEWAY_SECONDS);
    let mut used = visit.access.identity.grants.lock();
    used.uses(grant.id, good_until, visit.now).then_some(session)
}

fn ask_logout(visit: &Visit<'_>) -> AccessPage {
    let out = Action::Button {
        path: "/.sallyport/logout".into(),
        label: "Log out".into(),
        leads_to: visit.access.identity.login_url.as_str().into(),
    };
    let actions = vec![out, Action::Link { href: "/".into(), label: "Stay".into() }];
    let paragraphs = ["You will have to log in again here, and wherever else the same login is used."];
    AccessPage::page(
        "own-page",
        StatusCode::OK,
        "Log out?",
        &paragraphs,
        actions,
        (visit.id, &visit.access.state.site()),
    )
}

/// Ends the login at this socket and redirects to control, which ends the login everywhere. Only a page of this host
/// may send this request.
fn logout(visit: &Visit<'_>, known: Option<&KnownIdentity>) -> AccessPage {
    if visit.sender() != Sender::SameOrigin {
        let paragraphs = ["This request did not come from the logout page of this site."];
        let actions = vec![Action::Link { href: "/.sallyport/logout".into(), label: "Open the logout page".into() }];
        let site = visit.access.state.site();
        let by = (visit.id, &*site);
        return AccessPage::page("cross-site", StatusCode::FORBIDDEN, "Not logged out", &paragraphs, actions, by);
    }
    let ticket = match known.map(|known| &known.identity) {
        Some(Identity::Person(session)) => {
            let ticket = LogoutRequest { session: session.id, socket: visit.route.id, at: visit.now };
            visit.parts.seal(Purpose::Logout, &ticket)
        }
        _ => None,
    };
    // A browser without a login here may have one at control; it returns here at the end.
    let query = ticket.map_or_else(|| format!("from={}", visit.host.name()), |ticket| format!("ticket={ticket}"));
    let to = format!("{}/logout?{query}", visit.access.identity.login_url);
    let gone = [cookies::LOGIN, cookies::BINDING].map(|name| cookies::set(name, "", 0));
    AccessPage::redirect("own-page", StatusCode::SEE_OTHER, &to, visit.id).with_cookies(gone)
}

/// The identity as JSON for scripts of the socket's own pages. No other origin can read the response.
fn who_am_i(visit: &Visit<'_>, known: Option<&KnownIdentity>, may: impl Fn(&Identity) -> bool) -> AccessPage {
    #[derive(Serialize)]
    #[serde(untagged)]
    enum WhoAmI<'a> {
        Person {
            email: &'a str,
            name: Option<&'a str>,
            groups: &'a [String],
            provider: &'a str,
            expires_at: i64,
            allowed: bool,
        },
        Service {
            service: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            email: Option<&'a str>,
            expires_at: Option<i64>,
            allowed: bool,
        },
        Anonymous {
            email: Option<()>,
        },
    }
    let allowed = known.is_some_and(|known| may(&known.identity));
    let (status, body) = match known.map(|known| &known.identity) {
        Some(Identity::Person(session)) => {
            let person = &session.person;
            let body = WhoAmI::Person {
                email: person.email.as_str(),
                name: person.name.as_deref(),
                groups: &person.groups,
                provider: person.provider.as_str(),
                expires_at: sallyport_identity::ends_at(session, visit.asks),
                allowed,
            };
            (StatusCode::OK, body)
        }
        Some(Identity::Service(token)) => {
            let email = token.email.as_ref().map(sallyport_model::PersonEmail::as_str);
            (StatusCode::OK, WhoAmI::Service { service: &token.name, email, expires_at: token.expires_at, allowed })
        }
        None => (StatusCode::UNAUTHORIZED, WhoAmI::Anonymous { email: None }),
    };
    AccessPage::plain("own-page", status, JSON, serde_json::to_vec(&body).unwrap_or_default(), visit.id)
}
