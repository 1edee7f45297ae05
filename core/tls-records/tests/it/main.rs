//! The public interface of the TLS 1.3 record layer.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod forger;
mod openssl;
mod record_corpus;
mod record_fuzz;
mod section_5;
mod side;
