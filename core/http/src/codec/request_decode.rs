//! A request's head, as a server reads it behind the guard.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version,
    header::{CONTENT_LENGTH, EXPECT, TE, TRANSFER_ENCODING},
    request::Parts,
    uri::PathAndQuery,
};

use super::{Framing, end_of_lines, keeps_connection, response_decode::decimal};
use crate::{connection_options::has_option, guard::MAX_HEADER_COUNT};

/// A request's head, and what its connection has to know of it.
#[derive(Debug)]
pub struct Asked {
    /// The request.
    pub head: Parts,
    /// How its body ends.
    pub framing: Framing,
    /// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 section 10.1.1).
    pub expects_continue: bool,
    /// Whether the client takes trailers behind an answer in chunks (RFC 9110 section 10.1.4).
    pub takes_trailers: bool,
    /// Whether the client leaves the connection open behind the answer.
    pub keeps_connection: bool,
}

/// Takes the next head out of bytes that the [guard](crate::guard) has passed; none while it is not whole. Its fields take
/// the room of those in `room`, which is empty then.
///
/// # Errors
/// It is no head. The guard passes no such.
pub fn read_request(buf: &mut BytesMut, room: &mut HeaderMap) -> Result<Option<Asked>, httparse::Error> {
    // A first line may be empty (RFC 9112 section 2.2).
    let blank = if buf.starts_with(b"\r\n") { 2 } else { 0 };
    let Some(end) = end_of_lines(&buf[blank..], 0) else { return Ok(None) };
    let mut head = buf.split_to(blank + end);
    take_for_highest(&mut head[blank..]);
    read_head(&head.freeze(), room).map(Some)
}

/// Takes a later minor version for the highest one that is spoken here (RFC 9110 section 2.5).
fn take_for_highest(head: &mut [u8]) {
    let line = head.iter().position(|byte| *byte == b'\r').unwrap_or_default();
    if let Some([.., b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'2'..=b'9']) = head.get_mut(..line) {
        *minor = b'1';
    }
}

/// The target with the path that one in absolute form leaves out.
//= RFC 9112 section 3.2.1
//# If the target URI's path component is empty, the client MUST send "/" as the path within the origin-form of
//# request-target.
//= RFC 9112 section 3.2.4
//# If a proxy receives an OPTIONS request with an absolute-form of request-target in which the URI has an empty path and
//# no query component, then the last proxy on the request chain MUST send a request-target of "*"
fn with_path(method: &Method, raw: &str, target: Uri) -> Uri {
    let Some((_, rest)) = raw.split_once("://").filter(|_| target.authority().is_some()) else { return target };
    let path = match rest.find(['/', '?']).map(|at| &rest[at..]) {
        None if *method == Method::OPTIONS => PathAndQuery::from_static("*"),
        Some(query) if query.starts_with('?') => match format!("/{query}").try_into() {
            Ok(path) => path,
            Err(_) => return target,
        },
        _ => return target,
    };
    let mut parts = target.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).unwrap_or(target)
}

fn read_head(bytes: &Bytes, room: &mut HeaderMap) -> Result<Asked, httparse::Error> {
    let mut places = [const { MaybeUninit::uninit() }; MAX_HEADER_COUNT];
    let mut read = httparse::Request::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_request_with_uninit_headers(&mut read, bytes, &mut places)?;
    let (httparse::Status::Complete(_), Some(method), Some(raw)) = (parsed, read.method, read.path) else {
        return Err(httparse::Error::Status);
    };
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| httparse::Error::Token)?;
    let target = Uri::from_maybe_shared(bytes.slice_ref(raw.as_bytes())).map_err(|_| httparse::Error::Token)?;
    let target = with_path(&method, raw, target);
    let mut fields = std::mem::take(room);
    fields.clear();
    fields.reserve(read.headers.len());
    for field in read.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| httparse::Error::HeaderName)?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
        fields.append(name, value.map_err(|_| httparse::Error::HeaderValue)?);
    }
    let is_old = read.version != Some(1);
    let framing = framing(&fields)?;
    let expects = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    let expects_continue = !is_old && framing != Framing::Length(0) && fields.get(EXPECT).is_some_and(expects);
    let takes_trailers = fields.get_all(TE).iter().any(|value| has_option(value.as_bytes(), b"trailers"));
    let keeps_connection = keeps_connection(&fields, is_old);
    let (mut head, ()) = Request::new(()).into_parts();
    (head.method, head.uri, head.headers) = (method, target, fields);
    head.version = if is_old { Version::HTTP_10 } else { Version::HTTP_11 };
    Ok(Asked { head, framing, expects_continue, takes_trailers, keeps_connection })
}

/// How the body ends (RFC 9112 section 6.3). The guard has refused whatever could be understood in two ways.
fn framing(fields: &HeaderMap) -> Result<Framing, httparse::Error> {
    if fields.contains_key(TRANSFER_ENCODING) {
        return Ok(Framing::Chunked);
    }
    match fields.get(CONTENT_LENGTH) {
        None => Ok(Framing::Length(0)),
        Some(length) => decimal(length.as_bytes()).map(Framing::Length).ok_or(httparse::Error::HeaderValue),
    }
}
