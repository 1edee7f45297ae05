//! The fuzz targets' bodies, with their corpora.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod corpus;
mod fuzz_bodies;
