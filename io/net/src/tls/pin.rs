//! Trusting one root by its fingerprint.
//!
//! Servers of Sallyport send their root with the certificate, so a client that has only the fingerprint finds it. The
//! certificate, its name and its dates are verified against that root in full.

use std::sync::{Arc, OnceLock};

use rustls::{
    CertificateError, Error, OtherError, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::CertificateDer,
};
use sallyport_pki::{Fingerprint, RootInfo};

use super::{provider, server_verifier::custom_server_verifier};

/// The most certificates of a chain that are checked.
pub(crate) const MAX_CHAIN_CERTIFICATES: usize = 8;

/// The server did not present the pinned root.
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

/// Trusts the root with this fingerprint, when the server presents it.
pub(crate) fn pinned(pin: Fingerprint) -> Arc<dyn ServerCertVerifier> {
    // Made when the root was first seen; no other certificate has its fingerprint.
    let known = OnceLock::new();
    custom_server_verifier(move |presented| {
        let verifier = match known.get() {
            Some(verifier) => verifier,
            None => {
                let verifier = verifier_for(pinned_root(pin, presented.others)?)?;
                known.get_or_init(|| verifier)
            }
        };
        presented.verify(verifier)
    })
}

fn pinned_root<'a>(pin: Fingerprint, presented: &'a [CertificateDer<'a>]) -> Result<&'a CertificateDer<'a>, Error> {
    let chain = &presented[..presented.len().min(MAX_CHAIN_CERTIFICATES)];
    chain.iter().find(|certificate| Fingerprint::of_der(certificate) == pin).ok_or_else(|| {
        let presented = root_of(chain).map(|root| root.fingerprint);
        other(PinMismatch { expected: pin, presented })
    })
}

/// The root certificate in a chain, if the chain has one.
pub(crate) fn root_of(chain: &[CertificateDer<'_>]) -> Option<RootInfo> {
    chain.iter().rev().find_map(|certificate| RootInfo::from_der(certificate).ok())
}

/// Verifies as usual, with this root as the only trust anchor.
pub(crate) fn verifier_for(root: &CertificateDer<'_>) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone().into_owned())?;
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider::provider())
        .build()
        .map_err(|error| Error::General(error.to_string()))
}

/// An error of this crate as one of rustls.
pub(crate) fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}
