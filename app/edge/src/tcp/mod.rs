//! TCP and TLS connections that are no HTTP.
//!
//! Uses `access`, `record`, `origins`.

pub(crate) mod connect;
pub(crate) mod flow;
