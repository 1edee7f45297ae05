//! Decoding of field sections.

use std::ops::ControlFlow;

use sallyport_http2::hpack::{self, ENTRY_OVERHEAD_BYTES, Field, Name, Strings, integer::Input};

use super::fixed;

/// An error in the compression of a field section, which ends the connection.
//= RFC 9204 section 2.2
//# If the decoder encounters a reference in a field line representation to a dynamic table entry that has already been
//# evicted or that has an absolute index greater than or equal to the declared Required Insert Count (Section 4.5.1),
//# it MUST treat this as a connection error of type QPACK_DECOMPRESSION_FAILED.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A number or a string is invalid, or the section ends inside a field.
    #[error(transparent)]
    Primitive(#[from] hpack::DecodeError),
    /// An index beyond the static table (RFC 9204 section 3.1).
    #[error("the static table has no index {0}")]
    NoSuchIndex(u32),
    /// A reference to the dynamic table, which has no entries.
    #[error("the field section refers to the dynamic table, which is not offered")]
    DynamicTable,
}

/// Decodes a field section (RFC 9204 section 4.5), and passes each field to `field` with its size as in RFC 9114
/// section 4.2.2: name, value and 32 bytes. Fields are in order and unchecked; the caller assembles the request.
/// Nothing is decoded after `field` breaks.
///
/// # Errors
///
/// The compression is invalid. Fields may have been passed to `field` before.
pub fn decode(section: &[u8], mut field: impl FnMut(Field, usize) -> ControlFlow<()>) -> Result<(), DecodeError> {
    let mut input = Input(section);
    prefix(&mut input)?;
    let mut strings = Strings::new();
    while let Ok(first) = input.byte() {
        let (next, size) = if first & 0x80 != 0 {
            let entry = static_entry(first, 0x40, 0x3f, &mut input)?;
            (entry.field.clone(), entry.size)
        } else {
            literal(first, &mut input, &mut strings)?
        };
        if field(next, size).is_break() {
            return Ok(());
        }
    }
    Ok(())
}

/// RFC 9204 section 4.5.1.
fn prefix(input: &mut Input<'_>) -> Result<(), DecodeError> {
    let first = input.byte()?;
    if input.integer(first, 0xff)? != 0 {
        return Err(DecodeError::DynamicTable);
    }
    let first = input.byte()?;
    input.integer(first, 0x7f)?;
    //= RFC 9204 section 4.5.1.2
    //# The value of Base MUST NOT be negative.
    if first & 0x80 != 0 { Err(DecodeError::DynamicTable) } else { Ok(()) }
}

/// The entry of an index whose first byte was consumed; `is_static` is the bit of the static table.
#[inline]
fn static_entry(
    first: u8,
    is_static: u8,
    mask: u8,
    input: &mut Input<'_>,
) -> Result<&'static hpack::Entry, DecodeError> {
    if first & is_static == 0 {
        return Err(DecodeError::DynamicTable);
    }
    let index = input.integer(first, mask)?;
    fixed::get(index).ok_or(DecodeError::NoSuchIndex(index))
}

/// A literal field, with a name of the static table (RFC 9204 section 4.5.4) or a literal name (section 4.5.6).
fn literal(first: u8, input: &mut Input<'_>, strings: &mut Strings) -> Result<(Field, usize), DecodeError> {
    let (name, never_indexed) = if first & 0x40 != 0 {
        (static_entry(first, 0x10, 0x0f, input)?.name(), first & 0x20 != 0)
    } else if first & 0x20 != 0 {
        (Name::parse(strings.after(first, 0x07, input)?), first & 0x10 != 0)
    } else {
        // An index relative to Base, of a field (section 4.5.3) or of a name (section 4.5.5).
        return Err(DecodeError::DynamicTable);
    };
    let value = strings.next(input)?;
    let size = name.len() + value.len() + ENTRY_OVERHEAD_BYTES;
    Ok((name.with(value, never_indexed).unwrap_or(Field::Malformed), size))
}
