//! What a certificate says of itself, for people who look after a server.

use time::OffsetDateTime;

/// Who signed a server's certificate, and until when it is good. That it was signed is for others to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSummary {
    /// Who signed it, as it says itself.
    pub issuer: String,
    /// Begin of its life.
    pub not_before: OffsetDateTime,
    /// End of its life.
    pub not_after: OffsetDateTime,
}

impl CertificateSummary {
    /// Reads a certificate in DER; `None`: it is none.
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
