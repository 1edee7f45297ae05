//! The router: one function of named steps, its interfaces and its reasons. Uses the parser, checksums and routes.

mod reason;
mod rewrite;
mod router;
mod special;
mod steps;

pub use reason::{DropReason, PassReason, Verdict};
pub use rewrite::rewrite;
pub use router::{Interface, MAX_INTERFACES, MAX_NEIGHBORS, ReversePath, Router, RouterError};
pub use steps::{Observer, Outcome, Step, admit, forward, send};
