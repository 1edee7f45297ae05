//! A certificate authority: a root certificate with its key, and the server certificates that it signs.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PublicKeyData, SerialNumber,
};
use time::{Duration, OffsetDateTime};

use crate::{Fingerprint, Renewal, RootError, RootInfo, renewal};

/// Validity of a root.
pub const ROOT_LIFETIME: Duration = Duration::days(3_652);
/// Time before its creation from which a root is valid, for machines with slow clocks.
pub const ROOT_BACKDATE: Duration = Duration::days(1);
/// Validity of a server certificate.
pub const LEAF_LIFETIME: Duration = Duration::days(30);
/// Time before its creation from which a server certificate is valid.
pub const BACKDATE: Duration = Duration::hours(1);
/// The longest common name, in characters (RFC 5280 appendix A.1, `ub-common-name`).
pub const MAX_COMMON_NAME_CHARS: usize = 64;

/// A root certificate and its private key.
pub struct Authority {
    pub(crate) info: RootInfo,
    root_pem: String,
    pub(crate) issuer: Issuer<'static, KeyPair>,
}

/// A newly signed server certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate in DER, followed by the root's. The root is sent along so that clients can pin it.
    pub chain: Vec<Vec<u8>>,
    /// Start of its validity.
    pub not_before: OffsetDateTime,
    /// End of its validity.
    pub not_after: OffsetDateTime,
    /// Time at which two thirds of its validity have passed.
    pub renew_at: OffsetDateTime,
}

/// Reason why no root was created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The domain is not a valid DNS name.
    #[error("{0:?} is not a valid domain for a certificate")]
    Domain(String),
    /// The key could not sign.
    #[error("the root certificate could not be signed: {0}")]
    Sign(rcgen::Error),
}

/// Reason why a stored root cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The certificate is not a root.
    #[error(transparent)]
    Certificate(RootError),
    /// The key cannot be read.
    #[error("the private key is not in PEM, or is damaged")]
    Key,
    /// The key does not belong to the certificate.
    #[error("the private key does not belong to the certificate")]
    Mismatch,
    /// The root has expired.
    #[error("the root certificate ended on {0}")]
    Ended(time::Date),
}

/// Reason why no server certificate was signed.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// A name is missing or not a valid DNS name.
    #[error("{0:?} is not a valid name for a certificate")]
    Name(String),
    /// The name is outside of the root's domain.
    #[error("the root certificate is for {domain} and cannot speak for {name}")]
    OutsideDomain {
        /// The requested name.
        name: String,
        /// The root's domain.
        domain: String,
    },
    /// The root has expired.
    #[error("the root certificate ended on {0}")]
    RootEnded(time::Date),
    /// The key could not sign.
    #[error("the certificate could not be signed: {0}")]
    Sign(rcgen::Error),
}

impl Authority {
    /// Creates a root for `domain` and the names below it. The subject is `common_name` (cut to fit) with the first
    /// digits of its key's hash, so that two roots never share a subject.
    ///
    /// # Errors
    /// The domain is not a valid DNS name, or signing fails.
    pub fn create(
        common_name: &str,
        domain: &str,
        key: KeyPair,
        now: OffsetDateTime,
        serial: [u8; 16],
    ) -> Result<Self, CreateError> {
        if !is_dns_name(domain) {
            return Err(CreateError::Domain(domain.to_owned()));
        }
        let tag = Fingerprint::of_der(key.der_bytes()).short();
        let label: String = common_name.chars().take(MAX_COMMON_NAME_CHARS - tag.len() - 1).collect();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("{label} {tag}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: vec![GeneralSubtree::DnsName(domain.to_ascii_lowercase())],
            excluded_subtrees: Vec::new(),
        });
        params.serial_number = Some(serial_number(serial));
        params.not_before = now - ROOT_BACKDATE;
        params.not_after = now + ROOT_LIFETIME;
        let certificate = params.self_signed(&key).map_err(CreateError::Sign)?;
        let info = RootInfo::from_der(certificate.der())
            .map_err(|_| CreateError::Sign(rcgen::Error::CouldNotParseCertificate))?;
        Ok(Self { info, root_pem: certificate.pem(), issuer: Issuer::new(params, key) })
    }

    /// Loads an existing root from its certificate and its private key, each in PEM.
    ///
    /// # Errors
    /// Either is damaged, they do not belong together, or the root has expired at `now`. A root that is not valid yet
    /// is accepted: the clock is wrong then, and may be corrected while the program runs.
    pub fn from_pem(certificate: &str, key: &str, now: OffsetDateTime) -> Result<Self, LoadError> {
        let info = RootInfo::from_pem(certificate).map_err(LoadError::Certificate)?;
        let key = KeyPair::from_pem(key).map_err(|_| LoadError::Key)?;
        let (_, parsed) =
            x509_parser::parse_x509_certificate(&info.der).map_err(|_| LoadError::Certificate(RootError::Damaged))?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(LoadError::Mismatch);
        }
        if info.has_ended(now) {
            return Err(LoadError::Ended(info.not_after.date()));
        }
        let issuer = Issuer::from_ca_cert_der(&info.der.as_slice().into(), key)
            .map_err(|_| LoadError::Certificate(RootError::Damaged))?;
        Ok(Self { info, root_pem: certificate.to_owned(), issuer })
    }

    /// Signs a server certificate for these names, from an hour before `now` until `lifetime` after it, but not past
    /// the root's end. A name may be a wildcard (`*.example.com`).
    ///
    /// # Errors
    /// A name is invalid or outside of the root's domain, the root has expired, or signing fails.
    pub fn issue_server(
        &self,
        names: &[String],
        leaf_key: &impl PublicKeyData,
        now: OffsetDateTime,
        serial: [u8; 16],
        lifetime: Duration,
    ) -> Result<Issued, IssueError> {
        if names.is_empty() {
            return Err(IssueError::Name(String::new()));
        }
        for name in names {
            self.check_name(name)?;
        }
        if self.info.has_ended(now) {
            return Err(IssueError::RootEnded(self.info.not_after.date()));
        }
        let mut params = CertificateParams::new(names).map_err(|_| IssueError::Name(names.join(", ")))?;
        // No subject: by RFC 6125 section 6.4.4 clients check only the alternative names.
        params.distinguished_name = DistinguishedName::new();
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(serial_number(serial));
        params.not_before = whole_second(now - BACKDATE);
        params.not_after = whole_second(now + lifetime).min(self.info.not_after);
        let certificate = params.signed_by(leaf_key, &self.issuer).map_err(IssueError::Sign)?;
        let renew_at = match renewal(params.not_before, params.not_after, params.not_before) {
            Renewal::NotYet { at } => at,
            Renewal::Due | Renewal::Invalid => params.not_before,
        };
        Ok(Issued {
            chain: vec![certificate.der().to_vec(), self.info.der.clone()],
            not_before: params.not_before,
            not_after: params.not_after,
            renew_at,
        })
    }

    /// The root certificate in PEM.
    #[must_use]
    pub fn root_pem(&self) -> &str {
        &self.root_pem
    }

    /// The root's private key in PEM (PKCS #8). Must be kept secret.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// The content of the root certificate.
    #[must_use]
    pub fn root(&self) -> &RootInfo {
        &self.info
    }

    /// The root certificate's fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.info.fingerprint
    }

    fn check_name(&self, name: &str) -> Result<(), IssueError> {
        let plain = name.strip_prefix("*.").unwrap_or(name);
        if !is_dns_name(plain) {
            return Err(IssueError::Name(name.to_owned()));
        }
        if self.info.covers(plain) {
            return Ok(());
        }
        let domain = self.info.domain.clone().unwrap_or_default();
        Err(IssueError::OutsideDomain { name: name.to_owned(), domain })
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("fingerprint", &self.info.fingerprint).finish_non_exhaustive()
    }
}

/// Positive and never zero (RFC 5280 section 4.1.2.2), with 126 of the given bits.
pub(crate) fn serial_number(mut random: [u8; 16]) -> SerialNumber {
    random[0] = random[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&random)
}

/// Certificates have whole seconds; the reported times must be the encoded ones.
pub(crate) fn whole_second(time: OffsetDateTime) -> OffsetDateTime {
    time.replace_nanosecond(0).unwrap_or(time)
}

/// Letters, digits and hyphens in labels of 1 to 63, 253 in all (RFC 1035 section 2.3.1).
pub(crate) fn is_dns_name(name: &str) -> bool {
    let label_fits = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A numeric last label would look like an IPv4 address.
    let last_is_number = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    name.len() <= 253 && !last_is_number && name.split('.').all(label_fits)
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
