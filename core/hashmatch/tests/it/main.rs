//! The search against the reference, the layout of prefixes, and files of indexes.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests fail by panicking")]

mod files;
mod index_corpus;
mod index_fuzz;
mod layout;
mod searches;
