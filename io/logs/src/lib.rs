//! Logs for people: formatting and buffered output.
//!
//! The access log has a line for each request, so both are on the path of a request.

mod buffer;
mod lines;

pub use buffer::{LogBuffer, LogWriter};
pub use lines::Lines;
