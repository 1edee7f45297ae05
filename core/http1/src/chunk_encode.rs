//! Writes a body in chunks (RFC 9112 section 7.1), and lines of header fields.

use bytes::{BufMut, BytesMut};
use http::{
    HeaderMap, HeaderName,
    header::{
        AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST,
        MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
    },
};

/// The bytes behind a chunk's data.
pub const CHUNK_END: &[u8] = b"\r\n";
/// The bytes behind the data of the last chunk, where no trailers follow.
pub const LAST_CHUNK_END: &[u8] = b"\r\n0\r\n\r\n";
/// The longest line before a chunk: sixteen hexadecimal digits and a line end, in bytes.
const MAX_CHUNK_START_BYTES: usize = 18;

/// Writes `name: value` as a line.
pub(crate) fn put_field(out: &mut BytesMut, name: &HeaderName, value: &[u8]) {
    out.put_slice(name.as_str().as_bytes());
    out.put_slice(b": ");
    out.put_slice(value);
    out.put_slice(b"\r\n");
}

/// The line before a chunk's data.
#[derive(Debug, Clone, Copy)]
pub struct ChunkStart {
    bytes: [u8; MAX_CHUNK_START_BYTES],
    start: usize,
}

impl ChunkStart {
    /// The line.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// The line before a chunk of `size` bytes. A chunk of no bytes ends the body: see [`write_last_chunk`].
#[must_use]
pub fn chunk_start(mut size: usize) -> ChunkStart {
    let mut bytes = [0; MAX_CHUNK_START_BYTES];
    let mut start = MAX_CHUNK_START_BYTES - CHUNK_END.len();
    bytes[start..].copy_from_slice(CHUNK_END);
    loop {
        start -= 1;
        bytes[start] = b"0123456789abcdef"[size & 15];
        size >>= 4;
        if size == 0 {
            return ChunkStart { bytes, start };
        }
    }
}

/// The names of the trailer fields that a message announces in its head (RFC 9110 section 6.6.2). No others are sent.
#[must_use]
pub fn announced_trailers(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(TRAILER).iter();
    let names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

/// Writes the last chunk of a body, with the trailers that were announced and are allowed (RFC 9110 section 6.5.1).
pub fn write_last_chunk(out: &mut BytesMut, trailers: Option<&HeaderMap>, announced: &[HeaderName]) {
    out.put_slice(b"0\r\n");
    for (name, value) in trailers.into_iter().flatten() {
        if announced.contains(name) && may_be_trailer(name) {
            out.reserve(name.as_str().len() + value.len() + 8);
            put_field(out, name, value.as_bytes());
        }
    }
    out.put_slice(b"\r\n");
}

/// Whether a trailer section may have the field: a field that frames, routes or authenticates a message belongs in the
/// head.
fn may_be_trailer(name: &HeaderName) -> bool {
    const NEVER: [HeaderName; 12] = [
        AUTHORIZATION,
        CACHE_CONTROL,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        HOST,
        MAX_FORWARDS,
        SET_COOKIE,
        TRAILER,
        TRANSFER_ENCODING,
        TE,
    ];
    !NEVER.contains(name)
}

#[cfg(test)]
pub(crate) mod tests {
    use http::HeaderValue;

    use super::*;

    pub(crate) fn fields(all: &[(&'static str, &'static str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).fold(
            HeaderMap::new(),
            |mut map, (name, value)| {
                map.append(name, value);
                map
            },
        )
    }

    #[test]
    fn chunks_are_announced_by_their_size() {
        for (size, line) in [(1, "1\r\n"), (15, "f\r\n"), (16, "10\r\n"), (65_536, "10000\r\n")] {
            assert_eq!(chunk_start(size).as_bytes(), line.as_bytes());
        }
        assert_eq!(chunk_start(usize::MAX).as_bytes(), b"ffffffffffffffff\r\n");
    }

    #[test]
    fn trailers_are_those_that_were_announced() {
        let announced = announced_trailers(&fields(&[("trailer", "x-sum, Content-Length"), ("trailer", " x-more,,")]));
        let trailers =
            fields(&[("x-sum", "42"), ("content-length", "9"), ("x-other", "no"), ("x-more", "1"), ("x-more", "2")]);
        let mut out = BytesMut::new();
        write_last_chunk(&mut out, Some(&trailers), &announced);
        assert_eq!(&out[..], b"0\r\nx-sum: 42\r\nx-more: 1\r\nx-more: 2\r\n\r\n");
        out.clear();
        write_last_chunk(&mut out, None, &announced);
        assert_eq!(&out[..], b"0\r\n\r\n");
    }
}
