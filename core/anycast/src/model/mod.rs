//! What an operator sets up: prefixes, neighbours, and orders about edges.

mod announcement;
mod community;
mod order;
mod peer;
mod place;
mod prefix;

use serde::{Deserialize, Serialize};

pub use announcement::Announcement;
pub use community::{Community, CommunityError};
pub use order::{Order, OrderKind};
pub use peer::{BfdTimers, MAX_PREPEND, Peer, PeerError, PeerRole};
pub use place::Place;
pub use prefix::{AllowList, AnycastPrefix, MAX_SERVICE_ADDRESSES, PrefixError};

/// The most prefixes of an installation.
pub const MAX_PREFIXES: usize = 64;
/// The most neighbours of an installation.
pub const MAX_PEERS: usize = 512;
/// The most orders of an installation.
pub const MAX_ORDERS: usize = 256;

/// All of it, as edges get it. Each edge takes its own part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnycastConfig {
    /// The prefixes.
    #[serde(default)]
    pub prefixes: Vec<AnycastPrefix>,
    /// The neighbours.
    #[serde(default)]
    pub peers: Vec<Peer>,
    /// The orders that hold.
    #[serde(default)]
    pub orders: Vec<Order>,
}
