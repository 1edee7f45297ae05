//! Checks of `Content-Length` and `Transfer-Encoding` in requests.

use crate::{RequestRefusal, limits::MAX_BODY_BYTES, syntax::is_token_byte};

/// Parses a `Content-Length` in bytes (RFC 9110 section 8.6), which has only digits.
///
/// # Errors
/// The value has a sign, a space or a list, or exceeds [`MAX_BODY_BYTES`].
pub fn parse_content_length(value: &[u8]) -> Result<u64, RequestRefusal> {
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

/// Checks that a `Transfer-Encoding` is exactly `chunked`.
///
/// # Errors
/// The value is malformed, or names another coding.
pub fn check_transfer_encoding(value: &[u8]) -> Result<(), RequestRefusal> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let mut is_chunked = false;
    for coding in value.split(|byte| *byte == b',') {
        let name = coding.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        if is_chunked || name.is_empty() || !name.iter().copied().all(is_token_byte) {
            return Err(RequestRefusal::TransferEncoding);
        }
        // Chunked can only be the last coding, and has no parameters (RFC 9112 section 7).
        is_chunked = name.eq_ignore_ascii_case(b"chunked");
    }
    if is_chunked && !value.contains(&b',') {
        return Err(RequestRefusal::TransferEncoding);
    }
    Err(RequestRefusal::UnknownTransferEncoding)
}
