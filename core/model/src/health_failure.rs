//! The reason why an origin is unhealthy, as reported to its owner.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{OriginHealth, TunnelId};

/// The longest message of a [`HealthFailure`], in bytes; longer ones are cut.
pub const MAX_HEALTH_MESSAGE_BYTES: usize = 240;

/// The kind of failure, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealthFailureCode {
    /// Nothing listens at the origin's address.
    Refused,
    /// The origin did not accept the connection, or did not answer, in time.
    TimedOut,
    /// Its name has no address.
    Unresolved,
    /// The TLS handshake with it failed.
    Tls,
    /// The origin answered with an unexpected status.
    Status,
    /// The response is not HTTP, or ended too early.
    BadAnswer,
    /// The origin failed several requests in a row, or was silent: it is ejected for a while.
    Ejected,
    /// Anything else; also codes of later versions.
    #[serde(other)]
    Other,
}

impl HealthFailureCode {
    /// The code as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::TimedOut => "timed-out",
            Self::Unresolved => "unresolved",
            Self::Tls => "tls",
            Self::Status => "status",
            Self::BadAnswer => "bad-answer",
            Self::Ejected => "ejected",
            Self::Other => "other",
        }
    }
}

/// The reason and the start of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthFailure {
    /// The reason for programs.
    pub code: HealthFailureCode,
    /// The reason for people: a sentence of at most [`MAX_HEALTH_MESSAGE_BYTES`] without control characters.
    #[serde(deserialize_with = "bounded")]
    pub message: String,
    /// Start of the failure, in seconds since 1970 (UTC).
    pub since: i64,
}

impl HealthFailure {
    /// A failure with this code and message, cut to the bound.
    #[must_use]
    pub fn new(code: HealthFailureCode, message: &str, since: i64) -> Self {
        Self { code, message: clean(message), since }
    }

    /// Whether both have the same code and message, whenever they began.
    #[must_use]
    pub fn says_the_same_as(&self, other: &Self) -> bool {
        (self.code, &self.message) == (other.code, &other.message)
    }
}

/// A change of the health of a tunnel's origin, as reported to its connector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthRecord {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// The new health.
    pub health: OriginHealth,
    /// The reason, if unhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<HealthFailure>,
}

fn clean(message: &str) -> String {
    let cut = &message[..message.floor_char_boundary(MAX_HEALTH_MESSAGE_BYTES)];
    cut.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn bounded<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|message| clean(&message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_messages_are_bounded_and_contain_no_control_characters() {
        let failure = HealthFailure::new(HealthFailureCode::Tls, &format!("a\n\u{1b}[2J{}", "ü".repeat(500)), 7);
        assert!(failure.message.starts_with("a  [2Jü") && failure.message.len() <= MAX_HEALTH_MESSAGE_BYTES);
        let long = format!(r#"{{"code":"of-tomorrow","message":"\n{}","since":7}}"#, "x".repeat(9_999));
        let read: HealthFailure = serde_json::from_str(&long).unwrap();
        assert_eq!((read.code, read.message.len()), (HealthFailureCode::Other, MAX_HEALTH_MESSAGE_BYTES));
        assert!(read.message.starts_with(" x"));
        assert_eq!(serde_json::to_value(HealthFailureCode::BadAnswer).unwrap(), HealthFailureCode::BadAnswer.as_str());
    }
}
