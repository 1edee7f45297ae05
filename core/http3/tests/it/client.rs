//! What a client sends, written by hand.

use std::ops::ControlFlow;

use http::{HeaderName, HeaderValue};
use sallyport_http2::hpack::Field;
use sallyport_http3::qpack::{self, DecodeError};

pub(crate) const DATA: u64 = 0x0;
pub(crate) const HEADERS: u64 = 0x1;
pub(crate) const CANCEL_PUSH: u64 = 0x3;
pub(crate) const SETTINGS: u64 = 0x4;
pub(crate) const PUSH_PROMISE: u64 = 0x5;
pub(crate) const GOAWAY: u64 = 0x7;
pub(crate) const MAX_PUSH_ID: u64 = 0xd;
pub(crate) const PRIORITY_UPDATE: u64 = 0xf0700;
pub(crate) const PRIORITY_UPDATE_PUSH: u64 = 0xf0701;
/// A type that receivers ignore.
pub(crate) const IGNORED: u64 = 0x1f * 7 + 0x21;

/// An integer (RFC 9000 section 16).
pub(crate) fn integer(value: u64) -> Vec<u8> {
    match value {
        0..0x40 => vec![value as u8],
        0x40..0x4000 => (value as u16 | 0x4000).to_be_bytes().to_vec(),
        0x4000..0x4000_0000 => (value as u32 | 0x8000_0000).to_be_bytes().to_vec(),
        _ => (value | 0xc000_0000_0000_0000).to_be_bytes().to_vec(),
    }
}

pub(crate) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    [integer(kind), integer(payload.len() as u64), payload.to_vec()].concat()
}

/// A string without the Huffman code, after the bits of `pattern`; `bits` of them are the prefix of the length.
pub(crate) fn plain(pattern: u8, bits: u32, text: &str) -> Vec<u8> {
    let mask = (1_usize << bits) - 1;
    let mut out = Vec::new();
    if text.len() < mask {
        out.push(pattern | text.len() as u8);
    } else {
        out.push(pattern | mask as u8);
        let mut rest = text.len() - mask;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(text.as_bytes());
    out
}

/// A field section of literal fields.
pub(crate) fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![0, 0];
    for (name, value) in fields {
        out.extend(plain(0x20, 3, name));
        out.extend(plain(0x00, 7, value));
    }
    out
}

/// A HEADERS frame of a request with these fields after the usual ones.
pub(crate) fn head(method: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let usual = [(":method", method), (":scheme", "https"), (":authority", "a.example"), (":path", "/x?y")];
    frame(HEADERS, &section(&[&usual[..], fields].concat()))
}

/// The fields of a section, and their sizes.
pub(crate) fn decode(section: &[u8]) -> Result<Vec<(Field, usize)>, DecodeError> {
    let mut fields = Vec::new();
    qpack::decode(section, |field, size| {
        fields.push((field, size));
        ControlFlow::Continue(())
    })?;
    Ok(fields)
}

/// A field as text, `!` if it is malformed.
pub(crate) fn text(field: &Field) -> String {
    let pseudo = |name: &str, value: &[u8]| format!("{name}: {}", std::str::from_utf8(value).unwrap());
    match field {
        Field::Method(value) => pseudo(":method", value),
        Field::Scheme(value) => pseudo(":scheme", value),
        Field::Authority(value) => pseudo(":authority", value),
        Field::Path(value) => pseudo(":path", value),
        Field::Protocol(value) => pseudo(":protocol", value),
        Field::Regular(name, value) => {
            format!("{name}: {}{}", value.to_str().unwrap(), if value.is_sensitive() { " (sensitive)" } else { "" })
        }
        Field::Malformed => "!".to_owned(),
    }
}

pub(crate) fn texts(section: &[u8]) -> Result<Vec<String>, DecodeError> {
    Ok(decode(section)?.iter().map(|(field, _)| text(field)).collect())
}

/// The encoding of one field, without the beginning of its section.
pub(crate) fn encoded(name: &str, value: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
    qpack::field(&name, &HeaderValue::from_str(value).unwrap(), &mut out);
    out
}
