//! The connector between a real edge and real services, all on loopback.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod capture;
mod edge;
mod flows;
mod lab;
mod network;
mod pools;
mod services;
mod tls;
