//! Bounds on request heads of every HTTP version.

/// The longest request target, in bytes. A longer one gets status 414.
pub const MAX_TARGET_BYTES: usize = 16_384;
/// The greatest number of header fields in a request. More get status 431.
pub const MAX_HEADER_COUNT: usize = 100;
/// The longest body that a `Content-Length` or a chunk's size may announce, in bytes.
///
/// The bound fits the signed lengths of most servers.
pub const MAX_BODY_BYTES: u64 = i64::MAX as u64;
