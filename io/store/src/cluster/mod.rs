//! Machines of the installation: controls that share the store, and edges.
//!
//! May use: `accounts`, `identity`, `db`.

pub(crate) mod anycast;
pub(crate) mod controls;
pub(crate) mod edges;
pub(crate) mod leaders;
