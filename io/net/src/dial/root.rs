//! Fetches the root certificate that a server presents.

use std::{io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use sallyport_pki::Fingerprint;

use super::{Outbound, connect_tls_by};
use crate::tls::{
    client_config_by, custom_server_verifier,
    pin::{MAX_CHAIN_CERTIFICATES, other, root_of, verifier_for},
};

/// A root that a server presented and that is not trusted yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentedRoot {
    /// The certificate in PEM.
    pub pem: String,
    /// The fingerprint to show and to pin.
    pub fingerprint: Fingerprint,
    /// The subject that the certificate claims; nothing verifies it.
    pub subject: String,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "it presents no root of its own that could be pinned: if it has a certificate of a public authority, connect \
     without a pin"
)]
struct NoRootPresented;

/// Asks a server for its root, to show its fingerprint to a person or to compare it. The connection is closed after the
/// handshake.
///
/// The certificate's name and dates were verified against that root. Nothing verified the root.
///
/// # Errors
/// The server is unreachable, speaks no TLS, has no certificate for the name, or presents no root.
pub async fn fetch_root(host: &str, port: u16, server_name: &str, timeout: Duration) -> io::Result<PresentedRoot> {
    fetch_root_by(&Outbound::default(), host, port, server_name, timeout).await
}

/// Like [`fetch_root`], with the given route out.
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
    let verifier = custom_server_verifier({
        let seen = seen.clone();
        move |presented| {
            // Any presented root is accepted as the trust anchor, and remembered.
            let chain = &presented.others[..presented.others.len().min(MAX_CHAIN_CERTIFICATES)];
            let root = root_of(chain).ok_or_else(|| other(NoRootPresented))?;
            let verifier = verifier_for(&CertificateDer::from(root.der.as_slice()))?;
            presented.verify(&verifier)?;
            *seen.lock() = Some(root);
            Ok(())
        }
    });
    let config = Arc::new(client_config_by(verifier, &[]));
    drop(connect_tls_by(outbound, host, port, server_name, config, timeout).await?);
    let root = seen.lock().take();
    let root = root.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the server presented no certificate"))?;
    Ok(PresentedRoot { pem: root.to_pem(), fingerprint: root.fingerprint, subject: root.subject })
}
