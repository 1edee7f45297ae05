//! Parses root certificates.

use time::OffsetDateTime;
use x509_parser::{
    certificate::X509Certificate,
    extensions::GeneralName,
    pem::Pem,
    prelude::{FromDer, X509Error},
};

use crate::Fingerprint;

/// The longest accepted PEM text, in bytes.
const MAX_PEM_BYTES: usize = 64 * 1_024;

/// The content of a root certificate, whose own signature was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootInfo {
    /// SHA-256 of the certificate.
    pub fingerprint: Fingerprint,
    /// Its subject as text: `CN=Sallyport root ...`.
    pub subject: String,
    /// The domain that it is limited to; `None` if it is not limited to exactly one.
    pub domain: Option<String>,
    /// Start of its validity.
    pub not_before: OffsetDateTime,
    /// End of its validity.
    pub not_after: OffsetDateTime,
    /// The certificate in DER.
    pub der: Vec<u8>,
}

/// Reason why a text is not a root certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootError {
    /// No valid PEM block, or too long.
    #[error("the text is not a PEM certificate")]
    NotPem,
    /// More than one PEM block.
    #[error("the text has more than one PEM block: expected one root certificate and nothing else")]
    Several,
    /// The DER is malformed.
    #[error("the certificate is damaged")]
    Damaged,
    /// The certificate is not for an authority.
    #[error("the certificate is not that of a certificate authority")]
    NotAuthority,
    /// The certificate is signed by another authority.
    #[error("the certificate is not a root: another authority signed it")]
    NotSelfSigned,
    /// The own signature is wrong.
    #[error("the certificate is damaged: its own signature is wrong")]
    BadSignature,
}

/// Checks that this PEM text consists of at least one certificate that can verify others, and nothing else.
///
/// # Errors
/// The reason.
pub fn check_anchors(pem: &str) -> Result<(), RootError> {
    if pem.len() > MAX_PEM_BYTES {
        return Err(RootError::NotPem);
    }
    let mut count = 0_usize;
    for block in Pem::iter_from_buffer(pem.as_bytes()) {
        let block = block.map_err(|_| RootError::NotPem)?;
        if block.label != "CERTIFICATE" {
            return Err(RootError::NotPem);
        }
        let (rest, _) = X509Certificate::from_der(&block.contents).map_err(|_| RootError::Damaged)?;
        if !rest.is_empty() {
            return Err(RootError::Damaged);
        }
        count += 1;
    }
    if count == 0 { Err(RootError::NotPem) } else { Ok(()) }
}

impl RootInfo {
    /// Parses a PEM text with exactly one self-signed CA certificate.
    ///
    /// # Errors
    /// The reason. The dates are not checked.
    pub fn from_pem(pem: &str) -> Result<Self, RootError> {
        if pem.len() > MAX_PEM_BYTES {
            return Err(RootError::NotPem);
        }
        let mut blocks = Pem::iter_from_buffer(pem.as_bytes());
        let block = blocks.next().ok_or(RootError::NotPem)?.map_err(|_| RootError::NotPem)?;
        if block.label != "CERTIFICATE" {
            return Err(RootError::NotPem);
        }
        if blocks.next().is_some() {
            return Err(RootError::Several);
        }
        Self::from_der(&block.contents)
    }

    /// Parses the DER of a self-signed CA certificate.
    ///
    /// # Errors
    /// The reason.
    pub fn from_der(der: &[u8]) -> Result<Self, RootError> {
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| RootError::Damaged)?;
        if !rest.is_empty() {
            return Err(RootError::Damaged);
        }
        if !certificate.is_ca() {
            return Err(RootError::NotAuthority);
        }
        if certificate.subject() != certificate.issuer() {
            return Err(RootError::NotSelfSigned);
        }
        // RFC 5280 section 4.1.1.2: "This field MUST contain the same algorithm identifier as the signature field in
        // the sequence tbsCertificate". The verification below reads neither this nor the padding bits.
        if certificate.signature_algorithm != certificate.tbs_certificate.signature
            || certificate.signature_value.unused_bits != 0
        {
            return Err(RootError::Damaged);
        }
        match certificate.verify_signature(None) {
            Ok(()) => {}
            Err(X509Error::SignatureVerificationError) => return Err(RootError::BadSignature),
            Err(_) => return Err(RootError::Damaged),
        }
        Ok(Self {
            fingerprint: Fingerprint::of_der(der),
            subject: certificate.subject().to_string(),
            domain: only_domain(&certificate),
            not_before: certificate.validity().not_before.to_datetime(),
            not_after: certificate.validity().not_after.to_datetime(),
            der: der.to_vec(),
        })
    }

    /// The certificate in PEM (RFC 7468).
    #[must_use]
    pub fn to_pem(&self) -> String {
        pem::encode_config(
            &pem::Pem::new("CERTIFICATE", self.der.clone()),
            pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF),
        )
    }

    /// Whether the root may sign for this name: always, unless it is limited to a domain that does not contain the
    /// name.
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        self.domain.as_deref().is_none_or(|domain| is_within(name, domain))
    }

    /// Whether the validity has ended.
    #[must_use]
    pub fn has_ended(&self, now: OffsetDateTime) -> bool {
        now >= self.not_after
    }

    /// Whether the validity has begun; not the case if the machine's clock is slow.
    #[must_use]
    pub fn has_begun(&self, now: OffsetDateTime) -> bool {
        now >= self.not_before
    }
}

/// Whether `name` is `domain` or below it, in any case.
fn is_within(name: &str, domain: &str) -> bool {
    let Some(start) = name.len().checked_sub(domain.len()) else { return false };
    name.is_char_boundary(start)
        && name[start..].eq_ignore_ascii_case(domain)
        && (start == 0 || name.as_bytes()[start - 1] == b'.')
}

fn only_domain(certificate: &X509Certificate<'_>) -> Option<String> {
    let constraints = certificate.name_constraints().ok()??.value;
    let [permitted] = constraints.permitted_subtrees.as_deref()? else { return None };
    match permitted.base {
        GeneralName::DNSName(domain) => Some(domain.to_ascii_lowercase()),
        _ => None,
    }
}
