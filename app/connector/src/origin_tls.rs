//! TLS to a private service, and how its certificate is verified.

use std::{fmt, path::PathBuf, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, Error, OtherError, client::WebPkiServerVerifier, pki_types::CertificateDer,
};
use sallyport_net::{Fingerprint, Trust, client_config_by, custom_server_verifier};
use sallyport_wire::StreamProtocol;

/// The name of rustls' error for an authority's certificate that a service presents. It is an error of webpki, whose
/// type rustls does not export.
const AUTHORITY: &str = "CaUsedAsEndEntity";

/// How the certificate of a service is verified.
#[derive(Debug, Clone)]
pub struct OriginTls {
    belief: Belief,
    /// The name that the certificate must have; by default the service's host.
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
    /// There is no usable authority.
    #[error("TLS to the service cannot be set up: {0}")]
    Trust(#[from] sallyport_net::TrustError),
    /// The roots cannot be used.
    #[error("TLS to the service cannot be set up: {0}")]
    Tls(String),
}

impl OriginTls {
    /// Trusts the authorities of this machine.
    #[must_use]
    pub fn system() -> Self {
        Self { belief: Belief::Roots(Trust::System), server_name: None }
    }

    /// Trusts the root in this PEM file.
    #[must_use]
    pub fn ca(file: PathBuf) -> Self {
        Self { belief: Belief::Roots(Trust::Ca(file)), server_name: None }
    }

    /// Trusts exactly the certificate with this fingerprint, whatever its name and dates.
    #[must_use]
    pub fn pinned(fingerprint: Fingerprint) -> Self {
        Self { belief: Belief::Pin(fingerprint), server_name: None }
    }

    /// Requires this name in the certificate, instead of the dialed host.
    #[must_use]
    pub fn with_server_name(mut self, name: String) -> Self {
        self.server_name = Some(name);
        self
    }

    /// Whether the machine's authorities are trusted.
    pub(crate) fn is_by_system(&self) -> bool {
        matches!(self.belief, Belief::Roots(Trust::System))
    }

    /// The configurations for each protocol of a stream.
    pub(crate) fn configs(&self) -> Result<Configs, OriginTlsError> {
        let verifier = match &self.belief {
            // The fingerprint alone counts: a pinned certificate needs no valid name or dates.
            Belief::Pin(pin) => custom_server_verifier({
                let pin = *pin;
                move |presented| {
                    let is_pinned = Fingerprint::of_der(presented.end_entity) == pin;
                    if is_pinned { Ok(()) } else { Err(not_pinned(presented.end_entity).into()) }
                }
            }),
            Belief::Roots(trust) => {
                let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
                let roots = Arc::new(sallyport_net::roots(trust)?);
                let usual = WebPkiServerVerifier::builder_with_provider(roots, provider)
                    .build()
                    .map_err(|error| OriginTlsError::Tls(error.to_string()))?;
                custom_server_verifier(move |presented| {
                    presented.verify(&usual).map_err(|error| not_trusted(presented.end_entity, &error).into())
                })
            }
        };
        let config = |alpn: &[&[u8]]| Arc::new(client_config_by(verifier.clone(), alpn));
        Ok(Configs { raw: config(&[]), http1: config(&[b"http/1.1"]), http2: config(&[b"h2"]) })
    }
}

/// One configuration for each protocol, which differ in their ALPN.
#[derive(Clone)]
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

/// Why the service's certificate is not trusted, with advice.
#[derive(Debug, thiserror::Error)]
#[error("its certificate {0}")]
struct NotTrusted(String);

impl From<NotTrusted> for Error {
    fn from(error: NotTrusted) -> Self {
        Self::Other(OtherError(Arc::new(error)))
    }
}

fn not_pinned(presented: &CertificateDer<'_>) -> NotTrusted {
    let presented = Fingerprint::of_der(presented);
    NotTrusted(format!("is not the pinned one: if it is the right one, give --origin-pin {presented}"))
}

fn not_trusted(presented: &CertificateDer<'_>, why: &Error) -> NotTrusted {
    use CertificateError as Because;
    let pin = format!("--origin-pin {}", Fingerprint::of_der(presented));
    NotTrusted(match why {
        // An authority of the same name is trusted, but its signature does not match.
        Error::InvalidCertificate(
            Because::UnknownIssuer
            | Because::BadSignature
            | Because::UnsupportedSignatureAlgorithmContext { .. }
            | Because::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
        ) => format!(
            "was signed by an authority that is not trusted here: name its root with --origin-ca FILE, or the \
             certificate itself with {pin}"
        ),
        Error::InvalidCertificate(Because::NotValidForNameContext { expected, presented }) => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            format!(
                "is for other names ({}) than {}: say with --origin-server-name NAME which one it must have, or name \
                 the certificate itself with {pin}",
                names.join(", "),
                expected.to_str()
            )
        }
        Error::InvalidCertificate(Because::Expired | Because::ExpiredContext { .. }) => {
            format!("has ended: renew it, or take it as it is with {pin}")
        }
        Error::InvalidCertificate(Because::Other(OtherError(why))) if why.to_string() == AUTHORITY => format!(
            "is one of an authority, which no service may have (`openssl req -x509` makes such): make it with -addext \
             basicConstraints=critical,CA:FALSE, or take it as it is with {pin}"
        ),
        Error::InvalidCertificate(reason) => format!("is not trusted ({reason}): if it is the right one, add {pin}"),
        other => format!("is not trusted ({other}): if it is the right one, add {pin}"),
    })
}

/// The name inside the library's debug output `DnsName("a.example")`.
fn bare(name: &str) -> &str {
    name.split_once('(').map_or(name, |(_, rest)| rest.trim_end_matches(')').trim_matches('"'))
}
