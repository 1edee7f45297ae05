//! What controls over one store know of each other: which of them live, and which attempts each has counted.
//!
//! May use: nothing else of this crate.

pub(crate) mod attempt_gossip;
pub(crate) mod peers;
