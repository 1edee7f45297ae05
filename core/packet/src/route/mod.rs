//! Forwarding tables: prefixes, DIR-24-8, the trie of IPv6, next hops and groups. Uses only the layout.

mod cells;
mod dir24;
mod entry;
mod fib;
mod next_hops;
mod spread;
mod table;
mod trie6;

pub use cells::Cells;
pub use dir24::Dir24;
pub use entry::Entry;
pub use fib::{Fib, Found, Storage};
pub use next_hops::{Member, NextHop, NextHops};
pub use table::PrefixTable;
pub use trie6::Trie6;

/// A change of the tables that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// There is no room for more blocks or nodes.
    #[error("the forwarding table is full: give it more blocks or nodes, or fewer prefixes")]
    TableFull,
    /// There is no room for more next hops.
    #[error("the table of next hops is full")]
    NextHopsFull,
    /// The number is of no next hop.
    #[error("there is no next hop {0}")]
    UnknownNextHop(u32),
    /// Routes or groups have the next hop.
    #[error("next hop {0} is in use by {1} routes and groups")]
    InUse(u32, usize),
    /// There is no room for this group.
    #[error("there is no room for group {0}")]
    UnknownGroup(u32),
    /// A group has no member with a weight, too many, or another group.
    #[error("a group has 1 to {max} next hops with a weight, and no groups", max = crate::layout::GROUP_SLOTS)]
    BadMembers,
    /// The prefix has no route.
    #[error("there is no route to {0}")]
    NoRoute(ipnet::IpNet),
}
