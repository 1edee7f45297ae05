//! A port in real processes' roles: its sockets, and its way to the next process.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod lab;
mod sockets;
mod takeover;
mod tokens;
