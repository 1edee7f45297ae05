//! The outer form of a record: header, content types and length limits.

/// Length of a record's header, in bytes.
pub const HEADER_BYTES: usize = 5;
/// The most bytes of data in one record (RFC 8446 section 5.1).
pub const MAX_PLAIN_BYTES: usize = 16_384;
/// Overhead of encryption for a record in bytes: the header, the content type and the tag.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + TAG_BYTES;
/// The longest encrypted record that carries no data, in bytes without the header: a key update.
pub const MAX_CONTROL_BYTES: usize = message::HEADER_BYTES + message::KEY_UPDATE_BYTES + 1 + TAG_BYTES;

/// Length of the tag of every cipher of TLS 1.3 that rustls has.
pub(crate) const TAG_BYTES: usize = 16;
//= RFC 8446 section 5.2: "The length MUST NOT exceed 2^14 + 256 bytes."
pub(crate) const MAX_SEALED_BYTES: usize = MAX_PLAIN_BYTES + 256;

/// The content types of a record (RFC 8446 section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentType(pub u8);

impl ContentType {
    /// An alert.
    pub const ALERT: Self = Self(21);
    /// A handshake message, or a part of one.
    pub const HANDSHAKE: Self = Self(22);
    /// Data of the application; the outer type of every encrypted record too.
    pub const APPLICATION_DATA: Self = Self(23);
}

/// Handshake messages that come after the handshake (RFC 8446 section 4.6).
pub(crate) mod message {
    pub(crate) const NEW_SESSION_TICKET: u8 = 4;
    pub(crate) const KEY_UPDATE: u8 = 24;
    /// Length of the type and the length of a message, in bytes.
    pub(crate) const HEADER_BYTES: usize = 4;
    /// Length of the body of a key update, in bytes.
    pub(crate) const KEY_UPDATE_BYTES: usize = 1;
}

/// Length of the record's body after this header.
pub(crate) fn body_bytes([_, _, _, len @ ..]: [u8; HEADER_BYTES]) -> usize {
    usize::from(u16::from_be_bytes(len))
}

/// The encrypted body of the record at the start of `bytes`; `None` if the record is incomplete.
#[must_use]
pub fn whole_record(bytes: &[u8]) -> Option<&[u8]> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    bytes[HEADER_BYTES..].get(..body_bytes(*header))
}
