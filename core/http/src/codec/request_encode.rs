//! A request's head and the frame of its body, as they are written.

use bytes::{BufMut, BytesMut};
use http::{
    HeaderMap, HeaderName, Method, Uri,
    header::{
        AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST,
        MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
    },
};

use crate::forward::OurFields;

/// What follows a chunk's data.
pub const CHUNK_END: &[u8] = b"\r\n";
/// What follows the data of the last chunk that has any, where no trailers do.
pub const LAST_CHUNK_END: &[u8] = b"\r\n0\r\n\r\n";
/// The hexadecimal digits of a chunk's size at most, and the end of its line, in bytes.
const MAX_CHUNK_START_BYTES: usize = 18;

/// How a request's body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestBody {
    /// There is none.
    None,
    /// After so many bytes.
    Length(u64),
    /// With a chunk of no bytes.
    Chunked,
}

/// Writes a request's head in HTTP/1.1, for a connection that stays. The target is the path with its query; what is ours to
/// say follows the header fields, which have none of it. What frames the body is written anew, whatever the header
/// fields say of it; a request without one keeps a `Content-Length`, as 0.
pub fn write_head(
    out: &mut BytesMut,
    method: &Method,
    target: &Uri,
    headers: &HeaderMap,
    ours: Option<&OurFields<'_>>,
    body: RequestBody,
) {
    let target = target.path_and_query().map_or("/", |path| path.as_str());
    let fields: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    out.reserve(method.as_str().len() + target.len() + fields + ours.map_or(0, OurFields::bytes) + 64);
    out.put_slice(method.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(target.as_bytes());
    out.put_slice(b" HTTP/1.1\r\n");
    let mut has_length = false;
    for (name, value) in headers {
        if *name == CONTENT_LENGTH {
            has_length = true;
        } else if *name != TRANSFER_ENCODING {
            write_field(out, name, value.as_bytes());
        }
    }
    if let Some(ours) = ours {
        ours.write(out);
    }
    match body {
        RequestBody::None if has_length => out.put_slice(b"content-length: 0\r\n"),
        RequestBody::None => {}
        RequestBody::Length(bytes) => {
            out.put_slice(b"content-length: ");
            put_decimal(out, bytes);
            out.put_slice(b"\r\n");
        }
        RequestBody::Chunked => out.put_slice(b"transfer-encoding: chunked\r\n"),
    }
    out.put_slice(b"\r\n");
}

pub(super) fn write_field(out: &mut BytesMut, name: &HeaderName, value: &[u8]) {
    out.put_slice(name.as_str().as_bytes());
    out.put_slice(b": ");
    out.put_slice(value);
    out.put_slice(b"\r\n");
}

pub(super) fn put_decimal(out: &mut BytesMut, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.put_slice(&digits[at..]);
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

/// The line before so many bytes of a body. A chunk of no bytes is its end, which [`write_last_chunk`] writes.
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

/// The names of the trailer fields that a request announces in its head (RFC 9110 section 6.6.2): no others are sent.
#[must_use]
pub fn announced_trailers(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(TRAILER).iter();
    let names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

/// Writes the end of a body in chunks, with those of the trailers that were announced and may be there (RFC 9110 section
/// 6.5.1).
pub fn write_last_chunk(out: &mut BytesMut, trailers: Option<&HeaderMap>, announced: &[HeaderName]) {
    out.put_slice(b"0\r\n");
    for (name, value) in trailers.into_iter().flatten() {
        if announced.contains(name) && may_be_trailer(name) {
            out.reserve(name.as_str().len() + value.len() + 8);
            write_field(out, name, value.as_bytes());
        }
    }
    out.put_slice(b"\r\n");
}

/// Whether the field has a place in a trailer section: it frames, routes or explains nothing.
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
mod tests {
    use http::{HeaderValue, Version};

    use super::*;
    use crate::{RequestHost, RequestId, forward::ClientFields};

    const OURS: &str = "x-forwarded-for: 192.0.2.1\r\nx-real-ip: 192.0.2.1\r\nx-forwarded-proto: https\r\n\
                        x-forwarded-port: 443\r\nforwarded: for=192.0.2.1;proto=https;host=\"a\"\r\n\
                        x-forwarded-host: a\r\nx-request-id: 07070707070707070707070707070707\r\n\
                        via: 1.1 sallyport\r\n";

    fn fields(all: &[(&'static str, &'static str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).fold(
            HeaderMap::new(),
            |mut map, (name, value)| {
                map.append(name, value);
                map
            },
        )
    }

    fn written(method: &Method, target: &str, headers: &HeaderMap, body: RequestBody) -> String {
        let client = ClientFields::new(([192, 0, 2, 1], 7).into(), "https", 443);
        let host = RequestHost::from_value(&HeaderValue::from_static("a")).unwrap();
        let ours = OurFields {
            client: &client,
            host: &host,
            request_id: &RequestId::from_random([7; 16]),
            version: Version::HTTP_11,
        };
        let mut out = BytesMut::new();
        write_head(&mut out, method, &target.parse().unwrap(), headers, Some(&ours), body);
        let head = String::from_utf8(out.to_vec()).unwrap();
        let (start, end) = head.split_once(OURS).expect("what is ours is there");
        format!("{start}{end}")
    }

    #[test]
    fn a_head_says_once_how_its_body_ends() {
        let headers = fields(&[("host", "a"), ("content-length", "7"), ("x", "1"), ("x", "2")]);
        let start = "POST /p?q HTTP/1.1\r\nhost: a\r\nx: 1\r\nx: 2\r\n";
        for (body, framing) in [
            (RequestBody::None, "content-length: 0\r\n\r\n"),
            (RequestBody::Length(u64::MAX), "content-length: 18446744073709551615\r\n\r\n"),
            (RequestBody::Length(0), "content-length: 0\r\n\r\n"),
            (RequestBody::Chunked, "transfer-encoding: chunked\r\n\r\n"),
        ] {
            assert_eq!(written(&Method::POST, "/p?q", &headers, body), format!("{start}{framing}"));
        }
        let bare = fields(&[("host", "a"), ("transfer-encoding", "gzip")]);
        assert_eq!(written(&Method::GET, "/", &bare, RequestBody::None), "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    }

    #[test]
    fn a_target_is_a_path_or_an_asterisk() {
        let bare = HeaderMap::new();
        for (target, sent) in [("*", "*"), ("/", "/"), ("http://host/p?q=1", "/p?q=1"), ("http://host", "/")] {
            let head = written(&Method::OPTIONS, target, &bare, RequestBody::None);
            assert_eq!(head, format!("OPTIONS {sent} HTTP/1.1\r\n\r\n"));
        }
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
