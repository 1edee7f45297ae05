//! Associations and QUIC over them, on loopback.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod addresses;
mod lab;
mod port;
mod streams;
