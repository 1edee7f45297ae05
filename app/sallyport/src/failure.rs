//! What the program says when something fails: one clear sentence, one next step, one exit code.

use serde::Serialize;

/// What kind of failure it is; each has its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Anything that is none of the others.
    Failed,
    /// The command line cannot be used as it is.
    Usage,
    /// Nobody is logged in, or the one who is may not do this.
    NotLoggedIn,
    /// The thing does not exist.
    NotFound,
    /// The API refused what was asked for: it conflicts with what is there, or is not valid.
    Refused,
    /// The other side cannot be reached or cannot be trusted.
    Unreachable,
}

impl Kind {
    /// The exit code, as `--help` lists it.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotLoggedIn => 3,
            Self::NotFound => 4,
            Self::Refused => 5,
            Self::Unreachable => 6,
        }
    }
}

/// A failure that is ready to be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    /// What kind it is.
    pub(crate) kind: Kind,
    /// One sentence: what went wrong, and where.
    pub(crate) message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_step: Option<String>,
    /// The id under which the server logged the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<String>,
}

impl Failure {
    /// A failure of this kind.
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), next_step: None, request_id: None }
    }

    /// A command line that cannot be used.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// The same failure with what to do about it.
    #[must_use]
    pub(crate) fn next(mut self, step: impl Into<String>) -> Self {
        self.next_step = Some(step.into());
        self
    }
}

/// The reader of our output went away (`sallyport socket ls | head -1`): not a failure, only the end.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads the output any more")]
pub(crate) struct OutputClosed;

/// What to tell of an error, or nothing when it only means that the output was closed.
pub(crate) fn describe(error: &anyhow::Error) -> Option<Failure> {
    for cause in error.chain() {
        if cause.is::<OutputClosed>() {
            return None;
        }
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return Some(failure.clone());
        }
    }
    Some(Failure::new(Kind::Failed, format!("{error:#}")))
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn every_kind_has_its_own_exit_code() {
        let kinds = [Kind::Failed, Kind::Usage, Kind::NotLoggedIn, Kind::NotFound, Kind::Refused, Kind::Unreachable];
        assert_eq!(kinds.map(Kind::exit_code), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_failure_is_found_below_what_was_said_around_it() {
        let failure = Failure::usage("no port").next("give --port");
        let error = Err::<(), _>(failure.clone()).context("while connecting").unwrap_err();
        assert_eq!(describe(&error), Some(failure));
    }

    #[test]
    fn any_other_error_is_told_with_its_causes() {
        let error = anyhow::anyhow!("the disk is full").context("cannot write /x");
        let failure = describe(&error).unwrap();
        assert_eq!((failure.kind, failure.message.as_str()), (Kind::Failed, "cannot write /x: the disk is full"));
    }

    #[test]
    fn a_closed_output_is_no_failure() {
        assert_eq!(describe(&anyhow::Error::new(OutputClosed).context("listing")), None);
    }
}
