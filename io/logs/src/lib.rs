//! The log for people: how its lines are written, and their way to whoever reads them. The access log is a part of it,
//! with a line for each request, so both are on the way of a request.

mod buffer;
mod lines;

pub use buffer::{LogBuffer, LogWriter};
pub use lines::Lines;
