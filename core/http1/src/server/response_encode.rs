//! Writes the head of a response.

use bytes::{BufMut, BytesMut};
use http::{
    HeaderMap, HeaderName, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING},
};
use sallyport_http::connection::has_option;

use crate::{
    chunk_encode::put_field,
    decimal::{parse_decimal, put_decimal},
};

/// The expected size of a field line, in bytes.
const USUAL_FIELD_BYTES: usize = 48;

/// The head of a response.
#[derive(Debug)]
pub struct ResponseHead<'a> {
    /// The status.
    pub status: StatusCode,
    /// The fields. Those that frame the body are written anew, whatever these say.
    pub fields: &'a HeaderMap,
    /// The length of the body in bytes; `None` where only its end will tell.
    pub length: Option<u64>,
    /// Whether the connection may stay open behind the response.
    pub may_persist: bool,
}

/// What the head of a response depends on in its request.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestTraits {
    /// The method is `HEAD`: the response has no body.
    pub(super) is_head: bool,
    /// The version is HTTP/1.0: the client knows no chunks.
    pub(super) is_http10: bool,
}

/// How the body of a response is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseFraming {
    /// There is no body.
    Nothing,
    /// As it is, this many bytes.
    Length(u64),
    /// In chunks.
    Chunked,
    /// As it is, up to the end of the connection.
    UntilClose,
}

/// Writes the head. Returns how the body follows, and whether the connection stays open behind it.
pub(super) fn encode_response(
    out: &mut BytesMut,
    head: &ResponseHead<'_>,
    request: RequestTraits,
) -> (ResponseFraming, bool) {
    let is_switch = head.status == StatusCode::SWITCHING_PROTOCOLS;
    let has_no_body = is_switch || matches!(head.status.as_u16(), 204 | 304);
    let framing = match head.length {
        _ if has_no_body || request.is_head => ResponseFraming::Nothing,
        Some(0) => ResponseFraming::Nothing,
        Some(bytes) => ResponseFraming::Length(bytes),
        None if request.is_http10 => ResponseFraming::UntilClose,
        None => ResponseFraming::Chunked,
    };
    let has = |option: &[u8]| head.fields.get_all(CONNECTION).iter().any(|value| has_option(value.as_bytes(), option));
    let persists = head.may_persist && framing != ResponseFraming::UntilClose && !has(b"close");

    out.reserve(64 + USUAL_FIELD_BYTES * head.fields.len());
    put_status(out, head.status, request.is_http10);
    for (name, value) in head.fields {
        if is_passed(name, request, framing) {
            put_field(out, name, value.as_bytes());
        }
    }
    match (framing, head.length) {
        (ResponseFraming::Length(bytes), _) => put_length(out, bytes),
        (ResponseFraming::Chunked, _) => out.put_slice(b"transfer-encoding: chunked\r\n"),
        (ResponseFraming::UntilClose, _) => {}
        (ResponseFraming::Nothing, _) if head.status == StatusCode::NOT_MODIFIED => {
            content_length(head.fields).into_iter().for_each(|bytes| put_length(out, bytes));
        }
        (ResponseFraming::Nothing, _) if has_no_body => {}
        (ResponseFraming::Nothing, length) if request.is_head => {
            // The length that the body would have, where it is known (RFC 9110 section 8.6).
            if let Some(bytes) = content_length(head.fields).or(length.filter(|bytes| *bytes > 0)) {
                put_length(out, bytes);
            }
        }
        (ResponseFraming::Nothing, _) => put_length(out, 0),
    }
    if is_switch {
        // The connection goes on with another protocol.
    } else if !persists && !has(b"close") && !request.is_http10 {
        out.put_slice(b"connection: close\r\n");
    } else if persists && request.is_http10 && !has(b"keep-alive") {
        out.put_slice(b"connection: keep-alive\r\n");
    }
    out.put_slice(b"\r\n");
    (framing, persists)
}

fn put_status(out: &mut BytesMut, status: StatusCode, is_http10: bool) {
    // A client of HTTP/1.0 may not understand what a response of HTTP/1.1 says.
    out.put_slice(if is_http10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    out.put_slice(status.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(status.canonical_reason().unwrap_or("<none>").as_bytes());
    out.put_slice(b"\r\n");
}

fn put_length(out: &mut BytesMut, bytes: u64) {
    out.put_slice(b"content-length: ");
    put_decimal(out, bytes);
    out.put_slice(b"\r\n");
}

/// The `Content-Length` of the fields, where it is one number.
fn content_length(fields: &HeaderMap) -> Option<u64> {
    let mut lengths = fields.get_all(CONTENT_LENGTH).iter().map(|value| parse_decimal(value.as_bytes()));
    let first = lengths.next()??;
    lengths.all(|length| length == Some(first)).then_some(first)
}

/// Whether the field is written as it is.
fn is_passed(name: &HeaderName, request: RequestTraits, framing: ResponseFraming) -> bool {
    match *name {
        TRANSFER_ENCODING | CONTENT_LENGTH => false,
        // HTTP/1.0 has no trailers, and no trailers follow where there is no body.
        TRAILER => !request.is_http10 && framing != ResponseFraming::Nothing,
        _ => true,
    }
}
