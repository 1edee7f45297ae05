//! The client authority of an organisation. Its certificates admit persons' programs and machines to sockets.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType, SubjectPublicKeyInfo,
};
use time::{Duration, OffsetDateTime};
use x509_parser::{
    certification_request::X509CertificationRequest,
    oid_registry::{
        OID_EC_P256, OID_NIST_EC_P384, OID_PKCS1_RSAENCRYPTION, OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA,
        OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ED25519,
    },
    pem::Pem,
    prelude::FromDer,
    public_key::PublicKey,
};

use crate::{
    Fingerprint, MAX_COMMON_NAME_CHARS, RootError, RootInfo,
    authority::{LoadError, ROOT_BACKDATE, ROOT_LIFETIME, is_dns_name, serial_number, whole_second},
};

/// The longest accepted certificate request, in bytes of PEM.
pub const MAX_REQUEST_BYTES: usize = 16 * 1_024;
/// Time before its creation from which a client certificate is valid, for machines with slow clocks.
pub const CLIENT_BACKDATE: Duration = Duration::minutes(5);
/// Time after its creation until which a client certificate is valid.
pub const CLIENT_LIFETIME: Duration = Duration::minutes(5);
/// The longest validity of a machine's certificate, the limit of browsers for server certificates.
pub const MAX_SERVICE_LIFETIME: Duration = Duration::days(397);
/// Prefix of the URI of a service token.
pub const SERVICE_TOKEN_URN: &str = "urn:sallyport:service-token:";
/// The shortest RSA key, in bits (NIST SP 800-131A).
const MIN_RSA_BITS: usize = 2_048;
/// The longest RSA key, in bits, which bounds the cost of verification.
const MAX_RSA_BITS: usize = 8_192;

/// Signs client certificates for one organisation.
pub struct ClientAuthority {
    der: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

/// The public key of a verified certificate request (PKCS #10, RFC 2986). Nothing else of the request is kept: the
/// subject is decided by the authority.
pub struct ClientRequest {
    key: SubjectPublicKeyInfo,
}

/// Reason why a certificate request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No single valid PEM block of this kind, or too long.
    #[error(
        "the text is not a single certificate request in PEM (BEGIN CERTIFICATE REQUEST) of at most \
         {MAX_REQUEST_BYTES} bytes"
    )]
    NotPem,
    /// The DER inside is broken.
    #[error("the certificate request is damaged")]
    Damaged,
    /// The key is of an unsupported kind.
    #[error(
        "the key of the request is of an unsupported kind: use RSA of {MIN_RSA_BITS} to {MAX_RSA_BITS} bits, P-256, \
         P-384 or Ed25519"
    )]
    Key,
    /// The signature algorithm is not supported.
    #[error("the signature of the request is of an unsupported kind: use SHA-256 or better")]
    Algorithm,
    /// The signature is wrong: another key, or a change after signing.
    #[error("the signature of the request does not match its key")]
    Signature,
}

/// The subject of a person's certificate.
#[derive(Debug, Clone, Copy)]
pub struct ClientSubject<'a> {
    /// The verified e-mail address, in ASCII.
    pub email: &'a str,
    /// The DNS name of the socket: the certificate is valid at no other.
    pub socket: &'a str,
    /// The login session, as the URI `urn:uuid:...`.
    pub session: &'a str,
}

/// The subject of a machine's certificate.
#[derive(Debug, Clone, Copy)]
pub struct ServiceSubject<'a> {
    /// The name of the machine's token, for people who read the certificate.
    pub name: &'a str,
    /// The id of the token.
    pub token: &'a str,
    /// The validity, at most [`MAX_SERVICE_LIFETIME`].
    pub lifetime: Duration,
}

/// A newly signed client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate in PEM.
    pub pem: String,
    /// Its serial number, big-endian.
    pub serial: [u8; 16],
    /// Start of its validity.
    pub not_before: OffsetDateTime,
    /// End of its validity.
    pub not_after: OffsetDateTime,
}

/// Reason why an authority was not created, or no certificate was signed.
#[derive(Debug, thiserror::Error)]
pub enum ClientIssueError {
    /// A part of the subject is invalid.
    #[error("{0:?} cannot stand in a client certificate")]
    Subject(String),
    /// The key could not sign.
    #[error("the certificate could not be signed: {0}")]
    Sign(rcgen::Error),
}

impl ClientAuthority {
    /// Creates the authority of an organisation. Its name is the label with the first digits of its key's hash, so that
    /// two authorities never share a name.
    ///
    /// # Errors
    /// Signing fails.
    pub fn create(label: &str, key: KeyPair, now: OffsetDateTime, serial: [u8; 16]) -> Result<Self, ClientIssueError> {
        let tag = Fingerprint::of_der(key.der_bytes()).short();
        let label: String = label.chars().take(MAX_COMMON_NAME_CHARS - tag.len() - 1).collect();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("{label} {tag}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // Its certificates are not accepted for servers.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.serial_number = Some(serial_number(serial));
        params.not_before = whole_second(now - ROOT_BACKDATE);
        params.not_after = whole_second(now + ROOT_LIFETIME);
        let certificate = params.self_signed(&key).map_err(ClientIssueError::Sign)?;
        Ok(Self { der: certificate.der().to_vec(), issuer: Issuer::new(params, key) })
    }

    /// Loads an existing authority from its certificate in DER and its private key in PEM.
    ///
    /// # Errors
    /// Either is damaged, or they do not belong together.
    pub fn from_der(certificate: &[u8], key: &str) -> Result<Self, LoadError> {
        let info = RootInfo::from_der(certificate).map_err(LoadError::Certificate)?;
        let key = KeyPair::from_pem(key).map_err(|_| LoadError::Key)?;
        let damaged = || LoadError::Certificate(RootError::Damaged);
        let (_, parsed) = x509_parser::parse_x509_certificate(&info.der).map_err(|_| damaged())?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(LoadError::Mismatch);
        }
        let issuer = Issuer::from_ca_cert_der(&info.der.as_slice().into(), key).map_err(|_| damaged())?;
        Ok(Self { der: info.der, issuer })
    }

    /// Signs the key of a request for this person, valid for ten minutes around `now`.
    ///
    /// # Errors
    /// The subject is invalid, or signing fails.
    pub fn issue(
        &self,
        request: &ClientRequest,
        subject: ClientSubject<'_>,
        now: OffsetDateTime,
        serial: [u8; 16],
    ) -> Result<ClientCertificate, ClientIssueError> {
        let refuse = |text: &str| ClientIssueError::Subject(text.chars().take(80).collect());
        let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_plain(subject.email) || !subject.email.contains('@') {
            return Err(refuse(subject.email));
        }
        if !is_dns_name(subject.socket) {
            return Err(refuse(subject.socket));
        }
        if !is_plain(subject.session) || !subject.session.starts_with("urn:uuid:") {
            return Err(refuse(subject.session));
        }
        let name = |text: &str| text.try_into().map_err(|_| refuse(text));
        let mut names = DistinguishedName::new();
        names.push(DnType::CommonName, subject.email.chars().take(MAX_COMMON_NAME_CHARS).collect::<String>());
        names.push(DnType::OrganizationName, subject.socket);
        let alternatives = vec![
            SanType::Rfc822Name(name(subject.email)?),
            SanType::DnsName(name(subject.socket)?),
            SanType::URI(name(subject.session)?),
        ];
        self.sign(request, (names, alternatives), (now - CLIENT_BACKDATE, now + CLIENT_LIFETIME), serial)
    }

    /// Signs the key of a request for this machine, valid from five minutes before `now` to the end of the requested
    /// lifetime.
    ///
    /// # Errors
    /// The subject is invalid, or signing fails.
    pub fn issue_service(
        &self,
        request: &ClientRequest,
        subject: ServiceSubject<'_>,
        now: OffsetDateTime,
        serial: [u8; 16],
    ) -> Result<ClientCertificate, ClientIssueError> {
        let refuse = |text: &str| ClientIssueError::Subject(text.chars().take(80).collect());
        let is_id = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
        if subject.token.is_empty() || !subject.token.bytes().all(is_id) {
            return Err(refuse(subject.token));
        }
        let uri = format!("{SERVICE_TOKEN_URN}{}", subject.token);
        let mut names = DistinguishedName::new();
        names.push(DnType::CommonName, subject.name.chars().take(MAX_COMMON_NAME_CHARS).collect::<String>());
        let alternatives = vec![SanType::URI(uri.as_str().try_into().map_err(|_| refuse(&uri))?)];
        let until = now + subject.lifetime.clamp(Duration::ZERO, MAX_SERVICE_LIFETIME);
        self.sign(request, (names, alternatives), (now - CLIENT_BACKDATE, until), serial)
    }

    fn sign(
        &self,
        request: &ClientRequest,
        (names, alternatives): (DistinguishedName, Vec<SanType>),
        (from, until): (OffsetDateTime, OffsetDateTime),
        serial: [u8; 16],
    ) -> Result<ClientCertificate, ClientIssueError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = names;
        params.subject_alt_names = alternatives;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let number = serial_number(serial);
        let mut serial = [0; 16];
        serial.copy_from_slice(number.as_ref());
        params.serial_number = Some(number);
        params.not_before = whole_second(from);
        params.not_after = whole_second(until);
        let certificate = params.signed_by(&request.key, &self.issuer).map_err(ClientIssueError::Sign)?;
        Ok(ClientCertificate {
            pem: certificate_pem(certificate.der()),
            serial,
            not_before: params.not_before,
            not_after: params.not_after,
        })
    }

    /// The authority's certificate in DER.
    #[must_use]
    pub fn certificate_der(&self) -> &[u8] {
        &self.der
    }

    /// The authority's certificate in PEM.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        certificate_pem(&self.der)
    }

    /// The authority's private key in PEM (PKCS #8). Must be kept secret.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }
}

impl std::fmt::Debug for ClientAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientAuthority").field("fingerprint", &Fingerprint::of_der(&self.der)).finish_non_exhaustive()
    }
}

impl ClientRequest {
    /// The public key to sign.
    #[must_use]
    pub fn public_key(&self) -> &SubjectPublicKeyInfo {
        &self.key
    }

    /// Parses a request in PEM, and verifies that its creator has the private key.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub fn from_pem(pem: &str) -> Result<Self, RequestError> {
        if pem.len() > MAX_REQUEST_BYTES {
            return Err(RequestError::NotPem);
        }
        let mut blocks = Pem::iter_from_buffer(pem.as_bytes());
        let block = blocks.next().ok_or(RequestError::NotPem)?.map_err(|_| RequestError::NotPem)?;
        // Old programs use the label NEW (RFC 7468 section 7).
        let is_request = ["CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"].contains(&block.label.as_str());
        if !is_request || blocks.next().is_some() {
            return Err(RequestError::NotPem);
        }
        let (rest, request) = X509CertificationRequest::from_der(&block.contents).map_err(|_| RequestError::Damaged)?;
        if !rest.is_empty() || request.signature_value.unused_bits != 0 {
            return Err(RequestError::Damaged);
        }
        let signed_with = &request.signature_algorithm.algorithm;
        let spki = &request.certification_request_info.subject_pki;
        let curve = || spki.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
        let fits = match spki.parsed().map_err(|_| RequestError::Key)? {
            PublicKey::RSA(key)
                if spki.algorithm.algorithm == OID_PKCS1_RSAENCRYPTION
                    && (MIN_RSA_BITS..=MAX_RSA_BITS).contains(&key.key_size()) =>
            {
                [OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA].contains(signed_with)
            }
            PublicKey::EC(_) if [Some(OID_EC_P256), Some(OID_NIST_EC_P384)].contains(&curve()) => {
                [OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384].contains(signed_with)
            }
            _ if spki.algorithm.algorithm == OID_SIG_ED25519 => *signed_with == OID_SIG_ED25519,
            _ => return Err(RequestError::Key),
        };
        if !fits {
            return Err(RequestError::Algorithm);
        }
        request.verify_signature().map_err(|_| RequestError::Signature)?;
        let key = SubjectPublicKeyInfo::from_der(spki.raw).map_err(|_| RequestError::Key)?;
        Ok(Self { key })
    }
}

/// Creates a certificate request for this key, in PEM. It has no subject: the authority decides the subject.
///
/// # Errors
/// Signing fails.
pub fn certificate_request(key: &KeyPair) -> Result<String, ClientIssueError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(key).map_err(ClientIssueError::Sign)?;
    request.pem().map_err(ClientIssueError::Sign)
}

/// A request for a server certificate with these DNS names and no subject, as PKCS #10 in DER.
///
/// # Errors
/// A name cannot be in a certificate, or the key cannot sign.
pub fn server_request(names: &[String], key: &KeyPair) -> Result<Vec<u8>, ClientIssueError> {
    let mut params = CertificateParams::new(names.to_vec()).map_err(ClientIssueError::Sign)?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(key).map_err(ClientIssueError::Sign)?;
    Ok(request.der().to_vec())
}

/// A certificate in DER as PEM (RFC 7468).
#[must_use]
pub fn certificate_pem(der: &[u8]) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("CERTIFICATE", der), config)
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
