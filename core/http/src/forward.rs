//! The header fields of forwarded requests and responses.
//!
//! Hop-by-hop fields are dropped (RFC 9110 section 7.6.1). Only the edge sets the fields that describe the client:
//! fields of a client with such names, in any spelling, are dropped first.

use std::net::SocketAddr;

use bytes::{BufMut, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Version,
    header::{
        CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, FORWARDED, HOST, MAX_FORWARDS, TE, TRANSFER_ENCODING,
        UPGRADE, VIA,
    },
};

use crate::{RequestHost, RequestId, RequestRefusal, connection::has_option};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
/// The field with a request's id, for origins and clients.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The values that describe a client. Made once for a connection, because they are the same for all its requests.
#[derive(Debug, Clone)]
pub struct ClientFields {
    address: HeaderValue,
    scheme: HeaderValue,
    port: HeaderValue,
    /// The values as lines of HTTP/1.1, and the start of the `Forwarded` line, which the host of each request
    /// completes.
    lines: Box<str>,
    /// Where `for=192.0.2.1;proto=https;host="` begins in `lines`.
    forwarded_at: usize,
}

impl ClientFields {
    /// The fields for the address `client`, the public `port`, and the `scheme` ("https" or "http").
    #[must_use]
    pub fn new(client: SocketAddr, scheme: &'static str, port: u16) -> Self {
        let address = client.ip().to_canonical();
        let (ip, port) = (address.to_string(), HeaderValue::from(port));
        //= RFC 7239 section 6
        //# Note that an IPv6 address is always enclosed in square brackets
        let (opening, closing) = if address.is_ipv6() { ("\"[", "]\"") } else { ("", "") };
        // Built without formatting, which takes several times as long: each connection needs these values.
        let mut lines = String::with_capacity(192);
        let mut line = |name: HeaderName, value: &str| {
            lines.extend([name.as_str(), ": ", value, "\r\n"]);
        };
        line(X_FORWARDED_FOR, &ip);
        line(X_REAL_IP, &ip);
        line(X_FORWARDED_PROTO, scheme);
        line(X_FORWARDED_PORT, port.to_str().unwrap_or_default());
        lines.extend([FORWARDED.as_str(), ": "]);
        let forwarded_at = lines.len();
        lines.extend(["for=", opening, &ip, closing, ";proto=", scheme, ";host=\""]);
        Self {
            address: HeaderValue::try_from(ip).unwrap_or(HeaderValue::from_static("unknown")),
            scheme: HeaderValue::from_static(scheme),
            port,
            lines: lines.into(),
            forwarded_at,
        }
    }

    /// The `Forwarded` value (RFC 7239 section 4) for a request to this host.
    fn forwarded(&self, host: &RequestHost) -> HeaderValue {
        // A checked host has neither a quote nor a backslash, so it needs no escape.
        let (start, host) = (&self.lines[self.forwarded_at..], host.value().as_bytes());
        let mut value = BytesMut::with_capacity(start.len() + host.len() + 1);
        value.put_slice(start.as_bytes());
        value.put_slice(host);
        value.put_u8(b'"');
        HeaderValue::from_maybe_shared(value.freeze()).unwrap_or(HeaderValue::from_static("for=unknown"))
    }
}

/// The fields of a request that only the edge sets.
#[derive(Debug, Clone, Copy)]
pub struct OurFields<'a> {
    /// The client.
    pub client: &'a ClientFields,
    /// The requested host, from [`check_request`](crate::refuse::check_request).
    pub host: &'a RequestHost,
    /// The request's id.
    pub request_id: &'a RequestId,
    /// The HTTP version of the client.
    pub version: Version,
}

impl OurFields<'_> {
    /// An upper bound on the bytes that [`Self::write`] writes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.client.lines.len() + 2 * self.host.value().len() + RequestId::BYTES + 96
    }

    /// Writes the fields as lines of HTTP/1.1.
    pub fn write(&self, out: &mut BytesMut) {
        let host = self.host.value().as_bytes();
        out.put_slice(self.client.lines.as_bytes());
        // As in `ClientFields::forwarded`.
        out.put_slice(host);
        out.put_slice(b"\"\r\nx-forwarded-host: ");
        out.put_slice(host);
        out.put_slice(b"\r\nx-request-id: ");
        out.put_slice(self.request_id.as_str().as_bytes());
        out.put_slice(b"\r\nvia: ");
        out.put_slice(self.via().as_bytes());
        out.put_slice(b"\r\n");
    }

    /// The edge's entry in `Via`, behind those of earlier hops. The entry has a pseudonym in place of the edge's host.
    //= RFC 9110 section 7.6.3
    //# An HTTP-to-HTTP gateway MUST send an appropriate Via header field in each inbound request message
    fn via(&self) -> &'static str {
        match self.version {
            Version::HTTP_10 => "1.0 sallyport",
            Version::HTTP_2 => "2 sallyport",
            Version::HTTP_3 => "3 sallyport",
            _ => "1.1 sallyport",
        }
    }

    fn insert_into(&self, headers: &mut HeaderMap) {
        let client = self.client;
        headers.insert(X_FORWARDED_FOR, client.address.clone());
        headers.insert(X_REAL_IP, client.address.clone());
        headers.insert(X_FORWARDED_PROTO, client.scheme.clone());
        headers.insert(X_FORWARDED_PORT, client.port.clone());
        headers.insert(X_FORWARDED_HOST, self.host.value().clone());
        headers.insert(FORWARDED, client.forwarded(self.host));
        headers.insert(X_REQUEST_ID, self.request_id.header_value());
        headers.append(VIA, HeaderValue::from_static(self.via()));
    }
}

/// The HTTP version of the next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// The context of [`request_headers`].
#[derive(Debug, Clone, Copy)]
pub struct ForwardContext<'a> {
    /// The fields that only the edge sets.
    pub ours: OurFields<'a>,
    /// Whether the request is a forwarded WebSocket upgrade: see [`is_websocket_upgrade`].
    pub websocket: bool,
    /// The HTTP version of the origin.
    pub origin: NextHop,
}

/// Whether the request is a WebSocket upgrade (RFC 6455 section 4.1): an HTTP/1.1 GET with `Upgrade: websocket` alone,
/// and with `upgrade` in `Connection`. A request with a body is none, because the body could be lost between the
/// protocols. Other protocols are not upgraded to.
#[must_use]
pub fn is_websocket_upgrade(method: &Method, version: Version, headers: &HeaderMap) -> bool {
    if *method != Method::GET || version != Version::HTTP_11 {
        return false;
    }
    let mut upgrades = headers.get_all(UPGRADE).iter();
    upgrades.next().is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && upgrades.next().is_none()
        && headers.get_all(CONNECTION).iter().any(|value| has_option(value.as_bytes(), b"upgrade"))
        && !has_body(headers)
}

/// Whether an HTTP/1.1 request announces a body (RFC 9112 section 6.3).
fn has_body(headers: &HeaderMap) -> bool {
    let is_above_zero = |len: &HeaderValue| len.as_bytes().iter().any(|digit| *digit != b'0');
    headers.contains_key(TRANSFER_ENCODING) || headers.get_all(CONTENT_LENGTH).iter().any(is_above_zero)
}

/// The recipient of a request with `Max-Forwards`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipient {
    /// The origin.
    Origin,
    /// The edge, which responds in place of the origin.
    Edge,
}

/// Decrements `Max-Forwards` of OPTIONS and TRACE requests, and returns the recipient (RFC 9110 section 7.6.2).
///
/// # Errors
/// `Max-Forwards` is not one number.
pub fn decrement_max_forwards(method: &Method, headers: &mut HeaderMap) -> Result<Recipient, RequestRefusal> {
    if *method != Method::OPTIONS && *method != Method::TRACE {
        return Ok(Recipient::Origin);
    }
    let mut values = headers.get_all(MAX_FORWARDS).iter();
    let Some(value) = values.next() else { return Ok(Recipient::Origin) };
    let digits = value.to_str().unwrap_or_default();
    if values.next().is_some() || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RequestRefusal::MaxForwards);
    }
    // A number that does not fit allows enough hops.
    let Some(rest) = digits.parse().unwrap_or(u32::MAX).checked_sub(1) else { return Ok(Recipient::Edge) };
    headers.insert(MAX_FORWARDS, HeaderValue::from(rest));
    Ok(Recipient::Origin)
}

/// Whether the request is a gRPC call: its content type is `application/grpc`, alone or before `+`, `;` or a space.
#[must_use]
pub fn is_grpc(headers: &HeaderMap) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    headers.get(CONTENT_TYPE).and_then(|value| value.as_bytes().split_at_checked(TYPE.len())).is_some_and(
        |(start, rest)| start.eq_ignore_ascii_case(TYPE) && matches!(rest.first(), None | Some(b'+' | b';' | b' ')),
    )
}

/// Turns the header fields of a client's request into those for the origin.
///
/// For an HTTP/1.1 origin, the fields of `ours` are not inserted: [`OurFields::write`] writes them. `Expect` is left to
/// the caller. `Host` stays as the client sent it. For an HTTP/2 origin `Host` is removed, and the caller sets
/// `:authority`. The cookie fields of an HTTP/2 client are joined (RFC 9113 section 8.2.3).
pub fn request_headers(headers: &mut HeaderMap, context: &ForwardContext<'_>) {
    let wants_trailers = context.origin == NextHop::Http2
        && headers.get_all(TE).iter().any(|value| has_option(value.as_bytes(), b"trailers"));
    strip(headers, is_reserved);
    join_cookies(headers);
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if context.websocket {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    match context.origin {
        NextHop::Http1 => {
            headers.insert(HOST, context.ours.host.value().clone());
        }
        NextHop::Http2 => {
            headers.remove(HOST);
            context.ours.insert_into(headers);
        }
    }
}

/// Turns the header fields of an origin's response into those for the client. `websocket` says that the response is the
/// 101 to a [WebSocket upgrade](is_websocket_upgrade).
pub fn response_headers(headers: &mut HeaderMap, request_id: &HeaderValue, websocket: bool) {
    //= RFC 9112 section 6.3
    //# An intermediary that chooses to forward the message MUST first remove the received Content-Length field
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    // Another port of the origin's choice must not take over the name.
    strip(headers, |name| name == "alt-svc" || starts_folded(name.as_bytes(), b"x-sallyport-"));
    if websocket {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    headers.insert(X_REQUEST_ID, request_id.clone());
}

/// Drops the trailer fields that must not be trailers: hop-by-hop fields, fields of framing and routing (RFC 9110
/// section 6.5.1), and fields that only the edge sets.
pub fn trailers(headers: &mut HeaderMap) {
    strip(headers, |name| is_reserved(name) || is_override(name) || matches!(name, "host" | "content-length"));
}

/// Drops every field that overrides the method or the path, in every spelling that frameworks and proxies accept. A
/// request is admitted by its real method and path, so an origin must not see others.
pub fn drop_overrides(headers: &mut HeaderMap) {
    let doomed: Vec<HeaderName> = headers.keys().filter(|name| is_override(name.as_str())).cloned().collect();
    for name in doomed {
        headers.remove(name);
    }
}

/// Whether an origin could read the method or the path of a request from the field with this name.
#[must_use]
pub fn is_override(name: &str) -> bool {
    const OVERRIDES: [&[u8]; 8] = [
        b"x-http-method-override",
        b"x-http-method",
        b"x-method-override",
        b"x-method",
        b"x-original-method",
        b"x-original-url",
        b"x-original-uri",
        b"x-rewrite-url",
    ];
    name.starts_with('x') && OVERRIDES.iter().any(|one| is_folded(name.as_bytes(), one))
}

/// Removes hop-by-hop fields, those that `Connection` names, and those that `also` selects.
fn strip(headers: &mut HeaderMap, also: impl Fn(&str) -> bool) {
    let mut doomed: Vec<HeaderName> = Vec::new();
    for value in headers.get_all(CONNECTION) {
        for option in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            // A client must not remove the framing and the routing of its own request.
            let is_needed = option.eq_ignore_ascii_case(b"host") || option.eq_ignore_ascii_case(b"content-length");
            if !is_needed && !is_usual_option(option) {
                doomed.extend(HeaderName::from_bytes(option));
            }
        }
    }
    let is_doomed = |name: &str| is_hop_by_hop(name) || also(name);
    doomed.extend(headers.keys().filter(|name| is_doomed(name.as_str())).cloned());
    for name in doomed {
        headers.remove(name);
    }
}

/// Whether a connection option names no field, or one that is dropped in any case.
fn is_usual_option(option: &[u8]) -> bool {
    [&b"keep-alive"[..], b"close", b"upgrade", b"te"].iter().any(|usual| option.eq_ignore_ascii_case(usual))
}

fn is_hop_by_hop(name: &str) -> bool {
    match name.as_bytes().first() {
        Some(b'c') => name == "connection",
        Some(b't') => matches!(name, "te" | "transfer-encoding"),
        Some(b'u') => name == "upgrade",
        Some(b'k') => name == "keep-alive",
        Some(b'p') => matches!(name, "proxy-connection" | "proxy-authorization" | "proxy-authenticate"),
        Some(b'h') => name == "http2-settings",
        _ => false,
    }
}

/// Whether an origin could mistake the field for one that the edge sets. Servers that turn fields into environment
/// variables change `-` into `_`, and some change other characters too. So every character that is neither a letter nor
/// a digit counts as `-`.
fn is_reserved(name: &str) -> bool {
    let name = name.as_bytes();
    match name.first() {
        Some(b'x') => {
            [&b"x-forwarded-"[..], b"x-auth-", b"x-sallyport-"].iter().any(|start| starts_folded(name, start))
                || [&b"x-forwarded"[..], b"x-real-ip", b"x-request-id"].iter().any(|ours| is_folded(name, ours))
        }
        Some(b'f') => is_folded(name, b"forwarded"),
        // The secret of a machine is for the edge, even if sent to another socket.
        Some(b's') => starts_folded(name, b"sallyport-token-"),
        // Other spellings of these two fields could confuse an origin about the framing.
        Some(b'c') => name != b"content-length" && is_folded(name, b"content-length"),
        Some(b't') => is_folded(name, b"transfer-encoding"),
        _ => false,
    }
}

fn is_folded(name: &[u8], folded: &[u8]) -> bool {
    name.len() == folded.len() && starts_folded(name, folded)
}

fn starts_folded(name: &[u8], start: &[u8]) -> bool {
    name.len() >= start.len()
        && name.iter().zip(start).all(|(byte, want)| match byte {
            b if b.is_ascii_alphanumeric() => b == want,
            _ => *want == b'-',
        })
}

//= RFC 9113 section 8.2.3
//# If there are multiple Cookie header fields after decompression, these MUST be concatenated into a single octet
//# string using the two-octet delimiter of 0x3b, 0x20
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let bytes = headers.get_all(COOKIE).iter().map(|value| value.len() + 2).sum();
    let mut joined = BytesMut::with_capacity(bytes);
    for value in headers.get_all(COOKIE) {
        if !joined.is_empty() {
            joined.put_slice(b"; ");
        }
        joined.put_slice(value.as_bytes());
    }
    if let Ok(value) = HeaderValue::from_maybe_shared(joined.freeze()) {
        headers.insert(COOKIE, value);
    }
}
