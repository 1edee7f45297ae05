//! Probes on real paths, in network namespaces that each test makes; they end with its processes.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests fail by panicking")]

mod catchment;
mod hostile;
mod networks;
mod paths;
