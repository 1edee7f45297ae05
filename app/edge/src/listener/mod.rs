//! Ports: accepting connections, reading what they are for, and handing them to `http`, `tcp`, `udp`, `tunnels` or `mesh`.
//!
//! Uses every other room.

pub(crate) mod accept;
pub(crate) mod handshake;
pub(crate) mod ports;
pub(crate) mod quic;
pub(crate) mod redirect;
