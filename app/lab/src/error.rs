//! What can go wrong with a laboratory, and what to do about it.

use std::{io, path::PathBuf};

use crate::topology::{LabName, TopologyError};

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Namespaces and devices are root's.
    #[error("only root can make network namespaces")]
    NotRoot,
    /// What was asked for cannot be built.
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
    #[error("a laboratory {name} stands already{}", if *.is_whole { "" } else { ", and not whole" })]
    Stands {
        /// Its name.
        name: LabName,
        /// Whether it was built to its end.
        is_whole: bool,
    },
    /// There is none of this name.
    #[error("there is no laboratory {0}")]
    None(LabName),
    /// It was left half built.
    #[error("the laboratory {0} was not built to its end")]
    Half(LabName),
    /// Another command works on it.
    #[error("another command works on the laboratory {0}")]
    Busy(LabName),
    /// Nothing of the laboratory has this name.
    #[error("the laboratory has no {name:?}; it has {}", known.join(", "))]
    NoSuch {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// This cannot be done to that.
    #[error("{0}")]
    Unfit(String),
    /// A program of the system failed.
    #[error("`{command}` failed: {said}")]
    Command {
        /// The command line.
        command: String,
        /// What it said.
        said: String,
    },
    /// A process ended that was to run.
    #[error("{name} did not start: {said} (its log is {})", log.display())]
    Start {
        /// The process.
        name: String,
        /// Its last words.
        said: String,
        /// Where it says more.
        log: PathBuf,
    },
    /// Something did not come to be in time.
    #[error("{what} is not there after {seconds} s{}", if said.is_empty() { String::new() } else { format!(": {said}") })]
    Late {
        /// What.
        what: String,
        /// After which time.
        seconds: u64,
        /// What was seen last.
        said: String,
    },
    /// The program that carries packets refused an order, or is not there.
    #[error("the wires do not answer: {0}")]
    Wires(String),
    /// A file of the laboratory is damaged.
    #[error("{} cannot be read: {said}", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Why.
        said: String,
    },
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        source: io::Error,
    },
}

impl LabError {
    /// The system refused this.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// What to do about it.
    #[must_use]
    pub fn next_step(&self) -> Option<String> {
        match self {
            Self::NotRoot => Some("run it with sudo".to_owned()),
            Self::Stands { name, is_whole } => Some(if *is_whole {
                format!("`sallyport lab status{0}` shows it, `sallyport lab down{0}` takes it away", of(name))
            } else {
                format!("`sallyport lab down{}` takes away what is there", of(name))
            }),
            Self::None(name) => Some(format!("`sallyport lab up{}` builds it", of(name))),
            Self::Half(name) => Some(format!("`sallyport lab down{0}`, and then `sallyport lab up{0}`", of(name))),
            Self::Busy(_) => Some("try again when it is done".to_owned()),
            Self::Wires(_) => Some("`sallyport lab down` and `sallyport lab up` build everything anew".to_owned()),
            _ => None,
        }
    }
}

/// The option that names a laboratory, where it needs to be named.
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
        let half = LabError::Stands { name: other, is_whole: false };
        assert_eq!(half.to_string(), "a laboratory t1 stands already, and not whole");
    }
}
