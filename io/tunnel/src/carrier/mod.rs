//! Carriers other than TLS with our ALPN, for networks that let nothing else through.

pub mod quic;
pub mod websocket;
