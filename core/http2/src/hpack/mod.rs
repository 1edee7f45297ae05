//! The compression of header fields (RFC 7541), as a server needs it: header blocks of requests are read, header blocks
//! of responses are written.
//!
//! What is read comes from clients that nobody knows yet. So memory is bounded by the table that was announced,
//! whatever the block says; what is wrong with the compression ends the connection ([`DecodeError`]); and what is wrong
//! with a field alone ([`Field::Malformed`]) leaves both ends' tables in step.

mod decoder;
mod encoder;
mod field;
mod fixed;
mod huffman;
mod integer;

pub use decoder::{DecodeError, Decoder};
pub use encoder::Encoder;
pub use field::Field;

/// The size of a dynamic table before anybody says otherwise, in bytes as RFC 7541 section 4.1 counts them; also the
/// largest that an [`Encoder`] uses (`SETTINGS_HEADER_TABLE_SIZE`, RFC 9113 section 6.5.2).
pub const DEFAULT_TABLE_BYTES: usize = 4_096;

/// What each entry counts for beside its name and value.
//= RFC 7541 section 4.1
//# The size of an entry is the sum of its name's length in octets (as defined in Section 5.2), its value's length in
//# octets, and 32.
const ENTRY_OVERHEAD_BYTES: usize = 32;
