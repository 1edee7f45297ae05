//! Compression of fields (RFC 9204), with the static table alone.
//!
//! The server announces a dynamic table of no bytes. So a field section refers to no other one, nothing is held between
//! sections, and no section waits for another stream. Strings, numbers and parsed fields are those of
//! [`sallyport_http2::hpack`].
//!
//! May use: nothing else of this crate.

mod decoder;
mod encoder;
mod fixed;

pub use decoder::{DecodeError, decode};
pub use encoder::{begin, field, status};
