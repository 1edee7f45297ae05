//! The certificate that a client of HTTP showed in its TLS handshake.

use rustls::ServerConnection;
use sallyport_model::ServiceTokenId;
use sallyport_pki::ServiceHolder;

/// A client certificate of a machine that a connection for HTTP was opened with. It counts for the name that the connection
/// was opened for and for no other (RFC 9113 section 9.1.1: a connection may be used for several).
#[derive(Debug)]
pub(crate) struct ClientCertificate {
    /// The name, in small letters.
    host: String,
    pub(crate) token: Option<ServiceTokenId>,
    not_after: i64,
}

impl ClientCertificate {
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
    pub(crate) fn is_over(&self, now: i64) -> bool {
        self.not_after <= now
    }
}
