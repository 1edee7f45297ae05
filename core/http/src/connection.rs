//! The `Connection` field, and lists of options like it (RFC 9110 section 7.6.1).

use http::{HeaderMap, header::CONNECTION};

/// Whether this list has the option, in any case.
#[must_use]
pub fn has_option(value: &[u8], option: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|item| item.trim_ascii().eq_ignore_ascii_case(option))
}

/// Whether the header fields of a request or response keep the connection open behind the response.
///
/// HTTP/1.1 keeps a connection unless a field says `close`; HTTP/1.0 keeps one only where a field says `keep-alive`
/// (RFC 9112 section 9.3).
#[must_use]
pub fn keeps_connection(fields: &HeaderMap, is_http10: bool) -> bool {
    let has = |option: &[u8]| fields.get_all(CONNECTION).iter().any(|value| has_option(value.as_bytes(), option));
    match fields.get(CONNECTION) {
        None => !is_http10,
        Some(_) => !has(b"close") && (!is_http10 || has(b"keep-alive")),
    }
}
