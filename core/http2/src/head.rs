//! Converts a header block to the head of a request (RFC 9113 section 8.3, RFC 9114 section 4.3), or to trailers.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version,
    header::{CONNECTION, CONTENT_LENGTH, EXPECT, TE, TRANSFER_ENCODING, UPGRADE},
    request::Parts,
    uri::{Authority, PathAndQuery, Scheme},
};

use crate::hpack::Field;

/// Initial capacity for fields: those of a browser, and those added for an origin.
const USUAL_FIELDS: usize = 24;

/// The fields of one header block.
#[derive(Debug)]
pub struct HeadFields {
    version: Version,
    method: Option<Bytes>,
    scheme: Option<Bytes>,
    authority: Option<Bytes>,
    path: Option<Bytes>,
    protocol: Option<Bytes>,
    fields: HeaderMap,
    /// Size as in RFC 9113 section 6.5.2.
    bytes: usize,
    is_malformed: bool,
    has_pseudo: bool,
    length: Option<u64>,
    expects: bool,
}

/// A request's head, with properties for its stream.
#[derive(Debug)]
pub struct RequestHead {
    /// The head.
    pub parts: Parts,
    /// The declared length of the body, in bytes.
    pub length: Option<u64>,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects: bool,
    /// `:protocol` of an extended CONNECT (RFC 8441, RFC 9220).
    pub protocol: Option<Bytes>,
    /// Reason to refuse the request, if any.
    pub refusal: Option<HeadRefusal>,
}

/// Reason to answer a request with an error although its stream is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadRefusal {
    /// The head is too long. Only the method is known, if it came first.
    TooLong,
    /// `:path` has invalid characters. The path is unknown.
    Target,
}

/// The block is malformed: its stream is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl HeadFields {
    /// For the block of a request of this version.
    pub fn of_request(version: Version) -> Self {
        Self::new(version, HeaderMap::with_capacity(USUAL_FIELDS))
    }

    /// For the block of trailers of this version.
    pub fn of_trailers(version: Version) -> Self {
        Self::new(version, HeaderMap::new())
    }

    fn new(version: Version, fields: HeaderMap) -> Self {
        Self {
            version,
            method: None,
            scheme: None,
            authority: None,
            path: None,
            protocol: None,
            fields,
            bytes: 0,
            is_malformed: false,
            has_pseudo: false,
            length: None,
            expects: false,
        }
    }

    /// The size so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the next field. Fields beyond `max_bytes` are counted, and not kept.
    pub fn take(&mut self, field: Field, bytes: usize, max_bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > max_bytes || self.is_malformed {
            return;
        }
        let pseudo = match field {
            Field::Regular(name, value) => return self.take_regular(name, value),
            Field::Method(value) => (&mut self.method, value),
            Field::Scheme(value) => (&mut self.scheme, value),
            Field::Authority(value) => (&mut self.authority, value),
            Field::Path(value) => (&mut self.path, value),
            Field::Protocol(value) => (&mut self.protocol, value),
            Field::Malformed => {
                self.is_malformed = true;
                return;
            }
        };
        self.has_pseudo = true;
        //= RFC 9113 section 8.3
        //# All pseudo-header fields MUST appear in a field block before all regular field lines. [...] The same
        //# pseudo-header field name MUST NOT appear more than once in a field block.
        self.is_malformed |= pseudo.0.replace(pseudo.1).is_some() || !self.fields.is_empty();
    }

    fn take_regular(&mut self, name: HeaderName, value: HeaderValue) {
        if name == CONTENT_LENGTH {
            let length = length_of(&value);
            self.is_malformed |= length.is_none() || self.length.is_some_and(|known| Some(known) != length);
            self.length = length;
        } else if name == TE {
            //= RFC 9113 section 8.2.2
            //# it MUST NOT contain any value other than "trailers"
            self.is_malformed |= !value.as_bytes().eq_ignore_ascii_case(b"trailers");
        } else if name == EXPECT {
            self.expects |= value.as_bytes().eq_ignore_ascii_case(b"100-continue");
        } else if name == CONNECTION
            || name == TRANSFER_ENCODING
            || name == UPGRADE
            || name == "keep-alive"
            || name == "proxy-connection"
        {
            //= RFC 9113 section 8.2.2
            //# Any message containing connection-specific header fields MUST be treated as malformed
            self.is_malformed = true;
        }
        if !self.is_malformed && self.fields.try_append(name, value).is_err() {
            self.is_malformed = true;
        }
    }

    /// Converts to the head of a request. `known` caches the authority of the previous request on the connection, which
    /// mostly repeats. `ends` says that no body follows.
    ///
    /// # Errors
    /// The head is malformed.
    pub fn into_request(self, ends: bool, known: &mut Option<Authority>) -> Result<RequestHead, Malformed> {
        if self.is_malformed || (ends && self.length.is_some_and(|length| length > 0)) {
            return Err(Malformed);
        }
        let method = Method::from_bytes(&self.method.ok_or(Malformed)?).map_err(|_| Malformed)?;
        let authority = match self.authority {
            Some(bytes) => Some(authority_of(bytes, known)?),
            None => None,
        };
        let mut uri = http::uri::Parts::default();
        let mut refusal = None;
        //= RFC 8441 section 4
        //# A new pseudo-header field :protocol MAY be included on request HEADERS indicating the desired protocol to be
        //# spoken on the tunnel created by CONNECT. [...] On requests that contain the :protocol pseudo-header field,
        //# the :scheme and :path pseudo-header fields of the target URI [...] MUST also be included.
        if self.protocol.is_some() && (method != Method::CONNECT || authority.is_none() || self.length.is_some()) {
            return Err(Malformed);
        }
        if method == Method::CONNECT && self.protocol.is_none() {
            //= RFC 9113 section 8.5
            //# The ":scheme" and ":path" pseudo-header fields MUST be omitted.
            if self.scheme.is_some() || self.path.is_some() || authority.is_none() {
                return Err(Malformed);
            }
        } else {
            let scheme = scheme_of(&self.scheme.ok_or(Malformed)?)?;
            let path = self.path.filter(|path| !path.is_empty()).ok_or(Malformed)?;
            //= RFC 9113 section 8.3.1
            //# the ":path" pseudo-header field [...] MUST NOT be empty for "http" or "https" URIs; [...] an OPTIONS
            //# request for an "http" or "https" URI that does not include a path component [...] MUST include a
            //# ":path" pseudo-header field with a value of '*'
            if path.first() != Some(&b'/') && !(method == Method::OPTIONS && &*path == b"*") {
                return Err(Malformed);
            }
            let path = path_of(path)?;
            refusal = path.is_none().then_some(HeadRefusal::Target);
            uri.path_and_query = Some(path.unwrap_or(PathAndQuery::from_static("/")));
            // A URI without an authority has no scheme; `host` names the authority then.
            uri.scheme = authority.is_some().then_some(scheme);
        }
        uri.authority = authority;
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = method;
        parts.uri = Uri::from_parts(uri).map_err(|_| Malformed)?;
        parts.version = self.version;
        parts.headers = self.fields;
        Ok(RequestHead { parts, length: self.length, expects: self.expects, protocol: self.protocol, refusal })
    }

    /// The head of a request of which not all fields were read: its method, which the response depends on.
    pub fn into_cut_request(self) -> RequestHead {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = self.method.and_then(|method| Method::from_bytes(&method).ok()).unwrap_or_default();
        parts.version = self.version;
        RequestHead { parts, length: None, expects: false, protocol: None, refusal: Some(HeadRefusal::TooLong) }
    }

    /// Converts to the trailers of a request.
    ///
    /// # Errors
    /// The trailers are malformed.
    pub fn into_trailers(self) -> Result<HeaderMap, Malformed> {
        //= RFC 9113 section 8.1
        //# Trailers MUST NOT include pseudo-header fields
        if self.is_malformed || self.has_pseudo { Err(Malformed) } else { Ok(self.fields) }
    }
}

/// Parses the path; `None` if it is not a valid target. A parser would cut off a fragment, or accept non-ASCII bytes,
/// so that the origin would see another path.
fn path_of(bytes: Bytes) -> Result<Option<PathAndQuery>, Malformed> {
    if bytes.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
        return Err(Malformed);
    }
    if bytes.iter().any(|byte| *byte == b'#' || !byte.is_ascii()) {
        return Ok(None);
    }
    Ok(PathAndQuery::from_maybe_shared(bytes).ok())
}

fn authority_of(bytes: Bytes, known: &mut Option<Authority>) -> Result<Authority, Malformed> {
    if let Some(known) = known.as_ref().filter(|known| known.as_str().as_bytes() == bytes) {
        return Ok(known.clone());
    }
    let authority = Authority::from_maybe_shared(bytes).map_err(|_| Malformed)?;
    *known = Some(authority.clone());
    Ok(authority)
}

fn scheme_of(bytes: &[u8]) -> Result<Scheme, Malformed> {
    match bytes {
        b"https" => Ok(Scheme::HTTPS),
        b"http" => Ok(Scheme::HTTP),
        other => Scheme::try_from(other).map_err(|_| Malformed),
    }
}

/// Parses `content-length` (RFC 9110 section 8.6).
fn length_of(value: &HeaderValue) -> Option<u64> {
    let bytes = value.as_bytes();
    if bytes.is_empty() || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
