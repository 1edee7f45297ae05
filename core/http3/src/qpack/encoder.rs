//! Encoding of field sections. Each section stands alone, so there is no state.

use http::{HeaderName, HeaderValue, StatusCode};
use sallyport_http2::hpack::{huffman, integer};

use super::fixed;

/// Begins a field section; its fields follow by [`status`] and [`field`].
#[inline]
pub fn begin(out: &mut Vec<u8>) {
    // No insert is required, and the base is zero (RFC 9204 section 4.5.1).
    out.extend_from_slice(&[0, 0]);
}

/// Writes `:status`, which precedes all other fields (RFC 9114 section 4.3.2).
#[inline]
pub fn status(status: StatusCode, out: &mut Vec<u8>) {
    let index = match status.as_u16() {
        103 => 24,
        200 => 25,
        304 => 26,
        404 => 27,
        503 => 28,
        100 => 63,
        204 => 64,
        206 => 65,
        302 => 66,
        400 => 67,
        403 => 68,
        421 => 69,
        425 => 70,
        500 => 71,
        _ => {
            name_reference(fixed::STATUS, false, out);
            return string(status.as_str().as_bytes(), out);
        }
    };
    indexed(index, out);
}

/// Writes a field. A sensitive value is never indexed, also not by intermediaries (RFC 9204 section 7.1.3).
pub fn field(name: &HeaderName, value: &HeaderValue, out: &mut Vec<u8>) {
    match fixed::find(name, value.as_bytes()) {
        Some((index, true)) if !value.is_sensitive() => return indexed(index, out),
        Some((index, _)) => name_reference(index, value.is_sensitive(), out),
        None => literal_name(name.as_str().as_bytes(), value.is_sensitive(), out),
    }
    string(value.as_bytes(), out);
}

/// RFC 9204 section 4.5.2.
#[inline]
fn indexed(index: u8, out: &mut Vec<u8>) {
    integer::write(out, 0xc0, 0x3f, index.into());
}

/// RFC 9204 section 4.5.4.
#[inline]
fn name_reference(index: u8, never_indexed: bool, out: &mut Vec<u8>) {
    integer::write(out, if never_indexed { 0x70 } else { 0x50 }, 0x0f, index.into());
}

/// RFC 9204 section 4.5.6.
fn literal_name(name: &[u8], never_indexed: bool, out: &mut Vec<u8>) {
    let pattern = if never_indexed { 0x30 } else { 0x20 };
    coded(name, pattern, 0x07, out);
}

/// A string with a length of seven bits (RFC 9204 section 4.1.2).
#[inline]
fn string(string: &[u8], out: &mut Vec<u8>) {
    coded(string, 0x00, 0x7f, out);
}

/// A string after the bits of `pattern`, with the Huffman code if it is shorter.
fn coded(string: &[u8], pattern: u8, mask: u8, out: &mut Vec<u8>) {
    let len = huffman::encoded_len(string);
    if len < string.len() {
        integer::write(out, pattern | (mask + 1), mask, len);
        huffman::encode(string, out);
    } else {
        integer::write(out, pattern, mask, string.len());
        out.extend_from_slice(string);
    }
}
