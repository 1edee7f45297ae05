//! The UDP port for QUIC (RFC 9000): its sockets, its connections, and how both pass to the next process.
//!
//! [`QuicPort`] is the port. It has one socket for each shard, and each socket is a [`QuicSocket`] with an endpoint of
//! its own. The kernel shares new clients out among the sockets. A connection ID names the process and the socket that
//! issued it (`connection_id.rs`). So a datagram that arrives elsewhere, because its client has a new address or
//! because a new process has taken the port, still reaches its connection (`router.rs`,
//! `docs/adr/0070-quic-over-takeovers.md`). Another protocol may have the port too, if its first bytes differ from those
//! of QUIC (`sharing.rs`).

mod connection_id;
mod handover;
mod listener;
mod path;
mod port;
mod probe;
mod router;
mod secret;
mod sharing;
mod socket;
mod transport;

pub use connection_id::{ID_BYTES as CONNECTION_ID_BYTES, ServerNumber};
pub use handover::HandoverError;
pub use listener::{QuicIncoming, QuicListener, close, protocol, server_name};
pub use path::proven_address;
pub use port::{MAX_SOCKETS, QuicPort, QuicSocket};
pub use probe::probe;
pub use router::QuicCounts;
pub use secret::QuicSecret;
pub use sharing::Sharing;
pub use transport::{IDLE_TIMEOUT, transport};
