//! Tests of `sallyport-http1` through its public interface.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod cases;
mod client;
mod drive;
mod http1_corpus;
mod http1_fuzz;
mod properties;
mod reference;
mod server;
