//! The errors of a laboratory, with advice.

use std::{io, path::PathBuf};

use crate::topology::{LabName, TopologyError};

/// An error.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Namespaces and devices are root's.
    #[error("only root can make network namespaces")]
    NotRoot,
    /// The topology is not possible.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A program is missing.
    #[error("{program} is not there: {how}")]
    Missing {
        /// Which.
        program: &'static str,
        /// How to get it.
        how: &'static str,
    },
    /// There is a laboratory of this name.
    #[error("a laboratory {name} already exists{}", if *.is_whole { "" } else { ", incomplete" })]
    AlreadyExists {
        /// Its name.
        name: LabName,
        /// Whether it was built to its end.
        is_whole: bool,
    },
    /// There is none of this name.
    #[error("there is no laboratory {0}")]
    None(LabName),
    /// It is incomplete.
    #[error("the laboratory {0} was not built to its end")]
    Half(LabName),
    /// Another command works on it.
    #[error("another command works on the laboratory {0}")]
    Busy(LabName),
    /// Nothing in the laboratory has this name.
    #[error("the laboratory has no {name:?}; it has {}", known.join(", "))]
    NoSuch {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The fault is not possible there.
    #[error("{0}")]
    Unfit(String),
    /// A program of the system failed.
    #[error("`{command}` failed: {output}")]
    Command {
        /// The command line.
        command: String,
        /// Its error output.
        output: String,
    },
    /// A process ended before it was ready.
    #[error("{name} did not start: {output} (its log is {})", log.display())]
    Start {
        /// The process.
        name: String,
        /// The end of its log.
        output: String,
        /// Its log.
        log: PathBuf,
    },
    /// Something did not happen in time.
    #[error(
        "{what} is not there after {seconds} s{}",
        if seen.is_empty() { String::new() } else { format!(": {seen}") }
    )]
    Late {
        /// What.
        what: String,
        /// After which time.
        seconds: u64,
        /// What was seen last.
        seen: String,
    },
    /// The program that carries packets refused an order, or is not there.
    #[error("the wires do not answer: {0}")]
    Wires(String),
    /// A file of the laboratory is damaged.
    #[error("{} cannot be read: {reason}", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The system refused an operation.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation.
        what: String,
        /// The reason.
        source: io::Error,
    },
}

impl LabError {
    /// Wraps an error of this operation.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Advice.
    #[must_use]
    pub fn next_step(&self) -> Option<String> {
        match self {
            Self::NotRoot => Some("run it with sudo".to_owned()),
            Self::AlreadyExists { name, is_whole } => Some(if *is_whole {
                format!("`sallyport lab status{0}` shows it, `sallyport lab down{0}` removes it", of(name))
            } else {
                format!("`sallyport lab down{}` removes what is there", of(name))
            }),
            Self::None(name) => Some(format!("`sallyport lab up{}` builds it", of(name))),
            Self::Half(name) => Some(format!("`sallyport lab down{0}`, and then `sallyport lab up{0}`", of(name))),
            Self::Busy(_) => Some("try again when it is done".to_owned()),
            Self::Wires(_) => Some("`sallyport lab down` and `sallyport lab up` build everything anew".to_owned()),
            _ => None,
        }
    }
}

/// The option that names a laboratory, if it is needed.
fn of(name: &LabName) -> String {
    if *name == LabName::default() { String::new() } else { format!(" --lab {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_steps_name_the_laboratory_that_is_meant() {
        let other: LabName = "t1".parse().unwrap();
        let step = |name: &LabName| LabError::None(name.clone()).next_step().unwrap();
        assert_eq!(step(&LabName::default()), "`sallyport lab up` builds it");
        assert_eq!(step(&other), "`sallyport lab up --lab t1` builds it");
        let half = LabError::AlreadyExists { name: other, is_whole: false };
        assert_eq!(half.to_string(), "a laboratory t1 already exists, incomplete");
    }
}
