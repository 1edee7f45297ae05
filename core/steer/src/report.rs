//! The messages between edges and the leading control: loads in one direction, quotas in the other.
//!
//! Counts are cumulative since the start of the edge's process, and every assignment has all quotas of its edge. So a
//! message that is lost, doubled or late does no harm. Most reports leave out what has not changed: [`crate::delta`].

use sallyport_model::{EdgeId, OriginRef, SocketId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::Amount;

/// The schema version written, and the only one read. Fields may be added; a change of meaning needs a new version.
pub const STEER_SCHEMA: u32 = 1;
/// The largest message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 960 * 1024;
/// The most classes, origins or quotas in a message.
pub const MAX_ENTRIES: usize = 4_096;
/// The most candidates of a class.
pub const MAX_CANDIDATES: usize = 128;
/// The most edges named in a message.
pub const MAX_NAMED_EDGES: usize = 64;

/// What an edge carries, and which quotas it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadReport {
    /// [`STEER_SCHEMA`].
    pub schema: u32,
    /// The edge.
    pub edge: EdgeId,
    /// Number of the edge's run: a later run has a greater number.
    pub epoch: u64,
    /// Number of the report in this epoch, from 1.
    pub number: u64,
    /// The time since the start of the epoch, in microseconds, by the edge's monotonic clock.
    pub at_us: u64,
    /// The greatest term of a leader that the edge has heard from; 0: none.
    #[serde(default)]
    pub term: u64,
    /// The number of the last assignment of that leader that the edge has taken over.
    #[serde(default)]
    pub assignment: u64,
    /// The number of the whole report that has what this one leaves out; 0: this one is whole.
    #[serde(default)]
    pub base: u64,
    /// The suspected edges that this edge cannot reach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<EdgeId>,
    /// The demand, by socket and class.
    #[serde(default)]
    pub classes: Vec<ClassLoad>,
    /// The load of each origin with a limit.
    #[serde(default)]
    pub origins: Vec<OriginLoad>,
    /// Whether the report comes out of turn: requests wait, or other edges wait for what this edge gives back.
    #[serde(default)]
    pub is_urgent: bool,
    /// Whether this is the last report: the edge stops, and gives all quotas back.
    #[serde(default)]
    pub is_last: bool,
}

/// The demand of one class: requests for one socket that the same origins serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassLoad {
    /// The socket.
    pub socket: SocketId,
    /// The number of the class at this edge.
    pub class: u64,
    /// Requests that came.
    pub arrived: u64,
    /// Requests that were refused for lack of a quota.
    #[serde(default)]
    pub shed: u64,
    /// Requests that run or wait now.
    #[serde(default)]
    pub open: u32,
    /// The origins that may serve them.
    pub candidates: Vec<Candidate>,
}

/// An origin as seen from an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The origin.
    #[serde(with = "origin_text")]
    pub origin: OriginRef,
    /// The shortest recent round trip to it, in microseconds; `None`: not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<u64>,
    /// Whether it is healthy and can be reached from the edge.
    pub is_usable: bool,
}

/// What one origin got from an edge, and the quotas that the edge has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginLoad {
    /// The socket.
    pub socket: SocketId,
    /// The origin.
    #[serde(with = "origin_text")]
    pub origin: OriginRef,
    /// Requests sent to it.
    pub sent: u64,
    /// Requests that ended, of those sent.
    pub done: u64,
    /// Requests that failed, of those that ended.
    #[serde(default)]
    pub failed: u64,
    /// The sum of the times to the answers, in microseconds.
    pub latency_us: u64,
    /// Requests that run now.
    pub open: u32,
    /// The quotas that the edge has.
    #[serde(default)]
    pub quota: Quota,
}

/// What an edge may send to one origin; `None`: any amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quota {
    /// Thousandths of a new request per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Amount>,
    /// Requests at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
}

impl Quota {
    /// Nothing.
    pub const NOTHING: Self = Self { rate: Some(0), connections: Some(0) };

    /// The lesser of both, in each part.
    #[must_use]
    pub fn min(&self, other: &Self) -> Self {
        Self {
            rate: self.rate.into_iter().chain(other.rate).min(),
            connections: self.connections.into_iter().chain(other.connections).min(),
        }
    }

    /// Whether any part is less than that of the other one by more than a sixteenth.
    #[must_use]
    pub fn is_less_than(&self, other: &Self) -> bool {
        let is_less = |one: Option<u64>, other: Option<u64>| {
            let other = other.unwrap_or(u64::MAX);
            one.unwrap_or(u64::MAX) < other - other / 16
        };
        is_less(self.rate, other.rate) || is_less(self.connections.map(u64::from), other.connections.map(u64::from))
    }
}

/// All quotas of one edge, valid until the next assignment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaAssignment {
    /// [`STEER_SCHEMA`].
    pub schema: u32,
    /// The edge.
    pub edge: EdgeId,
    /// The edge's run.
    pub epoch: u64,
    /// The term of the leader: a later leader has a greater one.
    pub term: u64,
    /// Number of the assignment in this term, from 1.
    pub number: u64,
    /// The number of the report that it answers.
    pub answers: u64,
    /// The number of the last whole report that the leader has; 0: none.
    #[serde(default)]
    pub base: u64,
    /// How many edges the leader counts. A majority is one of these; 0: unknown.
    #[serde(default)]
    pub edges: u32,
    /// Edges that the leader does not hear from. Each edge checks whether it reaches them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspects: Vec<EdgeId>,
    /// The quotas.
    pub quotas: Vec<AssignedQuota>,
}

/// The quota for one origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignedQuota {
    /// The socket.
    pub socket: SocketId,
    /// The origin.
    #[serde(with = "origin_text")]
    pub origin: OriginRef,
    /// The part of the rate that the edge is expected to use, in thousandths of a request per second. The rest is for
    /// what comes unexpectedly.
    pub plan: Amount,
    /// The quota.
    #[serde(flatten)]
    pub quota: Quota,
}

/// Reason why a message is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The message is too large, or names too much.
    #[error("a message has at most {MAX_MESSAGE_BYTES} bytes and {MAX_ENTRIES} entries")]
    TooLarge,
    /// The message is of another version of this program.
    #[error("the message has schema {found}, and this program reads schema {STEER_SCHEMA}")]
    Schema {
        /// The schema version of the message.
        found: u32,
    },
    /// The message is damaged.
    #[error("the message is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
}

#[derive(Deserialize)]
struct Schema {
    schema: u32,
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(MessageError::TooLarge);
    }
    let Schema { schema } = serde_json::from_slice(bytes)?;
    if schema != STEER_SCHEMA {
        return Err(MessageError::Schema { found: schema });
    }
    Ok(serde_json::from_slice(bytes)?)
}

impl LoadReport {
    /// Encodes the report as JSON.
    ///
    /// # Errors
    /// Serialization failed; not expected.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Decodes a report. Unknown fields are ignored.
    ///
    /// # Errors
    /// The report is too large, of another version, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MessageError> {
        let report: Self = read(bytes)?;
        let is_small = report.classes.len().max(report.origins.len()) <= MAX_ENTRIES
            && report.unreachable.len() <= MAX_NAMED_EDGES
            && report.classes.iter().all(|class| class.candidates.len() <= MAX_CANDIDATES);
        if is_small { Ok(report) } else { Err(MessageError::TooLarge) }
    }
}

impl QuotaAssignment {
    /// Encodes the assignment as JSON.
    ///
    /// # Errors
    /// Serialization failed; not expected.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Decodes an assignment. Unknown fields are ignored.
    ///
    /// # Errors
    /// The assignment is too large, of another version, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MessageError> {
        let assignment: Self = read(bytes)?;
        let is_small = assignment.quotas.len() <= MAX_ENTRIES && assignment.suspects.len() <= MAX_NAMED_EDGES;
        if is_small { Ok(assignment) } else { Err(MessageError::TooLarge) }
    }
}

mod origin_text {
    use sallyport_model::OriginRef;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(origin: &OriginRef, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(origin)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OriginRef, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use sallyport_model::TunnelId;

    use super::*;

    fn assignment() -> QuotaAssignment {
        let quota = Quota { rate: Some(5), connections: None };
        let origin = TunnelId::from_random([3; 16]).into();
        QuotaAssignment {
            schema: STEER_SCHEMA,
            edge: EdgeId::from_random([1; 16]),
            epoch: 7,
            term: 2,
            number: 1,
            answers: 4,
            base: 1,
            edges: 3,
            suspects: Vec::new(),
            quotas: vec![AssignedQuota { socket: SocketId::from_random([2; 16]), origin, plan: 3, quota }],
        }
    }

    #[test]
    fn a_message_is_read_back_and_other_ones_are_refused() {
        let sent = assignment();
        let bytes = sent.to_bytes().unwrap();
        assert_eq!(QuotaAssignment::from_bytes(&bytes).unwrap(), sent);
        assert!(LoadReport::from_bytes(&bytes).is_err());
        let mut json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        json["schema"] = 9.into();
        let error = QuotaAssignment::from_bytes(json.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.contains("schema 9"), "{error}");
        let many = QuotaAssignment { quotas: vec![sent.quotas[0]; MAX_ENTRIES + 1], ..sent };
        let refused = QuotaAssignment::from_bytes(&many.to_bytes().unwrap());
        assert!(matches!(refused, Err(MessageError::TooLarge)));
        let huge = vec![b' '; MAX_MESSAGE_BYTES + 1];
        assert!(matches!(LoadReport::from_bytes(&huge), Err(MessageError::TooLarge)));
        for bad in ["", "{}", r#"{"schema":1}"#, r#"{"schema":1,"edge":"x"}"#, r#"{"schema":-1}"#, "[]"] {
            assert!(LoadReport::from_bytes(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
