//! Believing one root by its fingerprint.
//!
//! Our servers send their root along with the certificate, so that a client that has nothing but the fingerprint can
//! find it. The root is then what the certificate, its name and its dates are verified against, in full.

use std::{
    io,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use rustls::{
    CertificateError, Error, OtherError, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::CertificateDer,
};
use sallyport_pki::{Fingerprint, RootInfo};

use crate::{Outbound, client_config_by, connect_tls_by, judged_by, provider};

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

/// Believes what the root with this fingerprint signed, for its name and dates, where the server presents that root.
pub(crate) fn pinned(pin: Fingerprint) -> Arc<dyn ServerCertVerifier> {
    // Made when the root was first seen; no other certificate has its fingerprint.
    let known = OnceLock::new();
    judged_by(move |presented| {
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
    let seen = Arc::new(Mutex::new(None));
    let verifier = judged_by({
        let seen = seen.clone();
        move |presented| {
            // Any root that the server presents is taken for the trust anchor, and remembered.
            let chain = &presented.others[..presented.others.len().min(MAX_CHAIN_CERTIFICATES)];
            let root = root_of(chain).ok_or_else(|| other(NoRootPresented))?;
            let verifier = verifier_for(&CertificateDer::from(root.der.as_slice()))?;
            presented.verify(&verifier)?;
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(root);
            Ok(())
        }
    });
    let config = Arc::new(client_config_by(verifier, &[]));
    drop(connect_tls_by(outbound, host, port, server_name, config, timeout).await?);
    let root = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    let root = root.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the server presented no certificate"))?;
    Ok(PresentedRoot { pem: root.to_pem(), fingerprint: root.fingerprint, subject: root.subject })
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
