//! Why a call of the API failed.

use sallyport_api::Problem;

use crate::{ApiAddress, SessionStoreError, transport::CALL_TIMEOUT};

/// Why a call of the API failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection was made; nothing was sent.
    #[error("cannot reach {api}: {reason}")]
    Unreachable {
        /// Where it was tried.
        api: ApiAddress,
        /// Why not.
        reason: String,
        /// What to do about it, when it is about the proxy on the way.
        advice: Option<String>,
    },
    /// The other side's certificate is not one to trust; nothing was sent.
    #[error("the certificate of {api} cannot be trusted: {reason}")]
    Untrusted {
        /// Where it was tried.
        api: ApiAddress,
        /// Why not.
        reason: String,
    },
    /// What is to be trusted cannot be used: the file of the root certificate, or the fingerprint.
    #[error("{0}")]
    Trust(String),
    /// The connection was lost after the request was sent: it may or may not have been done.
    #[error("the connection to {api} was lost before it answered: {reason}")]
    Lost {
        /// Who did not answer.
        api: ApiAddress,
        /// What happened.
        reason: String,
    },
    /// No answer in time: the request may or may not have been done.
    #[error("{api} did not answer within {} seconds", CALL_TIMEOUT.as_secs())]
    TimedOut {
        /// Who did not answer.
        api: ApiAddress,
    },
    /// The call needs a login or a token, and there is none, or the session has ended.
    #[error("not logged in to {api}")]
    NotLoggedIn {
        /// Where.
        api: ApiAddress,
    },
    /// The API refused, and says why.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// What answered is not the API, or a version of it that is not understood.
    #[error("{api} gave an answer that is not one of the API's: {reason}")]
    Answer {
        /// Who answered.
        api: ApiAddress,
        /// What is wrong with it.
        reason: String,
    },
    /// The token has characters that a token cannot have.
    #[error("the API token has characters that no token has: copy it again")]
    Token,
    /// The organisation that was named cannot be one.
    #[error("this cannot be the id or the name of an organisation: it has control characters")]
    Organisation,
    /// The saved session cannot be read or written.
    #[error(transparent)]
    Sessions(#[from] SessionStoreError),
}

impl ClientError {
    /// The status that the API answered with, when it did.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Problem(problem) => Some(problem.status),
            _ => None,
        }
    }

    /// Whether the request may have been done although no answer came.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::TimedOut { .. })
    }
}
