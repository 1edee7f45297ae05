//! Carriers over QUIC and WebSocket, for networks that do not let TLS with the tunnel's ALPN through.

pub mod quic;
pub mod websocket;
