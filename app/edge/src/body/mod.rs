//! Bodies of requests on their way to an origin.
//!
//! Uses `lifecycle`, `policy`, `util`.

pub(crate) mod h1;
pub(crate) mod h2;
pub(crate) mod upload;
pub(crate) mod upload_meter;
