//! HTTP/1.1 with origins, as a client: writes requests, reads responses.
//!
//! - [`encode_request`] writes a request's head. [`chunk_start`](crate::chunk_start), [`CHUNK_END`](crate::CHUNK_END) and
//!   [`write_last_chunk`](crate::write_last_chunk) frame a body of unknown length.
//! - [`decode_response`] takes a response's head out of the bytes that came, and says how the body ends.
//! - [`BodyDecoder::of_response`](crate::BodyDecoder::of_response) takes the body.
//!
//! A response whose end is in doubt is refused (RFC 9112 section 6.3): a byte that one side takes for the body is the
//! next response to the other.

mod request_encode;
mod response_decode;

pub use request_encode::{RequestBody, encode_request};
pub use response_decode::{MAX_RESPONSE_FIELDS, MAX_RESPONSE_HEAD_BYTES, Response, ResponseHead, decode_response};

use crate::chunked::ChunkError;

/// Why the bytes of an origin are no response, or none whose end is certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// It begins with something else than `HTTP/1.0` or `HTTP/1.1`.
    #[error("it does not begin as an HTTP/1 answer")]
    NotHttp,
    /// It begins as an alert of TLS does: the server expected TLS.
    #[error("it is an alert of TLS")]
    TlsAlert,
    /// Its head is malformed.
    #[error("its head is malformed: {0}")]
    Head(httparse::Error),
    /// Its head is longer than [`MAX_RESPONSE_HEAD_BYTES`].
    #[error("its head is longer than {MAX_RESPONSE_HEAD_BYTES} bytes")]
    HeadLong,
    /// Both `Content-Length` and `Transfer-Encoding` say where its body ends.
    #[error("it has both a content length and a transfer coding")]
    BothLengths,
    /// Its `Content-Length` is no number, or there are several that differ.
    #[error("its content length is not one number")]
    BadLength,
    /// Its `Transfer-Encoding` is something else than exactly `chunked`.
    #[error("it has a transfer coding that nobody asked for")]
    UnknownTransferEncoding,
    /// A chunk does not begin with its size in hexadecimal digits, or its line does not end as it must.
    #[error("a chunk of its body does not begin with a size on a line")]
    ChunkSize,
    /// What announces a chunk is longer than it may be.
    #[error("the line before a chunk of its body is too long")]
    ChunkLineLong,
    /// A chunk does not end where its size says.
    #[error("a chunk of its body does not end where its size says")]
    ChunkEnd,
    /// What follows the last chunk is malformed.
    #[error("its trailers are malformed")]
    Trailers,
    /// The trailers are more, or longer, than they may be.
    #[error("its trailers are too many or too long")]
    TrailersLong,
    /// The connection ended before the response did.
    #[error("it broke off")]
    Incomplete,
}

impl From<ChunkError> for ResponseError {
    fn from(error: ChunkError) -> Self {
        match error {
            ChunkError::Size | ChunkError::SizeLine(_) => Self::ChunkSize,
            ChunkError::LineLong => Self::ChunkLineLong,
            ChunkError::End => Self::ChunkEnd,
            ChunkError::Trailer | ChunkError::TrailerLine(_) => Self::Trailers,
            ChunkError::TrailersLong => Self::TrailersLong,
        }
    }
}

/// The length of the lines in `buf` up to the first empty one, with that line; `None` while no empty line came.
///
/// The first `searched` bytes are known to have no such end.
fn end_of_lines(buf: &[u8], searched: usize) -> Option<usize> {
    let mut at = searched.saturating_sub(2);
    while let Some(found) = memchr::memchr(b'\n', &buf[at..]) {
        at += found + 1;
        match buf[at..] {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_head_is_found_for_all_line_ends() {
        for (bytes, end) in [
            (&b"HTTP/1.1 200 OK\r\na: b\r\n\r\nbody"[..], Some(25)),
            (b"a\n\nb", Some(3)),
            (b"a\r\n\nb", Some(4)),
            (b"a\n\r\nb", Some(4)),
            (b"a\r\n\r", None),
            (b"a\r\nb\r\n", None),
            (b"", None),
        ] {
            assert_eq!(end_of_lines(bytes, 0), end, "{bytes:?}");
            // It is the same when it was looked for in less before.
            let before = end.map_or(bytes.len(), |end| end - 1);
            for searched in 0..=before {
                assert_eq!(end_of_lines(&bytes[..before], searched), None, "{bytes:?} to {before} from {searched}");
                assert_eq!(end_of_lines(bytes, searched), end, "{bytes:?} from {searched}");
            }
        }
    }
}
