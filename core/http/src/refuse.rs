//! Which parsed requests are refused, and which host the others are for.

use http::{
    HeaderMap, HeaderValue, Method, StatusCode, Uri, Version,
    header::{CONTENT_LENGTH, COOKIE, HOST, TE, TRANSFER_ENCODING},
};

use crate::{
    guard::{MAX_BODY_BYTES, MAX_HEADER_COUNT, MAX_TARGET_BYTES},
    host::{Authority, HostError, label_under},
};

/// Why a request is refused. Its text is one sentence that may be shown to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RequestRefusal {
    /// The request line is not `method SP target SP HTTP/1.x`.
    #[error("the request line is not a method, a target and a version with one space between them")]
    RequestLine,
    /// The major version is not 1 (nor, by other means, 2).
    #[error("this version of http is not spoken here: use HTTP/1.1 or negotiate HTTP/2")]
    Version,
    /// CONNECT: this is no forward proxy.
    #[error("the method CONNECT is not supported here")]
    Connect,
    /// The target is in none of the forms that the method allows.
    #[error("the target is neither a path nor an http address, or has characters that must be percent-encoded")]
    Target,
    /// The `Max-Forwards` is no number.
    #[error("the Max-Forwards is not one number")]
    MaxForwards,
    /// The target is too long.
    #[error("the target is too long")]
    TargetLong,
    /// The head is too long.
    #[error("the header of the request is too long")]
    HeadLong,
    /// There are too many header fields.
    #[error("the request has too many header fields")]
    TooManyFields,
    /// A line feed without a carriage return before it.
    #[error("a line ends with a bare line feed")]
    BareLineFeed,
    /// A carriage return without a line feed after it.
    #[error("a carriage return stands without a line feed")]
    BareCarriageReturn,
    /// A control character, such as NUL.
    #[error("the header of the request contains a control character")]
    ControlCharacter,
    /// A field continues on the next line (RFC 9112 section 5.2).
    #[error("a header field is folded over several lines")]
    FoldedField,
    /// White space between a field's name and its colon.
    #[error("a header field has white space before its colon")]
    SpaceBeforeColon,
    /// A field line without a colon, or with a name that is no token.
    #[error("a header field has no valid name")]
    FieldName,
    /// A field value that starts or ends with white space in HTTP/2.
    #[error("a header field's value starts or ends with white space")]
    FieldValue,
    /// Both Content-Length and Transfer-Encoding.
    #[error("the request has both Content-Length and Transfer-Encoding")]
    BothLengths,
    /// More than one Content-Length, or a list in one.
    #[error("the request has more than one Content-Length")]
    SeveralContentLengths,
    /// A Content-Length that is no number or too large.
    #[error("the Content-Length is not a number of bytes")]
    ContentLength,
    /// A Transfer-Encoding that is malformed, repeated, or has chunked somewhere else than once at its end.
    #[error("the Transfer-Encoding is malformed")]
    TransferEncoding,
    /// A Transfer-Encoding other than chunked.
    #[error("the only Transfer-Encoding spoken here is chunked")]
    UnknownTransferEncoding,
    /// A Transfer-Encoding on an HTTP/1.0 request.
    #[error("an HTTP/1.0 request cannot have a Transfer-Encoding")]
    TransferEncodingVersion,
    /// No host is named.
    #[error("the request names no host")]
    MissingHost,
    /// More than one Host field.
    #[error("the request has more than one Host")]
    SeveralHosts,
    /// The host is no name and no address.
    #[error("the host of the request is not a valid host name")]
    Host,
    /// The host has a user name: `user@host`.
    #[error("the host of the request has a user name in it")]
    HostUserInfo,
    /// Host and the target (or `:authority`) name different places.
    #[error("the request names two different hosts")]
    ConflictingHosts,
    /// A field that HTTP/2 forbids (RFC 9113 section 8.2.2).
    #[error("the request has a connection-specific header field, which HTTP/2 forbids")]
    ConnectionField,
    /// A chunk's size line is malformed.
    #[error("a chunk of the body has no valid size")]
    ChunkSize,
    /// A chunk's size line is too long, or the extensions of a body are.
    #[error("the chunk extensions of the body are too long")]
    ChunkLineLong,
    /// A chunk's data does not end with CRLF where its size says.
    #[error("a chunk of the body does not end where its size says")]
    ChunkEnd,
    /// A trailer field that is malformed or concerns framing or routing.
    #[error("the body is followed by an invalid trailer field")]
    Trailer,
    /// The trailer section is too long.
    #[error("the trailer fields of the body are too long")]
    TrailersLong,
}

impl RequestRefusal {
    /// The status of the answer.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::Connect | Self::UnknownTransferEncoding => StatusCode::NOT_IMPLEMENTED,
            Self::TargetLong => StatusCode::URI_TOO_LONG,
            Self::HeadLong | Self::TooManyFields | Self::TrailersLong => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

impl From<HostError> for RequestRefusal {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Empty => Self::MissingHost,
            HostError::UserInfo => Self::HostUserInfo,
            HostError::Name | HostError::Length | HostError::Port => Self::Host,
        }
    }
}

/// The host that a request is for. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHost {
    value: HeaderValue,
    name_bytes: usize,
    port: Option<u16>,
}

impl RequestHost {
    /// Takes a Host field's value.
    ///
    /// # Errors
    /// It is no host with an optional port.
    pub fn from_value(value: &HeaderValue) -> Result<Self, RequestRefusal> {
        let authority = Authority::parse(value.as_bytes())?;
        Ok(Self { value: value.clone(), name_bytes: authority.host().len(), port: authority.port() })
    }

    /// The same in memory of its own: its value may lie in the buffer that a request was read into.
    #[must_use]
    pub fn detached(&self) -> Self {
        let value = HeaderValue::from_bytes(self.value.as_bytes()).unwrap_or_else(|_| self.value.clone());
        Self { value, ..*self }
    }

    /// Host and port as the client wrote them; what the origin gets as its Host.
    #[must_use]
    pub fn value(&self) -> &HeaderValue {
        &self.value
    }

    /// Host and port as the client wrote them.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Only ASCII passes `Authority::parse`.
        std::str::from_utf8(self.value.as_bytes()).unwrap_or_default()
    }

    /// The name or address, without port and trailing dot, in the client's spelling.
    #[must_use]
    pub fn name(&self) -> &str {
        self.as_str().get(..self.name_bytes).unwrap_or_default()
    }

    /// The port, when the client wrote one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Whether this is the given name, in whatever case.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.value.as_bytes().get(..self.name_bytes).is_some_and(|own| own.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// The one label before the domain, in lower case: see [`label_under`].
    #[must_use]
    pub fn label_under(&self, domain: &str) -> Option<std::borrow::Cow<'_, str>> {
        label_under(self.name(), domain)
    }
}

/// Judges a parsed request and says which host it is for.
///
/// For HTTP/1 the [`guard`](crate::guard) has judged the bytes before; what can be seen in a parsed request is checked
/// here again, and for HTTP/2 this is the check. A host that is written as `known`, which a request before was for, is not read
/// again.
///
/// # Errors
/// The first rule that the request breaks.
pub fn check_request(
    method: &Method,
    uri: &Uri,
    version: Version,
    headers: &HeaderMap,
    known: Option<&RequestHost>,
) -> Result<RequestHost, RequestRefusal> {
    if *method == Method::CONNECT {
        return Err(RequestRefusal::Connect);
    }
    let is_http2 = version == Version::HTTP_2;
    if !is_http2 && version != Version::HTTP_11 && version != Version::HTTP_10 {
        return Err(RequestRefusal::Version);
    }
    check_target(method, uri, is_http2)?;
    // A browser sends every cookie as a field of its own in HTTP/2 (RFC 9113 section 8.2.3): those count as one.
    let cookies = if is_http2 { headers.get_all(COOKIE).iter().count().saturating_sub(1) } else { 0 };
    if headers.len() - cookies > MAX_HEADER_COUNT {
        return Err(RequestRefusal::TooManyFields);
    }
    if is_http2 {
        check_http2_fields(headers)?;
    }
    check_lengths(version, headers)?;
    find_host(uri, headers, known)
}

fn check_target(method: &Method, uri: &Uri, is_http2: bool) -> Result<(), RequestRefusal> {
    let path = uri.path();
    if path.len() + uri.query().map_or(0, |query| query.len() + 1) > MAX_TARGET_BYTES {
        return Err(RequestRefusal::TargetLong);
    }
    let is_asterisk = path == "*" && *method == Method::OPTIONS;
    if !is_asterisk && !path.starts_with('/') {
        return Err(RequestRefusal::Target);
    }
    match uri.scheme_str() {
        Some("http" | "https") => Ok(()),
        // The authority form is for CONNECT alone; HTTP/2 has the scheme in a field of its own.
        None if uri.authority().is_none() || is_http2 => Ok(()),
        _ => Err(RequestRefusal::Target),
    }
}

//= RFC 9113 section 8.2.2
//# An endpoint MUST NOT generate an HTTP/2 message containing connection-specific header fields.
fn check_http2_fields(headers: &HeaderMap) -> Result<(), RequestRefusal> {
    if headers.keys().any(|name| is_connection_specific(name.as_str())) {
        return Err(RequestRefusal::ConnectionField);
    }
    if headers.get_all(TE).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"trailers")) {
        return Err(RequestRefusal::ConnectionField);
    }
    //= RFC 9113 section 8.2.1
    //# A field value MUST NOT start or end with an ASCII whitespace character (ASCII SP or HTAB)
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if headers.values().any(|value| is_space(value.as_bytes().first()) || is_space(value.as_bytes().last())) {
        return Err(RequestRefusal::FieldValue);
    }
    Ok(())
}

fn is_connection_specific(name: &str) -> bool {
    matches!(name, "connection" | "transfer-encoding" | "upgrade" | "keep-alive" | "proxy-connection")
}

fn check_lengths(version: Version, headers: &HeaderMap) -> Result<(), RequestRefusal> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let length = lengths.next();
    if let Some(coding) = codings.next() {
        check_transfer_encoding(coding.as_bytes())?;
        if codings.next().is_some() {
            return Err(RequestRefusal::TransferEncoding);
        }
        if version == Version::HTTP_10 {
            return Err(RequestRefusal::TransferEncodingVersion);
        }
        if length.is_some() {
            return Err(RequestRefusal::BothLengths);
        }
    }
    if let Some(length) = length {
        parse_content_length(length.as_bytes())?;
        if lengths.next().is_some() {
            return Err(RequestRefusal::SeveralContentLengths);
        }
    }
    Ok(())
}

fn find_host(uri: &Uri, headers: &HeaderMap, known: Option<&RequestHost>) -> Result<RequestHost, RequestRefusal> {
    let known_as = |value: &[u8]| known.filter(|known| known.value.as_bytes() == value).cloned();
    let read = |value: &HeaderValue| known_as(value.as_bytes()).map_or_else(|| RequestHost::from_value(value), Ok);
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().map(read).transpose()?;
    if hosts.next().is_some() {
        return Err(RequestRefusal::SeveralHosts);
    }
    let Some(authority) = uri.authority() else { return host.ok_or(RequestRefusal::MissingHost) };
    if host.is_none()
        && let Some(known) = known_as(authority.as_str().as_bytes())
    {
        return Ok(known);
    }
    let named = Authority::parse(authority.as_str().as_bytes())?;
    match host {
        Some(host) if named.is_same(&Authority::parse(host.value.as_bytes())?) => Ok(host),
        Some(_) => Err(RequestRefusal::ConflictingHosts),
        None => {
            let value = HeaderValue::from_str(authority.as_str()).map_err(|_| RequestRefusal::Host)?;
            Ok(RequestHost { value, name_bytes: named.host().len(), port: named.port() })
        }
    }
}

/// A Content-Length (RFC 9110 section 8.6) of digits alone; sign, space and list are refused.
pub(crate) fn parse_content_length(value: &[u8]) -> Result<u64, RequestRefusal> {
    if value.contains(&b',') {
        return Err(RequestRefusal::SeveralContentLengths);
    }
    if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
        return Err(RequestRefusal::ContentLength);
    }
    // Nineteen digits cannot overflow a u64.
    let length = value.iter().fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    if length > MAX_BODY_BYTES { Err(RequestRefusal::ContentLength) } else { Ok(length) }
}

/// Whether a Transfer-Encoding field is exactly `chunked`.
pub(crate) fn check_transfer_encoding(value: &[u8]) -> Result<(), RequestRefusal> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let mut is_chunked = false;
    for coding in value.split(|byte| *byte == b',') {
        let name = coding.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        if is_chunked || name.is_empty() || !name.iter().copied().all(crate::guard::is_token_byte) {
            return Err(RequestRefusal::TransferEncoding);
        }
        // Chunked can only be the last one, and without parameters (RFC 9112 section 7).
        is_chunked = name.eq_ignore_ascii_case(b"chunked");
    }
    if is_chunked && !value.contains(&b',') {
        return Err(RequestRefusal::TransferEncoding);
    }
    Err(RequestRefusal::UnknownTransferEncoding)
}
