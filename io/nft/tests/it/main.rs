//! Real rules in network namespaces that the tests make.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod network;
mod network_rig;
mod site;
