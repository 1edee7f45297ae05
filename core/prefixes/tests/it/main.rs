//! Files of clouds and registries, sets against a model, and reports of a made sample.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests fail by panicking")]

mod pictures;
mod prefix_corpus;
mod prefix_fuzz;
mod readers;
mod reports;
mod sets;
