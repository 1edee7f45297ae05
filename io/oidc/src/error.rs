//! Why a provider did not say who somebody is.

use sallyport_identity::{IdTokenError, PersonError};

/// Why a provider did not say who somebody is. The texts are for people, and hold no secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OidcError {
    /// It cannot be reached.
    #[error("the identity provider at {host} cannot be reached: {reason}")]
    Unreachable {
        /// Where it should be.
        host: String,
        /// Why.
        reason: String,
    },
    /// It took too long.
    #[error("the identity provider at {host} did not answer in time")]
    TimedOut {
        /// Where it is.
        host: String,
    },
    /// Its answer makes no sense.
    #[error("the identity provider at {host} gave no good answer to {to}: {reason}")]
    Answer {
        /// Where it is.
        host: String,
        /// What was asked.
        to: &'static str,
        /// What is wrong with the answer.
        reason: String,
    },
    /// It has an answer, and it is no.
    #[error("the identity provider at {host} refused: {error}")]
    Refused {
        /// Where it is.
        host: String,
        /// Its words (RFC 6749 section 5.2), made harmless.
        error: String,
    },
    /// It says that it is another one.
    #[error("the identity provider says that its issuer is {found}: configured is {expected}")]
    Issuer {
        /// What was configured.
        expected: String,
        /// What it says.
        found: String,
    },
    /// It lies where this installation does not look.
    #[error("the identity provider at {host} is inside a private network, where this installation asks nobody")]
    Private {
        /// Where it is.
        host: String,
    },
    /// An address of its own is not https.
    #[error("the identity provider names {0:?}, which is no https address")]
    Insecure(String),
    /// The configuration cannot be used.
    #[error("the identity provider cannot be used: {0}")]
    Config(String),
    /// It is this installation itself.
    #[error("a provider of kind local is asked by nobody: people log in at this installation itself")]
    NotAsked,
    /// Its token is not believed.
    #[error("{0}")]
    Token(#[from] IdTokenError),
    /// What it says makes nobody somebody.
    #[error("{0}")]
    Person(#[from] PersonError),
}

/// What others say, as it may stand in a sentence: printable, and not long.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(200).collect()
}
