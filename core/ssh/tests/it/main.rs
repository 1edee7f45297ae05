//! What fuzzers look for, with their corpora.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod corpus;
mod fuzz_bodies;
