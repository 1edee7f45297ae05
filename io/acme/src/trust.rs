//! Trust in the site of a private CA, by certificates that the operator names.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, Error, RootCertStore,
    client::{WebPkiServerVerifier, verify_server_name},
    pki_types::{CertificateDer, pem::PemObject as _},
    server::ParsedCertificate,
};
use sallyport_net::{PresentedChain, client_config_by, custom_server_verifier};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Bound on the named certificates.
const MAX_ROOTS: usize = 100;

/// The configuration of a client that trusts these certificates alone; `None` if there is none that can be used.
///
/// A named certificate may also be the site's own: private sites often have one that signed itself, marked as that of
/// an authority, which the usual verification refuses.
pub(crate) fn client_config_of_pem(pem: &str) -> Option<Arc<ClientConfig>> {
    let named: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(pem.as_bytes()).take(MAX_ROOTS).collect::<Result<_, _>>().ok()?;
    let mut roots = RootCertStore::empty();
    for certificate in &named {
        roots.add(certificate.clone()).ok()?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    // It fails without roots.
    let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
    let verifier = custom_server_verifier(move |presented| {
        if named.iter().any(|certificate| certificate == presented.end_entity) {
            verify_named(presented)
        } else {
            presented.verify(&usual)
        }
    });
    Some(Arc::new(client_config_by(verifier, &[b"http/1.1"])))
}

/// Verifies the name and the dates of a certificate that is trusted itself.
fn verify_named(presented: &PresentedChain<'_>) -> Result<(), Error> {
    verify_server_name(&ParsedCertificate::try_from(presented.end_entity)?, presented.server_name)?;
    let (_, certificate) = X509Certificate::from_der(presented.end_entity)
        .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
    let now = OffsetDateTime::now_utc();
    if now < certificate.validity().not_before.to_datetime() {
        return Err(Error::InvalidCertificate(CertificateError::NotValidYet));
    }
    if now > certificate.validity().not_after.to_datetime() {
        return Err(Error::InvalidCertificate(CertificateError::Expired));
    }
    Ok(())
}
