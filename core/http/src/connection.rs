//! The `Connection` field, and similar lists of options (RFC 9110 section 7.6.1).

use http::{HeaderMap, header::CONNECTION};

/// Whether the list has the option, in any case.
#[must_use]
pub fn has_option(value: &[u8], option: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|item| item.trim_ascii().eq_ignore_ascii_case(option))
}

/// Whether the header fields of a message let the connection persist (RFC 9112 section 9.3).
///
/// An HTTP/1.1 connection persists unless a field says `close`. An HTTP/1.0 connection persists only if a field says
/// `keep-alive`.
#[must_use]
pub fn keeps_connection(fields: &HeaderMap, is_http10: bool) -> bool {
    let has = |option: &[u8]| fields.get_all(CONNECTION).iter().any(|value| has_option(value.as_bytes(), option));
    match fields.get(CONNECTION) {
        None => !is_http10,
        Some(_) => !has(b"close") && (!is_http10 || has(b"keep-alive")),
    }
}
