//! The bus over a real NATS.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod config;
mod directory;
mod nats;
