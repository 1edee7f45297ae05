//! The certificate of an HTTP client, from its TLS handshake.

use rustls::ServerConnection;
use sallyport_model::ServiceTokenId;
use sallyport_pki::ServiceHolder;

/// The client certificate of a machine, with which an HTTP connection was opened. Valid only for the host of the
/// handshake, because one connection may carry requests for several hosts (RFC 9113 section 9.1.1).
#[derive(Debug)]
pub(crate) struct ClientCertificate {
    /// The host name in lower case.
    host: String,
    pub(crate) token: Option<ServiceTokenId>,
    not_after: i64,
}

impl ClientCertificate {
    /// The certificate of this handshake, if any. The verifier of the handshake has checked the chain and the token.
    pub(crate) fn of(connection: &ServerConnection) -> Option<Box<Self>> {
        let der = connection.peer_certificates()?.first()?;
        let holder = ServiceHolder::from_der(der);
        Some(Box::new(Self {
            host: connection.server_name().unwrap_or_default().to_ascii_lowercase(),
            token: holder.as_ref().and_then(|holder| holder.token.parse().ok()),
            not_after: holder.map_or(i64::MIN, |holder| holder.not_after),
        }))
    }

    /// Whether the certificate was presented to this host.
    pub(crate) fn is_for(&self, host: &str) -> bool {
        self.host == host
    }

    /// Whether the certificate has expired: connections may outlive it.
    pub(crate) fn is_over(&self, now: i64) -> bool {
        self.not_after <= now
    }
}
