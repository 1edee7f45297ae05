//! Admission of a person to a socket, before a program gets a certificate.

use std::{net::IpAddr, sync::Arc};

use crate::{problem::ApiError, state::App};
use http::{HeaderMap, StatusCode};
use sallyport_identity::validate_session;
use sallyport_model::{LoginSession, LoginSessionId, Person, SocketRoute};
use sallyport_policy::{PersonView, PolicyRequest, PolicySet, SshGrant};

/// A person whom a socket admits now.
#[derive(Debug, Clone)]
pub(crate) struct Admitted {
    pub(crate) session: Arc<LoginSession>,
    pub(crate) route: Arc<SocketRoute>,
    /// The socket's DNS name.
    pub(crate) host: String,
    /// The address of the person.
    pub(crate) address: IpAddr,
    /// The ssh grant of the rule that admits the person.
    pub(crate) ssh: SshGrant,
}

impl App {
    /// The socket of this DNS name, if it has an identity setting.
    pub(crate) async fn asking_socket(&self, host: &str) -> Result<(Arc<SocketRoute>, String), ApiError> {
        let host = host.trim().trim_end_matches('.').to_ascii_lowercase();
        let label = host.strip_suffix(&self.config.domain).and_then(|name| name.strip_suffix('.'));
        let route = match label.and_then(|label| label.parse().ok()) {
            Some(name) => self.route_by_name(&name).await?,
            None => None,
        };
        let Some(route) = route else { return Err(ApiError::not_found("socket")) };
        if route.settings.identity.is_none() {
            let detail = format!("{host} requires no identity: there is nothing to log in to");
            return Err(ApiError::new(StatusCode::CONFLICT, "no-identity", detail));
        }
        Ok((route, host))
    }

    /// The login of this browser that the socket accepts, if any.
    pub(super) async fn person_at(
        &self,
        headers: &HeaderMap,
        route: &SocketRoute,
    ) -> Result<Option<Arc<LoginSession>>, ApiError> {
        let session = self.signed_on(headers, route.account).await?;
        Ok(session.filter(|session| self.require_accepted_session(session, route).is_ok()))
    }

    /// Refuses a login that is not valid at this socket.
    pub(super) fn require_accepted_session(&self, session: &LoginSession, route: &SocketRoute) -> Result<(), ApiError> {
        let asked = route.settings.identity.as_ref();
        let identity = asked.ok_or_else(|| login_required("the socket requires no identity"))?;
        validate_session(session, route.account, identity, self.clock.now().unix_seconds)
            .map_err(|why| login_required(&why.to_string()))
    }

    /// Whether a person may open the first page of this socket from this address now.
    pub(crate) fn allows_visit(&self, route: &SocketRoute, person: &Person, address: IpAddr) -> bool {
        let question = PolicyRequest {
            now_unix: self.clock.now().unix_seconds,
            address,
            country: self.config.geo.as_ref().and_then(|geo| geo.country(address)),
            asn: self.config.geo.as_ref().and_then(|geo| geo.asn(address)),
            person: Some(PersonView::from(person)),
            service: None,
            method: Some("GET"),
            path: Some("/"),
            port: self.config.public_port,
        };
        policies_of(route).decide(&question).allowed
    }

    /// Admits a person to this socket from this address now, or returns the reason why not.
    pub(crate) async fn admit(
        &self,
        session: LoginSessionId,
        host: &str,
        address: IpAddr,
    ) -> Result<Admitted, ApiError> {
        let (route, host) = self.asking_socket(host).await?;
        let session = self.session(session).await?;
        let session = session.ok_or_else(|| login_required("this login has ended: log in again"))?;
        self.require_accepted_session(&session, &route)?;
        let policies = policies_of(&route);
        // The person's later port is not known yet; the edge evaluates the policies again with it.
        let ports = [route.port.unwrap_or(self.config.public_port), self.config.public_port];
        let question = |port| PolicyRequest {
            now_unix: self.clock.now().unix_seconds,
            address,
            country: self.config.geo.as_ref().and_then(|geo| geo.country(address)),
            asn: self.config.geo.as_ref().and_then(|geo| geo.asn(address)),
            person: Some(PersonView::from(&session.person)),
            service: None,
            method: None,
            path: None,
            port,
        };
        let decisions = ports.map(|port| (port, policies.decide(&question(port))));
        if let Some((port, allowed)) = decisions.iter().find(|(_, decision)| decision.allowed) {
            tracing::debug!(socket = %route.id, by = %allowed.by, "a program gets a certificate");
            let ssh = policies.ssh_grant(&question(*port)).cloned().unwrap_or_default();
            return Ok(Admitted { session, route, host, address, ssh });
        }
        let by = decisions[1].1.by.to_string();
        tracing::debug!(
            target: "audit", event = "certificate-refused", organisation = %route.account, socket = %route.id,
            email = %session.person.email, %address, by,
        );
        self.audit_decision(&session, "certificate.create", &host, Some(&by));
        let detail = format!("{} is not admitted to {host} now: ask the socket's owner", session.person.email);
        Err(ApiError::new(StatusCode::FORBIDDEN, "not-allowed", detail))
    }
}

/// The policies of the socket; if they cannot be read, they admit no person.
fn policies_of(route: &SocketRoute) -> PolicySet {
    PolicySet::of_route(route).unwrap_or_else(|error| {
        tracing::error!(socket = %route.id, %error, "a policy cannot be read: every client is denied");
        PolicySet::deny_all()
    })
}

/// An error after which programs log in.
pub(super) fn login_required(detail: &str) -> ApiError {
    ApiError::unauthorized("login-required", detail)
}
