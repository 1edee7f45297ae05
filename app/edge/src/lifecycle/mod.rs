//! What this edge serves at this moment: the phases of shutdown and drain, readiness, and counts of connections,
//! handshakes and flows.
//!
//! May use `util`.

pub(crate) mod counts;
pub(crate) mod flow_count;
pub(crate) mod phase;
pub(crate) mod readiness;
