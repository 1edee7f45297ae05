//! Carriers over QUIC and WebSocket, for networks that do not let TLS with the tunnel's ALPN through.
//!
//! May use nothing else of this crate.

pub mod quic;
pub mod websocket;
