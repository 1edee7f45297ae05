//! TCP and TLS connections other than HTTP. [`flow::serve`] is the whole path of a connection.
//!
//! May use `access`, `record`, `state`, `origins`, `client`, `metrics`, `lifecycle`, `util`.

pub(crate) mod connect;
pub(crate) mod flow;
