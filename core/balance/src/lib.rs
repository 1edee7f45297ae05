//! Choosing among the origins of a socket, and when none of them is to be asked. Pure: time and randomness are
//! arguments.
//!
//! Which origin is next:
//! - [`Rotation`] takes the least loaded candidate for its [`Weight`] and, where several are equally loaded, the next
//!   one in turn; so equal loads are spread exactly evenly, or exactly by weight.
//! - [`maglev`] gives a client the same origin as long as that is there, by a keyed hash of its address.
//! - [`affinity`] gives a client the same origin by a cookie.
//! - [`nearness`] says which of the origins at several edges are the nearest.
//! - [`Attempts`] remembers which candidates one request has tried, and [`Delivery`] says whether it may be sent again.
//! - [`regions`] says which region's origins are asked, where the owner has dialed some of them down.
//!
//! Which origins are usable: [`health`] follows checks that are made, [`ejection`] what requests met.
//!
//! How much a socket takes: [`limits`].

pub mod affinity;
mod attempts;
mod delivery;
pub mod ejection;
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
