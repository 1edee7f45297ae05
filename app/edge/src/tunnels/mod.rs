//! Tunnels that connectors bring: which may attach, and which have to go.
//!
//! May use `ssh`, `origins`.

pub(crate) mod admission;
pub(crate) mod lookup;
