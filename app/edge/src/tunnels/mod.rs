//! The tunnels of connectors: which may attach, and which are detached.
//!
//! May use `ssh`, `origins`.

pub(crate) mod admission;
pub(crate) mod lookup;
