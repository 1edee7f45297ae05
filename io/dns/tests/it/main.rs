//! The name server on real sockets, beside other programs of DNS where they are installed.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod knot;
mod sockets;
mod steering;
mod support;
mod transfers;
mod validation;
