//! Names of networks, endpoints, groups, sets and rules.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The most bytes of a name (RFC 1035 section 2.3.4).
pub const MAX_NAME_BYTES: usize = 63;

/// A DNS label that begins with a letter (RFC 1035 section 2.3.1), in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing.
    #[error("a name is empty")]
    Empty,
    /// Too many bytes.
    #[error("a name has {0} bytes, and at most {MAX_NAME_BYTES} are allowed")]
    Long(usize),
    /// A character that no name has.
    #[error(
        "{0:?} is no name: it has lower-case letters, digits and hyphens, begins with a letter, ends with none of -"
    )]
    Characters(String),
}

impl Name {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > MAX_NAME_BYTES {
            return Err(NameError::Long(text.len()));
        }
        let is_label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let begins_with_letter = text.starts_with(|first: char| first.is_ascii_lowercase());
        if !begins_with_letter || text.ends_with('-') || !text.bytes().all(is_label) {
            return Err(NameError::Characters(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_label_of_dns_that_begins_with_a_letter() {
        for text in ["a", "web-1", "db--2", &"a".repeat(63)] {
            assert_eq!(text.parse::<Name>().unwrap().to_string(), text);
        }
        assert_eq!("".parse::<Name>(), Err(NameError::Empty));
        assert_eq!("a".repeat(64).parse::<Name>(), Err(NameError::Long(64)));
        for text in ["Web", "1web", "-web", "web-", "we b", "we.b", "we_b", "wéb", "web\n", "web\"", "@web"] {
            assert_eq!(text.parse::<Name>(), Err(NameError::Characters(text.to_owned())));
        }
    }
}
