//! What the controls over one store know of each other: heartbeats, and attempts that others counted.
//!
//! May use: nothing else of this crate.

pub(crate) mod attempt_gossip;
pub(crate) mod peers;
