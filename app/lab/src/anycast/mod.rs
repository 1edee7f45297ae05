//! The internet of an anycast laboratory: networks, links, roles, and the configurations of their routers. Pure.

mod internet;
mod plan;
mod routers;

pub(crate) use internet::{
    ANYCAST_4, ANYCAST_6, CITIES, MAX_SITE_EDGES, Network, NetworkKind, OUR_AS, Relation, SITE_ROUTER_AS, Uplink,
};
pub use internet::{AnycastError, AnycastOptions, AnycastTopology, Internet, Plant};
pub(crate) use plan::{Neighbour, Seat, SeatKind};
pub(crate) use routers::{BFD, VIEW_HOPS};
