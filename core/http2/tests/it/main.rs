//! HTTP/2, from outside.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod client;
mod frames_corpus;
mod frames_fuzz;
mod hpack;
mod hpack_code;
mod hpack_corpus;
mod hpack_encoder;
mod hpack_fuzz;
mod hpack_properties;
mod server;
mod server_bounds;
mod server_properties;
mod tunnels;
