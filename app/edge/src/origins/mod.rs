//! The origins of a socket: which there are, how they are, which one a request or a flow gets, and how it is reached.
//!
//! Uses `body`, `policy`, `metrics` and what lies below them.

pub(crate) mod affinity;
pub(crate) mod connection_limits;
pub(crate) mod dials;
pub(crate) mod health;
pub(crate) mod health_state;
pub(crate) mod http;
pub(crate) mod locality;
pub(crate) mod metrics;
pub(crate) mod opening;
pub(crate) mod origin;
pub(crate) mod pool;
pub(crate) mod rules;
pub(crate) mod selection;
pub(crate) mod set;
pub(crate) mod transport;
