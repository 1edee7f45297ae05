//! Edges and regions: their names, and orders for edges.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::EdgeId;

/// The text is not a name of an edge or a region.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no name of {what}: use 1 to 32 lower-case letters, digits and hyphens, beginning with a letter and \
     ending with a letter or a digit"
)]
pub struct EdgeNameError {
    /// The text, cut to 64 characters.
    pub text: String,
    /// The kind of name.
    what: &'static str,
}

fn check(text: &str, what: &'static str) -> Result<String, EdgeNameError> {
    let is_good = (1..=32).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    is_good.then(|| text.to_owned()).ok_or_else(|| EdgeNameError { text: text.chars().take(64).collect(), what })
}

macro_rules! edge_word {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = EdgeNameError;
            fn from_str(text: &str) -> Result<Self, EdgeNameError> {
                check(text, $what).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = EdgeNameError;
            fn try_from(text: String) -> Result<Self, EdgeNameError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

edge_word!(
    /// The name of an edge, unique within an installation.
    EdgeName,
    "an edge"
);
edge_word!(
    /// The name of a region, a group of edges.
    RegionName,
    "a region"
);

/// Control's orders for an edge that has joined and was not removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeOrders {
    /// The edge.
    pub edge: EdgeId,
    /// Set if the edge is to be drained.
    #[serde(default)]
    pub drain: Option<DrainOrder>,
    /// The server number of the edge, by which balancers know it; 0: none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub server: u16,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u16) -> bool {
    *number == 0
}

/// An order to drain an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainOrder {
    /// End of the time for running flows, in seconds since 1970 (UTC).
    pub until: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_words_of_the_dns() {
        for good in ["eu", "eu-west-1", "a", &"x".repeat(32)] {
            assert_eq!(good.parse::<RegionName>().unwrap().as_str(), good);
        }
        for bad in ["", "EU", "1eu", "-eu", "eu-", "e u", "eu.west", "é", &"x".repeat(33)] {
            let error = bad.parse::<EdgeName>().unwrap_err().to_string();
            assert!(error.contains("is no name of an edge: use 1 to 32"), "{error}");
        }
    }
}
