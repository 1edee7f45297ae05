//! The fields of requests.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

/// A field of a request's header block.
///
/// The values of pseudo-header fields are raw bytes without surrounding white space, otherwise unchecked: the code that
/// parses a method or a URI checks them.
#[derive(Debug, Clone)]
pub enum Field {
    /// `:method` (RFC 9113 section 8.3.1).
    Method(Bytes),
    /// `:scheme` (RFC 9113 section 8.3.1).
    Scheme(Bytes),
    /// `:authority` (RFC 9113 section 8.3.1).
    Authority(Bytes),
    /// `:path` (RFC 9113 section 8.3.1).
    Path(Bytes),
    /// `:protocol` (RFC 8441 section 4).
    Protocol(Bytes),
    /// Any other field. The value is marked as sensitive if the peer requires that it is never indexed (RFC 7541
    /// section 6.2.3).
    Regular(HeaderName, HeaderValue),
    /// A field that is invalid in a request (RFC 9113 section 8.2.1): an unknown or response pseudo-header field, an
    /// invalid name, or an invalid value. The compression is valid: the request is malformed, not the connection.
    Malformed,
}

/// The name of a field.
#[derive(Debug, Clone)]
pub enum Name {
    /// `:method`.
    Method,
    /// `:scheme`.
    Scheme,
    /// `:authority`.
    Authority,
    /// `:path`.
    Path,
    /// `:protocol`.
    Protocol,
    /// Any other valid name.
    Regular(HeaderName),
    /// A name that makes every field malformed, and its length.
    Bad(u32),
}

impl Name {
    /// Parses a name; any bytes are one.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        match bytes {
            b":method" => Self::Method,
            b":scheme" => Self::Scheme,
            b":authority" => Self::Authority,
            b":path" => Self::Path,
            b":protocol" => Self::Protocol,
            // Lengths are at most that of a block, so they fit.
            _ => HeaderName::from_lowercase(bytes).map_or(Self::Bad(bytes.len() as u32), Self::Regular),
        }
    }

    /// The name of a field, unless it is malformed.
    #[inline]
    pub(super) fn of(field: &Field) -> Option<Self> {
        Some(match field {
            Field::Method(_) => Self::Method,
            Field::Scheme(_) => Self::Scheme,
            Field::Authority(_) => Self::Authority,
            Field::Path(_) => Self::Path,
            Field::Protocol(_) => Self::Protocol,
            Field::Regular(name, _) => Self::Regular(name.clone()),
            Field::Malformed => return None,
        })
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a name of no bytes is a bad one")]
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Method | Self::Scheme => ":method".len(),
            Self::Authority => ":authority".len(),
            Self::Path => ":path".len(),
            Self::Protocol => ":protocol".len(),
            Self::Regular(name) => name.as_str().len(),
            Self::Bad(len) => *len as usize,
        }
    }

    /// The field with this name and a copy of the value; returns the name if they form no valid field.
    ///
    /// # Errors
    /// The name or the value is invalid.
    pub fn with(self, value: &[u8], never_indexed: bool) -> Result<Field, Self> {
        //= RFC 9113 section 8.2.1
        //# A field value MUST NOT start or end with an ASCII whitespace character (ASCII SP or HTAB, 0x20 or 0x09).
        if matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t']) {
            return Err(self);
        }
        Ok(match self {
            Self::Method => Field::Method(Bytes::copy_from_slice(value)),
            Self::Scheme => Field::Scheme(Bytes::copy_from_slice(value)),
            Self::Authority => Field::Authority(Bytes::copy_from_slice(value)),
            Self::Path => Field::Path(Bytes::copy_from_slice(value)),
            Self::Protocol => Field::Protocol(Bytes::copy_from_slice(value)),
            Self::Bad(_) => return Err(self),
            Self::Regular(name) => match HeaderValue::from_bytes(value) {
                Ok(mut value) => {
                    value.set_sensitive(never_indexed);
                    Field::Regular(name, value)
                }
                Err(_) => return Err(Self::Regular(name)),
            },
        })
    }
}
