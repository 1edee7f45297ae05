//! Who comes to a `tls` socket with a client certificate.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use rustls::ServerConfig;
use sallyport_model::{Identity, LoginSessionId, SocketRoute};
use sallyport_net::{Certificates, server_config_for_holders};
use sallyport_pki::CertificateHolder;

use super::{Asked, judge, now};
use crate::{Edge, rules::Rules};

/// What begins the URI that names a login.
const LOGIN_URI: &str = "urn:uuid:";

/// What became of the certificates that were shown in one handshake.
#[derive(Debug, Default)]
pub(crate) struct ShownCertificates {
    refused: Mutex<Option<(String, String)>>,
}

impl ShownCertificates {
    /// Who showed a good certificate and may not come in nevertheless, and what decided so.
    pub(crate) fn refused(&self) -> Option<(String, String)> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Who shows this certificate, which the socket's authority has signed and which is good now. `None`: it is for another
/// socket, or its login is over or of another organisation.
pub(crate) fn holder(edge: &Edge, route: &SocketRoute, der: &[u8]) -> Option<Identity> {
    let asks = route.settings.identity.as_ref()?;
    let holder = CertificateHolder::from_der(der)?;
    if holder.socket != format!("{}.{}", route.name, edge.config.domain) {
        return None;
    }
    let login: LoginSessionId = holder.session.strip_prefix(LOGIN_URI)?.parse().ok()?;
    let session = edge.reception.parts()?.identities.session(login)?;
    let is_theirs = session.person.email.as_str() == holder.email;
    (is_theirs && judge::is_good_session(&session, route, asks, now())).then_some(Identity::Person(session))
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
                let refused = (identity.label(), ruling.rule);
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
