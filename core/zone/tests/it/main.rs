//! What the name server says, read by a parser of another hand.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod denial;
mod edns;
mod limits;
mod lookup;
mod query_corpus;
mod query_fuzz;
mod rollover;
mod steering;
mod support;
mod transfers;
mod view;
mod zone_text_corpus;
mod zone_text_fuzz;
mod zones;
