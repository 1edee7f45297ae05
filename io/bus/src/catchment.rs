//! Questions about where clients land: the networks of clients, and pings from an anycast address.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use crate::ClientList;

/// The most targets in one question.
pub const MAX_ASKED_TARGETS: usize = 1_000;

/// A question to an edge about its catchment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CatchmentAsk {
    /// The networks of clients, in their order.
    Clients {
        /// Only networks after this one.
        after: Option<String>,
    },
    /// Listen for replies at the anycast address, if the edge has it. Another measurement ends.
    Open(OpenMeasurement),
    /// More targets.
    Targets {
        /// The measurement.
        id: String,
        /// The number of the first of them.
        first: u32,
        /// One address of each network.
        targets: Vec<IpAddr>,
    },
    /// Send the requests.
    Begin {
        /// The measurement.
        id: String,
        /// Whether this edge pings from the anycast address. All edges measure their own round trips.
        is_sender: bool,
    },
    /// What is known so far.
    Progress {
        /// The measurement.
        id: String,
        /// Only targets from this number on.
        from: u32,
    },
    /// Forget the measurement.
    Close {
        /// The measurement.
        id: String,
    },
}

/// What all edges must know of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenMeasurement {
    /// The id.
    pub id: String,
    /// The secret that makes replies right.
    pub key: MeasurementKey,
    /// The identifier of requests.
    pub identifier: u16,
    /// The anycast address.
    pub address: IpAddr,
    /// The most requests a second, of each edge.
    pub rate: u32,
    /// Whether edges measure their own round trips.
    pub measures_round_trips: bool,
}

/// The secret of a measurement.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasurementKey(pub [u8; 16]);

impl fmt::Debug for MeasurementKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MeasurementKey(..)")
    }
}

/// An answer of an edge about its catchment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CatchmentAnswer {
    /// To [`CatchmentAsk::Clients`].
    Clients(ClientList),
    /// To [`CatchmentAsk::Open`]: the edge takes part.
    Opened {
        /// Why no reply can come to this edge, and why it cannot send: it measures only its own round trips.
        why_not_here: Option<String>,
    },
    /// It is done.
    Done,
    /// The edge cannot do it: why, as a sentence without its stop.
    Refused(String),
    /// To [`CatchmentAsk::Progress`].
    Progress(MeasurementProgress),
}

/// How far an edge is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MeasurementProgress {
    /// Whether the edge still sends or waits for its own round trips.
    pub is_busy: bool,
    /// Requests from the anycast address that were sent.
    pub sent: u64,
    /// Requests that the system did not send.
    pub unsent: u64,
    /// Targets that the edge may not ping.
    pub refused: u64,
    /// Replies that count.
    pub counted: u64,
    /// Right replies that came again.
    pub duplicates: u64,
    /// Replies that no target has sent to these requests.
    pub forged: u64,
    /// The results, by the number of the target. Targets without any are left out.
    pub results: Vec<TargetResult>,
    /// Whether there are more results after the last one.
    #[serde(default)]
    pub has_more: bool,
}

/// What an edge knows of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetResult {
    /// The number of the target.
    #[serde(rename = "n")]
    pub number: u32,
    /// Whether its reply to the anycast address came to this edge.
    #[serde(rename = "l")]
    pub has_landed: bool,
    /// The round trip between this edge and the target, in microseconds.
    #[serde(default, rename = "u", skip_serializing_if = "Option::is_none")]
    pub us: Option<u32>,
}

impl CatchmentAnswer {
    /// Removes half of a list; `false` if nothing can be removed.
    pub(crate) fn halve(&mut self) -> bool {
        let halve = |length: usize, has_more: &mut bool| {
            *has_more |= length > 1;
            (length > 1).then_some(length / 2)
        };
        let left = match self {
            Self::Clients(list) => {
                halve(list.clients.len(), &mut list.has_more).map(|left| list.clients.truncate(left))
            }
            Self::Progress(progress) => {
                halve(progress.results.len(), &mut progress.has_more).map(|left| progress.results.truncate(left))
            }
            Self::Opened { .. } | Self::Done | Self::Refused(_) => None,
        };
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asks::{Answer, Ask, MAX_ASK_BYTES, ask_bytes, read};

    #[test]
    fn results_are_cut_to_what_may_travel_and_say_so() {
        let results = (0..1_000).map(|number| TargetResult { number, has_landed: true, us: Some(number) }).collect();
        let progress = MeasurementProgress { results, ..MeasurementProgress::default() };
        let bytes = Answer::Catchment(CatchmentAnswer::Progress(progress.clone())).into_bytes(10_000).unwrap();
        let Some(Answer::Catchment(CatchmentAnswer::Progress(cut))) = read(&bytes, 10_000) else { panic!("not read") };
        assert!(cut.has_more && !cut.results.is_empty());
        assert_eq!(cut.results, progress.results[..cut.results.len()]);
        assert!(Answer::Catchment(CatchmentAnswer::Done).into_bytes(1).is_err());
    }

    #[test]
    fn a_question_has_room_for_its_targets_and_shows_no_key() {
        let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
        let targets = vec![longest; MAX_ASKED_TARGETS];
        let ask = Ask::Catchment(CatchmentAsk::Targets { id: "x".repeat(36), first: u32::MAX, targets });
        let bytes = ask_bytes(&ask).unwrap();
        assert!(bytes.len() < MAX_ASK_BYTES, "{}", bytes.len());
        assert_eq!(read(&bytes, MAX_ASK_BYTES), Some(ask));
        assert_eq!(format!("{:?}", MeasurementKey([7; 16])), "MeasurementKey(..)");
    }
}
