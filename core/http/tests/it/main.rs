//! Tests of `sallyport-http` through its public interface.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod forwarding;
mod looks;
mod pages;
mod path_corpus;
mod path_fuzz;
mod requests;
mod websockets;
