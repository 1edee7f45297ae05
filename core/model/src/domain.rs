//! Domains of organisations, and the certificates that edges serve for names.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{CertificateId, ChallengeId, name::MAX_LABEL_BYTES};

/// The longest domain name as text, in bytes (RFC 1035 section 2.3.4: 255 octets on the wire).
pub const MAX_DOMAIN_BYTES: usize = 253;
/// The most domains of one socket.
pub const MAX_DOMAINS_PER_SOCKET: usize = 32;

/// A domain name in lower case without a final dot: `app.example.com`, or `*.example.com` for all names directly below.
///
/// Labels have letters, digits and hyphens (RFC 1123 section 2.1). Names of other scripts are in their ASCII form
/// (`xn--…`, RFC 5890).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DomainName(String);

/// Reason why a text is not a domain name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DomainNameError {
    /// The name is too long.
    #[error("a domain name has at most {MAX_DOMAIN_BYTES} characters")]
    Length,
    /// A label is empty or too long.
    #[error("each label of a domain name has 1 to {MAX_LABEL_BYTES} characters, such as app.example.com")]
    Label,
    /// A label has a character that host names cannot have.
    #[error("a domain name has only letters, digits, hyphens and dots, not {0:?}")]
    Character(char),
    /// A label begins or ends with a hyphen.
    #[error("a label of a domain name starts and ends with a letter or a digit")]
    Hyphen,
    /// The asterisk is not the first label alone.
    #[error("an asterisk stands only for the whole first label, such as *.example.com")]
    Asterisk,
    /// The name is an IP address.
    #[error("an IP address is not a domain name")]
    Address,
    /// The name has one label only.
    #[error("a domain name has two labels or more, such as app.example.com")]
    OneLabel,
}

impl DomainName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the name stands for all names directly below [`DomainName::base`].
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with("*.")
    }

    /// The name without `*.`.
    #[must_use]
    pub fn base(&self) -> &str {
        self.0.strip_prefix("*.").unwrap_or(&self.0)
    }

    /// Whether a host has this name: the same name, or one label below the base of a wildcard. `host` is in lower case
    /// without a final dot.
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        match self.0.strip_prefix("*.") {
            Some(base) => host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == base),
            None => self.0 == host,
        }
    }
}

/// The wildcard that covers a host: `*.example.com` for `app.example.com`.
#[must_use]
pub fn wildcard_over(host: &str) -> Option<String> {
    host.split_once('.').map(|(_, rest)| format!("*.{rest}"))
}

/// The name at which authorities look for the answer to the DNS-01 challenge of a name (RFC 8555 section 8.4).
#[must_use]
pub fn challenge_name(name: &str) -> String {
    format!("_acme-challenge.{name}")
}

/// The name below the domain of an installation at which its name server answers the challenges of a name. An alias
/// leads there from [`challenge_name`] of a name whose zone is elsewhere.
#[must_use]
pub fn acme_alias(name: &str, domain: &str) -> String {
    format!("{name}._acme.{domain}")
}

fn check_label(label: &str) -> Result<(), DomainNameError> {
    if label.is_empty() || label.len() > MAX_LABEL_BYTES {
        return Err(DomainNameError::Label);
    }
    if label.contains('*') {
        return Err(DomainNameError::Asterisk);
    }
    if let Some(bad) = label.chars().find(|c| !(c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-')) {
        return Err(DomainNameError::Character(bad));
    }
    if label.starts_with('-') || label.ends_with('-') { Err(DomainNameError::Hyphen) } else { Ok(()) }
}

impl FromStr for DomainName {
    type Err = DomainNameError;
    fn from_str(text: &str) -> Result<Self, DomainNameError> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if name.len() > MAX_DOMAIN_BYTES {
            return Err(DomainNameError::Length);
        }
        let is_bracketed = name.starts_with('[') || name.contains(':');
        if is_bracketed || name.parse::<std::net::Ipv4Addr>().is_ok() {
            return Err(DomainNameError::Address);
        }
        let base = name.strip_prefix("*.").unwrap_or(&name);
        base.split('.').try_for_each(check_label)?;
        // A name whose last label is a number is read as an address (WHATWG URL, "ends in a number").
        if base.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit())) {
            return Err(DomainNameError::Address);
        }
        if base.contains('.') { Ok(Self(name)) } else { Err(DomainNameError::OneLabel) }
    }
}

impl TryFrom<String> for DomainName {
    type Error = DomainNameError;
    fn try_from(text: String) -> Result<Self, DomainNameError> {
        text.parse()
    }
}

impl From<DomainName> for String {
    fn from(name: DomainName) -> String {
        name.0
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A certificate that edges serve for its names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedCertificate {
    /// The certificate.
    pub id: CertificateId,
    /// Its names.
    pub names: Vec<DomainName>,
    /// Its chain in PEM, the certificate itself first.
    pub chain: String,
    /// Its private key in PEM, sealed with the key that edges share.
    pub sealed_key: String,
    /// The end of its validity, in seconds since 1970.
    pub not_after: i64,
}

/// How an ACME server verifies that a name leads to this installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChallengeKind {
    /// A file at port 80 (RFC 8555 section 8.3).
    #[serde(rename = "http-01")]
    Http01,
    /// A certificate at port 443 (RFC 8737).
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// A TXT record (RFC 8555 section 8.4).
    #[serde(rename = "dns-01")]
    Dns01,
}

impl ChallengeKind {
    /// The kind as text, as RFC 8555 writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Dns01 => "dns-01",
        }
    }
}

impl fmt::Display for ChallengeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not a kind of challenge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a kind of challenge: use http-01, tls-alpn-01 or dns-01")]
pub struct UnknownChallengeKind(pub String);

impl FromStr for ChallengeKind {
    type Err = UnknownChallengeKind;
    fn from_str(text: &str) -> Result<Self, UnknownChallengeKind> {
        match text {
            "http-01" => Ok(Self::Http01),
            "tls-alpn-01" => Ok(Self::TlsAlpn01),
            "dns-01" => Ok(Self::Dns01),
            other => Err(UnknownChallengeKind(other.chars().take(64).collect())),
        }
    }
}

/// A challenge of an ACME server that any edge answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeChallenge {
    /// The challenge.
    pub id: ChallengeId,
    /// The verified name, without `*.`.
    pub name: String,
    /// How the server verifies the name.
    pub kind: ChallengeKind,
    /// The token of the challenge.
    pub token: String,
    /// The answer (RFC 8555 section 8.1).
    pub key_authorization: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_and_a_final_dot_make_no_other_name() {
        let name: DomainName = "App.Example.COM.".parse().unwrap();
        assert_eq!(name.as_str(), "app.example.com");
        assert_eq!("app.example.com".parse(), Ok(name));
    }

    #[test]
    fn a_wildcard_covers_one_label_and_nothing_else() {
        let wildcard: DomainName = "*.example.com".parse().unwrap();
        assert!(wildcard.is_wildcard() && wildcard.base() == "example.com");
        assert!(wildcard.covers("app.example.com"));
        for other in ["example.com", ".example.com", "a.b.example.com", "app.example.org"] {
            assert!(!wildcard.covers(other), "{other}");
        }
        let plain: DomainName = "app.example.com".parse().unwrap();
        assert!(plain.covers("app.example.com") && !plain.covers("b.app.example.com"));
        assert_eq!(wildcard_over("app.example.com").as_deref(), Some("*.example.com"));
    }

    #[test]
    fn what_is_no_domain_name_is_refused_with_its_reason() {
        use DomainNameError as Error;
        let long = format!("{}example.com", "abcdefgh.".repeat(28));
        for (bad, reason) in [
            ("", Error::Label),
            ("com", Error::OneLabel),
            ("*.com", Error::OneLabel),
            ("a..b", Error::Label),
            ("*.*.example.com", Error::Asterisk),
            ("a.*.example.com", Error::Asterisk),
            ("a*.example.com", Error::Asterisk),
            ("-a.example.com", Error::Hyphen),
            ("a_b.example.com", Error::Character('_')),
            ("ä.example.com", Error::Character('ä')),
            ("192.0.2.1", Error::Address),
            ("[2001:db8::1]", Error::Address),
            ("2001:db8::1", Error::Address),
            ("a.b.192.0.2.1", Error::Address),
            (&long, Error::Length),
        ] {
            assert_eq!(bad.parse::<DomainName>(), Err(reason), "{bad}");
        }
        assert_eq!(format!("{}.example.com", "a".repeat(64)).parse::<DomainName>(), Err(Error::Label));
    }
}
