//! Accounts: e-mail addresses, password rules, scopes of tokens.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::AccountId;

/// The longest e-mail address (RFC 5321 section 4.5.3.1.3: a path of 256 octets less its brackets), in bytes.
pub const MAX_EMAIL_BYTES: usize = 254;
/// The shortest password, in characters. (NIST SP 800-63B-4 section 3.1.1.2 requires 15 for a single factor, and 8 at
/// least; 10 is the minimum here, together with the refusal of common ones.)
pub const MIN_PASSWORD_CHARS: usize = 10;
/// The longest password, in bytes: enough for a sentence, too short to overload argon2.
pub const MAX_PASSWORD_BYTES: usize = 1_024;

/// An account without its password hash, which stays in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its id.
    pub id: AccountId,
    /// Its display name.
    pub name: String,
    /// Its e-mail address, used for the login.
    pub email: Email,
    /// Time of creation, in seconds since 1970 (UTC).
    pub created_at: i64,
}

/// A plausible e-mail address with a lower-case domain. Comparison is exact in this form.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Email(String);

/// The text is not an e-mail address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an e-mail address such as you@example.com")]
pub struct EmailError(pub String);

impl Email {
    /// The address as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Email {
    type Err = EmailError;
    fn from_str(text: &str) -> Result<Self, EmailError> {
        let refuse = || EmailError(text.chars().take(80).collect());
        let (local, domain) = text.rsplit_once('@').ok_or_else(refuse)?;
        let local_ok = !local.is_empty()
            && local.len() <= 64
            && !local.starts_with('.')
            && !local.ends_with('.')
            && !local.contains("..")
            && local.chars().all(|c| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c));
        let domain_ok = !domain.is_empty()
            && domain.split('.').all(|label| {
                !label.is_empty()
                    && label.len() <= crate::MAX_LABEL_BYTES
                    && !label.starts_with('-')
                    && !label.ends_with('-')
                    && label.chars().all(|c| c.is_alphanumeric() || c == '-')
            })
            && (domain.contains('.') || domain == "localhost");
        if text.len() > MAX_EMAIL_BYTES || !local_ok || !domain_ok {
            return Err(refuse());
        }
        Ok(Self(format!("{local}@{}", domain.to_lowercase())))
    }
}

impl TryFrom<String> for Email {
    type Error = EmailError;
    fn try_from(text: String) -> Result<Self, EmailError> {
        text.parse()
    }
}

impl From<Email> for String {
    fn from(email: Email) -> String {
        email.0
    }
}

impl fmt::Display for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reason why a password is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// Too few characters.
    #[error("the password is too short: use at least {MIN_PASSWORD_CHARS} characters")]
    Short,
    /// Too many bytes.
    #[error("the password is too long: use at most {MAX_PASSWORD_BYTES} bytes")]
    Long,
    /// A common password.
    #[error("the password is too easy to guess: use a less common one")]
    Common,
    /// It contains the account's e-mail address or name.
    #[error("the password contains your e-mail address: use another one")]
    ContainsEmail,
}

/// Checks whether the password may protect an account with this address.
///
/// # Errors
/// The violated rule.
pub fn check_password(password: &str, email: &Email) -> Result<(), PasswordError> {
    if password.len() > MAX_PASSWORD_BYTES {
        return Err(PasswordError::Long);
    }
    if password.chars().count() < MIN_PASSWORD_CHARS {
        return Err(PasswordError::Short);
    }
    let lower = password.to_lowercase();
    let local = email.as_str().split('@').next().unwrap_or_default().to_lowercase();
    if (local.len() >= 4 && lower.contains(&local)) || lower.contains(&email.as_str().to_lowercase()) {
        return Err(PasswordError::ContainsEmail);
    }
    let mut seen: Vec<char> = lower.chars().collect();
    seen.sort_unstable();
    seen.dedup();
    let base: String = lower.trim_end_matches(|c: char| c.is_ascii_digit() || "!?.".contains(c)).to_owned();
    if seen.len() < 4 || COMMON.contains(&lower.as_str()) || COMMON.contains(&base.as_str()) || is_run(&lower) {
        return Err(PasswordError::Common);
    }
    Ok(())
}

/// Whether the text is a sequence: ascending, descending, or along a row of the keyboard.
fn is_run(text: &str) -> bool {
    const ROWS: &[&str] = &["abcdefghijklmnopqrstuvwxyz", "01234567890", "qwertyuiopasdfghjklzxcvbnm"];
    ROWS.iter().any(|row| {
        let backwards: String = row.chars().rev().collect();
        row.contains(text) || backwards.contains(text) || format!("{row}{row}").contains(text)
    })
}

/// Stems of the most common passwords of ten characters and more.
#[rustfmt::skip]
const COMMON: &[&str] = &[
    "password", "passwort", "passw0rd", "p@ssword", "p@ssw0rd", "motdepasse", "contrasena", "letmein", "letmeinnow",
    "welcome", "welcometo", "iloveyou", "iloveyouso", "qwerty", "qwertyuiop", "qwerty12345", "administrator", "admin",
    "adminadmin", "changeme", "changemenow", "superman", "football", "baseball", "basketball", "trustno1", "whatever",
    "sunshine", "princess", "michael", "charlie", "1q2w3e4r5t", "1qaz2wsx3edc", "passwordpassword", "mypassword",
    "qazwsxedcr", "sallyport", "secretsecret", "testtesttest", "password1234", "abc123abc123",
];

/// A permission of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scope {
    /// Read the account.
    #[serde(rename = "account:read")]
    AccountRead,
    /// Change the person's own things: the account, its API tokens and ssh keys, its memberships in organisations.
    #[serde(rename = "account:write")]
    AccountWrite,
    /// Read sockets and tunnels.
    #[serde(rename = "sockets:read")]
    SocketsRead,
    /// Create, change and delete sockets and tunnels.
    #[serde(rename = "sockets:write")]
    SocketsWrite,
    /// Operate tunnels: see a given socket, and create, connect and delete its tunnels.
    #[serde(rename = "tunnels:connect")]
    TunnelsConnect,
    /// Read policies, identity providers, service tokens, and login sessions.
    #[serde(rename = "identity:read")]
    IdentityRead,
    /// Change policies, identity providers and service tokens, and end logins.
    #[serde(rename = "identity:write")]
    IdentityWrite,
    /// Read the audit log and the running flows.
    #[serde(rename = "audit:read")]
    AuditRead,
    /// Read the members of the organisation.
    #[serde(rename = "organisation:read")]
    OrganisationRead,
    /// Invite members, change their roles, remove them, and rename the organisation.
    #[serde(rename = "organisation:write")]
    OrganisationWrite,
}

impl Scope {
    /// Every scope, in display order.
    pub const ALL: [Self; 10] = [
        Self::AccountRead,
        Self::AccountWrite,
        Self::SocketsRead,
        Self::SocketsWrite,
        Self::TunnelsConnect,
        Self::IdentityRead,
        Self::IdentityWrite,
        Self::AuditRead,
        Self::OrganisationRead,
        Self::OrganisationWrite,
    ];

    /// The scope as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AccountRead => "account:read",
            Self::AccountWrite => "account:write",
            Self::SocketsRead => "sockets:read",
            Self::SocketsWrite => "sockets:write",
            Self::TunnelsConnect => "tunnels:connect",
            Self::IdentityRead => "identity:read",
            Self::IdentityWrite => "identity:write",
            Self::AuditRead => "audit:read",
            Self::OrganisationRead => "organisation:read",
            Self::OrganisationWrite => "organisation:write",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not a scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a scope: use account:read, account:write, sockets:read, sockets:write, tunnels:connect, \
     identity:read, identity:write, audit:read, organisation:read or organisation:write"
)]
pub struct UnknownScope(pub String);

impl FromStr for Scope {
    type Err = UnknownScope;
    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.as_str() == text)
            .ok_or_else(|| UnknownScope(text.chars().take(64).collect()))
    }
}

/// A sorted set of scopes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Scope>", into = "Vec<Scope>")]
pub struct ScopeSet(Vec<Scope>);

impl ScopeSet {
    /// Every scope, as a person has after a login with a password.
    #[must_use]
    pub fn all() -> Self {
        Self(Scope::ALL.to_vec())
    }

    /// Whether the set includes the scope. Write scopes include the read scopes.
    #[must_use]
    pub fn allows(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
            || match scope {
                Scope::AccountRead => self.0.contains(&Scope::AccountWrite),
                Scope::SocketsRead | Scope::TunnelsConnect => self.0.contains(&Scope::SocketsWrite),
                Scope::IdentityRead => self.0.contains(&Scope::IdentityWrite),
                Scope::OrganisationRead => self.0.contains(&Scope::OrganisationWrite),
                Scope::AccountWrite
                | Scope::SocketsWrite
                | Scope::IdentityWrite
                | Scope::AuditRead
                | Scope::OrganisationWrite => false,
            }
    }

    /// Whether this set allows everything that the other one allows.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.0.iter().all(|scope| self.allows(*scope))
    }

    /// The intersection of both sets.
    #[must_use]
    pub fn common_with(&self, other: &Self) -> Self {
        let both = |scope: &Scope| self.allows(*scope) && other.allows(*scope);
        Self(Scope::ALL.into_iter().filter(both).collect())
    }

    /// The scopes, sorted.
    pub fn iter(&self) -> impl Iterator<Item = Scope> + '_ {
        self.0.iter().copied()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Vec<Scope>> for ScopeSet {
    fn from(mut scopes: Vec<Scope>) -> Self {
        scopes.sort_unstable();
        scopes.dedup();
        Self(scopes)
    }
}

impl From<ScopeSet> for Vec<Scope> {
    fn from(set: ScopeSet) -> Self {
        set.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_and_their_domain_is_lower_case() {
        assert_eq!("Ann.B+x@Example.COM".parse::<Email>().unwrap().as_str(), "Ann.B+x@example.com");
        for bad in
            ["", "a", "a@", "@b.c", "a b@c.d", "a@b", "a@b..c", "a@-b.c", ".a@b.c", "a..b@c.d", "a@b.c\n", "a@b@c"]
        {
            assert!(bad.parse::<Email>().is_err(), "{bad:?}");
        }
        assert!(format!("{}@example.com", "a".repeat(65)).parse::<Email>().is_err());
    }

    #[test]
    fn weak_passwords_are_refused_with_their_reason() {
        let email: Email = "wanderer@example.com".parse().unwrap();
        assert_eq!(check_password("short", &email), Err(PasswordError::Short));
        assert_eq!(check_password(&"x".repeat(1_025), &email), Err(PasswordError::Long));
        assert_eq!(check_password("password12345", &email), Err(PasswordError::Common));
        assert_eq!(check_password("aaaaaaaaaaaa", &email), Err(PasswordError::Common));
        assert_eq!(check_password("0123456789", &email), Err(PasswordError::Common));
        assert_eq!(check_password("wanderer-2026", &email), Err(PasswordError::ContainsEmail));
        let short: Email = "ann@example.com".parse().unwrap();
        assert_eq!(check_password("Ann@Example.com", &short), Err(PasswordError::ContainsEmail));
        assert_eq!(check_password("correct horse battery", &email), Ok(()));
    }

    #[test]
    fn writing_includes_reading_and_nothing_more() {
        let writer = ScopeSet::from(vec![Scope::SocketsWrite]);
        assert!(writer.allows(Scope::SocketsRead));
        assert!(writer.allows(Scope::TunnelsConnect));
        assert!(!writer.allows(Scope::AccountRead));
        let reader = ScopeSet::from(vec![Scope::SocketsRead]);
        assert!(!reader.allows(Scope::SocketsWrite));
        assert!(ScopeSet::all().covers(&writer));
        assert!(!reader.covers(&writer));
    }

    #[test]
    fn scopes_are_written_the_same_in_json_and_text() {
        for scope in Scope::ALL {
            assert_eq!(serde_json::to_string(&scope).unwrap(), format!("\"{scope}\""));
            assert_eq!(scope.to_string().parse::<Scope>(), Ok(scope));
        }
        assert!("root".parse::<Scope>().unwrap_err().to_string().contains("\"root\" is not a scope"));
    }
}
