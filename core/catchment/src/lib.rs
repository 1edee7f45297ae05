//! Where clients land: the round trips of real clients by network, the table of what is known of each network, and what
//! follows from it. Pure: time is an argument.
//!
//! Networks are prefixes of 24 bits in IPv4 and of 48 bits in IPv6, so that no entry tells of one person. The number of
//! prefixes is bounded: a new one takes the place of the one that was not seen for the longest.
//!
//! [`Catchment`] is the table of one edge. [`Landings`] is the one table of the installation: its [`Row`]s come from
//! clients, pings, name servers and probes. [`SteeringTable`] follows from it.

mod prefix;
mod rows;
mod steering;
mod system;
mod table;

pub use prefix::{Prefix, PrefixError};
pub use rows::{HALF_LIFE_SECONDS, Landing, Landings, MAX_ROWS, Row, Source, SourceError};
pub use steering::{SteeringRules, SteeringTable};
pub use system::{ClientSystem, by_system};
pub use table::{Catchment, ClientNetwork, MAX_CLIENT_ROUND_TRIP, MAX_PREFIXES, ROUND_TRIP_WINDOW};
