//! Messages of steering: the corpus of the fuzzer, replayed, and hostile numbers.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod hostile;
mod message_corpus;
