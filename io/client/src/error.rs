//! Errors of API calls.

use std::{fmt, ops::Deref, time::Duration};

use sallyport_api::Problem;
use serde::Deserialize;
use time::OffsetDateTime;

use crate::{ApiAddress, SessionStoreError, transport::CALL_TIMEOUT};

/// How the dates of a certificate and the clock of this machine disagree. The times are those of the certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapse {
    /// It has ended.
    Ended(Option<OffsetDateTime>),
    /// It has not begun.
    NotBegun(Option<OffsetDateTime>),
}

impl fmt::Display for Lapse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minute = |at: OffsetDateTime| format!("{} {:02}:{:02} UTC", at.date(), at.hour(), at.minute());
        match self {
            Self::Ended(Some(at)) => write!(f, "has ended on {} by the clock of this machine", minute(*at)),
            Self::Ended(None) => f.write_str("has ended by the clock of this machine"),
            Self::NotBegun(Some(at)) => {
                write!(f, "is not valid before {}, which the clock of this machine has not reached", minute(*at))
            }
            Self::NotBegun(None) => f.write_str("is not valid yet by the clock of this machine"),
        }
    }
}

/// An error of an API call.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection was established; nothing was sent.
    #[error("cannot reach {api}: {reason}")]
    Unreachable {
        /// The address of the API.
        api: ApiAddress,
        /// The reason.
        reason: String,
        /// Advice, if the failure concerns a proxy.
        advice: Option<String>,
    },
    /// The server's certificate is not trusted; nothing was sent.
    #[error("the certificate of {api} cannot be trusted: {reason}")]
    Untrusted {
        /// The address of the API.
        api: ApiAddress,
        /// The reason.
        reason: String,
    },
    /// The server's certificate is not valid at the time of this machine's clock; nothing was sent.
    #[error("the certificate of {} {lapse}", api.authority())]
    Lapsed {
        /// The address of the API.
        api: ApiAddress,
        /// Whether it has ended or has not begun.
        lapse: Lapse,
    },
    /// The file of the root certificate, or the fingerprint, cannot be used.
    #[error("{0}")]
    Trust(String),
    /// The connection was lost after the request was sent, which may have been executed.
    #[error("the connection to {api} was lost before the response: {reason}")]
    Lost {
        /// The address of the API.
        api: ApiAddress,
        /// The reason.
        reason: String,
    },
    /// A timeout; the request may have been executed.
    #[error("{api} did not answer within {} seconds", CALL_TIMEOUT.as_secs())]
    TimedOut {
        /// The address of the API.
        api: ApiAddress,
    },
    /// The call needs a login or a token, and there is none, or the session has expired.
    #[error("not logged in to {api}")]
    NotLoggedIn {
        /// The address of the API.
        api: ApiAddress,
    },
    /// The API's error.
    #[error("{0}")]
    Problem(Box<ProblemAnswer>),
    /// The answer is not from the API, or from an unsupported version.
    #[error("{api} sent a response that is not one of the API's: {reason}")]
    Answer {
        /// The address of the API.
        api: ApiAddress,
        /// The problem.
        reason: String,
    },
    /// The token has invalid characters.
    #[error("the API token has invalid characters: copy it again")]
    Token,
    /// The organisation is malformed.
    #[error("this cannot be the id or the name of an organisation: it has control characters")]
    Organisation,
    /// The saved session cannot be read or written.
    #[error(transparent)]
    Sessions(#[from] SessionStoreError),
}

/// An error of the API, with what the head of the answer says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ProblemAnswer {
    /// The error.
    pub problem: Problem,
    /// `Retry-After`: how long the API asks to wait before the same request.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
}

impl Deref for ProblemAnswer {
    type Target = Problem;

    fn deref(&self) -> &Problem {
        &self.problem
    }
}

impl fmt::Display for ProblemAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

impl ClientError {
    /// The status of the API's answer, if there is one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Problem(problem) => Some(problem.status),
            _ => None,
        }
    }

    /// Whether the request may have been executed without an answer.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::TimedOut { .. })
    }
}
