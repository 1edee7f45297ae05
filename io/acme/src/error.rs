//! Why a call to a CA failed.

use sallyport_acme_schedule::{ChallengeKind, Failure};

/// Bound on text of a CA that errors repeat, in characters.
const MAX_DETAIL_CHARS: usize = 500;

/// Why a call to a CA failed.
#[derive(Debug, thiserror::Error)]
pub enum AcmeError {
    /// The CA limits orders.
    #[error("the CA limits orders{}: {detail}", wait(*.retry_after_seconds))]
    RateLimited {
        /// The wait that the CA asks for, if it names one.
        retry_after_seconds: Option<u64>,
        /// The CA's words.
        detail: String,
    },
    /// A CAA record forbids the CA.
    #[error("a CAA record forbids this CA for {name}: {detail}")]
    Caa {
        /// The name.
        name: String,
        /// The CA's words.
        detail: String,
    },
    /// The CA could not reach or verify a name.
    #[error("the CA could not verify {name}: {detail}")]
    Authorization {
        /// The name.
        name: String,
        /// The challenge that failed, if there was one.
        challenge: Option<ChallengeKind>,
        /// The CA's words.
        detail: String,
    },
    /// The certificate to be replaced is already replaced.
    #[error("the CA says that the certificate is already replaced: {detail}")]
    AlreadyReplaced {
        /// The CA's words.
        detail: String,
    },
    /// The CA refused the request for another reason.
    #[error("the CA refused the request with status {status} ({problem_type}): {detail}{}", advice(.problem_type))]
    Rejected {
        /// The type of the problem without its prefix, such as `malformed`.
        problem_type: String,
        /// The status of the answer.
        status: u16,
        /// The CA's words.
        detail: String,
    },
    /// The CA has a fault of its own.
    #[error("the CA has a fault, status {status}{}: {detail}", wait(*.retry_after_seconds))]
    Server {
        /// The status of the answer: 500 to 599.
        status: u16,
        /// The wait that the CA asks for, if it names one.
        retry_after_seconds: Option<u64>,
        /// The CA's words.
        detail: String,
    },
    /// The CA cannot be reached.
    #[error("the CA at {host} cannot be reached: {reason}")]
    Unreachable {
        /// The host of the CA.
        host: String,
        /// The cause.
        reason: String,
    },
    /// Something took longer than its limit.
    #[error("{what} takes longer than {seconds} seconds")]
    TimedOut {
        /// What took too long.
        what: String,
        /// The limit.
        seconds: u64,
    },
    /// The CA's answer cannot be used.
    #[error("the answer of the CA cannot be used: {what}")]
    Malformed {
        /// The flaw.
        what: String,
    },
    /// The challenge could not be answered, or the order could not be stored.
    #[error("this installation could not do its part of the order: {0}")]
    Solver(String),
    /// The CA's certificate is not the one that was asked for.
    #[error("the certificate of the CA is not the one that was asked for: {0}")]
    Certificate(String),
    /// The configuration, the stored account or the request cannot be used.
    #[error("{0}")]
    Config(String),
}

impl AcmeError {
    /// The kind of failure, for the schedule.
    #[must_use]
    pub fn failure(&self) -> Failure {
        match self {
            Self::RateLimited { retry_after_seconds, .. } => {
                Failure::RateLimited { retry_after_seconds: *retry_after_seconds }
            }
            Self::Caa { .. } => Failure::Caa,
            Self::Authorization { challenge, .. } => Failure::Authorization { challenge: *challenge },
            Self::AlreadyReplaced { .. } => Failure::AlreadyReplaced,
            Self::Rejected { .. } => Failure::Rejected,
            Self::Server { retry_after_seconds, .. } => Failure::Server { retry_after_seconds: *retry_after_seconds },
            Self::Unreachable { .. } => Failure::Unreachable,
            Self::TimedOut { .. } => Failure::TimedOut,
            Self::Malformed { .. } | Self::Certificate(_) => Failure::Malformed,
            Self::Solver(_) | Self::Config(_) => Failure::Local,
        }
    }

    /// Whether the CA does not know the account any more: a new one has to be created.
    #[must_use]
    pub fn is_account_gone(&self) -> bool {
        matches!(self, Self::Rejected { problem_type, .. } if problem_type == "accountDoesNotExist")
    }

    /// Whether the CA refused nonces, more often than the library tries.
    pub(crate) fn is_nonce_refused(&self) -> bool {
        matches!(self, Self::Rejected { problem_type, .. } if problem_type == "badNonce")
    }

    /// Whether the same request may succeed when it is sent again: an answer was lost or late. An order goes on then.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Server { .. } | Self::Unreachable { .. } | Self::TimedOut { .. })
    }

    pub(crate) fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed { what: what.into() }
    }
}

/// What mends a refusal, if that is known.
fn advice(problem_type: &str) -> &'static str {
    match problem_type {
        "externalAccountRequired" => {
            "; the CA demands an account of its site: give its id and key by --acme-eab-file FILE"
        }
        "invalidProfile" => "; the CA does not offer the profile of --acme-profile",
        _ => "",
    }
}

fn wait(seconds: Option<u64>) -> String {
    seconds.map(|seconds| format!(" (wait {seconds} seconds)")).unwrap_or_default()
}

/// A CA's words without control characters, cut to a bound.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(MAX_DETAIL_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_learns_who_is_at_fault() {
        let detail = String::new;
        let limited = AcmeError::RateLimited { retry_after_seconds: Some(9), detail: detail() };
        assert_eq!(limited.failure(), Failure::RateLimited { retry_after_seconds: Some(9) });
        assert_eq!(limited.to_string(), "the CA limits orders (wait 9 seconds): ");
        let challenge = Some(ChallengeKind::Dns01);
        let failed = AcmeError::Authorization { name: detail(), challenge, detail: detail() };
        assert_eq!(failed.failure(), Failure::Authorization { challenge });
        let gone =
            AcmeError::Rejected { problem_type: "accountDoesNotExist".to_owned(), status: 400, detail: detail() };
        assert!(gone.is_account_gone());
        for (error, is_fault_of_ca) in [
            (gone, false),
            (AcmeError::Caa { name: detail(), detail: detail() }, false),
            (AcmeError::AlreadyReplaced { detail: detail() }, false),
            (AcmeError::Server { status: 500, retry_after_seconds: None, detail: detail() }, true),
            (AcmeError::Unreachable { host: detail(), reason: detail() }, true),
            (AcmeError::TimedOut { what: detail(), seconds: 1 }, true),
            (AcmeError::Malformed { what: detail() }, true),
            (AcmeError::Certificate(detail()), true),
            (AcmeError::Solver(detail()), false),
            (AcmeError::Config(detail()), false),
        ] {
            assert_eq!(error.failure().is_fault_of_ca(), is_fault_of_ca, "{error:?}");
        }
    }
}
