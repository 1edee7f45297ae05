//! Checks, by what they look at.

use std::fmt;

use serde::{Deserialize, Serialize};

/// After how many failures in a row a check is bad.
pub const FALL: u32 = 3;
/// After how many successes in a row it is good again.
pub const RISE: u32 = 5;

/// What a check looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The edge's own listener.
    Listener,
    /// A request of the edge to itself.
    Request,
    /// The bus.
    Bus,
    /// Control.
    Control,
    /// The database.
    Database,
    /// The origins: none of them answers.
    Origins,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Listener, Self::Request, Self::Bus, Self::Control, Self::Database, Self::Origins];

    /// Whether it is of this edge alone. Other causes may be those of all edges at once.
    #[must_use]
    pub fn is_local(self) -> bool {
        matches!(self, Self::Listener | Self::Request)
    }

    /// What is wrong, in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Listener => "the listener of the edge is dead",
            Self::Request => "the edge does not answer its own request",
            Self::Bus => "the bus is away",
            Self::Control => "control is away",
            Self::Database => "the database is away",
            Self::Origins => "no origin answers",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known of one check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Too little was seen.
    #[default]
    Unknown,
    Good,
    Bad,
}

/// The last results of one check.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Check {
    verdict: Verdict,
    is_last_good: bool,
    in_row: u32,
}

impl Check {
    /// Takes a result. True if the check turned bad.
    pub(super) fn handle(&mut self, is_good: bool) -> bool {
        self.in_row = if self.in_row > 0 && self.is_last_good == is_good { self.in_row.saturating_add(1) } else { 1 };
        self.is_last_good = is_good;
        let before = self.verdict;
        if is_good && self.in_row >= RISE {
            self.verdict = Verdict::Good;
        } else if !is_good && self.in_row >= FALL {
            self.verdict = Verdict::Bad;
        }
        before != Verdict::Bad && self.verdict == Verdict::Bad
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.verdict
    }
}
