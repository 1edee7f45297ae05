//! Who comes with a client certificate: persons and machines to a `tls` socket, machines to those of HTTP.

use std::{net::IpAddr, sync::Arc};

use parking_lot::Mutex;
use rustls::ServerConfig;
use sallyport_model::{Identity, LoginSessionId, SocketRoute};
use sallyport_net::{Certificates, server_config_for_holders, server_config_for_some_holders};
use sallyport_pki::{CertificateHolder, ServiceHolder};

use super::{Access, AccessRequest, now};

use crate::{origins::rules::Rules, policy::judge};

/// What begins the URI that names a login.
const LOGIN_URI: &str = "urn:uuid:";

/// What became of the certificates that were shown in one handshake.
#[derive(Debug, Default)]
pub(crate) struct RefusedCertificate {
    refused: Mutex<Option<(Identity, String)>>,
}

impl RefusedCertificate {
    /// Who showed a good certificate and may not come in nevertheless, and what decided so.
    pub(crate) fn refused(&self) -> Option<(Identity, String)> {
        self.refused.lock().clone()
    }
}

/// Who shows this certificate, which the socket's authority has signed and which is good now. `None`: it is for another
/// socket, or its login is over or of another organisation.
pub(crate) fn holder(access: &Access, route: &SocketRoute, der: &[u8]) -> Option<Identity> {
    let asks = route.settings.identity.as_ref()?;
    if let Some(machine) = machine(access, route, der) {
        return Some(machine);
    }
    let holder = CertificateHolder::from_der(der)?;
    if holder.socket != format!("{}.{}", route.name, access.state.config.domain) {
        return None;
    }
    let login: LoginSessionId = holder.session.strip_prefix(LOGIN_URI)?.parse().ok()?;
    let session = access.identity.parts()?.identities.session(login)?;
    let is_theirs = session.person.email.as_str() == holder.email;
    (is_theirs && judge::is_good_session(&session, route, asks, now())).then_some(Identity::Person(session))
}

/// The machine that shows this certificate, whose token is good at this socket.
fn machine(access: &Access, route: &SocketRoute, der: &[u8]) -> Option<Identity> {
    let holder = ServiceHolder::from_der(der)?;
    let token = access.identity.parts()?.identities.token(holder.token.parse().ok()?)?;
    (holder.not_after > now() && judge::is_good_token(&token, route, now())).then_some(Identity::Service(token))
}

/// TLS for the socket of HTTP with this name, where machines come with certificates; `None`: nobody is asked for one there.
/// A certificate that is not a good one of a machine does not come in, so that nobody wonders why it does not help.
pub(crate) fn http_server_config(
    access: &Arc<Access>,
    base: &ServerConfig,
    certificates: &Arc<Certificates>,
    server_name: &str,
) -> Option<(Arc<ServerConfig>, Arc<SocketRoute>)> {
    let label = server_name.strip_suffix(&access.state.config.domain)?.strip_suffix('.')?;
    let route = access.state.routes.by_name(label).filter(|route| route.socket_type.is_http())?;
    let authority = route.client_authority.clone().filter(|_| route.settings.identity.is_some())?;
    if !access.identity.parts()?.identities.has_certificates(route.account, now()) {
        return None;
    }
    let welcome = {
        let (access, route) = (access.clone(), route.clone());
        Arc::new(move |der: &[u8]| machine(&access, &route, der).is_some())
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
    access: &Arc<Access>,
    base: &ServerConfig,
    certificates: Arc<Certificates>,
    route: &Arc<SocketRoute>,
    rules: &Arc<Rules>,
    client: IpAddr,
    shown: &Arc<RefusedCertificate>,
) -> Option<Arc<ServerConfig>> {
    let name = format!("{}.{}", route.name, access.state.config.domain);
    let authority = route.client_authority.as_deref()?;
    let welcome = {
        let (access, route, rules, shown) = (access.clone(), route.clone(), rules.clone(), shown.clone());
        Arc::new(move |der: &[u8]| {
            let Some(identity) = holder(&access, &route, der) else { return false };
            let port = route.port.unwrap_or(access.state.config.public_port);
            let asked = AccessRequest { client, method: None, path: None, port };
            let Some(judge) = rules.judge() else { return false };
            let ruling = judge.decide(Some(&identity), &asked, access.state.config.geo.as_deref(), now());
            if !ruling.allowed {
                let refused = (identity, ruling.rule);
                *shown.refused.lock() = Some(refused);
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
