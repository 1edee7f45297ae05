//! Identities of flows, and the identity settings of sockets.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{AccountId, LoginSessionId, MAX_EMAIL_BYTES, PolicyId, ServiceTokenId, SocketType};

/// The most groups of a person.
pub const MAX_GROUPS: usize = 200;
/// The longest name of a group, in bytes.
pub const MAX_GROUP_BYTES: usize = 512;
/// The longest name of a person, in bytes.
pub const MAX_PERSON_NAME_BYTES: usize = 256;
/// The most e-mail addresses, domains, providers or policies of a socket, each.
pub const MAX_IDENTITY_ENTRIES: usize = 100;
/// The longest and default validity of a login at a socket, in minutes.
pub const MAX_SESSION_MINUTES: u32 = 30 * 24 * 60;
const SESSION_MINUTES: u32 = 12 * 60;
const SESSION_IDLE_MINUTES: u32 = 60;

/// A person's e-mail address in normal form: ASCII, in lower case.
///
/// Texts of providers and owners are normalised, so that equal addresses are equal texts. `+tags` and dots stay: only
/// the mail server knows which mailboxes are the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PersonEmail(String);

/// The text is not a usable e-mail address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no e-mail address such as you@example.com; a domain with other letters is written as xn--…")]
pub struct PersonEmailError(pub String);

impl PersonEmail {
    /// The address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part after the `@`.
    #[must_use]
    pub fn domain(&self) -> &str {
        self.0.rsplit_once('@').map_or("", |(_, domain)| domain)
    }
}

impl FromStr for PersonEmail {
    type Err = PersonEmailError;
    fn from_str(text: &str) -> Result<Self, PersonEmailError> {
        let refuse = || PersonEmailError(text.chars().take(80).collect());
        // Letters beyond ASCII can look like others; a domain has an ASCII form (RFC 5890), and is compared in that
        // form.
        if !text.is_ascii() || text.len() > MAX_EMAIL_BYTES {
            return Err(refuse());
        }
        let email: crate::Email = text.parse().map_err(|_| refuse())?;
        Ok(Self(email.as_str().to_ascii_lowercase()))
    }
}

impl TryFrom<String> for PersonEmail {
    type Error = PersonEmailError;
    fn try_from(text: String) -> Result<Self, PersonEmailError> {
        text.parse()
    }
}

impl From<PersonEmail> for String {
    fn from(email: PersonEmail) -> String {
        email.0
    }
}

impl fmt::Display for PersonEmail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An e-mail domain in normal form: ASCII, in lower case, without leading or trailing dots.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EmailDomain(String);

/// The text is not an e-mail domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no domain such as example.com; one with other letters is written as xn--…")]
pub struct EmailDomainError(pub String);

impl EmailDomain {
    /// The domain.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for EmailDomain {
    type Err = EmailDomainError;
    fn from_str(text: &str) -> Result<Self, EmailDomainError> {
        let is_domain = format!("x@{text}").parse::<PersonEmail>();
        is_domain
            .map(|email| Self(email.domain().to_owned()))
            .map_err(|_| EmailDomainError(text.chars().take(80).collect()))
    }
}

impl TryFrom<String> for EmailDomain {
    type Error = EmailDomainError;
    fn try_from(text: String) -> Result<Self, EmailDomainError> {
        text.parse()
    }
}

impl From<EmailDomain> for String {
    fn from(domain: EmailDomain) -> String {
        domain.0
    }
}

/// The name of an identity provider, unique within its organisation: 1 to 32 lower-case letters, digits and hyphens,
/// starting with a letter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProviderName(String);

/// The text is not a name of a provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name of a provider: use 1 to 32 lower-case letters, digits and hyphens, beginning with a letter")]
pub struct ProviderNameError(pub String);

impl ProviderName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProviderName {
    type Err = ProviderNameError;
    fn from_str(text: &str) -> Result<Self, ProviderNameError> {
        let is_good = (1..=32).contains(&text.len())
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        is_good.then(|| Self(text.to_owned())).ok_or_else(|| ProviderNameError(text.chars().take(64).collect()))
    }
}

impl TryFrom<String> for ProviderName {
    type Error = ProviderNameError;
    fn try_from(text: String) -> Result<Self, ProviderNameError> {
        text.parse()
    }
}

impl From<ProviderName> for String {
    fn from(name: ProviderName) -> String {
        name.0
    }
}

impl fmt::Display for ProviderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a policy, unique within its organisation: 1 to 64 lower-case letters, digits and hyphens, starting with
/// a letter. No id is a valid name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PolicyName(String);

/// The text is not a name of a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name of a policy: use 1 to 64 lower-case letters, digits and hyphens, beginning with a letter")]
pub struct PolicyNameError(pub String);

impl PolicyName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PolicyName {
    type Err = PolicyNameError;
    fn from_str(text: &str) -> Result<Self, PolicyNameError> {
        let is_good = (1..=64).contains(&text.len())
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && text.parse::<PolicyId>().is_err();
        is_good.then(|| Self(text.to_owned())).ok_or_else(|| PolicyNameError(text.chars().take(80).collect()))
    }
}

impl TryFrom<String> for PolicyName {
    type Error = PolicyNameError;
    fn try_from(text: String) -> Result<Self, PolicyNameError> {
        text.parse()
    }
}

impl From<PolicyName> for String {
    fn from(name: PolicyName) -> String {
        name.0
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A person with a verified identity at an identity provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// The verified e-mail address.
    pub email: PersonEmail,
    /// The name, if the provider gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The groups from the provider, at most [`MAX_GROUPS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Whether the provider gives groups at all: otherwise a rule that denies a group may apply.
    #[serde(default)]
    pub groups_stated: bool,
    /// The identity provider.
    pub provider: ProviderName,
    /// The provider's id of the person, which stays when the address changes.
    pub subject: String,
}

/// The identity of a flow's client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A logged-in person.
    Person(std::sync::Arc<LoginSession>),
    /// A machine with a service token.
    Service(std::sync::Arc<ServiceTokenRoute>),
}

impl Identity {
    /// The name in logs: the e-mail address, or `service:` and the token's name.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Person(session) => session.person.email.as_str().to_owned(),
            Self::Service(token) => format!("service:{}", token.name),
        }
    }

    /// The name of the provider, or `service`.
    #[must_use]
    pub fn provider(&self) -> &str {
        match self {
            Self::Person(session) => session.person.provider.as_str(),
            Self::Service(_) => "service",
        }
    }
}

/// A person's login, valid at all sockets of one organisation that admit the person. An edge treats an unknown login as
/// ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginSession {
    /// Its id.
    pub id: LoginSessionId,
    /// The organisation of the provider; the login is valid nowhere else.
    pub organisation: AccountId,
    /// The person.
    pub person: Person,
    /// Time of the authentication at the provider, in seconds since 1970 (UTC).
    pub authenticated_at: i64,
    /// Expiry, in seconds since 1970 (UTC).
    pub expires_at: i64,
}

/// A service token, as edges know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceTokenRoute {
    /// Its id, which is part of the presented token.
    pub id: ServiceTokenId,
    /// Its organisation.
    pub organisation: AccountId,
    /// Its name, by which policies refer to it.
    pub name: String,
    /// SHA-256 of its secret of 256 random bits.
    pub hash: [u8; 32],
    /// The sockets that it is valid for; empty: all of the organisation.
    pub sockets: Vec<crate::SocketId>,
    /// Expiry in seconds since 1970 (UTC), if any.
    pub expires_at: Option<i64>,
    /// The limits of its access.
    #[serde(default)]
    pub scope: ServiceTokenScope,
    /// When the last of its client certificates ends, in seconds since 1970 (UTC), if it has any.
    #[serde(default)]
    pub certified_until: Option<i64>,
    /// The e-mail address that origins get, if one is set. Policies ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<PersonEmail>,
    /// The name that origins get instead of the token's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
}

/// The limits of a service token's access, checked in addition to policies. All of them must hold; an empty list is no
/// limit. Methods and paths are those of HTTP: a token with such limits is not valid at other sockets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceTokenScope {
    /// Only safe requests: GET, HEAD and OPTIONS, and no WebSocket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// HTTP methods, in capitals. `GET` includes `HEAD`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// HTTP paths, each with everything below it, as in policies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Ports that clients connect to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Types of sockets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<SocketType>,
}

impl ServiceTokenScope {
    /// Whether there are no limits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The identity settings of a socket: with them, no client is admitted without an identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentitySettings {
    /// Admitted e-mail addresses, in addition to those that policies admit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub email_addresses: Vec<PersonEmail>,
    /// Admitted e-mail domains, without their subdomains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub email_domains: Vec<EmailDomain>,
    /// Accepted providers of the organisation; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<ProviderName>,
    /// Time after a login until the person has to log in again, in minutes.
    #[serde(default = "session_minutes")]
    pub session_minutes: u32,
    /// Time that a login may be unused at the socket, in minutes.
    #[serde(default = "session_idle_minutes")]
    pub session_idle_minutes: u32,
}

fn session_minutes() -> u32 {
    SESSION_MINUTES
}

fn session_idle_minutes() -> u32 {
    SESSION_IDLE_MINUTES
}

impl Default for IdentitySettings {
    fn default() -> Self {
        Self {
            email_addresses: Vec::new(),
            email_domains: Vec::new(),
            providers: Vec::new(),
            session_minutes: SESSION_MINUTES,
            session_idle_minutes: SESSION_IDLE_MINUTES,
        }
    }
}

/// A policy of a socket: attached to it, or to its whole organisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedPolicy {
    /// The policy.
    pub id: PolicyId,
    /// Its name, which decisions mention.
    pub name: String,
    /// Its rules, as JSON.
    pub document: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_compared_in_one_form_and_tricks_are_refused() {
        let email = |text: &str| text.parse::<PersonEmail>();
        assert_eq!(email("Ann.Smith@Example.COM").unwrap().as_str(), "ann.smith@example.com");
        assert_eq!(email("ann+vpn@example.com").unwrap().as_str(), "ann+vpn@example.com");
        assert_eq!(email("a@example.com").unwrap().domain(), "example.com");
        for bad in [
            "",
            "ann",
            "@example.com",
            "ann@",
            "ann@example.com.",
            "ann@.example.com",
            "ann@example..com",
            "ann@evil.test@example.com ",
            "ann@ex\u{430}mple.com",
            "\u{430}nn@example.com",
            "ann @example.com",
            "ann@example.com\n",
            "ann@example.com\0",
            "\"ann\"@example.com",
            "ann@[192.0.2.1]",
        ] {
            assert!(email(bad).is_err(), "{bad:?}");
        }
        assert!(email("a@evil.test@example.com").is_err(), "one @ only");
    }

    #[test]
    fn domains_and_provider_names_have_one_form() {
        assert_eq!("MyCorp.com".parse::<EmailDomain>().unwrap().as_str(), "mycorp.com");
        for bad in ["", "mycorp", ".mycorp.com", "mycorp.com.", "*.mycorp.com", "a@mycorp.com", "m\u{443}corp.com"] {
            assert!(bad.parse::<EmailDomain>().is_err(), "{bad}");
        }
        assert!("google".parse::<ProviderName>().is_ok() && "a-1".parse::<ProviderName>().is_ok());
        for bad in ["", "Google", "1a", "-a", "a b", "a/b", &"a".repeat(33)] {
            assert!(bad.parse::<ProviderName>().is_err(), "{bad}");
        }
        assert!("staff-2".parse::<PolicyName>().is_ok());
        for bad in ["", "Staff", "a/b", "a1b2c3d4-5f0e-4c57-9f63-6a1f0f9e2d11", "a1b2c3d45f0e4c579f636a1f0f9e2d11"] {
            assert!(bad.parse::<PolicyName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn settings_without_fields_require_a_login_and_admit_no_person_by_themselves() {
        let plain: IdentitySettings = serde_json::from_str("{}").unwrap();
        assert_eq!(plain, IdentitySettings::default());
        assert_eq!((plain.session_minutes, plain.session_idle_minutes), (720, 60));
        assert!(serde_json::from_str::<IdentitySettings>(r#"{"email_domains":["*"]}"#).is_err());
        assert!(serde_json::from_str::<IdentitySettings>(r#"{"emails":[]}"#).is_err());
    }
}
