//! Session affinity: a cookie keeps a client with the same origin.
//!
//! The value of the cookie is a code that the edge derives from the ids of socket and tunnel with its secret, as
//! HAProxy's `dynamic-cookie-key` does. The code names an origin to the edge and reveals nothing to the client: a
//! client can neither read ids out of it, nor forge a code, nor use it on another socket. Nothing is decrypted: the
//! code of each origin is computed once, when its tunnel is attached, and compared with the request's code.
//!
//! The caller sets the cookie with the attributes `Secure; HttpOnly; SameSite=Lax; Path=/` and no `Domain`. Browsers
//! require them for names with the prefix `__Host-` (RFC 6265bis section 4.1.3.2), so no neighbouring socket can set
//! the cookie. A cookie that names no usable origin is ignored and replaced in the response.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use subtle::ConstantTimeEq;

use crate::{HashKey, OriginId, hash::Purpose};

/// The name of the cookie.
pub const COOKIE_NAME: &str = "__Host-sallyport-affinity";
/// Length of the cookie's value in bytes.
pub const COOKIE_VALUE_BYTES: usize = 22;

/// The code of an origin on a socket.
#[derive(Clone, Copy)]
pub struct AffinityCode([u8; 16]);

impl AffinityCode {
    /// The code of this origin (the tunnel's id) on this socket (its id).
    #[must_use]
    pub fn new(key: &HashKey, socket: &[u8; 16], origin: &OriginId) -> Self {
        Self(key.mac(Purpose::Affinity, [socket, origin]))
    }

    /// The cookie's value: letters, digits, `-` and `_`.
    #[must_use]
    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Parses the value of a cookie; `None` for any text that [`encode`](Self::encode) does not produce. A parsed code
    /// may still name no origin; [`matches`](Self::matches) decides.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        if value.len() != COOKIE_VALUE_BYTES {
            return None;
        }
        let mut code = [0; 16];
        let length = URL_SAFE_NO_PAD.decode_slice(value, &mut code).ok()?;
        (length == code.len()).then_some(Self(code))
    }

    /// Whether both name the same origin, in constant time.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for AffinityCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AffinityCode(..)")
    }
}

/// Finds the code under this name in a `Cookie` field (RFC 6265 section 4.2.1), among other cookies. The first
/// well-formed one counts.
#[must_use]
pub fn from_cookies(field: &[u8], name: &str) -> Option<AffinityCode> {
    field.split(|byte| *byte == b';').find_map(|pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        AffinityCode::decode(value)
    })
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn code(key: u8, socket: u8, origin: u8) -> AffinityCode {
        AffinityCode::new(&HashKey::new([key; 16]), &[socket; 16], &[origin; 16])
    }

    #[test]
    fn a_cookie_names_one_origin_of_one_socket() {
        let code = code(1, 2, 3);
        let value = code.encode();
        assert_eq!(value.len(), COOKIE_VALUE_BYTES);
        assert!(AffinityCode::decode(value.as_bytes()).is_some_and(|back| back.matches(&code)));
        for other in [self::code(9, 2, 3), self::code(1, 9, 3), self::code(1, 2, 9), self::code(1, 3, 2)] {
            assert!(!other.matches(&code));
        }
        assert!(!value.contains("AwMD"), "the id is not in it");
    }

    #[test]
    fn it_is_found_among_other_cookies() {
        let value = code(1, 2, 3).encode();
        let found =
            |field: &str| from_cookies(field.as_bytes(), COOKIE_NAME).is_some_and(|back| back.matches(&code(1, 2, 3)));
        assert!(found(&format!("a=b; {COOKIE_NAME}={value}; c=d")));
        assert!(found(&format!("{COOKIE_NAME}={value}")));
        assert!(found(&format!("{COOKIE_NAME}=rubbish;{COOKIE_NAME}={value}")));
        assert!(!found(&format!("x{COOKIE_NAME}={value}; {COOKIE_NAME}x={value}; a={COOKIE_NAME}={value}")));
        assert!(!found(&format!("{COOKIE_NAME}={value}x")));
    }

    #[test]
    fn rubbish_is_no_code() {
        for value in
            [&b""[..], b"AAAA", b"AAAAAAAAAAAAAAAAAAAAA=", b"!!!!!!!!!!!!!!!!!!!!!!", &[0xff; 22], &[b'A'; 10_000]]
        {
            assert!(AffinityCode::decode(value).is_none(), "{value:?}");
        }
        let loose = b"AAAAAAAAAAAAAAAAAAAAAB";
        assert!(AffinityCode::decode(loose).is_none(), "one code has one spelling");
    }

    proptest! {
        #[test]
        fn only_what_was_made_reads_as_a_code(value in vec(any::<u8>(), 0..40)) {
            if let Some(code) = AffinityCode::decode(&value) {
                prop_assert_eq!(code.encode().into_bytes(), value);
            }
        }

        #[test]
        fn a_changed_cookie_names_nothing(at in 0..COOKIE_VALUE_BYTES, byte in any::<u8>()) {
            let given = code(1, 2, 3);
            let mut value = given.encode().into_bytes();
            prop_assume!(value[at] != byte);
            value[at] = byte;
            prop_assert!(AffinityCode::decode(&value).is_none_or(|changed| !changed.matches(&given)));
        }
    }
}
