//! The tunnel protocol as sans-IO state machines.
//!
//! `docs/tunnel-protocol.md` describes the protocol. [`session::Session`] is one end of a control connection with its
//! multiplexed streams. [`leg::LegState`] is one end of a leg, which carries one stream at a time.
//! [`datagram::DatagramLeg`] is one end of a datagram leg, which carries the flows of a session. [`packets`] has the
//! layout of IP packets on a packet carrier. [`demand::LegDemand`]
//! decides how many legs an edge should have, [`backoff::Backoff`] when a connector dials again. Time and randomness
//! are arguments.

mod awaited;
pub mod backoff;
mod by_number;
mod clients;
pub mod datagram;
pub mod demand;
pub mod edge_selector;
pub mod frame;
pub mod leg;
mod lifecycle;
mod log_budget;
pub mod message;
pub mod packets;
pub mod session;
mod violation;

pub use awaited::Awaited;
pub use backoff::Backoff;
pub use by_number::{ByNumber, NumberHasher};
pub use clients::{Client, MAX_OF_LEFT, Shares};
pub use datagram::{DatagramInput, DatagramLeg, DatagramStats, FlowEnd, FlowId, FlowOpen, FlowOpenError};
pub use demand::LegDemand;
pub use frame::{Carrier, FrameHeader, FrameType, Side};
pub use leg::{LegInput, LegMisuse, LegState};
pub use log_budget::{LOGGED_PER_SECOND, LogBudget, LogShare, MAX_LOGGED_BURST};
pub use message::{
    Associate, Associated, Attach, Attached, Detach, EdgePlace, Edges, FailureReason, GoAway, Hello, Join, JoinNetwork,
    Links, NOT_YET_KNOWN, Neighbours, NetworkJoined, NotAttached, Open, OpenFailure, Refusal, ResetCode,
    StreamProtocol, Welcome,
};
pub use session::{DownReason, Event, OpenError, Read, Session, SessionConfig, StreamError, StreamId, TimeoutReason};
pub use violation::Violation;

/// ALPN id of the protocol (RFC 7301).
pub const ALPN: &[u8] = b"sallyport-tunnel/1";
/// ALPN id of the protocol between edges: the same frames with reversed roles. The edge that is called sends HELLO.
pub const MESH_ALPN: &[u8] = b"sallyport-mesh/1";
/// The protocol version of this crate.
pub const VERSION: u16 = 1;
