//! Bodies of requests on their way to an origin, over HTTP/1.1 and HTTP/2, and the memory that they may hold.
//!
//! May use `util`, `lifecycle`, `policy`.
//!
//! A body stays whole in its [`UploadState`](upload::UploadState) until an origin has taken the connection. So an attempt that
//! reaches no origin costs nothing, and another origin gets the same body.

pub(crate) mod h1;
pub(crate) mod h2;
pub(crate) mod upload;
pub(crate) mod upload_meter;
