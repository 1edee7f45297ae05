//! Bounds on what a client or an origin may send over HTTP/1.

pub use sallyport_http::limits::{MAX_BODY_BYTES, MAX_HEADER_COUNT, MAX_TARGET_BYTES};

/// The longest request head (request line, header fields, empty line), in bytes.
pub const MAX_HEAD_BYTES: usize = 65_536;
/// The longest method, in bytes.
pub const MAX_METHOD_BYTES: usize = 32;
/// The longest line before a chunk, in bytes, without its line end.
pub const MAX_CHUNK_LINE_BYTES: usize = 1_024;
/// The longest chunk extensions of one body together, in bytes. No recipient here gives them a meaning (RFC 9112
/// section 7.1.1).
pub const MAX_CHUNK_EXTENSION_BYTES: usize = 8_192;
/// The longest trailer section, in bytes, without the line feed at its end.
pub const MAX_TRAILER_BYTES: usize = 8_192;
/// The greatest number of trailer fields behind a body.
pub const MAX_TRAILER_COUNT: usize = 64;
