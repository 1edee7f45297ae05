//! What control asks the edges about what only they know, and what they answer.
//!
//! Between machines asks are requests of core NATS, one to each edge, and nothing of them is kept anywhere. On one machine they
//! are calls. Who may ask what is decided at control: an edge answers about the organisation that an ask names, and about
//! nothing else.

use std::{fmt, sync::Arc, time::Duration};

use sallyport_directory::EdgeCard;
use sallyport_model::{AccountId, SocketId, SocketName};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{EdgeFigures, EndedList, FlowList, FlowSeen, HeldTunnel, LiveFlows, SocketUse};

/// The schema that this program writes and the only one that it reads. Fields and questions may be added to it.
pub const ASK_SCHEMA: u32 = 1;
/// How long an edge may take to answer.
pub const ASK_TIME: Duration = Duration::from_secs(1);
/// The largest answer of one edge, in bytes; less where the bus takes less. Lists are cut to it.
pub const MAX_ANSWER_BYTES: usize = 512 * 1024;
/// The largest question, in bytes.
pub const MAX_ASK_BYTES: usize = 64 * 1024;
/// The most items of a list in one answer.
pub const MAX_ANSWER_ITEMS: usize = 1_000;

/// A question to an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Which flows of the organisation run, in the order of their ids.
    Flows {
        /// Whose.
        organisation: AccountId,
        /// Behind which id.
        after: String,
        /// How many at most.
        limit: usize,
    },
    /// Cut a flow of the organisation.
    KillFlow {
        /// Whose.
        organisation: AccountId,
        /// Its id.
        flow: String,
    },
    /// What was counted of the organisation's socket.
    Stats {
        /// Whose.
        organisation: AccountId,
        /// Which.
        socket: SocketId,
    },
    /// What ended lately at the organisation's sockets.
    Ended {
        /// Whose.
        organisation: AccountId,
        /// Of this socket alone.
        socket: Option<SocketId>,
        /// The first ones behind this number; the newest ones where it is absent.
        after: Option<u64>,
        /// How many at most.
        limit: usize,
    },
    /// How the tunnels of the organisation's socket are.
    Tunnels {
        /// Whose.
        organisation: AccountId,
        /// Which.
        socket: SocketId,
    },
    /// How the edge is. It is about the installation, and for its owner.
    Figures,
}

/// An answer of an edge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Ask::Flows`].
    Flows(FlowList),
    /// To [`Ask::KillFlow`]: the socket of the flow that was cut; `None`: there is no such flow here.
    Killed(Option<SocketName>),
    /// To [`Ask::Stats`]; `None`: the organisation has no such socket that is known here.
    Stats(Option<Box<SocketUse>>),
    /// To [`Ask::Ended`].
    Ended(EndedList),
    /// To [`Ask::Tunnels`]: those that are held here.
    Tunnels(Vec<HeldTunnel>),
    /// To [`Ask::Figures`].
    Figures(EdgeFigures),
    /// The question is of a later version of this program.
    NotUnderstood,
}

/// What an edge answers with. Answers are made at once: nothing is waited for.
pub trait Responder: Send + Sync + 'static {
    /// The answer.
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
            Ask::Stats { .. } | Ask::Ended { .. } | Ask::Tunnels { .. } | Ask::Figures => Answer::NotUnderstood,
        }
    }
}

impl Answer {
    /// Leaves half of a list out; `false` where there is nothing to leave out.
    fn halve(&mut self) -> bool {
        match self {
            Self::Flows(list) if list.flows.len() > 1 => {
                list.flows.truncate(list.flows.len() / 2);
                list.has_more = true;
                true
            }
            // The first ones: whoever asked goes on behind them.
            Self::Ended(list) if list.entries.len() > 1 => {
                list.entries.truncate(list.entries.len() / 2);
                true
            }
            Self::Stats(Some(counted)) if !counted.origins.is_empty() => {
                counted.origins.truncate(counted.origins.len() / 2);
                true
            }
            Self::Flows(_)
            | Self::Killed(_)
            | Self::Stats(_)
            | Self::Ended(_)
            | Self::Tunnels(_)
            | Self::Figures(_)
            | Self::NotUnderstood => false,
        }
    }

    /// As it travels, in no more bytes than this.
    pub(crate) fn into_bytes(mut self, max_bytes: usize) -> Result<Vec<u8>, String> {
        loop {
            let bytes = serde_json::to_vec(&Framed { schema: ASK_SCHEMA, of: &self }).map_err(|e| e.to_string())?;
            if bytes.len() <= max_bytes {
                return Ok(bytes);
            }
            if !self.halve() {
                return Err(format!("an answer of {} bytes is larger than the {max_bytes} that may be", bytes.len()));
            }
        }
    }
}

#[derive(Serialize)]
struct Framed<'a, T> {
    schema: u32,
    of: &'a T,
}

/// The question as it travels.
pub(crate) fn ask_bytes(ask: &Ask) -> Result<Vec<u8>, String> {
    serde_json::to_vec(&Framed { schema: ASK_SCHEMA, of: ask }).map_err(|error| error.to_string())
}

/// What came; `None` where it is of a later version or damaged.
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

/// An edge that has answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// Which; `None` on one machine.
    pub edge: Option<Arc<EdgeCard>>,
    /// How long it took, there and back.
    pub took: Duration,
    /// The answer.
    pub answer: Answer,
}

/// An edge that has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredEdge {
    /// Which.
    pub edge: Arc<EdgeCard>,
    /// Why not.
    pub why: NoAnswerReason,
}

/// Why an edge has not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswerReason {
    /// It took longer than [`ASK_TIME`].
    TimedOut,
    /// The bus is away.
    BusAway,
    /// Nobody listens at the edge.
    NobodyThere,
    /// What came is not understood, there or here.
    OtherVersion,
}

impl fmt::Display for NoAnswerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => write!(f, "no answer within {} s", ASK_TIME.as_secs()),
            Self::BusAway => f.write_str("the bus is away"),
            Self::NobodyThere => f.write_str("nobody listens there"),
            Self::OtherVersion => f.write_str("it runs another version of the program"),
        }
    }
}

/// What the edges said together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AskResults {
    /// Those that answered, in the order in which they did.
    pub answered: Vec<Answered>,
    /// Those that did not, by name.
    pub silent: Vec<UnansweredEdge>,
}

#[cfg(test)]
mod tests {
    use sallyport_model::SocketType;

    use super::*;

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
