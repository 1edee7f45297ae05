//! The model against examples of the standards, against itself the slow way, and against hostile bytes.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests fail by panicking")]

mod balance;
mod checksum;
mod dump;
mod filter;
mod follow;
mod forward;
mod nat;
mod parse;
mod parse_corpus;
mod parse_fuzz;
mod readers;
mod route;
mod tunnel_corpus;
mod tunnel_fuzz;
