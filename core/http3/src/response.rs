//! The frames of a response.

use http::{HeaderMap, StatusCode};

use crate::{
    frame::{kind, write_integer},
    qpack,
};

/// Room for the length of a HEADERS frame, in bytes; a longer frame moves its payload.
const LENGTH_BYTES: usize = 2;
/// The longest payload whose length has two bytes.
const MAX_SHORT_BYTES: usize = 0x3fff;

/// Appends a HEADERS frame with the head of a response, final or interim.
pub fn write_head(status: StatusCode, fields: &HeaderMap, out: &mut Vec<u8>) {
    write_section(out, |out| {
        qpack::status(status, out);
        for (name, value) in fields {
            qpack::field(name, value, out);
        }
    });
}

/// Appends a HEADERS frame with trailers.
pub fn write_trailers(fields: &HeaderMap, out: &mut Vec<u8>) {
    write_section(out, |out| {
        for (name, value) in fields {
            qpack::field(name, value, out);
        }
    });
}

/// Appends the header of a DATA frame with a payload of `length` bytes, which the caller sends behind it.
pub fn write_data_head(length: usize, out: &mut Vec<u8>) {
    write_integer(out, kind::DATA);
    write_integer(out, length as u64);
}

fn write_section(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    write_integer(out, kind::HEADERS);
    let at = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    qpack::begin(out);
    write(out);
    let length = out.len() - at - LENGTH_BYTES;
    if length <= MAX_SHORT_BYTES {
        //= RFC 9000 section 16
        //# Values do not need to be encoded on the minimum number of bytes necessary, with the sole exception of the
        //# Frame Type field
        if let Some(room) = out.get_mut(at..at + LENGTH_BYTES) {
            room.copy_from_slice(&(length as u16 | 0x4000).to_be_bytes());
        }
        return;
    }
    let mut encoded = Vec::new();
    write_integer(&mut encoded, length as u64);
    out.splice(at..at + LENGTH_BYTES, encoded);
}
