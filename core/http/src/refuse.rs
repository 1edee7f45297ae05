//! Checks of parsed requests.

use http::{
    HeaderMap, HeaderValue, Method, Uri, Version,
    header::{CONTENT_LENGTH, COOKIE, HOST, TE, TRANSFER_ENCODING},
};

use crate::{
    RequestRefusal,
    host::{Authority, HostError, label_under},
    lengths::{check_transfer_encoding, parse_content_length},
    limits::{MAX_HEADER_COUNT, MAX_TARGET_BYTES},
};

impl From<HostError> for RequestRefusal {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Empty => Self::MissingHost,
            HostError::UserInfo => Self::HostUserInfo,
            HostError::Name | HostError::Length | HostError::Port => Self::Host,
        }
    }
}

/// The requested host. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHost {
    value: HeaderValue,
    name_bytes: usize,
    port: Option<u16>,
}

impl RequestHost {
    /// Parses the value of a `Host` field.
    ///
    /// # Errors
    /// The value is no host with an optional port.
    pub fn from_value(value: &HeaderValue) -> Result<Self, RequestRefusal> {
        let authority = Authority::parse(value.as_bytes())?;
        Ok(Self { value: value.clone(), name_bytes: authority.host().len(), port: authority.port() })
    }

    /// A copy in its own memory: the value may lie in the read buffer of a request.
    #[must_use]
    pub fn detached(&self) -> Self {
        let value = HeaderValue::from_bytes(self.value.as_bytes()).unwrap_or_else(|_| self.value.clone());
        Self { value, ..*self }
    }

    /// Host and port as the client wrote them, for the `Host` to the origin.
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

    /// The port, if the client wrote one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Whether the host has this name, in any case.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.value.as_bytes().get(..self.name_bytes).is_some_and(|own| own.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// The single label before the domain, in lower case: see [`label_under`].
    #[must_use]
    pub fn label_under(&self, domain: &str) -> Option<std::borrow::Cow<'_, str>> {
        label_under(self.name(), domain)
    }
}

/// Checks a parsed request, and returns the requested host.
///
/// The HTTP/1 server has checked the bytes of its requests before. For HTTP/2 and HTTP/3 this is the only check.
/// `known` is the host of an earlier request: an equal host is not parsed again.
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
    let is_multiplexed = matches!(version, Version::HTTP_2 | Version::HTTP_3);
    if !is_multiplexed && version != Version::HTTP_11 && version != Version::HTTP_10 {
        return Err(RequestRefusal::Version);
    }
    check_target(method, uri, is_multiplexed)?;
    // Browsers send every cookie as a field of its own (RFC 9113 section 8.2.3, RFC 9114 section 4.2.1). These count as
    // one.
    let cookies = if is_multiplexed { headers.get_all(COOKIE).iter().count().saturating_sub(1) } else { 0 };
    if headers.len() - cookies > MAX_HEADER_COUNT {
        return Err(RequestRefusal::TooManyFields);
    }
    if is_multiplexed {
        check_multiplexed_fields(headers)?;
    }
    check_lengths(version, headers)?;
    find_host(uri, headers, known)
}

fn check_target(method: &Method, uri: &Uri, is_multiplexed: bool) -> Result<(), RequestRefusal> {
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
        // The authority form is for CONNECT alone. The `Uri` of an HTTP/2 or HTTP/3 request may lack its scheme.
        None if uri.authority().is_none() || is_multiplexed => Ok(()),
        _ => Err(RequestRefusal::Target),
    }
}

//= RFC 9113 section 8.2.2
//# An endpoint MUST NOT generate an HTTP/2 message containing connection-specific header fields.
fn check_multiplexed_fields(headers: &HeaderMap) -> Result<(), RequestRefusal> {
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
