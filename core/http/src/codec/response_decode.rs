//! An answer's head.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING},
};

use super::{AnswerError, Framing, end_of_lines};
use crate::connection_options::has_option;

/// The longest head that an answer may have, in bytes.
pub const MAX_ANSWER_HEAD_BYTES: usize = 256 * 1024;
/// How many header fields an answer may have.
pub const MAX_ANSWER_FIELDS: usize = 100;
/// What every answer begins with.
const START: &[u8] = b"HTTP/1.";
/// What a record of TLS begins with that says what went wrong (RFC 8446 section 5.1).
const TLS_ALERT: u8 = 21;

/// The head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// How its body ends.
    pub framing: Framing,
    /// Whether the connection may carry another request when the answer has come to its end.
    pub keeps_connection: bool,
}

/// A head that came before that of the answer, or that one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interim {
    /// One that announces another (RFC 9110 section 15.2), such as `100 Continue`.
    Announced(StatusCode),
    /// The answer's own.
    Final(Answer),
}

/// Takes the next head out of what came, to a request with this method; none while it is not whole. The fields of an
/// answer's own head take the place of those in `fields`, which are left as they are otherwise.
///
/// `searched` is how much of `buf` is known to hold no end of a head: 0 for a new answer, and kept between calls.
///
/// # Errors
/// It is no answer, or not one whose end is certain. Nothing more is to be read from the connection then.
pub fn read_answer(
    buf: &mut BytesMut,
    searched: &mut usize,
    method: &Method,
    fields: &mut HeaderMap,
) -> Result<Option<Interim>, AnswerError> {
    if *searched == 0 {
        let blank = buf.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        buf.advance(blank);
    }
    let seen = buf.len().min(START.len());
    if buf[..seen] != START[..seen] {
        return Err(if buf.first() == Some(&TLS_ALERT) { AnswerError::Tls } else { AnswerError::NotHttp });
    }
    let Some(end) = end_of_lines(buf, *searched) else {
        *searched = buf.len();
        return if buf.len() >= MAX_ANSWER_HEAD_BYTES { Err(AnswerError::HeadLong) } else { Ok(None) };
    };
    *searched = 0;
    if end > MAX_ANSWER_HEAD_BYTES {
        return Err(AnswerError::HeadLong);
    }
    read_head(&buf.split_to(end).freeze(), method, fields).map(Some)
}

/// Reads a head that is whole.
fn read_head(bytes: &Bytes, method: &Method, fields: &mut HeaderMap) -> Result<Interim, AnswerError> {
    let mut room = [const { MaybeUninit::uninit() }; MAX_ANSWER_FIELDS];
    let mut head = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut head, bytes, &mut room);
    match parsed.map_err(AnswerError::Head)? {
        httparse::Status::Complete(length) if length == bytes.len() => {}
        // It would end before the first empty line, or behind it.
        _ => return Err(AnswerError::Head(httparse::Error::NewLine)),
    }
    let status = head.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(AnswerError::NotHttp)?;
    if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(Interim::Announced(status));
    }
    fields.clear();
    fields.reserve(head.headers.len());
    for field in head.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(AnswerError::Head(httparse::Error::HeaderValue));
        };
        fields.append(name, value);
    }
    let is_old = head.version != Some(1);
    let framing = framing(status, method, fields, is_old)?;
    let keeps_connection =
        status != StatusCode::SWITCHING_PROTOCOLS && framing != Framing::UntilClose && keeps_connection(fields, is_old);
    Ok(Interim::Final(Answer { status, framing, keeps_connection }))
}

/// Whether these header fields, of a request or of an answer, leave the connection open behind the answer; `is_old`:
/// they are of HTTP/1.0 (RFC 9112 section 9.3).
#[must_use]
pub fn keeps_connection(fields: &HeaderMap, is_old: bool) -> bool {
    let says = |option: &[u8]| fields.get_all(CONNECTION).iter().any(|value| has_option(value.as_bytes(), option));
    match fields.get(CONNECTION) {
        None => !is_old,
        Some(_) => !says(b"close") && (!is_old || says(b"keep-alive")),
    }
}

/// How the body ends (RFC 9112 section 6.3).
fn framing(status: StatusCode, method: &Method, fields: &HeaderMap, is_old: bool) -> Result<Framing, AnswerError> {
    let is_bodiless = matches!(status.as_u16(), 101 | 204 | 304) || *method == Method::HEAD;
    if is_bodiless || (*method == Method::CONNECT && status.is_success()) {
        return Ok(Framing::Length(0));
    }
    let mut codings = fields.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        //= RFC 9112 section 6.1
        //# A server MUST NOT apply the chunked transfer coding more than once to a message body
        if is_old || codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(AnswerError::ForeignCoding);
        }
        if fields.contains_key(CONTENT_LENGTH) {
            return Err(AnswerError::BothLengths);
        }
        return Ok(Framing::Chunked);
    }
    let mut length = None;
    for value in fields.get_all(CONTENT_LENGTH) {
        for item in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            let number = decimal(item).ok_or(AnswerError::BadLength)?;
            if *length.get_or_insert(number) != number {
                return Err(AnswerError::BadLength);
            }
        }
    }
    Ok(length.map_or(Framing::UntilClose, Framing::Length))
}

/// A length: digits alone, and no more than a body can have.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0u64, |number, byte| {
        byte.is_ascii_digit().then(|| number.checked_mul(10)?.checked_add(u64::from(byte - b'0'))).flatten()
    })?;
    (number <= crate::guard::MAX_BODY_BYTES).then_some(number)
}
