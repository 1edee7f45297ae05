//! Errors of identity providers.

use sallyport_identity::{IdTokenError, PersonError};

/// Reason why a login at a provider failed. The texts are for people, and contain no secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OidcError {
    /// The provider cannot be reached.
    #[error("the identity provider at {host} cannot be reached: {reason}")]
    Unreachable {
        /// The provider's host.
        host: String,
        /// The reason.
        reason: String,
    },
    /// A timeout.
    #[error("the identity provider at {host} did not answer in time")]
    TimedOut {
        /// The provider's host.
        host: String,
    },
    /// The answer is invalid.
    #[error("the identity provider at {host} gave an invalid answer to {to}: {reason}")]
    Answer {
        /// The provider's host.
        host: String,
        /// The request.
        to: &'static str,
        /// The problem.
        reason: String,
    },
    /// The provider refused.
    #[error("the identity provider at {host} refused: {error}")]
    Refused {
        /// The provider's host.
        host: String,
        /// Its error (RFC 6749 section 5.2), sanitised.
        error: String,
    },
    /// The issuer differs from the configured one.
    #[error("the issuer of the identity provider is {found}, but {expected} is configured")]
    Issuer {
        /// The configured issuer.
        expected: String,
        /// The provider's issuer.
        found: String,
    },
    /// The provider has a private address, which this installation does not allow.
    #[error("the identity provider at {host} has a private address, which this installation does not allow")]
    Private {
        /// The provider's host.
        host: String,
    },
    /// A URL of the provider is not https.
    #[error("the identity provider names {0:?}, which is not an https address")]
    Insecure(String),
    /// The configuration is invalid.
    #[error("the identity provider cannot be used: {0}")]
    Config(String),
    /// The provider is of kind `local`.
    #[error("a provider of kind local cannot be contacted: people log in at this installation itself")]
    NotAsked,
    /// The token was rejected.
    #[error("{0}")]
    Token(#[from] IdTokenError),
    /// The claims yield no person.
    #[error("{0}")]
    Person(#[from] PersonError),
}

/// The text of a provider, sanitised for a sentence: printable, and not long.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(200).collect()
}
