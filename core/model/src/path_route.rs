//! Path prefixes, which let one socket serve several origins.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The longest prefix, in bytes.
pub const MAX_PATH_PREFIX_BYTES: usize = 256;
/// How many segments a prefix has at most.
pub const MAX_PATH_PREFIX_SEGMENTS: usize = 8;

/// A path and everything below it, by whole segments: `/api` matches `/api`, `/api/` and `/api/users`, but not `/apis`.
/// `/` matches every path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPrefix(String);

/// The text is not a prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no path prefix: {why}")]
pub struct PathPrefixError {
    /// The text, cut to 64 characters.
    pub text: String,
    /// The problem.
    pub why: &'static str,
}

impl PathPrefix {
    /// The prefix of every path.
    #[must_use]
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// The prefix as text, without a trailing slash, except for the root.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it matches every path.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0 == "/"
    }

    /// Its segments; the root has none.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|segment| !segment.is_empty())
    }
}

impl Default for PathPrefix {
    fn default() -> Self {
        Self::root()
    }
}

impl FromStr for PathPrefix {
    type Err = PathPrefixError;

    /// Parses a prefix; a trailing slash is ignored.
    fn from_str(text: &str) -> Result<Self, PathPrefixError> {
        let wrong = |why| Err(PathPrefixError { text: text.chars().take(64).collect(), why });
        let Some(rest) = text.strip_prefix('/') else { return wrong("it must begin with /, as in /api") };
        if text.len() > MAX_PATH_PREFIX_BYTES {
            return wrong("it may have at most 256 bytes");
        }
        if text.contains(['?', '#']) {
            return wrong("it must not have a query or a fragment");
        }
        if text.contains('%') {
            return wrong("it must not be percent-encoded");
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.is_empty() {
            return if text.len() <= 1 { Ok(Self::root()) } else { wrong("it must not have empty segments, as in //") };
        }
        // Excluded: what servers remove from a path or interpret in two ways (`.`, `..`, `;`, `\`, and trailing dots).
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@".contains(&byte);
        let mut count = 0;
        for segment in rest.split('/') {
            count += 1;
            if segment.is_empty() {
                return wrong("it must not have empty segments, as in //");
            }
            if !segment.bytes().all(is_plain) {
                return wrong("it may only have letters, digits and -._~!$&'()*+,=:@, with / between its segments");
            }
            if segment.ends_with('.') {
                return wrong("no segment may end in a dot");
            }
        }
        if count > MAX_PATH_PREFIX_SEGMENTS {
            return wrong("it may have at most 8 segments");
        }
        Ok(Self(format!("/{rest}")))
    }
}

impl TryFrom<String> for PathPrefix {
    type Error = PathPrefixError;

    fn try_from(text: String) -> Result<Self, PathPrefixError> {
        text.parse()
    }
}

impl From<PathPrefix> for String {
    fn from(prefix: PathPrefix) -> String {
        prefix.0
    }
}

impl fmt::Display for PathPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The paths of its socket that an origin serves, and how they are rewritten.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PathRoute {
    /// The paths that it serves.
    #[serde(default)]
    pub prefix: PathPrefix,
    /// The replacement of the prefix in requests to the origin; `None` keeps the prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<PathPrefix>,
}

impl PathRoute {
    /// Whether it serves every path unchanged.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.prefix.is_root() && self.replacement().is_none()
    }

    /// The replacement of the prefix, if it differs.
    #[must_use]
    pub fn replacement(&self) -> Option<&PathPrefix> {
        self.rewrite.as_ref().filter(|rewrite| **rewrite != self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_whole_plain_segments() {
        for (text, kept) in [("/", "/"), ("/api", "/api"), ("/api/", "/api"), ("/a/b-c_d~1", "/a/b-c_d~1")] {
            let prefix: PathPrefix = text.parse().unwrap();
            assert_eq!(prefix.as_str(), kept);
            let json = serde_json::to_string(&prefix).unwrap();
            assert_eq!(serde_json::from_str::<PathPrefix>(&json).unwrap(), prefix);
        }
        assert_eq!("/a/b".parse::<PathPrefix>().unwrap().segments().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(PathPrefix::root().segments().count(), 0);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_no_prefix() {
        let long = format!("/{}", "a".repeat(MAX_PATH_PREFIX_BYTES));
        for (text, why) in [
            ("", "must begin with /"),
            ("api", "must begin with /"),
            ("http://a/", "must begin with /"),
            ("//", "empty segments"),
            ("/a//b", "empty segments"),
            ("//a", "empty segments"),
            ("/a?b", "query"),
            ("/a#b", "query"),
            ("/%61", "percent"),
            ("/a;b", "letters"),
            ("/a\\b", "letters"),
            ("/a b", "letters"),
            ("/é", "letters"),
            ("/.", "a dot"),
            ("/a/..", "a dot"),
            ("/a./b", "a dot"),
            ("/a/b/c/d/e/f/g/h/i", "8 segments"),
            (long.as_str(), "256 bytes"),
        ] {
            let error = text.parse::<PathPrefix>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_route_that_changes_nothing_is_plain() {
        let route = |prefix: &str, rewrite: Option<&str>| PathRoute {
            prefix: prefix.parse().unwrap(),
            rewrite: rewrite.map(|rewrite| rewrite.parse().unwrap()),
        };
        assert!(PathRoute::default().is_plain() && route("/", Some("/")).is_plain());
        assert!(!route("/api", None).is_plain() && !route("/", Some("/v2")).is_plain());
        assert_eq!(route("/api", Some("/api")).replacement(), None);
    }
}
