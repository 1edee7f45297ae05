//! The rules of HTTP at a front door, from outside.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod cases;
mod codec;
mod forwarding;
mod http1_corpus;
mod http1_fuzz;
mod looks;
mod pages;
mod path_corpus;
mod path_fuzz;
mod properties;
mod reference;
mod requests;
mod server;
