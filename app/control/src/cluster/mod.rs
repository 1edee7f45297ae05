//! What the controls over one store know of each other: heartbeats, attempts that others counted, and which one leads.
//!
//! May use: nothing else of this crate.

pub(crate) mod attempt_gossip;
pub(crate) mod election;
pub(crate) mod peers;
