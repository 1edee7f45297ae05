//! What remains of a flow: its audit event, its line, its place in the counts.
//!
//! Uses `origins`, `metrics`.

pub(crate) mod audit;
pub(crate) mod flow;
