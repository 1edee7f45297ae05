//! Machines of the installation: controls that share the store, and edges.
//!
//! May use: `accounts`, `identity`, `db`.

pub(crate) mod anycast;
pub(crate) mod balancers;
pub(crate) mod controls;
mod dns_settings;
pub(crate) mod edges;
pub(crate) mod egress;
pub(crate) mod leaders;
