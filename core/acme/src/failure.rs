//! How an attempt to obtain a certificate failed.

use std::fmt;

use serde::{Deserialize, Serialize};
use time::Duration;

use crate::ChallengeKind;

/// The longest wait for a CA that limits orders, in seconds: 30 days. A CA that names more is not believed.
pub const MAX_RATE_LIMIT_SECONDS: u64 = 30 * 86_400;
/// The wait for a CA that limits orders without naming a time, in seconds.
pub const DEFAULT_RATE_LIMIT_SECONDS: u64 = 3_600;
/// A rate limit of more seconds than this counts as a fault of the CA.
pub const LONG_RATE_LIMIT_SECONDS: u64 = 3_600;

/// The kind of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Failure {
    /// The CA limits orders (429).
    RateLimited {
        /// The wait that the CA asks for, if it names one.
        retry_after_seconds: Option<u64>,
    },
    /// A CAA record of the name forbids the CA.
    Caa,
    /// The CA could not verify a name.
    Authorization {
        /// The kind of challenge that failed, if there was one.
        challenge: Option<ChallengeKind>,
    },
    /// The certificate to be replaced is already replaced, or belongs to another account.
    AlreadyReplaced,
    /// The CA refused the order for another reason.
    Rejected,
    /// The CA is at fault (5xx).
    Server {
        /// The wait that the CA asks for, if it names one.
        retry_after_seconds: Option<u64>,
    },
    /// The CA could not be reached.
    Unreachable,
    /// The CA did not answer in time.
    TimedOut,
    /// The CA's answer, or its certificate, cannot be used.
    Malformed,
    /// This installation could not do its part: answer a challenge, or store the order.
    Local,
}

impl Failure {
    /// Whether another CA may do better: names, records and this installation are not the reason.
    #[must_use]
    pub fn is_fault_of_ca(self) -> bool {
        match self {
            Self::RateLimited { retry_after_seconds } => {
                retry_after_seconds.is_some_and(|seconds| seconds > LONG_RATE_LIMIT_SECONDS)
            }
            Self::Server { .. } | Self::Unreachable | Self::TimedOut | Self::Malformed => true,
            Self::Caa | Self::Authorization { .. } | Self::AlreadyReplaced | Self::Rejected | Self::Local => false,
        }
    }

    /// Whether a try at a staging directory can show that the reason is mended.
    pub(crate) fn is_shown_by_staging(self) -> bool {
        matches!(self, Self::Caa | Self::Authorization { .. } | Self::Rejected)
    }

    /// The wait that the CA asks for, within bounds.
    pub(crate) fn wait(self) -> Option<Duration> {
        let seconds = match self {
            Self::RateLimited { retry_after_seconds } => retry_after_seconds.unwrap_or(DEFAULT_RATE_LIMIT_SECONDS),
            Self::Server { retry_after_seconds } => retry_after_seconds?,
            _ => return None,
        };
        Some(Duration::seconds(i64::try_from(seconds.min(MAX_RATE_LIMIT_SECONDS)).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RateLimited { .. } => f.write_str("the CA limits orders"),
            Self::Caa => f.write_str("a CAA record forbids the CA"),
            Self::Authorization { challenge: Some(kind) } => write!(f, "the CA could not verify the name by {kind}"),
            Self::Authorization { challenge: None } => f.write_str("the CA could not verify the name"),
            Self::AlreadyReplaced => f.write_str("the CA says that the certificate is already replaced"),
            Self::Rejected => f.write_str("the CA refused the order"),
            Self::Server { .. } => f.write_str("the CA has a fault"),
            Self::Unreachable => f.write_str("the CA could not be reached"),
            Self::TimedOut => f.write_str("the CA did not answer in time"),
            Self::Malformed => f.write_str("the answer of the CA cannot be used"),
            Self::Local => f.write_str("this installation could not do its part of the order"),
        }
    }
}
