//! The audit trail of a request. Every request that changes something is recorded, with an action from its route, so
//! that none can be forgotten.
//!
//! While a request runs, extractors and handlers add its actor ([`set_actor`]) and its target ([`set_target`]). At its
//! end, a request that may have changed something is recorded.

use std::{fmt::Display, future::Future, net::SocketAddr, sync::Arc};

use axum::{extract::Request, response::Response};
use http::{Method, StatusCode, header};
use parking_lot::{Mutex, MutexGuard};
use sallyport_api::{AuditAdmin, AuditEvent};
use sallyport_model::{Account, AccountId, ClientAddr};

use crate::{security::client::Client, state::App};

/// The longest name of a target that is recorded, in characters.
pub(super) const MAX_TARGET_CHARS: usize = 256;

/// Routes whose action cannot be derived from the path.
const ACTIONS: &[(&str, &str, &str)] = &[
    ("POST", "/v1/accounts", "account.create"),
    ("POST", "/v1/accounts/reset", "account.reset"),
    ("DELETE", "/v1/account", "account.delete"),
    ("POST", "/v1/account/password", "account.password"),
    ("POST", "/v1/account/totp", "account.totp-begin"),
    ("POST", "/v1/account/totp/confirm", "account.totp-on"),
    ("POST", "/v1/account/totp/disable", "account.totp-off"),
    ("POST", "/v1/account/totp/codes", "account.recovery-codes"),
    ("DELETE", "/v1/account/sessions/{id}", "account.session-end"),
    ("POST", "/v1/account/sessions/end-others", "account.session-end-others"),
    ("DELETE", "/v1/account/invitations/{id}", "invitation.decline"),
    ("DELETE", "/v1/invitations/{id}", "invitation.withdraw"),
    ("POST", "/v1/sockets/{id}/tunnels/{tunnel_id}/credential", "tunnel.credential"),
    ("POST", "/v1/sockets/{id}/tunnels/{tunnel_id}/ssh-certificate", "tunnel.sign-key"),
    ("DELETE", "/v1/flows/{id}", "flow.kill"),
    ("PUT", "/v1/installation/owner", "installation.hand-over"),
    ("POST", "/v1/edges/ways", "edge.measure"),
    ("PUT", "/v1/anycast/dials", "anycast.dials-set"),
    ("POST", "/v1/anycast/prefixes", "anycast.prefix-create"),
    ("DELETE", "/v1/anycast/prefixes/{id}", "anycast.prefix-delete"),
    ("POST", "/v1/anycast/peers", "anycast.peer-create"),
    ("DELETE", "/v1/anycast/peers/{id}", "anycast.peer-delete"),
    ("POST", "/v1/anycast/orders", "anycast.order-create"),
    ("DELETE", "/v1/anycast/orders/{id}", "anycast.order-delete"),
    ("POST", "/v1/egress/addresses", "egress.address-create"),
    ("DELETE", "/v1/egress/addresses/{id}", "egress.address-delete"),
    ("POST", "/v1/egress/slices", "egress.slice-create"),
    ("POST", "/v1/egress/slices/{id}/move", "egress.slice-move"),
    ("DELETE", "/v1/egress/slices/{id}", "egress.slice-delete"),
    ("POST", "/v1/networks/{network}/machines", "network.machine-create"),
    ("DELETE", "/v1/networks/{network}/machines/{machine}", "network.machine-delete"),
    ("PUT", "/v1/networks/{network}/policy", "network.policy-set"),
    ("DELETE", "/v1/networks/{network}/policy", "network.policy-delete"),
    ("PUT", "/v1/balancers/{site}", "balancer.set"),
    ("DELETE", "/v1/balancers/{site}", "balancer.delete"),
    ("POST", "/v1/catchment/measurements", "catchment.measure"),
    ("POST", "/v1/catchment/imports", "catchment.import"),
    ("POST", "/node/v1/join", "edge.join"),
    ("POST", "/user", "account.create"),
    ("POST", "/connect", "socket.create"),
    ("POST", "/socket", "socket.create"),
    ("POST", "/socket/{id}/tunnel", "tunnel.create"),
    ("POST", "/socket/{id}/tunnel/{tunnel_id}/signkey", "tunnel.sign-key"),
];

/// Facts for the audit log that handlers find out while a request runs.
#[derive(Debug, Default)]
struct RequestFacts {
    actor: Option<Actor>,
    target: Option<String>,
    /// The action, if the path does not name it.
    action: Option<&'static str>,
    changed: Vec<String>,
    /// Another organisation whose log gets the event too.
    also: Option<AccountId>,
    /// The reason for refusing the token, and its owner where that is known.
    bad_token: Option<(&'static str, Option<Actor>)>,
}

/// The account that a request acts for.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    /// The organisation of the request.
    pub(crate) organisation: AccountId,
    /// The account.
    pub(crate) account: AccountId,
    /// The name in the audit log: an e-mail address, or `token:` and the name of an API token.
    pub(crate) name: String,
}

impl Actor {
    /// The account, for its own organisation.
    pub(crate) fn own(account: &Account) -> Self {
        Self { organisation: account.id, account: account.id, name: account.email.as_str().to_owned() }
    }
}

/// The audit trail of one request.
#[derive(Debug, Clone)]
pub(crate) struct Trail {
    request_id: String,
    client: Option<SocketAddr>,
    path: String,
    found: Arc<Mutex<RequestFacts>>,
}

tokio::task_local! {
    static TRAIL: Trail;
}

/// Runs a future that outlives its response with the same trail.
pub(crate) async fn carry<F: Future>(trail: Option<Trail>, what: F) -> F::Output {
    match trail {
        Some(trail) => TRAIL.scope(trail, what).await,
        None => what.await,
    }
}

/// The trail of the running request.
pub(crate) fn current_trail() -> Option<Trail> {
    TRAIL.try_with(Trail::clone).ok()
}

/// Sets the actor.
pub(crate) fn set_actor(actor: Actor) {
    let _ = TRAIL.try_with(|trail| trail.found().actor = Some(actor));
}

/// Records the event with this organisation too.
pub(crate) fn add_organisation(organisation: AccountId) {
    let _ = TRAIL.try_with(|trail| trail.found().also = Some(organisation));
}

/// Records that the request has a token that is not valid.
pub(crate) fn report_bad_token(why: &'static str, whose: Option<Actor>) {
    let _ = TRAIL.try_with(|trail| trail.found().bad_token = Some((why, whose)));
}

/// Sets the target.
pub(crate) fn set_target(target: impl Display) {
    let _ = TRAIL.try_with(|trail| {
        trail.found().target = Some(target.to_string().chars().take(MAX_TARGET_CHARS).collect());
    });
}

/// Sets the action, if the path does not name it.
pub(crate) fn set_action(action: &'static str) {
    let _ = TRAIL.try_with(|trail| trail.found().action = Some(action));
}

/// Sets the names of the changed fields.
pub(crate) fn set_changed_fields(fields: Vec<String>) {
    let _ = TRAIL.try_with(|trail| trail.found().changed = fields);
}

/// The client address and the id of the running request; the id is empty outside of a request.
pub(super) fn request_id() -> String {
    TRAIL.try_with(|trail| trail.request_id.clone()).unwrap_or_default()
}

pub(super) fn client() -> Option<SocketAddr> {
    TRAIL.try_with(|trail| trail.client).ok().flatten()
}

impl Trail {
    /// The trail of a request that begins.
    pub(crate) fn of(request: &Request, request_id: &str) -> Self {
        Self {
            request_id: request_id.to_owned(),
            client: request.extensions().get::<ClientAddr>().map(|client| client.0),
            path: request.uri().path().to_owned(),
            found: Arc::default(),
        }
    }

    /// Runs a future that may add to the trail.
    pub(crate) fn around<F: Future>(self, what: F) -> impl Future<Output = F::Output> {
        TRAIL.scope(self, what)
    }

    fn found(&self) -> MutexGuard<'_, RequestFacts> {
        self.found.lock()
    }

    /// Records the end of the request: a change, a refusal for lack of a scope, or a token that is not valid.
    pub(crate) fn ends(&self, app: &App, method: &Method, route: Option<&str>, answer: &Response) {
        let mut found = std::mem::take(&mut *self.found());
        if let Some((why, whose)) = found.bad_token.take() {
            self.shown_bad_token(app, why, whose);
        }
        let outcome = match answer.status() {
            status if status.is_success() => "done",
            StatusCode::FORBIDDEN => "refused",
            _ => return,
        };
        let Some(route) = route.filter(|_| !method.is_safe()) else { return };
        let Some(Actor { organisation, account, name }) = found.actor else { return };
        let target = found.target.or_else(|| made(answer)).or_else(|| named_by(route, &self.path));
        let admin = AuditAdmin {
            actor: name,
            account: Some(account),
            action: found.action.map_or_else(|| called(method, route), str::to_owned),
            target,
            changed: found.changed,
            outcome: outcome.to_owned(),
            reason: None,
            request_id: self.request_id.clone(),
            client: self.client,
        };
        for organisation in [Some(organisation), found.also.filter(|also| *also != organisation)].into_iter().flatten()
        {
            let admin = admin.clone();
            app.record(Some(organisation), |at, organisation| AuditEvent::admin(at, organisation, admin));
        }
    }

    /// Records a token that is not valid, within the rate limit of the client's address.
    fn shown_bad_token(&self, app: &App, why: &str, whose: Option<Actor>) {
        let client = Client::at(self.client.map(|client| client.ip()));
        if !app.limits.may_record_bad_token(client, app.clock.now().monotonic) {
            return;
        }
        let (organisation, account) = whose.as_ref().map(|actor| (actor.organisation, actor.account)).unzip();
        let admin = AuditAdmin {
            actor: whose.map_or_else(|| "unknown".to_owned(), |actor| actor.name),
            account,
            action: "token.refused".to_owned(),
            target: Some(why.to_owned()),
            changed: Vec::new(),
            outcome: "refused".to_owned(),
            reason: None,
            request_id: self.request_id.clone(),
            client: self.client,
        };
        app.record(organisation, |at, organisation| AuditEvent::admin(at, organisation, admin));
    }
}

/// The action of the request, derived from its path if not set.
fn called(method: &Method, route: &str) -> String {
    if let Some((.., action)) = ACTIONS.iter().find(|(m, r, _)| *m == method.as_str() && *r == route) {
        return (*action).to_owned();
    }
    let segments: Vec<&str> = route.split('/').filter(|segment| !segment.is_empty() && *segment != "v1").collect();
    let is_variable = |segment: &&str| segment.starts_with('{');
    let words: Vec<&str> = segments.iter().copied().filter(|segment| !is_variable(segment)).collect();
    let noun = |word: Option<&&str>| singular(word.copied().unwrap_or("api"));
    let ends_in_word = segments.last().is_some_and(|last| !is_variable(last));
    match *method {
        Method::DELETE => format!("{}.delete", noun(words.last())),
        Method::PUT | Method::PATCH => format!("{}.edit", noun(words.last())),
        // A singular word after a noun is an action on it; a plural is a list to which something is added.
        _ if ends_in_word && words.len() > 1 && !words.last().is_some_and(|word| word.ends_with('s')) => {
            format!("{}.{}", noun(words.get(words.len() - 2)), words.last().unwrap_or(&""))
        }
        _ => format!("{}.create", noun(words.last())),
    }
}

fn singular(word: &str) -> String {
    match word.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => word.strip_suffix('s').unwrap_or(word).to_owned(),
    }
}

/// The id of the created thing.
fn made(answer: &Response) -> Option<String> {
    let location = answer.headers().get(header::LOCATION)?.to_str().ok()?;
    location.rsplit('/').next().map(|id| id.chars().take(MAX_TARGET_CHARS).collect())
}

/// The values of the route's parameters in the path.
fn named_by(route: &str, path: &str) -> Option<String> {
    let variables = route.split('/').zip(path.split('/')).filter(|(word, _)| word.starts_with('{'));
    let values: Vec<&str> = variables.map(|(_, value)| value).collect();
    (!values.is_empty()).then(|| values.join("/").chars().take(MAX_TARGET_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_called_after_its_path() {
        for (method, route, expected) in [
            (Method::POST, "/v1/sockets", "socket.create"),
            (Method::PATCH, "/v1/sockets/{id}", "socket.edit"),
            (Method::PUT, "/socket/{id}", "socket.edit"),
            (Method::DELETE, "/v1/sockets/{id}/tunnels/{tunnel_id}", "tunnel.delete"),
            (Method::POST, "/v1/sockets/{id}/tunnels", "tunnel.create"),
            (Method::POST, "/v1/sockets/{id}/tunnels/{tunnel_id}/credential", "tunnel.credential"),
            (Method::POST, "/v1/sockets/{id}/origins", "origin.create"),
            (Method::PATCH, "/v1/sockets/{id}/origins/{origin_id}", "origin.edit"),
            (Method::POST, "/v1/policies", "policy.create"),
            (Method::POST, "/v1/policies/{id}/attach", "policy.attach"),
            (Method::DELETE, "/v1/logins/{id}", "login.delete"),
            (Method::DELETE, "/v1/flows/{id}", "flow.kill"),
            (Method::POST, "/v1/ssh-keys", "ssh-key.create"),
        ] {
            assert_eq!(called(&method, route), expected, "{method} {route}");
        }
        assert_eq!(named_by("/v1/a/{id}/b/{x}", "/v1/a/7/b/8").as_deref(), Some("7/8"));
        assert_eq!(named_by("/v1/a", "/v1/a"), None);
    }
}
