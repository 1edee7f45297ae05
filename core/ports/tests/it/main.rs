//! Leases under any order of events.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests fail by panicking")]

mod leases;
mod owners;
