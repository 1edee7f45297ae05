//! The records of a flow at its end: audit event, log line, counts.
//!
//! May use `state`, `origins`, `metrics`.

pub(crate) mod audit;
pub(crate) mod flow;
