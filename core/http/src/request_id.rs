//! The id of a request, in logs, header fields and error pages.

use std::fmt;

use http::HeaderValue;

/// The id: 128 random bits as 32 lower-case hexadecimal digits, without a heap allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId([u8; Self::BYTES]);

impl RequestId {
    /// The length of the text, in bytes.
    pub const BYTES: usize = 32;

    /// The id of these random bytes.
    #[must_use]
    pub fn from_random(random: [u8; 16]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; Self::BYTES];
        for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(random) {
            *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]];
        }
        Self(text)
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The id as a field value. Sensitive, so that HTTP/2 sends a never indexed literal (RFC 7541 section 6.2.3): the
    /// value does not recur, and would displace useful entries of the table.
    #[must_use]
    pub fn header_value(&self) -> HeaderValue {
        let mut value = HeaderValue::from_bytes(&self.0).unwrap_or(HeaderValue::from_static("-"));
        value.set_sensitive(true);
        value
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_hexadecimal() {
        let id = RequestId::from_random([0x00, 0x1f, 0xa0, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(id.as_str(), "001fa0ff0102030405060708090a0b0c");
        assert_eq!(id.header_value(), id.as_str());
        assert!(id.header_value().is_sensitive());
        assert_eq!(id.to_string(), id.as_str());
    }
}
