//! From the kernel's routes to the forwarding table: which route decides, shared next hops, what finds no room.

mod follower;
mod targets;

pub use follower::{Follower, Full, MAX_KEPT, Rank, Route};
pub use targets::{Leg, Object, Way};
