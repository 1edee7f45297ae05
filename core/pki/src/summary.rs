//! A summary of a server's certificate for its administrators.

use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use x509_parser::{extensions::GeneralName, pem::Pem};

/// The issuer, the names and the dates of a server's certificate. The signature is not verified here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSummary {
    /// The issuer's name, as stated in the certificate.
    pub issuer: String,
    /// The DNS names of the certificate, as stated in it.
    pub names: Vec<String>,
    /// SHA-256 of the certificate.
    pub fingerprint: [u8; 32],
    /// Start of its validity.
    pub not_before: OffsetDateTime,
    /// End of its validity.
    pub not_after: OffsetDateTime,
}

impl CertificateSummary {
    /// Parses a certificate in DER; `None` if it is malformed.
    #[must_use]
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let alternative = certificate.subject_alternative_name().ok().flatten();
        let names = alternative.iter().flat_map(|extension| &extension.value.general_names);
        let names = names.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        });
        Some(Self {
            issuer: certificate.issuer().to_string(),
            names: names.collect(),
            fingerprint: Sha256::digest(der).into(),
            not_before: certificate.validity().not_before.to_datetime(),
            not_after: certificate.validity().not_after.to_datetime(),
        })
    }

    /// Parses the first certificate of a chain in PEM; `None` if it is malformed.
    #[must_use]
    pub fn from_pem(chain: &str) -> Option<Self> {
        let first = Pem::iter_from_buffer(chain.as_bytes()).next()?.ok()?;
        Self::from_der(&first.contents)
    }
}
