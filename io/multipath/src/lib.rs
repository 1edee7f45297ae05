//! Associations over several paths on UDP sockets, and QUIC on top of them.
//!
//! [`Multipath`] drives one [`sallyport_multipath::Association`]. The connector has a UDP socket for each link
//! ([`LinkSocket`]). The edge has the sockets of its QUIC port, where [`Associations`] finds the association of a packet
//! by its id. [`endpoint`] makes an association look like one UDP socket to quinn. Its datagrams travel by all paths.

mod association;
mod edge;
mod link;
mod quic;
mod socket;

pub use association::{DriverCounts, Multipath, PathReport};
pub use edge::{Associations, MAX_ASSOCIATIONS, Offer};
pub use link::LinkSocket;
pub use quic::{endpoint, server_config, transport};
