//! Sockets with their names, ports, tunnels, direct origins and policies.
//!
//! May use: `accounts`, `identity`, `cluster`, `db`.

pub(crate) mod labels;
pub(crate) mod origins;
pub(crate) mod policies;
pub(crate) mod ports;
pub(crate) mod socket;
pub(crate) mod socket_names;
pub(crate) mod tunnels;
