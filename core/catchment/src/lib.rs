//! The round trips of real clients, by the network that they come from: a bounded table. Pure: time is an argument.
//!
//! Networks are prefixes of 24 bits in IPv4 and of 48 bits in IPv6, so that no entry tells of one person. The number of
//! prefixes is bounded: a new one takes the place of the one that was not seen for the longest.

mod prefix;
mod system;
mod table;

pub use prefix::Prefix;
pub use system::{ClientSystem, by_system};
pub use table::{Catchment, ClientNetwork, MAX_CLIENT_ROUND_TRIP, MAX_PREFIXES, ROUND_TRIP_WINDOW};
