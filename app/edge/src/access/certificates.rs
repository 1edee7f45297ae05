//! Client certificates: of persons and machines at `tls` sockets, of machines at HTTP sockets.

use std::{net::IpAddr, sync::Arc};

use parking_lot::Mutex;
use rustls::ServerConfig;
use sallyport_model::{Identity, LoginSessionId, SocketRoute};
use sallyport_net::{Certificates, server_config_for_holders, server_config_for_some_holders};
use sallyport_pki::{CertificateHolder, ServiceHolder};

use super::{Access, AccessRequest, now};

use crate::{origins::rules::Rules, policy::judge};

/// The prefix of the URI that names a login.
const LOGIN_URI: &str = "urn:uuid:";

/// The valid certificate that policies refused in one handshake, if any.
#[derive(Debug, Default)]
pub(crate) struct RefusedCertificate {
    refused: Mutex<Option<(Identity, String)>>,
}

impl RefusedCertificate {
    /// The identity in the refused certificate, and the rule that refused it.
    pub(crate) fn refused(&self) -> Option<(Identity, String)> {
        self.refused.lock().clone()
    }
}

/// The identity in this certificate. The verifier of the handshake has checked the signature and the dates. `None` if
/// the certificate is for another socket, or its login has ended or belongs to another organisation.
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

/// The machine in this certificate, if its token is valid at this socket.
fn machine(access: &Access, route: &SocketRoute, der: &[u8]) -> Option<Identity> {
    let holder = ServiceHolder::from_der(der)?;
    let token = access.identity.parts()?.identities.token(holder.token.parse().ok()?)?;
    (holder.not_after > now() && judge::is_good_token(&token, route, now())).then_some(Identity::Service(token))
}

/// Whether machines may present certificates at this HTTP socket.
pub(crate) fn accepts_certificates(access: &Access, route: &SocketRoute) -> bool {
    route.client_authority.is_some()
        && route.settings.identity.is_some()
        && access.identity.parts().is_some_and(|parts| parts.identities.has_certificates(route.account, now()))
}

/// TLS for the HTTP socket of this name, if machines may present certificates there; `None` if not.
///
/// A certificate that is not a valid one of a machine fails the handshake, so that the error shows at once.
pub(crate) fn http_server_config(
    access: &Arc<Access>,
    base: &ServerConfig,
    certificates: &Arc<Certificates>,
    server_name: &str,
) -> Option<(Arc<ServerConfig>, Arc<SocketRoute>)> {
    let route = access.state.route_of_host(server_name).filter(|route| route.socket_type.is_http())?;
    let authority = route.client_authority.clone().filter(|_| accepts_certificates(access, &route))?;
    let is_accepted = {
        let (access, route) = (access.clone(), route.clone());
        Arc::new(move |der: &[u8]| machine(&access, &route, der).is_some())
    };
    match server_config_for_some_holders(base, certificates.clone(), server_name.to_owned(), &authority, is_accepted) {
        Ok(config) => Some((config, route)),
        Err(error) => {
            tracing::warn!(socket = %route.id, %error, "the authority of a socket's organisation cannot be used: client certificates are not accepted");
            None
        }
    }
}

/// TLS for this `tls` socket. The client must present a certificate of the organisation's authority, of a login that
/// the policies admit. `None` if no certificate can be checked.
pub(crate) fn server_config(
    access: &Arc<Access>,
    base: &ServerConfig,
    certificates: Arc<Certificates>,
    route: &Arc<SocketRoute>,
    rules: &Arc<Rules>,
    client: IpAddr,
    refused: &Arc<RefusedCertificate>,
) -> Option<Arc<ServerConfig>> {
    let name = format!("{}.{}", route.name, access.state.config.domain);
    let authority = route.client_authority.as_deref()?;
    let is_accepted = {
        let (access, route, rules, refused) = (access.clone(), route.clone(), rules.clone(), refused.clone());
        Arc::new(move |der: &[u8]| {
            let Some(identity) = holder(&access, &route, der) else { return false };
            let port = route.port.unwrap_or(access.state.config.public_port);
            let request = AccessRequest { client, method: None, path: None, port };
            let Some(judge) = rules.judge() else { return false };
            let ruling = judge.decide(Some(&identity), &request, access.state.config.geo.as_deref(), now());
            if !ruling.allowed {
                let refusal = (identity, ruling.rule);
                *refused.refused.lock() = Some(refusal);
            }
            ruling.allowed
        })
    };
    match server_config_for_holders(base, certificates, name, &route.settings.alpn, authority, is_accepted) {
        Ok(config) => Some(config),
        Err(error) => {
            tracing::warn!(socket = %route.id, %error, "the authority of a socket's organisation cannot be used: \
                 no client is admitted");
            None
        }
    }
}
