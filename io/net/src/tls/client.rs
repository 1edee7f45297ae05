//! TLS of clients: the certificate is always verified.

use std::{io, path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier,
    client::danger::ServerCertVerifier,
    pki_types::{CertificateDer, pem, pem::PemObject},
};
use sallyport_pki::{Fingerprint, FingerprintError};

use super::{pin, provider};

/// The authorities that a client trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The machine's authorities.
    System,
    /// Only the authorities in a PEM file.
    Ca(PathBuf),
    /// The authorities in a PEM file, and the machine's.
    CaAndSystem(PathBuf),
    /// The one root with this fingerprint (`sha256:` and 64 hex digits), which the server must present.
    Pinned(String),
}

/// Reason why the authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The system has no root certificates.
    #[error("this system has no root certificates: install its ca-certificates package, or name a root with --ca FILE")]
    EmptySystem,
    /// The file cannot be read.
    #[error("cannot read the root certificate {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file holds no certificate that can be used.
    #[error(
        "{} holds no usable certificate: expected a root certificate in PEM, such as the ca.pem of `sallyport up`",
        .0.display()
    )]
    NoCertificate(PathBuf),
    /// A pin stands for one root, which only the server can show.
    #[error("a pinned root is not a set of root certificates")]
    NoRoots,
    /// The pin is no fingerprint.
    #[error(transparent)]
    Pin(#[from] FingerprintError),
}

/// The configuration of a client of TLS 1.2 and 1.3 with these protocols (ALPN). It keeps sessions for resumption, so
/// use one configuration for many connections.
///
/// # Errors
/// There are no root certificates.
pub fn client_config(trust: &Trust, alpn: &[&[u8]]) -> Result<Arc<ClientConfig>, TrustError> {
    let mut config = match trust {
        Trust::System => builder().with_root_certificates(system_roots()?).with_no_client_auth(),
        Trust::Ca(_) | Trust::CaAndSystem(_) => builder().with_root_certificates(roots(trust)?).with_no_client_auth(),
        Trust::Pinned(pin) => return Ok(Arc::new(client_config_by(pin::pinned(pin.parse::<Fingerprint>()?), alpn))),
    };
    config.alpn_protocols = protocols(alpn);
    Ok(Arc::new(config))
}

/// Like [`client_config`], with the authorities in this PEM text besides. A pinned root stays the only one.
///
/// # Errors
/// There are no root certificates.
pub fn client_config_with(trust: &Trust, also: &str, alpn: &[&[u8]]) -> Result<Arc<ClientConfig>, TrustError> {
    if matches!(trust, Trust::Pinned(_)) {
        return client_config(trust, alpn);
    }
    let mut roots = match roots(trust) {
        // The text is enough on a machine without authorities of its own.
        Err(TrustError::EmptySystem) => RootCertStore::empty(),
        roots => roots?,
    };
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(also.as_bytes()).filter_map(Result::ok));
    let mut config = builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols(alpn);
    Ok(Arc::new(config))
}

/// Like [`client_config`], with only the authorities in this PEM text; `None` if it has no usable certificate.
#[must_use]
pub fn client_config_of_pem(text: &[u8], alpn: &[&[u8]]) -> Option<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text) {
        roots.add(certificate.ok()?).ok()?;
    }
    if roots.is_empty() {
        return None;
    }
    let mut config = builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols(alpn);
    Some(Arc::new(config))
}

/// Like [`client_config`], with this verifier.
#[must_use]
pub fn client_config_by(verifier: Arc<dyn ServerCertVerifier>, alpn: &[&[u8]]) -> ClientConfig {
    let mut config = builder().dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = protocols(alpn);
    config
}

fn builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(provider::provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has cipher suites for TLS 1.2 and 1.3")
}

fn protocols(alpn: &[&[u8]]) -> Vec<Vec<u8>> {
    alpn.iter().map(|protocol| protocol.to_vec()).collect()
}

/// The root certificates of a [`Trust`], for a verifier of one's own.
///
/// # Errors
/// There are none. A pin has none either.
pub fn roots(trust: &Trust) -> Result<RootCertStore, TrustError> {
    match trust {
        Trust::System => system_roots(),
        Trust::Ca(path) => roots_in(path.clone()),
        Trust::CaAndSystem(path) => {
            let mut roots = roots_in(path.clone())?;
            // The file is enough on a machine without authorities of its own.
            if let Ok(system) = system_roots() {
                roots.roots.extend(system.roots);
            }
            Ok(roots)
        }
        Trust::Pinned(_) => Err(TrustError::NoRoots),
    }
}

fn system_roots() -> Result<RootCertStore, TrustError> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!(%error, "a root certificate of the system was passed over");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() { Err(TrustError::EmptySystem) } else { Ok(roots) }
}

fn roots_in(path: PathBuf) -> Result<RootCertStore, TrustError> {
    let certificates = match CertificateDer::pem_file_iter(&path) {
        Ok(certificates) => certificates,
        Err(pem::Error::Io(source)) => return Err(TrustError::Read { path, source }),
        Err(_) => return Err(TrustError::NoCertificate(path)),
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let certificate = match certificate {
            Ok(certificate) => certificate,
            Err(pem::Error::Io(source)) => return Err(TrustError::Read { path, source }),
            Err(_) => return Err(TrustError::NoCertificate(path)),
        };
        roots.add(certificate).map_err(|_| TrustError::NoCertificate(path.clone()))?;
    }
    if roots.is_empty() { Err(TrustError::NoCertificate(path)) } else { Ok(roots) }
}
