//! The origins of a socket: their health, the selection of one for a request or flow, and the transport to it.
//!
//! May use `util`, `lifecycle`, `config`, `metrics`, `policy`, `body`.
//!
//! [`pool`] has all origins of a socket, and [`selection`] chooses among them: by affinity, by region, else by the load
//! for the weight. [`quotas`] bound what each gets. [`health`] checks origins, and [`health_state`] has the results. [`transport`] has the four ways to
//! reach an origin.

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
pub(crate) mod quotas;
pub(crate) mod rules;
pub(crate) mod selection;
pub(crate) mod set;
pub(crate) mod transport;
