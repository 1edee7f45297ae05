//! Small tools without a meaning of their own: request ids, dates, timers.
//!
//! May use no other room.

pub(crate) mod http_date;
pub(crate) mod idle_timer;
pub(crate) mod ids;
pub(crate) mod wake_gated;
