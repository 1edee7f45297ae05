//! Communities of BGP.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A standard community (RFC 1997) such as `65535:0`, or a large one (RFC 8092) such as `64500:1:2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Community {
    /// Two numbers of 16 bits.
    Standard(u16, u16),
    /// Three numbers of 32 bits.
    Large(u32, u32, u32),
}

/// A text is no community.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no community: use two numbers up to 65535 such as 65535:0, or three such as 64500:1:2")]
pub struct CommunityError(String);

impl Community {
    /// The neighbour lowers its preference for the route (RFC 8326).
    pub const GRACEFUL_SHUTDOWN: Self = Self::Standard(65535, 0);
    /// The neighbour sends the route to no other network (RFC 1997).
    pub const NO_EXPORT: Self = Self::Standard(65535, 65281);
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard(high, low) => write!(f, "{high}:{low}"),
            Self::Large(admin, one, two) => write!(f, "{admin}:{one}:{two}"),
        }
    }
}

impl FromStr for Community {
    type Err = CommunityError;
    fn from_str(text: &str) -> Result<Self, CommunityError> {
        let parts: Vec<&str> = text.split(':').collect();
        let read = |part: &str| -> Option<u32> {
            let is_number = !part.is_empty() && part.len() <= 10 && part.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| part.parse().ok()).flatten()
        };
        let found = match parts[..] {
            [high, low] => read(high)
                .zip(read(low))
                .and_then(|(high, low)| Some(Self::Standard(u16::try_from(high).ok()?, u16::try_from(low).ok()?))),
            [admin, one, two] => (|| Some(Self::Large(read(admin)?, read(one)?, read(two)?)))(),
            _ => None,
        };
        found.ok_or_else(|| CommunityError(text.chars().take(64).collect()))
    }
}

impl TryFrom<String> for Community {
    type Error = CommunityError;
    fn try_from(text: String) -> Result<Self, CommunityError> {
        text.parse()
    }
}

impl From<Community> for String {
    fn from(community: Community) -> String {
        community.to_string()
    }
}
