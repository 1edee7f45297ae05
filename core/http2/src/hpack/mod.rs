//! Header compression (RFC 7541) for a server: decodes header blocks of requests, and encodes those of responses.
//!
//! Input comes from unauthenticated clients. So memory is bounded by the announced table size, whatever a block
//! contains. An error in the compression ends the connection ([`DecodeError`]); an invalid field ([`Field::Malformed`])
//! leaves both tables in step.
//!
//! QPACK (RFC 9204) has the same integers, strings and fields, so they are public: [`integer`], [`Strings`],
//! [`huffman`], [`Name`], and entries of a static table ([`Entry`]).
//!
//! May use: nothing else of this crate.

mod decoder;
mod encoder;
mod entry;
mod field;
mod fixed;
pub mod huffman;
pub mod integer;
mod string;

pub use decoder::{DecodeError, Decoder};
pub use encoder::Encoder;
pub use entry::{Entry, digest};
pub use field::{Field, Name};
pub use string::Strings;

/// Initial size of a dynamic table, in bytes as in RFC 7541 section 4.1; also the largest one that an [`Encoder`] uses
/// (`SETTINGS_HEADER_TABLE_SIZE`, RFC 9113 section 6.5.2).
pub const DEFAULT_TABLE_BYTES: usize = 4_096;

/// Overhead of an entry in addition to its name and value.
//= RFC 7541 section 4.1
//# The size of an entry is the sum of its name's length in octets (as defined in Section 5.2), its value's length in
//# octets, and 32.
pub const ENTRY_OVERHEAD_BYTES: usize = 32;
