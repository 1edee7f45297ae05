//! What BIRD says and what tables say, from the fuzzers' corpora and at random.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests fail by panicking")]

mod anycast_fuzz;
mod corpora;
