//! A summary of a server's certificate for its administrators.

use time::OffsetDateTime;

/// The issuer and the dates of a server's certificate. The signature is not verified here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSummary {
    /// The issuer's name, as stated in the certificate.
    pub issuer: String,
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
        Some(Self {
            issuer: certificate.issuer().to_string(),
            not_before: certificate.validity().not_before.to_datetime(),
            not_after: certificate.validity().not_after.to_datetime(),
        })
    }
}
