//! Tasks that run for as long as control lives: heartbeats, sweeps, and publishing the store to the edges.
//!
//! May use: `service` and what that may use.

pub(crate) mod catchment;
pub(crate) mod cluster;
mod config_source;
pub(crate) mod dns_steering;
pub(crate) mod egress;
pub(crate) mod names;
mod reload;
pub(crate) mod steering;
pub(crate) mod tidy;

pub use catchment::DEFAULT_CATCHMENT_PERIOD;
pub use config_source::ConfigPublishing;
