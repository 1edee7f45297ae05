//! The ports: accepts connections, reads what each is for, and hands it to the room that serves it.
//!
//! May use every room but `serve`.
//!
//! A connection is served in a shard (`io/shards`), one thread for its whole life. Bulk transfers move to a thread for
//! bulk, and back.

pub(crate) mod accept;
pub(crate) mod handshake;
pub(crate) mod multipath;
pub(crate) mod ports;
pub(crate) mod quic;
pub(crate) mod redirect;
