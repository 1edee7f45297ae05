//! What an origin, or a region of a socket, can carry.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The highest declared rate, in requests per second.
pub const MAX_ORIGIN_RPS: u32 = 1_000_000;
/// The most declared connections at once.
pub const MAX_ORIGIN_CONNECTIONS: u32 = 1_000_000;
/// The longest name of a shared capacity, in bytes.
pub const MAX_CAPACITY_NAME_BYTES: usize = 32;

/// The most new requests per second (for TCP, TLS and UDP: connections or flows) that an origin takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MaxRps {
    /// This number.
    Declared(u32),
    /// As many as it is seen to answer without getting slow.
    Learned,
}

/// The text or number is no rate of an origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no rate: use a whole number from 1 to {MAX_ORIGIN_RPS} requests per second, or auto")]
pub struct MaxRpsError(pub String);

impl MaxRpsError {
    fn of(text: impl fmt::Display) -> Self {
        Self(text.to_string().chars().take(64).collect())
    }
}

impl FromStr for MaxRps {
    type Err = MaxRpsError;

    fn from_str(text: &str) -> Result<Self, MaxRpsError> {
        if text == "auto" {
            return Ok(Self::Learned);
        }
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|rps| is_number && (1..=MAX_ORIGIN_RPS).contains(rps));
        number.map(Self::Declared).ok_or_else(|| MaxRpsError::of(text))
    }
}

impl fmt::Display for MaxRps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declared(rps) => rps.fmt(f),
            Self::Learned => f.write_str("auto"),
        }
    }
}

/// As JSON: a number, or `"auto"`.
impl Serialize for MaxRps {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Declared(rps) => serializer.serialize_u32(*rps),
            Self::Learned => serializer.serialize_str("auto"),
        }
    }
}

impl<'de> Deserialize<'de> for MaxRps {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = MaxRps;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from 1 to {MAX_ORIGIN_RPS}, or \"auto\"")
            }

            fn visit_u64<E: de::Error>(self, rps: u64) -> Result<MaxRps, E> {
                self.visit_str(&rps.to_string())
            }

            fn visit_i64<E: de::Error>(self, rps: i64) -> Result<MaxRps, E> {
                self.visit_str(&rps.to_string())
            }

            fn visit_f64<E: de::Error>(self, rps: f64) -> Result<MaxRps, E> {
                Err(E::custom(MaxRpsError::of(rps)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<MaxRps, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// The name of a capacity that several origins of an organisation share, such as a database behind them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CapacityName(String);

/// The text is not a name of a shared capacity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name of a shared capacity: use 1 to {MAX_CAPACITY_NAME_BYTES} lower-case letters, digits and hyphens"
)]
pub struct CapacityNameError(pub String);

impl CapacityName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CapacityName {
    type Err = CapacityNameError;

    fn from_str(text: &str) -> Result<Self, CapacityNameError> {
        let is_good = (1..=MAX_CAPACITY_NAME_BYTES).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        is_good.then(|| Self(text.to_owned())).ok_or_else(|| CapacityNameError(text.chars().take(64).collect()))
    }
}

impl TryFrom<String> for CapacityName {
    type Error = CapacityNameError;
    fn try_from(text: String) -> Result<Self, CapacityNameError> {
        text.parse()
    }
}

impl From<CapacityName> for String {
    fn from(name: CapacityName) -> Self {
        name.0
    }
}

impl fmt::Display for CapacityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What an origin, or all origins of a socket in one region together, can carry; without a field, any amount.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// New requests per second (for TCP, TLS and UDP: connections or flows).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rps: Option<MaxRps>,
    /// Requests at once (for TCP, TLS and UDP: connections or flows).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
    /// All origins of the organisation with this name have these limits together. Where they differ, the lowest count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<CapacityName>,
}

/// Reason why a capacity is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapacityError {
    /// The connections are out of range.
    #[error("the most connections of an origin must be 1 to {MAX_ORIGIN_CONNECTIONS}")]
    Connections,
    /// A shared capacity without a limit.
    #[error("a shared capacity needs a limit that is shared: give the most requests per second or connections too")]
    SharedWithoutLimit,
}

impl Capacity {
    /// Whether there is no limit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the bounds.
    ///
    /// # Errors
    /// The first violated bound.
    pub fn check(&self) -> Result<(), CapacityError> {
        if self.max_connections.is_some_and(|most| !(1..=MAX_ORIGIN_CONNECTIONS).contains(&most)) {
            return Err(CapacityError::Connections);
        }
        if self.shared.is_some() && self.max_rps.is_none() && self.max_connections.is_none() {
            return Err(CapacityError::SharedWithoutLimit);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_whole_number_or_auto() {
        for (json, rps) in
            [("200", MaxRps::Declared(200)), (r#""200""#, MaxRps::Declared(200)), (r#""auto""#, MaxRps::Learned)]
        {
            assert_eq!(serde_json::from_str::<MaxRps>(json).unwrap(), rps, "{json}");
        }
        assert_eq!(serde_json::to_string(&[MaxRps::Declared(7), MaxRps::Learned]).unwrap(), r#"[7,"auto"]"#);
        for bad in ["0", "-1", "1.5", "1000000000", r#""NaN""#, r#""+7""#, r#""""#, "1e3", r#"" 7""#] {
            let error = serde_json::from_str::<MaxRps>(bad).unwrap_err().to_string();
            assert!(error.contains("a whole number from 1 to 1000000 requests per second, or auto"), "{bad}: {error}");
        }
        assert!(serde_json::from_str::<MaxRps>("null").is_err() && serde_json::from_str::<MaxRps>("[]").is_err());
    }

    #[test]
    fn a_capacity_has_bounds() {
        let check = |json: &str| serde_json::from_str::<Capacity>(json).unwrap().check();
        assert_eq!(check("{}"), Ok(()));
        assert_eq!(check(r#"{"max_rps":200,"shared":"db-1"}"#), Ok(()));
        assert_eq!(check(r#"{"max_connections":0}"#), Err(CapacityError::Connections));
        assert_eq!(check(r#"{"max_connections":1000001}"#), Err(CapacityError::Connections));
        assert_eq!(check(r#"{"shared":"db"}"#), Err(CapacityError::SharedWithoutLimit));
        for bad in [r#"{"shared":"DB"}"#, r#"{"shared":""}"#, r#"{"rps":1}"#, r#"{"max_connections":-1}"#] {
            assert!(serde_json::from_str::<Capacity>(bad).is_err(), "{bad}");
        }
    }
}
