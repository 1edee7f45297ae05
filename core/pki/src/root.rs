//! Reading a root certificate.

use time::OffsetDateTime;
use x509_parser::{
    certificate::X509Certificate,
    extensions::GeneralName,
    pem::Pem,
    prelude::{FromDer, X509Error},
};

use crate::Fingerprint;

/// The longest PEM text that is looked at, in bytes.
const MAX_PEM_BYTES: usize = 64 * 1_024;

/// What a root certificate says of itself. Its own signature was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootInfo {
    /// SHA-256 of the certificate.
    pub fingerprint: Fingerprint,
    /// Its subject, as people read it: `CN=Sallyport root ...`.
    pub subject: String,
    /// The one domain it may speak for, or none when it is not bound to exactly one.
    pub domain: Option<String>,
    /// Start of its life.
    pub not_before: OffsetDateTime,
    /// End of its life.
    pub not_after: OffsetDateTime,
    /// The certificate in DER.
    pub der: Vec<u8>,
}

/// Why a text is no root certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootError {
    /// No PEM block, a broken one, or too long a text.
    #[error("it is not a PEM certificate")]
    NotPem,
    /// More than one PEM block.
    #[error("it has more than one PEM block: expected one root certificate and nothing else")]
    Several,
    /// The DER inside is broken.
    #[error("the certificate in it is damaged")]
    Damaged,
    /// A certificate that may not sign others.
    #[error("the certificate in it is not a certificate authority's")]
    NotAuthority,
    /// Signed by another.
    #[error("the certificate in it is not a root: another authority signed it")]
    NotSelfSigned,
    /// Its signature does not fit.
    #[error("the certificate in it is damaged: its own signature does not fit it")]
    BadSignature,
}

/// Whether this PEM text is certificates and nothing else, at least one, that others can be verified by.
///
/// # Errors
/// Says why it is not.
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
    /// Reads a PEM text that holds exactly one self-signed certificate of an authority.
    ///
    /// # Errors
    /// Says which of these it is not. Whether it is valid now is not looked at.
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

    /// Reads the DER of a self-signed certificate of an authority.
    ///
    /// # Errors
    /// Says why it is none.
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
        // RFC 5280 section 4.1.1.2: "This field MUST contain the same algorithm identifier as the signature field in the
        // sequence tbsCertificate". The check of the signature below reads neither this nor the padding bits.
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

    /// Whether the root may speak for this name: always, unless it is bound to a domain that the name is not within.
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        self.domain.as_deref().is_none_or(|domain| is_within(name, domain))
    }

    /// Whether the certificate's life has ended.
    #[must_use]
    pub fn has_ended(&self, now: OffsetDateTime) -> bool {
        now >= self.not_after
    }

    /// Whether the certificate's life has begun. It may not have when the machine's clock is behind.
    #[must_use]
    pub fn has_begun(&self, now: OffsetDateTime) -> bool {
        now >= self.not_before
    }
}

/// Whether `name` is `domain` or beneath it, whatever the case.
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
