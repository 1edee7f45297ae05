//! Basic authentication (RFC 7617).

use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderValue;
use subtle::ConstantTimeEq;

/// The longest `Authorization` value that is parsed, in bytes.
pub const MAX_AUTHORIZATION_BYTES: usize = 4_096;

/// The user name and the password of a client.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    text: String,
    colon: usize,
}

/// Why an `Authorization` value is no valid Basic authorization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BasicError {
    /// The scheme is not `Basic`.
    #[error("the authorization is not of the scheme basic")]
    Scheme,
    /// The value is longer than [`MAX_AUTHORIZATION_BYTES`].
    #[error("the authorization is longer than {MAX_AUTHORIZATION_BYTES} bytes")]
    Long,
    /// The credentials are not base64 (RFC 4648 section 4).
    #[error("the authorization is not base64")]
    Base64,
    /// The credentials are not `user:password` in UTF-8 without control characters.
    #[error("the authorization is not a user name, a colon and a password in utf-8")]
    Malformed,
}

impl Credentials {
    /// Parses the value of an `Authorization` field. The first colon ends the user name, which cannot contain one.
    ///
    /// # Errors
    /// The first rule that the value breaks.
    pub fn parse(value: &[u8]) -> Result<Self, BasicError> {
        if value.len() > MAX_AUTHORIZATION_BYTES {
            return Err(BasicError::Long);
        }
        let (scheme, rest) = value.split_at_checked(6).ok_or(BasicError::Scheme)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return Err(BasicError::Scheme);
        }
        let decoded = STANDARD.decode(rest.trim_ascii()).map_err(|_| BasicError::Base64)?;
        let text = String::from_utf8(decoded).map_err(|_| BasicError::Malformed)?;
        //= RFC 7617 section 2
        //# The user-id and password MUST NOT contain any control characters
        if text.chars().any(char::is_control) {
            return Err(BasicError::Malformed);
        }
        let colon = text.find(':').ok_or(BasicError::Malformed)?;
        Ok(Self { text, colon })
    }

    /// The user name.
    #[must_use]
    pub fn username(&self) -> &str {
        &self.text[..self.colon]
    }

    /// The password.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.text[self.colon + 1..]
    }

    /// Compares the user name in constant time. If it differs, check a password all the same, so that a wrong name
    /// costs as much as a wrong password.
    #[must_use]
    pub fn is_username(&self, expected: &str) -> bool {
        self.username().as_bytes().ct_eq(expected.as_bytes()).into()
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// The `WWW-Authenticate` value for this realm. Leaves out the characters that a quoted ASCII string cannot contain.
#[must_use]
pub fn challenge(realm: &str) -> HeaderValue {
    let realm: String = realm.chars().filter(|c| matches!(c, ' '..='~') && !matches!(c, '"' | '\\')).collect();
    HeaderValue::try_from(format!("Basic realm=\"{realm}\", charset=\"UTF-8\""))
        .unwrap_or(HeaderValue::from_static("Basic realm=\"protected\", charset=\"UTF-8\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: &str) -> Result<(String, String), BasicError> {
        Credentials::parse(value.as_bytes()).map(|c| (c.username().to_owned(), c.password().to_owned()))
    }

    fn encoded(text: impl AsRef<[u8]>) -> String {
        format!("Basic {}", STANDARD.encode(text))
    }

    #[test]
    fn the_first_colon_splits_and_utf8_is_kept() {
        // The example of RFC 7617 section 2.
        assert_eq!(parse("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), Ok(("Aladdin".into(), "open sesame".into())));
        assert_eq!(parse("bAsIc  QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), Ok(("Aladdin".into(), "open sesame".into())));
        assert_eq!(parse(&encoded("a:b:c")), Ok(("a".into(), "b:c".into())));
        assert_eq!(parse(&encoded("tést:påss£")), Ok(("tést".into(), "påss£".into())));
        assert_eq!(parse(&encoded(":")), Ok((String::new(), String::new())));
    }

    #[test]
    fn invalid_authorizations_are_refused() {
        assert_eq!(parse(""), Err(BasicError::Scheme));
        assert_eq!(parse("Basic"), Err(BasicError::Scheme));
        assert_eq!(parse("Bearer abc"), Err(BasicError::Scheme));
        assert_eq!(parse("BasicQWxhZGRpbjpvcGVuIHNlc2FtZQ=="), Err(BasicError::Scheme));
        assert_eq!(parse("Basic !!!!"), Err(BasicError::Base64));
        assert_eq!(parse("Basic QWxh ZGRpbg=="), Err(BasicError::Base64));
        assert_eq!(parse(&encoded("no colon")), Err(BasicError::Malformed));
        assert_eq!(parse(&encoded("a:b\n")), Err(BasicError::Malformed));
        assert_eq!(parse(&encoded([b'a', b':', 0xff])), Err(BasicError::Malformed));
        assert_eq!(parse(&encoded("a:".to_owned() + &"x".repeat(MAX_AUTHORIZATION_BYTES))), Err(BasicError::Long));
    }

    #[test]
    fn user_names_are_compared_in_full() {
        let given = Credentials::parse(encoded("ann:secret").as_bytes()).unwrap();
        assert!(given.is_username("ann"));
        assert!(!given.is_username("an") && !given.is_username("anna") && !given.is_username("Ann"));
        assert_eq!(format!("{given:?}"), "Credentials(..)");
    }

    #[test]
    fn the_challenge_escapes_the_realm() {
        assert_eq!(challenge("calm sea"), "Basic realm=\"calm sea\", charset=\"UTF-8\"");
        assert_eq!(challenge("a\"b\\c\r\né"), "Basic realm=\"abc\", charset=\"UTF-8\"");
    }
}
