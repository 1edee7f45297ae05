//! A balancer, and an edge behind one: each is a program at devices, with pinned maps. Uses the loader and the table of
//! ports.

mod balancer;
mod bytes;
mod decap;
mod installed;

pub use balancer::{BalanceRunner, BalanceVerdict, Balancer, TargetCount};
pub use bytes::MAX_STATE_BYTES;
pub use decap::{Decap, DecapConfig, SynLimit};
