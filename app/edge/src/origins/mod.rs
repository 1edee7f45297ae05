//! The origins of a socket: which there are, how they are, which one a request or a flow gets, and how it is reached.
//!
//! May use `util`, `lifecycle`, `config`, `metrics`, `policy`, `body`.
//!
//! [`pool`] has all origins of a socket, and [`selection`] chooses among them: by affinity, by region, else the one with the
//! fewest requests for its weight. [`health`] asks them; [`health_state`] is what is known of one. [`transport`] has the four
//! ways to an origin.

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
