//! Choosing among the origins of a socket, and when none of them is to be asked. Pure: time and randomness are
//! arguments.
//!
//! Which origin is next:
//! - [`Rotation`] takes the least loaded candidate for its [`Weight`] and, where several are equally loaded, the next
//!   one in turn; so equal loads are spread exactly evenly, or exactly by weight.
//! - [`maglev`] gives a client the same origin as long as that is there, by a keyed hash of its address.
//! - [`affinity`] gives a client the same origin by a cookie.
//! - [`Attempts`] remembers which candidates one request has tried.
//!
//! Which origins are usable: [`health`] follows checks that are made, [`ejection`] what requests met.
//!
//! How much a socket takes: [`limits`].

pub mod affinity;
mod attempts;
pub mod ejection;
mod hash;
pub mod health;
pub mod limits;
pub mod maglev;
mod rotation;

pub use attempts::{Attempts, MAX_ATTEMPTS};
pub use hash::{HashKey, OriginId};
pub use rotation::{MAX_WEIGHT, Rotation, Weight, WeightError};
