//! What neighbours hear of a prefix.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a prefix is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Announcement {
    /// Neighbours have no route.
    Withdrawn,
    /// Neighbours have a route of the last resort.
    Deprioritised,
    /// Neighbours have a route.
    Announced,
}

impl Announcement {
    /// The state as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Withdrawn => "withdrawn",
            Self::Deprioritised => "deprioritised",
            Self::Announced => "announced",
        }
    }
}

impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
