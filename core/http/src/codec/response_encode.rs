//! The head of an answer, as a server writes it.

use bytes::{BufMut, BytesMut};
use http::{
    HeaderMap, HeaderName, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING},
};

use super::{
    request_encode::{put_decimal, write_field},
    response_decode::decimal,
};
use crate::connection_options::has_option;

/// What a client waits for that expects it (RFC 9110 section 15.2.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// What is expected of most fields, in bytes: a name and a value with what stands between them.
const USUAL_FIELD_BYTES: usize = 48;

/// The head of an answer to a request.
#[derive(Debug)]
pub struct AnswerHead<'a> {
    /// The status.
    pub status: StatusCode,
    /// The fields. What frames the body is written anew, whatever they say of it.
    pub fields: &'a HeaderMap,
    /// How long the body is; `None`: nobody knows before its end.
    pub length: Option<u64>,
    /// Whether the method was `HEAD`: the fields alone are the answer.
    pub is_to_head: bool,
    /// Whether the request was of HTTP/1.0.
    pub is_to_old: bool,
    /// Whether the connection may go on behind the answer.
    pub may_go_on: bool,
}

/// How an answer's body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerFraming {
    /// Nothing of it is.
    Nothing,
    /// As it is, so many bytes.
    Length(u64),
    /// In chunks.
    Chunked,
    /// As it is, to the end of the connection: a client of HTTP/1.0 knows no chunks.
    UntilClose,
}

/// Writes the head. Returns how its body follows, and whether the connection goes on behind it.
pub fn write_answer(out: &mut BytesMut, head: &AnswerHead<'_>) -> (AnswerFraming, bool) {
    let is_switch = head.status == StatusCode::SWITCHING_PROTOCOLS;
    let has_no_body = is_switch || matches!(head.status.as_u16(), 204 | 304);
    let framing = match head.length {
        _ if has_no_body || head.is_to_head => AnswerFraming::Nothing,
        Some(0) => AnswerFraming::Nothing,
        Some(bytes) => AnswerFraming::Length(bytes),
        None if head.is_to_old => AnswerFraming::UntilClose,
        None => AnswerFraming::Chunked,
    };
    let says = |option: &[u8]| head.fields.get_all(CONNECTION).iter().any(|value| has_option(value.as_bytes(), option));
    let goes_on = head.may_go_on && framing != AnswerFraming::UntilClose && !says(b"close");

    out.reserve(64 + USUAL_FIELD_BYTES * head.fields.len());
    write_status(out, head.status, head.is_to_old);
    for (name, value) in head.fields {
        if is_passed(name, head, framing) {
            write_field(out, name, value.as_bytes());
        }
    }
    match (framing, head.length) {
        (AnswerFraming::Length(bytes), _) => write_length(out, bytes),
        (AnswerFraming::Chunked, _) => out.put_slice(b"transfer-encoding: chunked\r\n"),
        (AnswerFraming::UntilClose, _) => {}
        (AnswerFraming::Nothing, _) if head.status == StatusCode::NOT_MODIFIED => {
            said_length(head.fields).into_iter().for_each(|bytes| write_length(out, bytes));
        }
        (AnswerFraming::Nothing, _) if has_no_body => {}
        (AnswerFraming::Nothing, length) if head.is_to_head => {
            // What the body would have been, where that is known (RFC 9110 section 8.6).
            if let Some(bytes) = said_length(head.fields).or(length.filter(|bytes| *bytes > 0)) {
                write_length(out, bytes);
            }
        }
        (AnswerFraming::Nothing, _) => write_length(out, 0),
    }
    if is_switch {
        // The connection goes on as something else.
    } else if !goes_on && !says(b"close") && !head.is_to_old {
        out.put_slice(b"connection: close\r\n");
    } else if goes_on && head.is_to_old && !says(b"keep-alive") {
        out.put_slice(b"connection: keep-alive\r\n");
    }
    out.put_slice(b"\r\n");
    (framing, goes_on)
}

fn write_status(out: &mut BytesMut, status: StatusCode, is_to_old: bool) {
    // What is said about HTTP/1.1 is not understood by who speaks HTTP/1.0.
    out.put_slice(if is_to_old { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    out.put_slice(status.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(status.canonical_reason().unwrap_or("<none>").as_bytes());
    out.put_slice(b"\r\n");
}

fn write_length(out: &mut BytesMut, bytes: u64) {
    out.put_slice(b"content-length: ");
    put_decimal(out, bytes);
    out.put_slice(b"\r\n");
}

/// The length that the fields announce, where that is one number.
fn said_length(fields: &HeaderMap) -> Option<u64> {
    let mut lengths = fields.get_all(CONTENT_LENGTH).iter().map(|value| decimal(value.as_bytes()));
    let first = lengths.next()??;
    lengths.all(|length| length == Some(first)).then_some(first)
}

/// Whether the field is written as it is.
fn is_passed(name: &HeaderName, head: &AnswerHead<'_>, framing: AnswerFraming) -> bool {
    match *name {
        TRANSFER_ENCODING | CONTENT_LENGTH => false,
        // Who speaks HTTP/1.0 knows no trailers, and where there is no body there are none.
        TRAILER => !head.is_to_old && framing != AnswerFraming::Nothing,
        _ => true,
    }
}
