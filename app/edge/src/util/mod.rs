//! Small tools without a meaning of their own: request ids, dates, timers, addresses of interfaces.
//!
//! May use no other room.

pub(crate) mod http_date;
pub(crate) mod idle_timer;
pub(crate) mod ids;
pub(crate) mod service_addresses;
pub(crate) mod wake_gated;

/// The program of the requests by which an edge checks itself. The access log leaves them out.
pub(crate) const OWN_PROGRAM: &str = "sallyport-own-check";
