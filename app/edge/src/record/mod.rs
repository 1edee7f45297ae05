//! What remains of a flow when it is over: its audit event, its line in the log, its place in the counts.
//!
//! May use `state`, `origins`, `metrics`.

pub(crate) mod audit;
pub(crate) mod flow;
