//! Bodies of requests on their way to an origin.
//!
//! Uses `lifecycle`, `policy`, `util`.

pub(crate) mod upload;
pub(crate) mod upload_meter;
