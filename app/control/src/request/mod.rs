//! From a request to its handler and back: who asks, what the body says, and what every answer gets.
//!
//! May use: `audit`, `state`, `security`, `problem`.

pub(crate) mod caller;
pub(crate) mod creation;
pub(crate) mod extract;
pub(crate) mod middleware;
mod mysocket_error;
mod strict_json;
pub(crate) mod via;
