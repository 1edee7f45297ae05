//! The client's side of a connection: TCP, TLS, the certificate that the client showed.
//!
//! Uses `util`.

pub(crate) mod certificate;
pub(crate) mod tcp;
pub(crate) mod tls;
