//! A verifier of server certificates with a custom decision; the signature is always verified.

use std::{fmt, sync::Arc};

use rustls::{
    DigitallySignedStruct, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::provider;

/// The certificates that a server presents, and the expected name.
#[derive(Debug, Clone, Copy)]
pub struct PresentedChain<'a> {
    /// The server's own certificate.
    pub end_entity: &'a CertificateDer<'a>,
    /// The other certificates of the chain.
    pub others: &'a [CertificateDer<'a>],
    /// The name that the client requested.
    pub server_name: &'a ServerName<'a>,
    ocsp_response: &'a [u8],
    now: UnixTime,
}

impl PresentedChain<'_> {
    /// Verifies the chain, the name and the dates as usual.
    ///
    /// # Errors
    /// The verifier refuses the certificate.
    pub fn verify(&self, verifier: &WebPkiServerVerifier) -> Result<(), Error> {
        let Self { end_entity, others, server_name, ocsp_response, now } = *self;
        verifier.verify_server_cert(end_entity, others, server_name, ocsp_response, now).map(|_| ())
    }
}

/// A verifier that accepts a certificate if `judge` does. The handshake's signature, which proves that the server has
/// the key, is always verified.
pub fn custom_server_verifier(
    judge: impl Fn(&PresentedChain<'_>) -> Result<(), Error> + Send + Sync + 'static,
) -> Arc<dyn ServerCertVerifier> {
    Arc::new(CustomVerifier(judge))
}

struct CustomVerifier<J>(J);

impl<J> fmt::Debug for CustomVerifier<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomVerifier").finish_non_exhaustive()
    }
}

impl<J: Fn(&PresentedChain<'_>) -> Result<(), Error> + Send + Sync> ServerCertVerifier for CustomVerifier<J> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        (self.0)(&PresentedChain { end_entity, others, server_name, ocsp_response, now })?;
        Ok(ServerCertVerified::assertion())
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
