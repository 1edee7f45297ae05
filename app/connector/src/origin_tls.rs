//! TLS to a private service: whom it is believed to be.

use std::{fmt, path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use sallyport_net::{Fingerprint, Trust};
use sallyport_wire::StreamProtocol;

/// How a service that speaks TLS proves who it is.
#[derive(Debug, Clone)]
pub struct OriginTls {
    belief: Belief,
    /// The name that its certificate must have; its host when there is none.
    pub(crate) server_name: Option<String>,
}

#[derive(Debug, Clone)]
enum Belief {
    Roots(Trust),
    Pin(Fingerprint),
}

/// TLS to the service cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum OriginTlsError {
    /// There is nobody to believe.
    #[error("TLS to the service cannot be set up: {0}")]
    Trust(#[from] sallyport_net::TrustError),
    /// The roots cannot be verified with.
    #[error("TLS to the service cannot be set up: {0}")]
    Tls(String),
}

impl OriginTls {
    /// Its certificate was signed by an authority that this system knows.
    #[must_use]
    pub fn system() -> Self {
        Self { belief: Belief::Roots(Trust::System), server_name: None }
    }

    /// Its certificate was signed by a root in this PEM file.
    #[must_use]
    pub fn ca(file: PathBuf) -> Self {
        Self { belief: Belief::Roots(Trust::Ca(file)), server_name: None }
    }

    /// It presents exactly the certificate with this fingerprint, whatever name and dates stand in it.
    #[must_use]
    pub fn pinned(fingerprint: Fingerprint) -> Self {
        Self { belief: Belief::Pin(fingerprint), server_name: None }
    }

    /// The certificate must be for this name instead of the host that is dialed.
    #[must_use]
    pub fn with_server_name(mut self, name: String) -> Self {
        self.server_name = Some(name);
        self
    }

    /// Configurations for each protocol that a stream may speak.
    pub(crate) fn configs(&self) -> Result<Configs, OriginTlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match &self.belief {
            Belief::Pin(fingerprint) => Arc::new(Pinned { fingerprint: *fingerprint, provider: provider.clone() }),
            Belief::Roots(trust) => Arc::new(Explained {
                inner: WebPkiServerVerifier::builder_with_provider(
                    Arc::new(sallyport_net::roots(trust)?),
                    provider.clone(),
                )
                .build()
                .map_err(|error| OriginTlsError::Tls(error.to_string()))?,
            }),
        };
        let config = |alpn: &[&[u8]]| -> Result<Arc<ClientConfig>, OriginTlsError> {
            let mut config = ClientConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()
                .map_err(|error| OriginTlsError::Tls(error.to_string()))?
                .dangerous()
                .with_custom_certificate_verifier(verifier.clone())
                .with_no_client_auth();
            config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
            Ok(Arc::new(config))
        };
        Ok(Configs { raw: config(&[])?, http1: config(&[b"http/1.1"])?, http2: config(&[b"h2"])? })
    }
}

/// One configuration for each protocol: they differ in what they offer by ALPN.
pub(crate) struct Configs {
    raw: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

impl Configs {
    pub(crate) fn of(&self, protocol: StreamProtocol) -> Arc<ClientConfig> {
        match protocol {
            StreamProtocol::Raw => self.raw.clone(),
            StreamProtocol::Http1 => self.http1.clone(),
            StreamProtocol::Http2 => self.http2.clone(),
        }
    }
}

impl fmt::Debug for Configs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configs").finish_non_exhaustive()
    }
}

/// The service's certificate is not believed; the text says which one it is, and how to accept it.
#[derive(Debug, thiserror::Error)]
#[error("its certificate is not trusted ({reason}): if it is the right one, add --origin-pin {presented}")]
struct NotTrusted {
    presented: Fingerprint,
    reason: String,
}

fn not_trusted(presented: &CertificateDer<'_>, reason: &str) -> rustls::Error {
    let presented = Fingerprint::of_der(presented);
    rustls::Error::Other(OtherError(Arc::new(NotTrusted { presented, reason: reason.to_owned() })))
}

/// The usual verification; its refusal names the certificate that was presented.
#[derive(Debug)]
struct Explained {
    inner: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Explained {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now).map_err(|error| {
            let text = error.to_string();
            not_trusted(end_entity, text.strip_prefix("invalid peer certificate: ").unwrap_or(&text))
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Believes one certificate. That the other side holds its key is proved by the handshake's signature.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if Fingerprint::of_der(end_entity) == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(not_trusted(end_entity, "it is not the pinned one"))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
