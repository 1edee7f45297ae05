//! From a request to its handler and back: caller, body, page, and the parts that every answer has.
//!
//! May use: `audit`, `state`, `security`, `problem`.

pub(crate) mod caller;
pub(crate) mod creation;
pub(crate) mod etag;
pub(crate) mod extract;
pub(crate) mod lines;
pub(crate) mod middleware;
mod mysocket_error;
pub(crate) mod once;
mod strict_json;
pub(crate) mod via;
