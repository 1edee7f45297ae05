//! The identity and the policies of HTTP requests.

use std::{net::IpAddr, sync::Arc};

use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{CACHE_CONTROL, HeaderName, ORIGIN, SET_COOKIE, UPGRADE},
    request::Parts,
};
use sallyport_http::{
    RequestHost, RequestId, forward,
    page::{Action, Format},
};
use sallyport_identity::{Binding, LOGIN_SECONDS, LoginRequest, Purpose, SocketCookie, ends_at, safe_return_to};
use sallyport_model::{Identity, IdentitySettings, ServiceTokenScope, SocketRoute};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

use super::{
    Access, AccessPage, AccessRequest, AccessRevalidation, Denial, Ruling, Whereabouts,
    cookies::{self, OurCookies},
    fields::Fields,
    now, own_paths,
    page::Refusal,
};

use crate::{
    client::certificate::ClientCertificate,
    config::EdgeIdentity,
    origins::{pool::SocketPool, rules::Rules},
    policy::judge::{self, OUT_OF_SCOPE},
    util::ids,
};

/// The prefix of the edge's own paths at a socket with an identity or policies.
const OWN_PATHS: &str = "/.sallyport/";
const TOKEN_ID: HeaderName = HeaderName::from_static("sallyport-token-id");
const TOKEN_SECRET: HeaderName = HeaderName::from_static("sallyport-token-secret");
const X_REQUESTED_WITH: HeaderName = HeaderName::from_static("x-requested-with");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Longer service tokens are refused unread, in bytes.
const MAX_SECRET_BYTES: usize = 256;

/// The identity of an admitted request.
pub(crate) struct Principal {
    fields: Option<Fields>,
    renewal: Option<HeaderValue>,
    revalidation: Option<AccessRevalidation>,
}

impl Principal {
    /// Adds the identity to the header fields for the origin. To be called after the same fields of the client were
    /// dropped.
    pub(crate) fn announce(&self, headers: &mut HeaderMap) {
        for (name, value) in self.fields.iter().flat_map(|fields| fields.iter()) {
            headers.insert(name.clone(), value.clone());
        }
    }

    /// Renews the login cookie in a response that is for this browser alone, when a renewal is due.
    pub(crate) fn renew(&mut self, headers: &mut HeaderMap) {
        let is_shared = |value: &HeaderValue| {
            let directives = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            directives
                .into_iter()
                .any(|one| one.eq_ignore_ascii_case(b"public") || one.to_ascii_lowercase().starts_with(b"s-maxage"))
        };
        if let Some(cookie) = self.renewal.take()
            && !headers.get_all(CACHE_CONTROL).iter().any(is_shared)
        {
            headers.append(SET_COOKIE, cookie);
        }
    }

    /// Takes the check that repeats the decision while the request lasts.
    pub(crate) fn take_revalidation(&mut self) -> Option<AccessRevalidation> {
        self.revalidation.take()
    }
}

/// Drops cookies of an origin's response that carry the edge's own names, or that reach other hosts.
pub(crate) fn filter_response_cookies(
    access: &Access,
    principal: Option<&Principal>,
    host: &RequestHost,
    headers: &mut HeaderMap,
) {
    let is_known = principal.is_some_and(|principal| principal.fields.is_some());
    let took_ours = is_known && cookies::drop_ours(headers);
    if cookies::keep_to_own_host(headers, host.name()) || took_ours {
        access.state.metrics.identity("origin-cookie");
    }
}

/// An identity, and how the request proves it.
pub(super) struct KnownIdentity {
    pub(super) identity: Identity,
    /// The cookie, if a cookie proves it.
    pub(super) cookie: Option<SocketCookie>,
    /// Whether browsers send it on their own, whichever page sends the request.
    is_ambient: bool,
}

/// The kind of page that made a browser send a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// A page of the socket itself.
    SameOrigin,
    /// A page of another origin.
    OtherOrigin,
    /// No page: a person's navigation, or a program that is no browser.
    NoPage,
}

/// A request to a socket with an identity or policies.
pub(super) struct Visit<'a> {
    pub(super) access: &'a Access,
    pub(super) parts: &'a EdgeIdentity,
    pub(super) route: &'a SocketRoute,
    pub(super) asks: &'a IdentitySettings,
    pub(super) host: &'a RequestHost,
    pub(super) head: &'a Parts,
    pub(super) cookies: OurCookies,
    pub(super) certificate: Option<&'a ClientCertificate>,
    pub(super) id: RequestId,
    pub(super) now: i64,
}

/// The source of a request.
pub(crate) struct RequestSource<'a> {
    /// The address of the client.
    pub(crate) address: IpAddr,
    /// Another address from which the client sends without a proof that it receives there.
    pub(crate) claimed: Option<IpAddr>,
    /// Where the client moves; `None` if it cannot move.
    pub(crate) moves: Option<&'a watch::Receiver<Whereabouts>>,
    /// The client certificate of its connection.
    pub(crate) certificate: Option<&'a ClientCertificate>,
    /// The id of the request.
    pub(crate) id: RequestId,
}

/// Admits a request by identity and policies. Removes the edge's own cookies from every request. `record` receives the
/// identity and the rule that decided.
///
/// # Errors
/// The response instead: a login page, a refusal, or a page of the edge.
pub(crate) fn authorize_request(
    access: &Arc<Access>,
    source: &RequestSource<'_>,
    pool: &Arc<SocketPool>,
    rules: &Rules,
    host: &RequestHost,
    head: &mut Parts,
    record: &mut dyn FnMut(Option<&Identity>, String),
) -> Result<Option<Box<Principal>>, Denial> {
    let cookies = cookies::take(&mut head.headers);
    let is_upgrade = head.headers.contains_key(UPGRADE);
    let (address, port) = (source.address, rules.route().port.unwrap_or(access.state.config.public_port));
    let revalidation = || {
        let mut revalidation = AccessRevalidation::new(access, pool, address, port);
        revalidation.set_moves(source.moves.cloned());
        revalidation.set_request(&head.method, head.uri.path());
        revalidation
    };
    let Some(judge) = rules.judge() else {
        // The connection may outlive the request, and the socket may get policies later.
        return Ok(
            is_upgrade.then(|| Box::new(Principal { fields: None, renewal: None, revalidation: Some(revalidation()) }))
        );
    };
    let mut revalidation = revalidation();
    if judge.has_requests() {
        forward::drop_overrides(&mut head.headers);
    }
    let now = now();
    let (method, path) = (Some(head.method.as_str()), Some(head.uri.path()));
    let decide_at = |client: IpAddr, identity: Option<&Identity>| {
        let request = AccessRequest { client, method, path, port };
        judge.decide(identity, &request, access.state.config.geo.as_deref(), now)
    };
    let decide = |identity: Option<&Identity>| match (decide_at(address, identity), source.claimed) {
        (ruling, Some(claimed)) if ruling.allowed => decide_at(claimed, identity),
        (ruling, _) => ruling,
    };
    let Some(asks) = judge.asks() else {
        let Ruling { allowed, rule } = decide(None);
        record(None, rule);
        access.state.metrics.identity(if allowed { "allowed" } else { "denied" });
        return if allowed {
            Ok(Some(Box::new(Principal { fields: None, renewal: None, revalidation: Some(revalidation) })))
        } else {
            Err(Denial::Denied)
        };
    };
    let Some(parts) = access.identity.parts() else { return Err(Denial::IdentityUnavailable) };
    let route = rules.route();
    let certificate = source.certificate;
    let visit = Visit { access, parts, route, asks, host, head, cookies, certificate, id: source.id, now };
    let known = visit.identify()?;
    if head.uri.path().starts_with(OWN_PATHS) {
        if let Some(known) = &known {
            record(Some(&known.identity), "a page of this server".to_owned());
        }
        return Err(own_paths::respond(&visit, known.as_ref(), |identity| decide(Some(identity)).allowed));
    }
    let Some(known) = known else { return Err(visit.login_wanted()) };
    let Ruling { allowed, rule } = match &known.identity {
        Identity::Service(token) if visit.may_evade_scope(&token.scope, is_upgrade) => {
            Ruling { allowed: false, rule: OUT_OF_SCOPE.to_owned() }
        }
        identity => decide(Some(identity)),
    };
    record(Some(&known.identity), rule);
    if !allowed {
        access.state.metrics.identity("denied");
        return Err(visit.not_allowed(&known).into());
    }
    if known.is_ambient && visit.is_from_elsewhere(is_upgrade) {
        access.state.metrics.identity("cross-site");
        record(Some(&known.identity), "a page of another site sent it".to_owned());
        return Err(visit.elsewhere_refused().into());
    }
    let fields =
        access.identity.fields(&known.identity, route, &visit.own_url(), now).ok_or(Denial::IdentityUnavailable)?;
    access.state.metrics.identity("allowed");
    let renewal = visit.renewal(&known);
    revalidation.set_identity(Some(known.identity));
    Ok(Some(Box::new(Principal { fields: Some(fields), renewal, revalidation: Some(revalidation) })))
}

impl Visit<'_> {
    /// The identity of the request: by a service token, by the client certificate, or by the cookie of this socket.
    fn identify(&self) -> Result<Option<KnownIdentity>, Denial> {
        let fields = &self.head.headers;
        let (machine, is_ambient) = if fields.contains_key(TOKEN_ID) || fields.contains_key(TOKEN_SECRET) {
            (self.machine(), false)
        } else if let Some(certificate) = self.certificate {
            (self.certified(certificate), true)
        } else {
            return Ok(self.person());
        };
        match machine {
            Some(identity) => Ok(Some(KnownIdentity { identity, cookie: None, is_ambient })),
            None => {
                self.access.state.metrics.identity("bad-token");
                Err(self.bad_token().into())
            }
        }
    }

    /// The machine of the connection's client certificate. Looked up for every request, because its token may have
    /// ended.
    fn certified(&self, certificate: &ClientCertificate) -> Option<Identity> {
        let token = self.parts.identities.token(certificate.token?)?;
        let is_good = !certificate.is_over(self.now) && judge::is_good_token(&token, self.route, self.now);
        is_good.then_some(Identity::Service(token))
    }

    /// Whether the request could evade the token's scope: a WebSocket under a read-only scope, or a header field that
    /// overrides the method or path.
    fn may_evade_scope(&self, scope: &ServiceTokenScope, is_upgrade: bool) -> bool {
        let is_bound = scope.read_only || !scope.methods.is_empty() || !scope.paths.is_empty();
        let is_other = || self.head.headers.keys().any(|name| forward::is_override(name.as_str()));
        (scope.read_only && is_upgrade) || (is_bound && is_other())
    }

    fn machine(&self) -> Option<Identity> {
        let one = |name: &HeaderName| {
            let mut values = self.head.headers.get_all(name).iter();
            values.next().filter(|_| values.next().is_none())
        };
        let (id, secret) = (one(&TOKEN_ID)?.to_str().ok()?, one(&TOKEN_SECRET)?.as_bytes());
        let token = self.parts.identities.token(id.parse().ok()?)?;
        if secret.len() > MAX_SECRET_BYTES {
            return None;
        }
        let given: [u8; 32] = Sha256::digest(secret).into();
        let is_it = bool::from(given.ct_eq(&token.hash)) && judge::is_good_token(&token, self.route, self.now);
        is_it.then_some(Identity::Service(token))
    }

    fn person(&self) -> Option<KnownIdentity> {
        let cookie: SocketCookie = self.parts.sealer.open(Purpose::SocketCookie, self.cookies.login.as_deref()?)?;
        let idle = i64::from(self.asks.session_idle_minutes) * 60;
        if !cookie.is_good(self.route.id, idle, self.now) {
            return None;
        }
        let session = self.parts.identities.session(cookie.session)?;
        judge::is_good_session(&session, self.route, self.asks, self.now).then_some(KnownIdentity {
            identity: Identity::Person(session),
            cookie: Some(cookie),
            is_ambient: true,
        })
    }

    /// The renewed cookie, if a renewal is due.
    fn renewal(&self, known: &KnownIdentity) -> Option<HeaderValue> {
        let (Some(cookie), Identity::Person(session)) = (&known.cookie, &known.identity) else { return None };
        let idle = i64::from(self.asks.session_idle_minutes) * 60;
        cookie.wants_renewal(idle, self.now).then(|| self.login_cookie(session)).flatten()
    }

    /// The cookie of a login that begins or continues.
    pub(super) fn login_cookie(&self, session: &sallyport_model::LoginSession) -> Option<HeaderValue> {
        let cookie = SocketCookie { socket: self.route.id, session: session.id, seen_at: self.now };
        let idle = i64::from(self.asks.session_idle_minutes) * 60;
        let seconds = idle.min(ends_at(session, self.asks) - self.now);
        cookies::set(cookies::LOGIN, &self.parts.seal(Purpose::SocketCookie, &cookie)?, seconds.max(0))
    }

    /// `https://` and the host as the client names it.
    pub(super) fn own_url(&self) -> String {
        let config = &self.access.state.config;
        match self.own_domain() {
            Some(host) if config.public_port == 443 => format!("https://{host}"),
            Some(host) => format!("https://{host}:{}", config.public_port),
            None => self.route.url(&config.domain, config.public_port),
        }
    }

    /// The requested host in lower case, if it is a domain of the socket's organisation.
    pub(super) fn own_domain(&self) -> Option<String> {
        let host = self.host.name().to_ascii_lowercase();
        self.route.domains.iter().any(|domain| domain.covers(&host)).then_some(host)
    }

    /// Whether a browser will show the response to a person.
    fn is_navigation(&self) -> bool {
        let fields = &self.head.headers;
        (self.head.method == Method::GET || self.head.method == Method::HEAD)
            && Format::wanted(fields) == Format::Html
            && !fields.contains_key(X_REQUESTED_WITH)
            && !fields.contains_key(UPGRADE)
            && fields.get(SEC_FETCH_MODE).is_none_or(|mode| mode == "navigate")
    }

    /// Whether a page of another origin sent a request that may change something. `SameSite` does not protect here,
    /// because all sockets of the domain are one site to a browser.
    fn is_from_elsewhere(&self, is_upgrade: bool) -> bool {
        let is_safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&self.head.method);
        (!is_safe || is_upgrade) && self.sender() == Sender::OtherOrigin
    }

    /// The sender of the request, as far as the browser reports it. A page that hides its location sends the origin
    /// `null` (Referrer-Policy). For `null` and for no origin at all, Sec-Fetch-Site decides, which no page can set.
    pub(super) fn sender(&self) -> Sender {
        let fields = &self.head.headers;
        let own = format!("https://{}", self.host.as_str());
        let site = fields.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
        let mut origins = fields.get_all(ORIGIN).iter().map(HeaderValue::as_bytes);
        match (origins.next(), origins.next(), site) {
            (_, Some(_), _) => Sender::OtherOrigin,
            (Some(origin), None, _) if origin.eq_ignore_ascii_case(own.as_bytes()) => Sender::SameOrigin,
            (None | Some(b"null"), None, Some(b"same-origin")) => Sender::SameOrigin,
            (None, None, None | Some(b"none")) => Sender::NoPage,
            _ => Sender::OtherOrigin,
        }
    }

    /// The response to a request without an identity: browsers are redirected to the login, programs get its URL.
    fn login_wanted(&self) -> Denial {
        self.access.state.metrics.identity("login-wanted");
        if self.is_navigation() {
            let wanted = self.head.uri.path_and_query().map_or("/", |path| path.as_str());
            return self.login(wanted, false);
        }
        let login_url = format!("{}{OWN_PATHS}login", self.own_url());
        let refusal = Refusal {
            status: StatusCode::UNAUTHORIZED,
            code: "login-required",
            title: "Sign in to continue",
            detail: "This service requires sign-in: open it in a browser, or send a service token in the fields \
                     Sallyport-Token-Id and Sallyport-Token-Secret."
                .to_owned(),
            login_url: Some(&login_url),
        };
        refusal.respond(Format::wanted(&self.head.headers), self.id, &self.access.state.site()).into()
    }

    /// Redirects the browser to the login.
    pub(super) fn login(&self, return_to: &str, switch: bool) -> Denial {
        let begun = self.binding();
        let secret = begun.map_or_else(ids::random, |binding| binding.secret);
        let binding = Binding { secret, at: self.now };
        let request = LoginRequest {
            socket: self.route.id,
            binding: binding.hash(),
            return_to: safe_return_to(return_to).to_owned(),
            host: self.own_domain(),
            switch,
            is_of_login_host: false,
            at: self.now,
        };
        let sealed = self.parts.seal(Purpose::LoginRequest, &request).zip(self.parts.seal(Purpose::Binding, &binding));
        let Some((request, binding)) = sealed else { return Denial::IdentityUnavailable };
        let to = format!("{}/start?request={request}", self.access.identity.login_url);
        AccessPage::redirect("login-required", StatusCode::FOUND, &to, self.id)
            .with_cookies([cookies::set(cookies::BINDING, &binding, LOGIN_SECONDS)])
            .into()
    }

    /// What ties a login to this browser, unless expired.
    pub(super) fn binding(&self) -> Option<Binding> {
        let text = self.cookies.binding.as_deref()?;
        self.parts.sealer.open(Purpose::Binding, text).filter(|binding: &Binding| binding.is_fresh(self.now))
    }

    fn bad_token(&self) -> AccessPage {
        let refusal = Refusal {
            status: StatusCode::UNAUTHORIZED,
            code: "bad-token",
            title: "Invalid token",
            detail: "The token of the request or its certificate is unknown, has ended, or is for other sockets."
                .to_owned(),
            login_url: None,
        };
        refusal.respond(Format::wanted(&self.head.headers), self.id, &self.access.state.site())
    }

    fn not_allowed(&self, known: &KnownIdentity) -> AccessPage {
        let name = known.identity.label();
        let format = Format::wanted(&self.head.headers);
        if format == Format::Html && known.cookie.is_some() {
            let wanted = self.head.uri.path_and_query().map_or("/", |path| path.as_str());
            let href = own_paths::login_path(wanted, true).into();
            let paragraphs = [
                &format!("You are signed in as `{name}`, and this account has no access to this service.")[..],
                "Ask the owner of the service for access, or use another account.",
            ];
            let actions = vec![Action::Link { href, label: "Use another account".into() }];
            let site = self.access.state.site();
            let by = (self.id, &*site);
            return AccessPage::page(
                "not-allowed",
                StatusCode::FORBIDDEN,
                "Access is denied",
                &paragraphs,
                actions,
                by,
            );
        }
        let refusal = Refusal {
            status: StatusCode::FORBIDDEN,
            code: "not-allowed",
            title: "Access is denied",
            detail: format!("The owner of this service does not allow this request for {name}."),
            login_url: None,
        };
        refusal.respond(format, self.id, &self.access.state.site())
    }

    fn elsewhere_refused(&self) -> AccessPage {
        let refusal = Refusal {
            status: StatusCode::FORBIDDEN,
            code: "cross-site",
            title: "Cross-site request denied",
            detail: "A page of another site sent this request with your login. Only pages of this service may send it."
                .to_owned(),
            login_url: None,
        };
        refusal.respond(Format::wanted(&self.head.headers), self.id, &self.access.state.site())
    }
}
