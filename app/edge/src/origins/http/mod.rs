//! HTTP with origins: one exchange, its connection, and the body of its response.
//!
//! May use `transport`, `origin` and `connection_limits` of `origins`, and the room `body`.

pub(crate) mod exchange;
pub(crate) mod forwarding;
pub(crate) mod h1;
pub(crate) mod response_body;
pub(crate) mod tls_detection;
