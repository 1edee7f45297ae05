//! Carriers over QUIC and WebSocket, for networks that do not let TLS with the tunnel's ALPN through, and the question
//! for an association of paths, over which QUIC uses several links at once.
//!
//! May use nothing else of this crate.

pub mod association;
pub mod quic;
pub mod websocket;
