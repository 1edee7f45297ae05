//! TCP and TLS connections that are no HTTP. [`flow::serve`] is the whole path of one.
//!
//! May use `access`, `record`, `state`, `origins`, `client`, `metrics`, `lifecycle`, `util`.

pub(crate) mod connect;
pub(crate) mod flow;
