//! Networks of machines, and the leases of their addresses.
//!
//! May use: `db`.

pub(crate) mod machines;
pub(crate) mod network;
