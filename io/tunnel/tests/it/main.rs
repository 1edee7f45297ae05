//! Tunnels end to end: real connectors against real edges, over TLS on loopback and over pipes in memory.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod choppy;
mod flows;
mod lab;
mod life;
mod multipath;
mod quic;
mod sessions;
mod streams;
mod websocket;
