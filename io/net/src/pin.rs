//! Believing one root by its fingerprint.
//!
//! Our servers send their root along with the certificate, so that a client that has nothing but the fingerprint can
//! find it. The root is then what the certificate, its name and its dates are verified against, in full.

use std::{
    fmt, io,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use sallyport_pki::{Fingerprint, RootInfo};

use crate::{Outbound, connect_tls_by, provider};

/// The most certificates of a chain that are looked at.
const MAX_CHAIN_CERTIFICATES: usize = 8;

/// The server did not present the root that is pinned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "its root certificate is {}, not the pinned {expected}: if the server was set up anew, log in again to pin it; \
     otherwise someone is between you and it",
    presented.map_or_else(|| "not shown".to_owned(), |presented| presented.to_string())
)]
pub struct PinMismatch {
    /// The pin.
    pub expected: Fingerprint,
    /// The root that the server presented instead, if any.
    pub presented: Option<Fingerprint>,
}

/// A root that a server presented, not yet believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentedRoot {
    /// The certificate in PEM.
    pub pem: String,
    /// What to show and to pin.
    pub fingerprint: Fingerprint,
    /// Its subject, as it says itself: not verified by anyone.
    pub subject: String,
}

pub(crate) struct PinnedVerifier {
    pin: Fingerprint,
    /// Made when the root was first seen; no other certificate has its fingerprint.
    verifier: OnceLock<Arc<WebPkiServerVerifier>>,
}

impl PinnedVerifier {
    pub(crate) fn new(pin: Fingerprint) -> Self {
        Self { pin, verifier: OnceLock::new() }
    }

    fn verifier(&self, presented: &[CertificateDer<'_>]) -> Result<Arc<WebPkiServerVerifier>, Error> {
        if let Some(verifier) = self.verifier.get() {
            return Ok(verifier.clone());
        }
        let chain = &presented[..presented.len().min(MAX_CHAIN_CERTIFICATES)];
        let Some(root) = chain.iter().find(|certificate| Fingerprint::of_der(certificate) == self.pin) else {
            let presented = root_of(chain).map(|root| root.fingerprint);
            return Err(other(PinMismatch { expected: self.pin, presented }));
        };
        let verifier = verifier_for(root)?;
        Ok(self.verifier.get_or_init(|| verifier).clone())
    }
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verifier(intermediates)?.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &provider::provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &provider::provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider::provider().signature_verification_algorithms.supported_schemes()
    }
}

impl fmt::Debug for PinnedVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PinnedVerifier").field(&self.pin).finish()
    }
}

/// Asks a server which root it presents, to be shown to a person who compares the fingerprint, or to be compared with
/// a given one. The certificate's name and dates were verified against that root, but the root itself by nobody:
/// nothing but the handshake is done, and the connection is closed.
///
/// # Errors
/// When the server is not reached, does not speak TLS, has no certificate for the name, or presents no root.
pub async fn fetch_root(host: &str, port: u16, server_name: &str, timeout: Duration) -> io::Result<PresentedRoot> {
    fetch_root_by(&Outbound::default(), host, port, server_name, timeout).await
}

/// As [`fetch_root`], by the way that `outbound` says.
///
/// # Errors
/// As [`fetch_root`].
pub async fn fetch_root_by(
    outbound: &Outbound,
    host: &str,
    port: u16,
    server_name: &str,
    timeout: Duration,
) -> io::Result<PresentedRoot> {
    let seen = Arc::new(AnyRoot::default());
    let config = ClientConfig::builder_with_provider(provider::provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has cipher suites for TLS 1.2 and 1.3")
        .dangerous()
        .with_custom_certificate_verifier(seen.clone())
        .with_no_client_auth();
    drop(connect_tls_by(outbound, host, port, server_name, Arc::new(config), timeout).await?);
    let root = seen.root.lock().unwrap_or_else(PoisonError::into_inner).take();
    let root = root.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the server presented no certificate"))?;
    Ok(PresentedRoot { pem: root.to_pem(), fingerprint: root.fingerprint, subject: root.subject })
}

/// Takes any root that the server presents for its trust anchor, and remembers it.
#[derive(Debug, Default)]
struct AnyRoot {
    root: Mutex<Option<RootInfo>>,
}

impl ServerCertVerifier for AnyRoot {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = &intermediates[..intermediates.len().min(MAX_CHAIN_CERTIFICATES)];
        let root = root_of(chain).ok_or_else(|| other(NoRootPresented))?;
        let verifier = verifier_for(&CertificateDer::from(root.der.as_slice()))?;
        let verified = verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        *self.root.lock().unwrap_or_else(PoisonError::into_inner) = Some(root);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &provider::provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &provider::provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider::provider().signature_verification_algorithms.supported_schemes()
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "it presents no root of its own that could be pinned: if it has a certificate of a public authority, connect \
     without a pin"
)]
struct NoRootPresented;

fn root_of(chain: &[CertificateDer<'_>]) -> Option<RootInfo> {
    chain.iter().rev().find_map(|certificate| RootInfo::from_der(certificate).ok())
}

fn verifier_for(root: &CertificateDer<'_>) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone().into_owned())?;
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider::provider())
        .build()
        .map_err(|error| Error::General(error.to_string()))
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}
