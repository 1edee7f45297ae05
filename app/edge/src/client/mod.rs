//! The client's side of a connection: TCP, TLS, and the certificate that the client presented.
//!
//! May use `util`.

pub(crate) mod certificate;
pub(crate) mod round_trips;
pub(crate) mod tcp;
pub(crate) mod tls;
