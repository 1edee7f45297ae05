//! Files that strangers give, from the fuzzer's corpus and at random.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests fail by panicking")]

mod atlas_corpus;
mod atlas_fuzz;
mod chaos_corpus;
mod chaos_fuzz;
