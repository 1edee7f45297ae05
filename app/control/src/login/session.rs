//! From a person to a login, and from a login back to the socket.

use std::sync::Arc;

use axum::response::Response;
use http::{HeaderMap, StatusCode, header};
use sallyport_identity::{Grant, LoginRequest, Purpose, SignOn, safe_return_to};
use sallyport_model::{AccountId, IdentitySettings, LoginSession, LoginSessionId, Person, SocketRoute};
use sallyport_oidc::{CompletedLogin, with_query};
use sallyport_store::StoredProvider;

use super::{
    cookies,
    page::{LoginError, see_other},
};
use crate::{problem::ApiError, security::random, state::App};

impl App {
    /// The socket of a login. The sealed request names it; everything else comes from the store.
    pub(super) async fn socket_of(&self, request: &LoginRequest) -> Result<Arc<SocketRoute>, LoginError> {
        self.route(request.socket).await?.ok_or_else(|| {
            LoginError::new(
                StatusCode::NOT_FOUND,
                "The service is gone",
                "The service that sent you here is not there any more.",
            )
            .next("Ask whoever gave you its address.")
        })
    }

    /// The identity setting of the socket.
    pub(super) fn asks(route: &SocketRoute) -> IdentitySettings {
        route.settings.identity.clone().unwrap_or_default()
    }

    /// The valid login of this browser at the organisation, if any.
    pub(crate) async fn signed_on(
        &self,
        headers: &HeaderMap,
        organisation: AccountId,
    ) -> Result<Option<Arc<LoginSession>>, ApiError> {
        let sealed = cookies::one(headers, &cookies::sign_on_name(organisation));
        let Some(SignOn { session }) = sealed.and_then(|sealed| self.sealer.open(Purpose::SignOn, sealed)) else {
            return Ok(None);
        };
        Ok(self.session(session).await?.filter(|session| session.organisation == organisation))
    }

    /// Begins a login of this person, and ends the former one of this browser.
    pub(super) async fn begin_login_session(
        &self,
        organisation: AccountId,
        person: Person,
        asks: &IdentitySettings,
        former: Option<LoginSessionId>,
        there: Option<(&StoredProvider, &CompletedLogin)>,
    ) -> Result<LoginSession, LoginError> {
        let now = self.clock.now().unix_seconds;
        // As long as the longest lifetime at any socket; each socket applies its own.
        let minutes = self
            .store
            .routes_of(organisation)
            .await?
            .iter()
            .filter_map(|route| route.settings.identity.as_ref().map(|identity| identity.session_minutes))
            .max()
            .unwrap_or_default()
            .max(asks.session_minutes);
        let session = LoginSession {
            id: LoginSessionId::from_random(random::bytes()?),
            organisation,
            person,
            authenticated_at: now,
            expires_at: now.saturating_add(i64::from(minutes) * 60),
        };
        let there = there.map(|(provider, finished)| self.at_provider(session.id, provider, finished)).transpose()?;
        let mut ended = self.store.begin_provider_session(&session, there.as_ref()).await?;
        self.identities.put_session(session.clone());
        if let Some(former) = former {
            ended.extend(self.store.end_person_sessions(organisation, Some(former), None, None).await?);
        }
        if !ended.is_empty() {
            self.identities.end_these(&ended);
        }
        tracing::info!(
            account = %organisation,
            session = %session.id,
            provider = %session.person.provider,
            "a person logged in"
        );
        tracing::debug!(session = %session.id, email = %session.person.email, "who logged in");
        Ok(session)
    }

    /// Redirects the browser to the socket, with a grant for this socket alone.
    pub(super) fn grant(
        &self,
        route: &SocketRoute,
        request: &LoginRequest,
        session: LoginSessionId,
    ) -> Result<Response, LoginError> {
        if request.is_of_login_host {
            return see_other(safe_return_to(&request.return_to));
        }
        let grant = Grant {
            id: random::bytes()?,
            socket: route.id,
            binding: request.binding,
            session,
            return_to: safe_return_to(&request.return_to).to_owned(),
            at: self.clock.now().unix_seconds,
        };
        let sealed = self.seal(Purpose::Grant, &grant)?;
        see_other(&with_query(
            &format!("{}/.sallyport/callback", self.requested_url(route, request)),
            &[("grant", &sealed)],
        ))
    }

    /// The URL of the socket's pages at the host that the browser has asked for: a domain of the organisation, or the
    /// socket's own name.
    pub(super) fn requested_url(&self, route: &SocketRoute, request: &LoginRequest) -> String {
        let is_led_there = |host: &&String| route.domains.iter().any(|domain| domain.covers(host));
        match request.host.as_ref().filter(is_led_there) {
            Some(host) => self.url_of_host(host),
            None => self.service_url(route),
        }
    }

    /// The URL of the socket's own pages, at the shared port.
    pub(super) fn service_url(&self, route: &SocketRoute) -> String {
        self.url_of_host(&self.dns_name(&route.name))
    }

    fn url_of_host(&self, host: &str) -> String {
        match self.config.public_port {
            443 => format!("https://{host}"),
            port => format!("https://{host}:{port}"),
        }
    }

    /// Seals a value for the browser.
    pub(crate) fn seal(&self, purpose: Purpose, value: &impl serde::Serialize) -> Result<String, LoginError> {
        let sealed = self.sealer.seal(purpose, value, random::bytes()?);
        sealed.ok_or_else(|| ApiError::internal("a text could not be sealed").into())
    }

    /// Adds the cookie of the login at the organisation to the response.
    pub(super) fn with_sign_on(&self, mut response: Response, session: &LoginSession) -> Result<Response, LoginError> {
        response
            .headers_mut()
            .append(header::SET_COOKIE, cookies::gone(&cookies::logged_out_name(session.organisation))?);
        let sealed = self.seal(Purpose::SignOn, &SignOn { session: session.id })?;
        response.headers_mut().append(header::SET_COOKIE, cookies::signed_on(session.organisation, &sealed)?);
        Ok(response)
    }
}
