//! Questions of control to the edges about what only edges know, and the answers.
//!
//! Between machines a question is a core NATS request to each edge, which the bus does not store. On one machine it is
//! a call. Control decides about permissions: an edge answers only about the organisation that the question names.

use std::{fmt, sync::Arc, time::Duration};

use sallyport_directory::EdgeCard;
use sallyport_model::{AccountId, ChallengeId, SocketId, SocketName};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    AnycastAnswer, AnycastAsk, CatchmentAnswer, CatchmentAsk, ClientList, ClientsBy, EdgeFigures, EndedList, FlowList,
    FlowSeen, LiveFlows, SocketUse, TunnelFigures, WayList,
};

/// The schema version written, and the only one read. Fields and questions may be added.
pub const ASK_SCHEMA: u32 = 1;
/// Time that an edge has to answer.
pub const ASK_TIME: Duration = Duration::from_secs(1);
/// The largest answer of one edge, in bytes. The bus may have a lower limit. Lists are shortened to fit.
pub const MAX_ANSWER_BYTES: usize = 512 * 1024;
/// The largest question, in bytes.
pub const MAX_ASK_BYTES: usize = 64 * 1024;
/// The most list items in one answer.
pub const MAX_ANSWER_ITEMS: usize = 1_000;

/// A question to an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// The running flows of the organisation, sorted by id.
    Flows {
        /// The organisation.
        organisation: AccountId,
        /// Only flows with greater ids.
        after: String,
        /// The most flows to return.
        limit: usize,
    },
    /// Ends a flow of the organisation.
    KillFlow {
        /// The organisation.
        organisation: AccountId,
        /// The id of the flow.
        flow: String,
    },
    /// The counters of the organisation's socket.
    Stats {
        /// The organisation.
        organisation: AccountId,
        /// The socket.
        socket: SocketId,
    },
    /// The recently ended flows and requests of the organisation's sockets.
    Ended {
        /// The organisation.
        organisation: AccountId,
        /// Only those of this socket.
        socket: Option<SocketId>,
        /// The first ones after this number; the newest ones if absent.
        after: Option<u64>,
        /// The most entries to return.
        limit: usize,
    },
    /// The tunnels of the organisation's socket.
    Tunnels {
        /// The organisation.
        organisation: AccountId,
        /// The socket.
        socket: SocketId,
    },
    /// Figures of the edge process, for the owner of the installation.
    Figures,
    /// The ways that the edge measures, for the owner of the installation.
    Ways {
        /// A host that the edge measures from now on, for a while.
        to: Option<String>,
    },
    /// Where the clients of the edge come from, for the owner of the installation.
    Clients {
        /// How clients are put together.
        by: ClientsBy,
        /// The most entries to return: those with the most connections.
        limit: usize,
    },
    /// The prefixes that the edge announces, for the owner of the installation.
    Anycast(AnycastAsk),
    /// About where clients land, for the owner of the installation.
    Catchment(CatchmentAsk),
    /// Whether the edge answers this challenge of an ACME server.
    HasChallenge {
        /// The challenge.
        challenge: ChallengeId,
    },
}

/// An answer of an edge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Ask::Flows`].
    Flows(FlowList),
    /// To [`Ask::KillFlow`]: the socket of the ended flow; `None`: this edge has no such flow.
    Killed(Option<SocketName>),
    /// To [`Ask::Stats`]; `None`: the edge knows no such socket of the organisation.
    Stats(Option<Box<SocketUse>>),
    /// To [`Ask::Ended`].
    Ended(EndedList),
    /// To [`Ask::Tunnels`]: the tunnels that this edge holds.
    Tunnels(Vec<TunnelFigures>),
    /// To [`Ask::Figures`].
    Figures(EdgeFigures),
    /// To [`Ask::Ways`].
    Ways(WayList),
    /// To [`Ask::Clients`].
    Clients(ClientList),
    /// To [`Ask::Anycast`].
    Anycast(AnycastAnswer),
    /// To [`Ask::Catchment`].
    Catchment(CatchmentAnswer),
    /// To [`Ask::HasChallenge`].
    HasChallenge(bool),
    /// The question is of a later version of this program.
    NotUnderstood,
}

/// Answers questions at an edge, without waiting.
pub trait Responder: Send + Sync + 'static {
    /// Answers the question.
    fn answer(&self, ask: Ask) -> Answer;
}

impl Responder for LiveFlows {
    fn answer(&self, ask: Ask) -> Answer {
        match ask {
            Ask::Flows { organisation, after, limit } => {
                let (flows, has_more) = self.of(organisation, &after, limit.min(MAX_ANSWER_ITEMS));
                Answer::Flows(FlowList { flows: flows.iter().map(|flow| FlowSeen::from(&**flow)).collect(), has_more })
            }
            Ask::KillFlow { organisation, flow } => {
                Answer::Killed(self.kill(organisation, &flow).map(|flow| flow.socket_name.clone()))
            }
            Ask::Stats { .. }
            | Ask::Ended { .. }
            | Ask::Tunnels { .. }
            | Ask::Figures
            | Ask::Ways { .. }
            | Ask::Clients { .. }
            | Ask::Anycast(_)
            | Ask::Catchment(_)
            | Ask::HasChallenge { .. } => Answer::NotUnderstood,
        }
    }
}

impl Answer {
    /// Removes half of a list; `false` if nothing can be removed.
    fn halve(&mut self) -> bool {
        match self {
            Self::Flows(list) if list.flows.len() > 1 => {
                list.flows.truncate(list.flows.len() / 2);
                list.has_more = true;
                true
            }
            // Keeps the first entries: the asker continues after them.
            Self::Ended(list) if list.entries.len() > 1 => {
                list.entries.truncate(list.entries.len() / 2);
                true
            }
            Self::Stats(Some(counted)) if !counted.origins.is_empty() => {
                counted.origins.truncate(counted.origins.len() / 2);
                true
            }
            Self::Ways(list) if list.ways.len() > 1 => {
                list.ways.truncate(list.ways.len() / 2);
                list.has_more = true;
                true
            }
            Self::Clients(list) if list.clients.len() > 1 => {
                list.clients.truncate(list.clients.len() / 2);
                list.has_more = true;
                true
            }
            Self::Anycast(answer) => answer.halve(),
            Self::Catchment(answer) => answer.halve(),
            Self::Flows(_)
            | Self::Clients(_)
            | Self::Ways(_)
            | Self::Killed(_)
            | Self::Stats(_)
            | Self::Ended(_)
            | Self::Tunnels(_)
            | Self::Figures(_)
            | Self::HasChallenge(_)
            | Self::NotUnderstood => false,
        }
    }

    /// Encodes the answer in at most `max_bytes`.
    pub(crate) fn into_bytes(mut self, max_bytes: usize) -> Result<Vec<u8>, String> {
        loop {
            let bytes = serde_json::to_vec(&Framed { schema: ASK_SCHEMA, of: &self }).map_err(|e| e.to_string())?;
            if bytes.len() <= max_bytes {
                return Ok(bytes);
            }
            if !self.halve() {
                return Err(format!("an answer of {} bytes exceeds the limit of {max_bytes}", bytes.len()));
            }
        }
    }
}

#[derive(Serialize)]
struct Framed<'a, T> {
    schema: u32,
    of: &'a T,
}

/// Encodes a question.
pub(crate) fn ask_bytes(ask: &Ask) -> Result<Vec<u8>, String> {
    serde_json::to_vec(&Framed { schema: ASK_SCHEMA, of: ask }).map_err(|error| error.to_string())
}

/// Decodes a message; `None` if it is of a later version, damaged or too large.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8], max_bytes: usize) -> Option<T> {
    #[derive(Deserialize)]
    struct Owned<T> {
        schema: u32,
        of: T,
    }
    if bytes.len() > max_bytes {
        return None;
    }
    let read: Owned<T> = serde_json::from_slice(bytes).ok()?;
    (read.schema == ASK_SCHEMA).then_some(read.of)
}

/// The answer of one edge.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// The edge; `None` on one machine.
    pub edge: Option<Arc<EdgeCard>>,
    /// Round-trip time of the question.
    pub took: Duration,
    /// The answer.
    pub answer: Answer,
}

/// An edge that has not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredEdge {
    /// The edge.
    pub edge: Arc<EdgeCard>,
    /// The reason.
    pub why: NoAnswerReason,
}

/// Reason why an edge has not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswerReason {
    /// It took longer than [`ASK_TIME`].
    TimedOut,
    /// The bus is unavailable.
    BusAway,
    /// No process listens at the edge.
    NobodyThere,
    /// One side does not understand the other's message.
    OtherVersion,
}

impl fmt::Display for NoAnswerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => write!(f, "no answer within {} s", ASK_TIME.as_secs()),
            Self::BusAway => f.write_str("the bus is unavailable"),
            Self::NobodyThere => f.write_str("no process listens there"),
            Self::OtherVersion => f.write_str("the edge runs another version of the program"),
        }
    }
}

/// The answers of all edges.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AskResults {
    /// In the order in which the answers arrived.
    pub answered: Vec<Answered>,
    /// The edges without an answer, by name.
    pub silent: Vec<UnansweredEdge>,
}

#[cfg(test)]
mod tests {
    use sallyport_model::SocketType;

    use super::*;
    use crate::{ClientFigures, WayFigures};

    fn seen(id: usize) -> FlowSeen {
        FlowSeen {
            id: format!("{id:020}"),
            socket: SocketId::from_random([1; 16]),
            socket_name: "calm-bay-1000".parse().unwrap(),
            transport: SocketType::Tcp,
            tunnel: None,
            direct_origin: None,
            identity: None,
            client: "192.0.2.1:1".parse().unwrap(),
            began_ms: 0,
            bytes: 0,
        }
    }

    #[test]
    fn a_list_is_cut_to_what_may_travel_and_says_so() {
        let list = FlowList { flows: (0..100).map(seen).collect(), has_more: false };
        let bytes = Answer::Flows(list.clone()).into_bytes(4_000).unwrap();
        assert!(bytes.len() <= 4_000);
        let Some(Answer::Flows(cut)) = read(&bytes, MAX_ANSWER_BYTES) else { panic!("not read") };
        assert!(cut.has_more && !cut.flows.is_empty());
        assert_eq!(cut.flows, list.flows[..cut.flows.len()], "the first ones stay");
        assert!(Answer::Flows(list).into_bytes(10).is_err(), "what cannot be cut enough does not travel");
    }

    #[test]
    fn ways_are_cut_to_what_may_travel_and_say_so() {
        let way = |number: usize| WayFigures { to: format!("host-{number}.example"), ..WayFigures::default() };
        let list = WayList { ways: (0..500).map(way).collect(), notes: vec!["a note".to_owned()], has_more: false };
        let bytes = Answer::Ways(list.clone()).into_bytes(10_000).unwrap();
        let Some(Answer::Ways(cut)) = read(&bytes, MAX_ANSWER_BYTES) else { panic!("not read") };
        assert!(cut.has_more && !cut.ways.is_empty() && cut.notes == list.notes);
        assert_eq!(cut.ways, list.ways[..cut.ways.len()]);
        assert!(Answer::Ways(list).into_bytes(10).is_err());
    }

    #[test]
    fn clients_are_cut_to_what_may_travel_and_say_so() {
        let clients =
            |prefix: usize| ClientFigures { connections: 1, networks: prefix as u64, ..ClientFigures::default() };
        let list = ClientList { clients: (0..500).map(clients).collect(), has_more: false };
        let bytes = Answer::Clients(list.clone()).into_bytes(5_000).unwrap();
        let Some(Answer::Clients(cut)) = read(&bytes, MAX_ANSWER_BYTES) else { panic!("not read") };
        assert!(cut.has_more && !cut.clients.is_empty());
        assert_eq!(cut.clients, list.clients[..cut.clients.len()], "those with the most connections stay");
    }

    #[test]
    fn what_is_of_another_version_or_damaged_is_not_read() {
        let ask = Ask::KillFlow { organisation: AccountId::from_random([1; 16]), flow: "x".to_owned() };
        let bytes = ask_bytes(&ask).unwrap();
        assert_eq!(read::<Ask>(&bytes, MAX_ASK_BYTES), Some(ask));
        assert_eq!(read::<Ask>(&bytes, bytes.len() - 1), None, "it is too large");
        for bad in ["", "{}", r#"{"schema":1,"of":{"colour":{}}}"#, r#"{"schema":2,"of":"not-understood"}"#] {
            assert_eq!(read::<Ask>(bad.as_bytes(), MAX_ASK_BYTES), None, "{bad}");
            assert!(read::<Answer>(bad.as_bytes(), MAX_ASK_BYTES).is_none(), "{bad}");
        }
    }
}
