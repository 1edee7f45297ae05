//! TLS between the machines of an installation. Both sides show certificates of an authority of their own.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
};

use super::{certificates::Certificates, provider};

/// The protocol (ALPN) for an edge's own requests to control: HTTP/2.
const NODE_ALPN: &[u8] = b"h2";
/// The protocol (ALPN) for requests of an edge's clients to control: HTTP/2, on connections that serve nothing else.
pub const NODE_CLIENTS_ALPN: &[u8] = b"sallyport-clients/1";

/// Reason why a TLS configuration of a machine cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum NodeTlsError {
    /// A certificate or a key cannot be read.
    #[error("the {what} of this machine cannot be used: {detail}")]
    Unusable {
        /// The file or key.
        what: &'static str,
        /// The detail.
        detail: String,
    },
}

fn unusable(what: &'static str) -> impl Fn(&dyn std::fmt::Display) -> NodeTlsError {
    move |detail| NodeTlsError::Unusable { what, detail: detail.to_string() }
}

fn certificates_in(pem: &str, what: &'static str) -> Result<Vec<CertificateDer<'static>>, NodeTlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    found.map_err(|error| unusable(what)(&error))
}

fn roots(pem: &str) -> Result<RootCertStore, NodeTlsError> {
    let mut roots = RootCertStore::empty();
    for root in certificates_in(pem, "authority")? {
        roots.add(root).map_err(|error| unusable("authority")(&error))?;
    }
    Ok(roots)
}

/// The server's side: presents the certificate for the requested name, and verifies a client's certificate if there is
/// one. The caller decides about clients without a certificate.
///
/// # Errors
/// The root cannot be used.
pub fn server_config_for_nodes(
    certificates: Arc<Certificates>,
    root_pem: &str,
) -> Result<Arc<ServerConfig>, NodeTlsError> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(root_pem)?), provider::provider())
        .allow_unauthenticated()
        .build()
        .map_err(|error| unusable("authority")(&error))?;
    let mut config = ServerConfig::builder_with_provider(provider::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| unusable("TLS")(&error))?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![NODE_ALPN.to_vec(), NODE_CLIENTS_ALPN.to_vec()];
    config.max_early_data_size = 0;
    // Every connection presents its certificate, so that an expired one cannot be used by a ticket.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// The server's side of a machine with one certificate. Clients must present a certificate too. `alpn` lists the
/// protocols.
///
/// # Errors
/// The root, the certificates or the key cannot be used.
pub fn server_config_of_node(
    root_pem: &str,
    chain_pem: &str,
    key_pem: &str,
    alpn: &[&[u8]],
) -> Result<Arc<ServerConfig>, NodeTlsError> {
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|error| unusable("key")(&error))?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(root_pem)?), provider::provider())
        .build()
        .map_err(|error| unusable("authority")(&error))?;
    let mut config = ServerConfig::builder_with_provider(provider::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| unusable("TLS")(&error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates_in(chain_pem, "certificate")?, key)
        .map_err(|error| unusable("certificate")(&error))?;
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    config.max_early_data_size = 0;
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// The client's side: trusts only the root, and presents its certificate.
///
/// # Errors
/// The root, the certificates or the key cannot be used.
pub fn client_config_of_node(
    root_pem: &str,
    chain_pem: &str,
    key_pem: &str,
) -> Result<Arc<ClientConfig>, NodeTlsError> {
    client_config_of_node_for(root_pem, chain_pem, key_pem, &[NODE_ALPN])
}

/// Like [`client_config_of_node`], for other protocols (ALPN).
///
/// # Errors
/// As [`client_config_of_node`].
pub fn client_config_of_node_for(
    root_pem: &str,
    chain_pem: &str,
    key_pem: &str,
    alpn: &[&[u8]],
) -> Result<Arc<ClientConfig>, NodeTlsError> {
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|error| unusable("key")(&error))?;
    let mut config = ClientConfig::builder_with_provider(provider::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| unusable("TLS")(&error))?
        .with_root_certificates(roots(root_pem)?)
        .with_client_auth_cert(certificates_in(chain_pem, "certificate")?, key)
        .map_err(|error| unusable("certificate")(&error))?;
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}
