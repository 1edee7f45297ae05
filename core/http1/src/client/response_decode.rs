//! Decodes the head of a response.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use sallyport_http::connection::keeps_connection;

use super::{ResponseError, end_of_lines};
use crate::{body::Framing, decimal::parse_decimal};

/// The longest head of a response, in bytes.
pub const MAX_RESPONSE_HEAD_BYTES: usize = 256 * 1024;
/// The greatest number of header fields in a response.
pub const MAX_RESPONSE_FIELDS: usize = 100;
/// The first bytes of every response.
const START: &[u8] = b"HTTP/1.";
/// The first byte of a TLS alert (RFC 8446 section 5.1).
const TLS_ALERT: u8 = 21;

/// The head of a final response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The framing of the body.
    pub framing: Framing,
    /// Whether another request may follow on the connection.
    pub keeps_connection: bool,
}

/// A decoded head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceivedHead {
    /// An informational response, such as `100 Continue` (RFC 9110 section 15.2). Another head follows.
    Informational(StatusCode),
    /// The final response.
    Final(Response),
}

/// Takes the next head out of `buf`, in response to a request with this method; `None` while the head is incomplete.
///
/// The fields of a final response replace those in `fields`; an informational response leaves `fields` unchanged.
/// `searched` is how many bytes of `buf` are known to contain no end of a head. It is 0 for a new response, and kept
/// between calls.
///
/// # Errors
/// The bytes are no response, or the end of the body is uncertain. The connection cannot be used again.
pub fn decode_response(
    buf: &mut BytesMut,
    searched: &mut usize,
    method: &Method,
    fields: &mut HeaderMap,
) -> Result<Option<ReceivedHead>, ResponseError> {
    if *searched == 0 {
        let blank = buf.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        buf.advance(blank);
    }
    let seen = buf.len().min(START.len());
    if buf[..seen] != START[..seen] {
        return Err(if buf.first() == Some(&TLS_ALERT) { ResponseError::TlsAlert } else { ResponseError::NotHttp });
    }
    let Some(end) = end_of_lines(buf, *searched) else {
        *searched = buf.len();
        return if buf.len() >= MAX_RESPONSE_HEAD_BYTES { Err(ResponseError::HeadLong) } else { Ok(None) };
    };
    *searched = 0;
    if end > MAX_RESPONSE_HEAD_BYTES {
        return Err(ResponseError::HeadLong);
    }
    read_head(&buf.split_to(end).freeze(), method, fields).map(Some)
}

/// Parses a complete head.
fn read_head(bytes: &Bytes, method: &Method, fields: &mut HeaderMap) -> Result<ReceivedHead, ResponseError> {
    let mut room = [const { MaybeUninit::uninit() }; MAX_RESPONSE_FIELDS];
    let mut head = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut head, bytes, &mut room);
    match parsed.map_err(ResponseError::Head)? {
        httparse::Status::Complete(length) if length == bytes.len() => {}
        // The parser found another end than the first empty line.
        _ => return Err(ResponseError::Head(httparse::Error::NewLine)),
    }
    let status = head.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(ResponseError::NotHttp)?;
    if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(ReceivedHead::Informational(status));
    }
    fields.clear();
    fields.reserve(head.headers.len());
    for field in head.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(ResponseError::Head(httparse::Error::HeaderValue));
        };
        fields.append(name, value);
    }
    let is_http10 = head.version != Some(1);
    let framing = framing(status, method, fields, is_http10)?;
    let keeps_connection = status != StatusCode::SWITCHING_PROTOCOLS
        && framing != Framing::UntilClose
        && keeps_connection(fields, is_http10);
    Ok(ReceivedHead::Final(Response { status, framing, keeps_connection }))
}

/// The framing of the body (RFC 9112 section 6.3).
fn framing(status: StatusCode, method: &Method, fields: &HeaderMap, is_http10: bool) -> Result<Framing, ResponseError> {
    let is_bodiless = matches!(status.as_u16(), 101 | 204 | 304) || *method == Method::HEAD;
    if is_bodiless || (*method == Method::CONNECT && status.is_success()) {
        return Ok(Framing::Length(0));
    }
    let mut codings = fields.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        //= RFC 9112 section 6.1
        //# A server MUST NOT apply the chunked transfer coding more than once to a message body
        if is_http10 || codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(ResponseError::UnknownTransferEncoding);
        }
        if fields.contains_key(CONTENT_LENGTH) {
            return Err(ResponseError::BothLengths);
        }
        return Ok(Framing::Chunked);
    }
    let mut length = None;
    for value in fields.get_all(CONTENT_LENGTH) {
        for item in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            let number = parse_decimal(item).ok_or(ResponseError::BadLength)?;
            if *length.get_or_insert(number) != number {
                return Err(ResponseError::BadLength);
            }
        }
    }
    Ok(length.map_or(Framing::UntilClose, Framing::Length))
}
