//! References to policies.

use std::{fmt, str::FromStr};

use sallyport_model::{PolicyId, PolicyName};

/// A policy by its id or its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyRef {
    /// Its id.
    Id(PolicyId),
    /// Its name.
    Name(PolicyName),
}

/// The text is no reference to a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a policy: expected its name, such as staff, or its id")]
pub struct PolicyRefError(pub String);

impl FromStr for PolicyRef {
    type Err = PolicyRefError;

    fn from_str(text: &str) -> Result<Self, PolicyRefError> {
        let text = text.trim();
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        text.parse().map(Self::Name).map_err(|_| PolicyRefError(text.chars().take(100).collect()))
    }
}

impl fmt::Display for PolicyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_could_change_a_path_gets_through() {
        assert_eq!("staff-2".parse::<PolicyRef>().unwrap().to_string(), "staff-2");
        let id = "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11";
        assert!(matches!(id.parse::<PolicyRef>().unwrap(), PolicyRef::Id(_)));
        for bad in ["", "/", "../x", "a b", "a%2f", "?x", "Staff"] {
            assert!(bad.parse::<PolicyRef>().is_err(), "{bad}");
        }
    }
}
