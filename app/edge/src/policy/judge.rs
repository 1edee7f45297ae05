//! What a socket's owner asks of those who come: made once for each change of the route.

use std::net::IpAddr;

use sallyport_geo::Geo;
use sallyport_identity::validate_session;
use sallyport_model::{Identity, IdentitySettings, LoginSession, ServiceTokenRoute, SocketRoute, SocketType};
use sallyport_policy::{PolicySet, Question, Reached, scope_permits};

/// What is said to have decided where a service token does not reach so far.
pub(crate) const OUT_OF_SCOPE: &str = "the scope of the service token";

/// The policies of one socket, and whether it asks who comes.
#[derive(Debug)]
pub(crate) struct Judge {
    policies: PolicySet,
    asks: Option<IdentitySettings>,
    socket_type: SocketType,
}

/// What somebody wants of a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessRequest<'a> {
    /// From where.
    pub(crate) client: IpAddr,
    /// The HTTP method; none below HTTP.
    pub(crate) method: Option<&'a str>,
    /// The path, without its query; none below HTTP.
    pub(crate) path: Option<&'a str>,
    /// By which port.
    pub(crate) port: u16,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ruling {
    /// Whether they may.
    pub(crate) allowed: bool,
    /// What decided, in words.
    pub(crate) rule: String,
}

impl Judge {
    /// What this route says; `None`: nothing is asked of anybody. What cannot be kept to lets nobody in.
    pub(crate) fn of(route: &SocketRoute, geo: Option<&Geo>, knows_identities: bool) -> Option<Self> {
        let asks = route.settings.identity.clone();
        if asks.is_none() && route.policies.is_empty() {
            return None;
        }
        let reason = match PolicySet::of_route(route) {
            Ok(set) if set.needs_country() && !geo.is_some_and(Geo::has_country) => {
                "a policy asks for countries, and there is no database of these (--geoip-country)".to_owned()
            }
            Ok(set) if set.needs_asn() && !geo.is_some_and(Geo::has_asn) => {
                "a policy asks for autonomous systems, and there is no database of these (--geoip-asn)".to_owned()
            }
            Ok(_) if asks.is_some() && !knows_identities => "this edge cannot know who comes".to_owned(),
            Ok(policies) => return Some(Self { policies, asks, socket_type: route.socket_type }),
            Err(error) => error.to_string(),
        };
        tracing::warn!(socket = %route.id, reason, "a socket's policies cannot be kept to: it lets nobody in");
        Some(Self { policies: PolicySet::nobody(), asks, socket_type: route.socket_type })
    }

    /// How the socket asks who comes; `None`: it does not, and nobody is known there.
    pub(crate) fn asks(&self) -> Option<&IdentitySettings> {
        self.asks.as_ref()
    }

    /// Whether it depends on the method or the path of a request who may come in.
    pub(crate) fn has_requests(&self) -> bool {
        self.policies.has_requests()
    }

    fn reached<'a>(&self, asked: &AccessRequest<'a>) -> Reached<'a> {
        Reached { socket_type: self.socket_type, method: asked.method, path: asked.path, port: asked.port }
    }

    /// Whether they may: the scope of a service token is asked first, and then the policies.
    pub(crate) fn decide(
        &self,
        who: Option<&Identity>,
        asked: &AccessRequest<'_>,
        geo: Option<&Geo>,
        now: i64,
    ) -> Ruling {
        if let Some(Identity::Service(token)) = who
            && !scope_permits(&token.scope, &self.reached(asked))
        {
            return Ruling { allowed: false, rule: OUT_OF_SCOPE.to_owned() };
        }
        let (person, service) = match who {
            Some(Identity::Person(session)) => (Some((&session.person).into()), None),
            Some(Identity::Service(token)) => (None, Some(token.name.as_str())),
            None => (None, None),
        };
        let decision = self.policies.decide(&Question {
            now_unix: now,
            address: asked.client,
            country: geo.filter(|_| self.policies.needs_country()).and_then(|geo| geo.country(asked.client)),
            asn: geo.filter(|_| self.policies.needs_asn()).and_then(|geo| geo.asn(asked.client)),
            person,
            service,
            method: asked.method,
            path: asked.path,
            port: asked.port,
        });
        // Nobody enters unknown where the socket asks, whatever its policies say.
        let allowed = decision.allowed && (who.is_some() || self.asks.is_none());
        Ruling { allowed, rule: decision.by.to_string() }
    }
}

/// Whether the login is good at this socket now.
pub(crate) fn is_good_session(session: &LoginSession, route: &SocketRoute, asks: &IdentitySettings, now: i64) -> bool {
    validate_session(session, route.account, asks, now).is_ok()
}

/// Whether the token is good at this socket now.
pub(crate) fn is_good_token(token: &ServiceTokenRoute, route: &SocketRoute, now: i64) -> bool {
    token.organisation == route.account
        && token.expires_at.is_none_or(|end| end > now)
        && (token.sockets.is_empty() || token.sockets.contains(&route.id))
}
