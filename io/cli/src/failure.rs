//! The form of a failure for users, the same in every program: a sentence, a next step, an exit code.

use std::error::Error;

use serde::Serialize;

/// The kind of failure, which decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Anything else.
    Failed,
    /// The command line is invalid.
    Usage,
    /// A login is required.
    NotLoggedIn,
    /// The account has no permission.
    NotAllowed,
    /// Not found.
    NotFound,
    /// The API refused the request: a conflict, or invalid values.
    Refused,
    /// The server cannot be reached or is not trusted.
    Unreachable,
}

impl Kind {
    /// The exit code, as listed by `--help`.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotLoggedIn | Self::NotAllowed => 3,
            Self::NotFound => 4,
            Self::Refused => 5,
            Self::Unreachable => 6,
        }
    }
}

/// A failure that is ready to be displayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Its kind.
    pub kind: Kind,
    /// One sentence: what failed, and where.
    pub message: String,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
    /// The id of the request in the server's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), next_step: None, request_id: None }
    }

    /// An invalid command line.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Adds a next step.
    #[must_use]
    pub fn next(mut self, step: impl Into<String>) -> Self {
        self.next_step = Some(step.into());
        self
    }
}

/// The reader of the output has closed it (`sallyport socket ls | head -1`): not a failure, only the end.
#[derive(Debug, thiserror::Error)]
#[error("the output was closed")]
pub struct OutputClosed;

/// The failure to display for an error; `None` if the error only means that the output was closed. `of_cause` converts
/// the errors of a program's own, and is called for each cause, the outermost first.
pub fn describe(
    error: &anyhow::Error,
    of_cause: impl Fn(&(dyn Error + 'static)) -> Option<Failure>,
) -> Option<Failure> {
    for cause in error.chain() {
        if cause.is::<OutputClosed>() {
            return None;
        }
        if let Some(failure) = cause.downcast_ref::<Failure>().cloned().or_else(|| of_cause(cause)) {
            return Some(failure);
        }
    }
    Some(Failure::new(Kind::Failed, with_causes(error)))
}

/// The error with its causes, except those that its text already ends with.
fn with_causes(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        _ if text.ends_with(&cause) => text,
        _ => format!("{text}: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    fn described(error: &anyhow::Error) -> Option<Failure> {
        describe(error, |_| None)
    }

    #[test]
    fn every_kind_has_its_own_exit_code() {
        let kinds = [Kind::Failed, Kind::Usage, Kind::NotLoggedIn, Kind::NotFound, Kind::Refused, Kind::Unreachable];
        assert_eq!(kinds.map(Kind::exit_code), [1, 2, 3, 4, 5, 6]);
        assert_eq!(Kind::NotAllowed.exit_code(), 3, "as those who are not logged in");
    }

    #[test]
    fn a_failure_is_found_below_added_context() {
        let failure = Failure::usage("no port").next("give --port");
        let error = Err::<(), _>(failure.clone()).context("while connecting").unwrap_err();
        assert_eq!(described(&error), Some(failure));
    }

    #[test]
    fn any_other_error_is_shown_with_its_causes() {
        let error = anyhow::anyhow!("the disk is full").context("cannot write /x");
        let failure = described(&error).unwrap();
        assert_eq!((failure.kind, failure.message.as_str()), (Kind::Failed, "cannot write /x: the disk is full"));

        #[derive(Debug, thiserror::Error)]
        #[error("cannot use /x: {source}")]
        struct SaysItsCause {
            source: std::io::Error,
        }
        let error = SaysItsCause { source: std::io::Error::other("it is a file") };
        let failure = described(&anyhow::Error::new(error)).unwrap();
        assert_eq!(failure.message, "cannot use /x: it is a file", "no cause is repeated");
    }

    #[test]
    fn a_closed_output_is_no_failure() {
        assert_eq!(described(&anyhow::Error::new(OutputClosed).context("listing")), None);
    }
}
