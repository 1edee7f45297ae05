//! Load balancing and admission for the origins of a socket. Pure: time and randomness are arguments.
//!
//! Selection of an origin:
//! - [`Rotation`] takes the least loaded candidate for its [`Weight`], and ties in turn, so that equal loads are spread
//!   exactly evenly, or exactly by weight.
//! - [`maglev`] keeps a client with the same origin by a keyed hash of its address.
//! - [`affinity`] keeps a client with the same origin by a cookie.
//! - [`nearness`] finds the nearest of the origins at several edges.
//! - [`Attempts`] records the candidates that one request has tried, and [`Delivery`] decides whether the request may
//!   be sent again.
//! - [`regions`] selects the region if the owner has dialed some of the regions down.
//!
//! Selection among the endpoints of one origin, in a connector: [`endpoints`].
//!
//! Usable origins: [`health`] follows active checks, [`ejection`] the outcome of requests.
//!
//! Limits of a socket: [`limits`].

pub mod affinity;
mod attempts;
mod delivery;
pub mod ejection;
pub mod endpoints;
mod hash;
pub mod health;
pub mod limits;
pub mod maglev;
pub mod nearness;
pub mod regions;
mod rotation;

pub use attempts::{Attempts, MAX_ATTEMPTS};
pub use delivery::{Delivery, Next, Received};
pub use hash::{HashKey, OriginId};
pub use rotation::{MAX_WEIGHT, Rotation, Weight, WeightError};
