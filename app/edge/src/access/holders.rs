//! Who comes with a client certificate: persons and machines to a `tls` socket, machines to those of HTTP.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use rustls::{ServerConfig, ServerConnection};
use sallyport_model::{Identity, LoginSessionId, ServiceTokenId, SocketRoute};
use sallyport_net::{Certificates, server_config_for_holders, server_config_for_some_holders};
use sallyport_pki::{CertificateHolder, ServiceHolder};

use super::{Asked, now};
use crate::{Edge, origins::rules::Rules, policy::judge};

/// What begins the URI that names a login.
const LOGIN_URI: &str = "urn:uuid:";

/// What became of the certificates that were shown in one handshake.
#[derive(Debug, Default)]
pub(crate) struct ShownCertificates {
    refused: Mutex<Option<(Identity, String)>>,
}

impl ShownCertificates {
    /// Who showed a good certificate and may not come in nevertheless, and what decided so.
    pub(crate) fn refused(&self) -> Option<(Identity, String)> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Who shows this certificate, which the socket's authority has signed and which is good now. `None`: it is for another
/// socket, or its login is over or of another organisation.
pub(crate) fn holder(edge: &Edge, route: &SocketRoute, der: &[u8]) -> Option<Identity> {
    let asks = route.settings.identity.as_ref()?;
    if let Some(machine) = machine(edge, route, der) {
        return Some(machine);
    }
    let holder = CertificateHolder::from_der(der)?;
    if holder.socket != format!("{}.{}", route.name, edge.config.domain) {
        return None;
    }
    let login: LoginSessionId = holder.session.strip_prefix(LOGIN_URI)?.parse().ok()?;
    let session = edge.reception.parts()?.identities.session(login)?;
    let is_theirs = session.person.email.as_str() == holder.email;
    (is_theirs && judge::is_good_session(&session, route, asks, now())).then_some(Identity::Person(session))
}

/// The machine that shows this certificate, whose token is good at this socket.
fn machine(edge: &Edge, route: &SocketRoute, der: &[u8]) -> Option<Identity> {
    let holder = ServiceHolder::from_der(der)?;
    let token = edge.reception.parts()?.identities.token(holder.token.parse().ok()?)?;
    (holder.not_after > now() && judge::is_good_token(&token, route, now())).then_some(Identity::Service(token))
}

/// A client certificate of a machine that a connection for HTTP was opened with. It counts for the name that the connection
/// was opened for and for no other (RFC 9113 section 9.1.1: a connection may be used for several).
#[derive(Debug)]
pub(crate) struct Shown {
    /// The name, in small letters.
    host: String,
    pub(super) token: Option<ServiceTokenId>,
    not_after: i64,
}

impl Shown {
    /// What was shown in this handshake, if anything: its verifier has looked at the chain and at the token.
    pub(crate) fn of(connection: &ServerConnection) -> Option<Box<Self>> {
        let der = connection.peer_certificates()?.first()?;
        let holder = ServiceHolder::from_der(der);
        Some(Box::new(Self {
            host: connection.server_name().unwrap_or_default().to_ascii_lowercase(),
            token: holder.as_ref().and_then(|holder| holder.token.parse().ok()),
            not_after: holder.map_or(i64::MIN, |holder| holder.not_after),
        }))
    }

    /// Whether it was shown to this host.
    pub(crate) fn is_for(&self, host: &str) -> bool {
        self.host == host
    }

    /// Whether its time is over: connections may last longer than certificates.
    pub(super) fn is_over(&self, now: i64) -> bool {
        self.not_after <= now
    }
}

/// TLS for the socket of HTTP with this name, where machines come with certificates; `None`: nobody is asked for one there.
/// A certificate that is not a good one of a machine does not come in, so that nobody wonders why it does not help.
pub(crate) fn http_server_config(
    edge: &Arc<Edge>,
    base: &ServerConfig,
    certificates: &Arc<Certificates>,
    server_name: &str,
) -> Option<(Arc<ServerConfig>, Arc<SocketRoute>)> {
    let label = server_name.strip_suffix(&edge.config.domain)?.strip_suffix('.')?;
    let route = edge.routes.by_name(label).filter(|route| route.socket_type.is_http())?;
    let authority = route.client_authority.clone().filter(|_| route.settings.identity.is_some())?;
    if !edge.reception.parts()?.identities.has_certificates(route.account, now()) {
        return None;
    }
    let welcome = {
        let (edge, route) = (edge.clone(), route.clone());
        Arc::new(move |der: &[u8]| machine(&edge, &route, der).is_some())
    };
    match server_config_for_some_holders(base, certificates.clone(), server_name.to_owned(), &authority, welcome) {
        Ok(config) => Some((config, route)),
        Err(error) => {
            tracing::warn!(socket = %route.id, %error, "a socket's authority is of no use: nobody comes by certificate");
            None
        }
    }
}

/// TLS for this socket, to which nobody comes without a certificate of its organisation's authority and a login that its
/// policies let in. `None`: nobody comes at all.
pub(crate) fn server_config(
    edge: &Arc<Edge>,
    base: &ServerConfig,
    certificates: Arc<Certificates>,
    route: &Arc<SocketRoute>,
    rules: &Arc<Rules>,
    client: IpAddr,
    shown: &Arc<ShownCertificates>,
) -> Option<Arc<ServerConfig>> {
    let name = format!("{}.{}", route.name, edge.config.domain);
    let authority = route.client_authority.as_deref()?;
    let welcome = {
        let (edge, route, rules, shown) = (edge.clone(), route.clone(), rules.clone(), shown.clone());
        Arc::new(move |der: &[u8]| {
            let Some(identity) = holder(&edge, &route, der) else { return false };
            let port = route.port.unwrap_or(edge.config.public_port);
            let asked = Asked { client, method: None, path: None, port };
            let Some(judge) = rules.judge() else { return false };
            let ruling = judge.decide(Some(&identity), &asked, edge.config.geo.as_deref(), now());
            if !ruling.allowed {
                let refused = (identity, ruling.rule);
                *shown.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(refused);
            }
            ruling.allowed
        })
    };
    match server_config_for_holders(base, certificates, name, &route.settings.alpn, authority, welcome) {
        Ok(config) => Some(config),
        Err(error) => {
            tracing::warn!(socket = %route.id, %error, "a socket's authority is of no use: it lets nobody in");
            None
        }
    }
}
