//! Request bodies between a client and an origin, over all versions of HTTP, and the bounds on their memory.
//!
//! May use `util`, `lifecycle`, `policy`.
//!
//! A body stays complete in its [`UploadState`](upload::UploadState) until an origin has accepted the connection. So an
//! attempt that reaches no origin loses nothing, and another origin gets the same body.

pub(crate) mod h1;
pub(crate) mod h2;
pub(crate) mod h3;
pub(crate) mod upload;
pub(crate) mod upload_meter;
