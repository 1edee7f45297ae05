//! Identity and policies of a socket in compiled form, made once for each change of the route.

use std::net::IpAddr;

use sallyport_geo::Geo;
use sallyport_identity::validate_session;
use sallyport_model::{Identity, IdentitySettings, LoginSession, ServiceTokenRoute, SocketRoute, SocketType};
use sallyport_policy::{PolicyRequest, PolicySet, Reached, scope_permits};

/// The deciding rule in records when the scope of a service token does not cover the request.
pub(crate) const OUT_OF_SCOPE: &str = "the scope of the service token";

/// The identity setting and the policies of one socket.
#[derive(Debug)]
pub(crate) struct Judge {
    policies: PolicySet,
    asks: Option<IdentitySettings>,
    socket_type: SocketType,
}

/// A request or flow, as policies see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessRequest<'a> {
    /// The address of the client.
    pub(crate) client: IpAddr,
    /// The HTTP method; `None` for flows other than HTTP.
    pub(crate) method: Option<&'a str>,
    /// The path without its query; `None` for flows other than HTTP.
    pub(crate) path: Option<&'a str>,
    /// The port at which the client came.
    pub(crate) port: u16,
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ruling {
    /// Whether the request is admitted.
    pub(crate) allowed: bool,
    /// The rule that decided, in words.
    pub(crate) rule: String,
}

impl Judge {
    /// The judge of this route; `None` without identity and policies. A judge that cannot be compiled admits no client.
    pub(crate) fn of(route: &SocketRoute, geo: Option<&Geo>, knows_identities: bool) -> Option<Self> {
        let asks = route.settings.identity.clone();
        if asks.is_none() && route.policies.is_empty() {
            return None;
        }
        let reason = match PolicySet::of_route(route) {
            Ok(set) if set.needs_country() && !geo.is_some_and(Geo::has_country) => {
                "a policy names countries, and there is no database of countries (--geoip-country)".to_owned()
            }
            Ok(set) if set.needs_asn() && !geo.is_some_and(Geo::has_asn) => {
                "a policy names autonomous systems, and there is no database of them (--geoip-asn)".to_owned()
            }
            Ok(_) if asks.is_some() && !knows_identities => "this edge has no data of logins".to_owned(),
            Ok(policies) => return Some(Self { policies, asks, socket_type: route.socket_type }),
            Err(error) => error.to_string(),
        };
        tracing::warn!(socket = %route.id, reason, "the policies of a socket cannot be evaluated: no client is admitted");
        Some(Self { policies: PolicySet::deny_all(), asks, socket_type: route.socket_type })
    }

    /// The identity setting; `None` if the socket does not identify clients.
    pub(crate) fn asks(&self) -> Option<&IdentitySettings> {
        self.asks.as_ref()
    }

    /// Whether policies depend on the method or the path of a request.
    pub(crate) fn has_requests(&self) -> bool {
        self.policies.has_requests()
    }

    fn reached<'a>(&self, request: &AccessRequest<'a>) -> Reached<'a> {
        Reached { socket_type: self.socket_type, method: request.method, path: request.path, port: request.port }
    }

    /// Decides by the scope of the service token, then by the policies.
    pub(crate) fn decide(
        &self,
        identity: Option<&Identity>,
        request: &AccessRequest<'_>,
        geo: Option<&Geo>,
        now: i64,
    ) -> Ruling {
        if let Some(Identity::Service(token)) = identity
            && !scope_permits(&token.scope, &self.reached(request))
        {
            return Ruling { allowed: false, rule: OUT_OF_SCOPE.to_owned() };
        }
        let (person, service) = match identity {
            Some(Identity::Person(session)) => (Some((&session.person).into()), None),
            Some(Identity::Service(token)) => (None, Some(token.name.as_str())),
            None => (None, None),
        };
        let decision = self.policies.decide(&PolicyRequest {
            now_unix: now,
            address: request.client,
            country: geo.filter(|_| self.policies.needs_country()).and_then(|geo| geo.country(request.client)),
            asn: geo.filter(|_| self.policies.needs_asn()).and_then(|geo| geo.asn(request.client)),
            person,
            service,
            method: request.method,
            path: request.path,
            port: request.port,
        });
        // With an identity setting, no client is admitted without an identity, whatever the policies say.
        let allowed = decision.allowed && (identity.is_some() || self.asks.is_none());
        Ruling { allowed, rule: decision.by.to_string() }
    }
}

/// Whether the login is valid at this socket now.
pub(crate) fn is_good_session(session: &LoginSession, route: &SocketRoute, asks: &IdentitySettings, now: i64) -> bool {
    validate_session(session, route.account, asks, now).is_ok()
}

/// Whether the token is valid at this socket now.
pub(crate) fn is_good_token(token: &ServiceTokenRoute, route: &SocketRoute, now: i64) -> bool {
    token.organisation == route.account
        && token.expires_at.is_none_or(|end| end > now)
        && (token.sockets.is_empty() || token.sockets.contains(&route.id))
}
