//! Echo requests against hostile replies, by hand, from the fuzzer's corpus and at random.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests fail by panicking")]

mod replies;
mod reply_corpus;
mod reply_fuzz;
