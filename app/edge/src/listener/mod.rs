//! Ports: accepting connections, reading what each is for, and handing it to the room that serves it.
//!
//! May use every room but `serve`.
//!
//! A connection is served in a shard (`io/shards`), a thread in which all of it stays. A connection that carries bulk moves to
//! a thread for bulk, and back.

pub(crate) mod accept;
pub(crate) mod handshake;
pub(crate) mod ports;
pub(crate) mod quic;
pub(crate) mod redirect;
