//! Tests of `sallyport-inspect` through its public interface.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod corpus;
mod drive;
mod exchanges;
mod export;
mod filters;
mod frames;
mod inspect_fuzz;
mod openapi;
mod replay;
