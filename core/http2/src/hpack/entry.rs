//! Entries of a static table (RFC 7541 appendix A, RFC 9204 appendix A).

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use super::{
    ENTRY_OVERHEAD_BYTES,
    field::{Field, Name},
};

/// An entry of a static table.
#[derive(Debug)]
pub struct Entry {
    /// The parsed field.
    pub field: Field,
    /// Size as in RFC 7541 section 4.1.
    pub size: usize,
    name_len: usize,
}

impl Entry {
    /// The entry of this name and value. Its static references allocate nothing.
    #[must_use]
    pub const fn new(name: &'static str, value: &'static str) -> Self {
        let field = match name.as_bytes() {
            b":authority" => Field::Authority(Bytes::from_static(value.as_bytes())),
            b":method" => Field::Method(Bytes::from_static(value.as_bytes())),
            b":path" => Field::Path(Bytes::from_static(value.as_bytes())),
            b":scheme" => Field::Scheme(Bytes::from_static(value.as_bytes())),
            b":status" => Field::Malformed,
            _ => Field::Regular(HeaderName::from_static(name), HeaderValue::from_static(value)),
        };
        Self { field, size: name.len() + value.len() + ENTRY_OVERHEAD_BYTES, name_len: name.len() }
    }

    /// The name of the entry.
    #[inline]
    #[must_use]
    pub fn name(&self) -> Name {
        Name::of(&self.field).unwrap_or(Name::Bad(self.name_len as u32))
    }
}

/// A digest of a string: of its length, its first and its last eight bytes. Equal strings have equal digests; callers
/// compare the strings too. Static tables look names up by it.
#[inline]
#[must_use]
pub const fn digest(bytes: &[u8]) -> u64 {
    let word = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) => u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(23),
        _ => match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
            (Some(first), Some(last)) => u32::from_le_bytes(*first) as u64 | (u32::from_le_bytes(*last) as u64) << 32,
            _ => match bytes {
                [a] => *a as u64 | (*a as u64) << 8 | (*a as u64) << 16,
                [a, b] => *a as u64 | (*b as u64) << 8 | (*b as u64) << 16,
                [a, b, c] => *a as u64 | (*b as u64) << 8 | (*c as u64) << 16,
                _ => 0,
            },
        },
    };
    word.wrapping_add(bytes.len() as u64)
}
