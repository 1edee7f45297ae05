//! Choosing among the origins of a socket. Pure: no clock, no randomness.
//!
//! [`Rotation`] takes the least loaded candidate and, where several are equally loaded, the next one in turn; so equal
//! loads are spread exactly evenly. [`Attempts`] remembers which candidates one request has tried.

mod attempts;
mod rotation;

pub use attempts::{Attempts, MAX_ATTEMPTS};
pub use rotation::Rotation;
