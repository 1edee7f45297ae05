//! The bus over a real NATS server.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod asks;
mod config;
mod directory;
mod nats;
