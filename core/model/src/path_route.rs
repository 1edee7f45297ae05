//! Prefixes of paths, by which one socket has several services.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The longest prefix, in bytes.
pub const MAX_PATH_PREFIX_BYTES: usize = 256;
/// How many segments a prefix has at most.
pub const MAX_PATH_PREFIX_SEGMENTS: usize = 8;

/// A path and everything beneath it, by whole segments: `/api` means `/api`, `/api/` and `/api/users`, and not `/apis`.
/// `/` means every path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPrefix(String);

/// The text is no prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no path prefix: {why}")]
pub struct PathPrefixError {
    /// What was given, cut to 64 characters.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl PathPrefix {
    /// The prefix of every path.
    #[must_use]
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// The prefix as it is written: no slash at its end, unless that is all of it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the prefix of every path.
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

    /// Reads a prefix; a slash at its end says nothing.
    fn from_str(text: &str) -> Result<Self, PathPrefixError> {
        let wrong = |why| Err(PathPrefixError { text: text.chars().take(64).collect(), why });
        let Some(rest) = text.strip_prefix('/') else { return wrong("it begins with /, as in /api") };
        if text.len() > MAX_PATH_PREFIX_BYTES {
            return wrong("it has at most 256 bytes");
        }
        if text.contains(['?', '#']) {
            return wrong("a query or a fragment is no part of it");
        }
        if text.contains('%') {
            return wrong("write its characters as they are, without percent-encoding");
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.is_empty() {
            return if text.len() <= 1 { Ok(Self::root()) } else { wrong("it has no empty segments, as // would be") };
        }
        // What servers take out of a path or read in two ways is left out: `.`, `..`, `;`, `\`, and dots at an end.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@".contains(&byte);
        let mut count = 0;
        for segment in rest.split('/') {
            count += 1;
            if segment.is_empty() {
                return wrong("it has no empty segments, as // would be");
            }
            if !segment.bytes().all(is_plain) {
                return wrong("it has letters, digits and -._~!$&'()*+,=:@ alone, with / between its segments");
            }
            if segment.ends_with('.') {
                return wrong("no segment of it ends in a dot");
            }
        }
        if count > MAX_PATH_PREFIX_SEGMENTS {
            return wrong("it has at most 8 segments");
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

/// Which paths of its socket an origin serves, and by which it knows them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PathRoute {
    /// The paths that it serves.
    #[serde(default)]
    pub prefix: PathPrefix,
    /// What stands in the place of the prefix when the origin is asked; `None`: the prefix itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<PathPrefix>,
}

impl PathRoute {
    /// Whether it serves every path as it is asked for.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.prefix.is_root() && self.replacement().is_none()
    }

    /// What stands in the place of the prefix, where that is something else.
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
            ("", "begins with /"),
            ("api", "begins with /"),
            ("http://a/", "begins with /"),
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
