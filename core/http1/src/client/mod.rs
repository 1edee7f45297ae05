//! The client's side of HTTP/1.1: encodes requests to origins, decodes their responses.
//!
//! May use `body`, `chunk_encode`, `chunked` and `decimal`.
//!
//! - [`encode_request`] writes the head of a request. [`chunk_start`](crate::chunk_start),
//!   [`CHUNK_END`](crate::CHUNK_END) and [`write_last_chunk`](crate::write_last_chunk) frame a body of unknown length.
//! - [`decode_response`] takes the head of a response out of a buffer, and returns the framing of the body.
//! - [`BodyDecoder::of_response`](crate::BodyDecoder::of_response) decodes the body.
//!
//! A response with an uncertain end is refused (RFC 9112 section 6.3). Otherwise one side could read a part of the body
//! as the next response.

mod request_encode;
mod response_decode;

pub use request_encode::{RequestBody, encode_request};
pub use response_decode::{MAX_RESPONSE_FIELDS, MAX_RESPONSE_HEAD_BYTES, ReceivedHead, Response, decode_response};

use crate::chunked::ChunkError;

/// Why an origin's response is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// The response does not begin with `HTTP/1.0` or `HTTP/1.1`.
    #[error("it does not begin with HTTP/1.0 or HTTP/1.1")]
    NotHttp,
    /// The response is a TLS alert: the origin expected TLS.
    #[error("it is a TLS alert")]
    TlsAlert,
    /// The head is malformed.
    #[error("its head is malformed: {0}")]
    Head(httparse::Error),
    /// The head is longer than [`MAX_RESPONSE_HEAD_BYTES`].
    #[error("its head is longer than {MAX_RESPONSE_HEAD_BYTES} bytes")]
    HeadLong,
    /// The head has both `Content-Length` and `Transfer-Encoding`.
    #[error("it has both a content length and a transfer coding")]
    BothLengths,
    /// The `Content-Length` is no number, or several differ.
    #[error("its content length is not one number")]
    BadLength,
    /// The `Transfer-Encoding` is not exactly `chunked`.
    #[error("it has a transfer coding other than chunked")]
    UnknownTransferEncoding,
    /// A chunk has no size in hexadecimal digits, or its size line has no valid end.
    #[error("a chunk of its body has no valid size line")]
    ChunkSize,
    /// The size line of a chunk is too long.
    #[error("the size line of a chunk of its body is too long")]
    ChunkLineLong,
    /// A chunk does not end at its size.
    #[error("a chunk of its body does not end at its size")]
    ChunkEnd,
    /// The trailers are malformed.
    #[error("its trailers are malformed")]
    Trailers,
    /// The trailers are too many or too long.
    #[error("its trailers are too many or too long")]
    TrailersLong,
    /// The connection ended before the response was complete.
    #[error("it is incomplete")]
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

/// The length of the lines in `buf` up to and with the first empty line; `None` if there is no empty line.
///
/// The first `searched` bytes are known to contain no such end.
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
            // An earlier search of fewer bytes does not change the result.
            let before = end.map_or(bytes.len(), |end| end - 1);
            for searched in 0..=before {
                assert_eq!(end_of_lines(&bytes[..before], searched), None, "{bytes:?} to {before} from {searched}");
                assert_eq!(end_of_lines(bytes, searched), end, "{bytes:?} from {searched}");
            }
        }
    }
}
