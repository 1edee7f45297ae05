//! Why a request is refused.

use http::StatusCode;

/// Why a request is refused. The text is one sentence, which the client may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RequestRefusal {
    /// The request line is not `method SP target SP HTTP/1.x`.
    #[error("the request line is not a method, a target and a version with one space between them")]
    RequestLine,
    /// The major version is not 1. HTTP/2 is negotiated by ALPN.
    #[error("this version of http is not spoken here: use HTTP/1.1 or negotiate HTTP/2")]
    Version,
    /// The method is CONNECT, which only forward proxies support.
    #[error("the method CONNECT is not supported here")]
    Connect,
    /// The target is in none of the forms that the method allows.
    #[error("the target is neither a path nor an http address, or has characters that must be percent-encoded")]
    Target,
    /// `Max-Forwards` is not one number.
    #[error("the Max-Forwards is not one number")]
    MaxForwards,
    /// The target is too long.
    #[error("the target is too long")]
    TargetLong,
    /// The head is too long.
    #[error("the header of the request is too long")]
    HeadLong,
    /// The head did not arrive in time. Its bytes may be valid.
    #[error("the request came too slowly")]
    HeadTimeout,
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
    /// A field line has no colon, or its name is not a token.
    #[error("a header field has no valid name")]
    FieldName,
    /// An HTTP/2 field value starts or ends with white space.
    #[error("a header field's value starts or ends with white space")]
    FieldValue,
    /// The request has both `Content-Length` and `Transfer-Encoding`.
    #[error("the request has both Content-Length and Transfer-Encoding")]
    BothLengths,
    /// The request has several `Content-Length`s, or a list in one.
    #[error("the request has more than one Content-Length")]
    SeveralContentLengths,
    /// The `Content-Length` is no number, or too large.
    #[error("the Content-Length is not a number of bytes")]
    ContentLength,
    /// The `Transfer-Encoding` is malformed or repeated, or `chunked` is not its only last coding.
    #[error("the Transfer-Encoding is malformed")]
    TransferEncoding,
    /// The `Transfer-Encoding` is not chunked.
    #[error("the only Transfer-Encoding spoken here is chunked")]
    UnknownTransferEncoding,
    /// An HTTP/1.0 request has a `Transfer-Encoding`.
    #[error("an HTTP/1.0 request cannot have a Transfer-Encoding")]
    TransferEncodingVersion,
    /// The request names no host.
    #[error("the request names no host")]
    MissingHost,
    /// The request has more than one `Host`.
    #[error("the request has more than one Host")]
    SeveralHosts,
    /// The host is neither a name nor an address.
    #[error("the host of the request is not a valid host name")]
    Host,
    /// The host has a user name: `user@host`.
    #[error("the host of the request has a user name in it")]
    HostUserInfo,
    /// `Host` and the target (or `:authority`) name different hosts.
    #[error("the request names two different hosts")]
    ConflictingHosts,
    /// The request has a field that HTTP/2 forbids (RFC 9113 section 8.2.2).
    #[error("the request has a connection-specific header field, which HTTP/2 forbids")]
    ConnectionField,
    /// A chunk's size line is malformed.
    #[error("a chunk of the body has no valid size")]
    ChunkSize,
    /// A chunk's size line, or the extensions of a body, are too long.
    #[error("the chunk extensions of the body are too long")]
    ChunkLineLong,
    /// A chunk's data does not end with CRLF at its size.
    #[error("a chunk of the body does not end where its size says")]
    ChunkEnd,
    /// A trailer field is malformed, or concerns framing or routing.
    #[error("the body is followed by an invalid trailer field")]
    Trailer,
    /// The trailer section is too long.
    #[error("the trailer fields of the body are too long")]
    TrailersLong,
}

impl RequestRefusal {
    /// The status of the response.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::Connect | Self::UnknownTransferEncoding => StatusCode::NOT_IMPLEMENTED,
            Self::HeadTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::TargetLong => StatusCode::URI_TOO_LONG,
            Self::HeadLong | Self::TooManyFields | Self::TrailersLong => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}
