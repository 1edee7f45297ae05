//! HTTP with origins: one exchange, its connection, the body of its answer.
//!
//! Uses `body` and the transports of origins.

pub(crate) mod exchange;
pub(crate) mod forwarding;
pub(crate) mod h1;
pub(crate) mod response_body;
