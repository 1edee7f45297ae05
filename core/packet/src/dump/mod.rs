//! What `packet dump` shows: a filter in the words of tcpdump, and a line for each frame. Uses the parser.

mod expression;
mod filter;
mod glance;
mod line;

pub use filter::{Filter, FilterError, MAX_FILTER_BYTES};
pub use glance::{Glance, is_rewritten};
pub use line::{line, link};
