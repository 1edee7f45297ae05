//! Real BIRD in networks of their own.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests fail by panicking")]

mod announce;
mod faults;
mod fuzzed;
mod network;
mod refused;
mod rpki;
