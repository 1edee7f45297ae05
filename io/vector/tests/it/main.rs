//! The filters that this processor has find what the reference finds.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests fail by panicking")]

mod filters;
#[path = "../../../../core/hashmatch/tests/it/searches.rs"]
mod searches;
