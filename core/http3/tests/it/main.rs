//! HTTP/3, from outside.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod client;
mod connection;
mod qpack;
mod qpack_corpus;
mod qpack_fuzz;
mod qpack_properties;
mod request;
mod request_corpus;
mod request_fuzz;
mod response;
mod unidirectional;
