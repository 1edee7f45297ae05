//! The key with which a CA ties an ACME account to an account of its own (RFC 8555, section 7.3.4).

use std::fmt;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::Deserialize;

/// Bound on the text of an external account, in bytes.
pub const MAX_EXTERNAL_ACCOUNT_BYTES: usize = 8 * 1_024;
/// Bound on the identifier of a key, in bytes.
const MAX_KID_BYTES: usize = 1_024;

const FORMS: &str = "expected two lines, the key identifier and the HMAC key, or JSON with \"kid\" and \"hmac_key\"";

/// A key of an account at the CA's own site.
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    kid: String,
    hmac_key: Vec<u8>,
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount").field("kid", &self.kid).finish_non_exhaustive()
    }
}

/// Why a text is no external account. No error repeats the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExternalAccountError {
    /// The text is too long.
    #[error("the external account is longer than {MAX_EXTERNAL_ACCOUNT_BYTES} bytes: {FORMS}")]
    TooLong,
    /// The text has another form.
    #[error("the external account cannot be read: {FORMS}")]
    Form,
    /// The identifier of the key is missing or has invalid characters.
    #[error("the key identifier of the external account is empty, too long, or has spaces")]
    Kid,
    /// The HMAC key is not base64url.
    #[error("the HMAC key of the external account is not base64url: copy it as the CA shows it")]
    HmacKey,
}

/// The names of the fields are those of CAs and of other clients.
#[derive(Deserialize)]
struct Json {
    #[serde(alias = "key_id", alias = "keyId", alias = "eab_kid")]
    kid: String,
    #[serde(alias = "mac_key", alias = "b64MacKey", alias = "eab_hmac_key", alias = "hmac")]
    hmac_key: String,
}

impl ExternalAccount {
    /// An external account of its parts.
    ///
    /// # Errors
    /// A part is empty or has invalid characters.
    pub fn new(kid: &str, hmac_key_base64url: &str) -> Result<Self, ExternalAccountError> {
        let is_plain = !kid.is_empty() && kid.len() <= MAX_KID_BYTES && kid.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_plain {
            return Err(ExternalAccountError::Kid);
        }
        // Some sites show the key in the alphabet of plain base64, or with padding.
        let key = hmac_key_base64url.trim_end_matches('=').replace('+', "-").replace('/', "_");
        let hmac_key = BASE64_URL_SAFE_NO_PAD.decode(key).map_err(|_| ExternalAccountError::HmacKey)?;
        if hmac_key.is_empty() {
            return Err(ExternalAccountError::HmacKey);
        }
        Ok(Self { kid: kid.to_owned(), hmac_key })
    }

    /// Reads two lines (key identifier, HMAC key) or a JSON object.
    ///
    /// # Errors
    /// The text has another form, or a part is empty or has invalid characters.
    pub fn parse(text: &str) -> Result<Self, ExternalAccountError> {
        if text.len() > MAX_EXTERNAL_ACCOUNT_BYTES {
            return Err(ExternalAccountError::TooLong);
        }
        if text.trim_start().starts_with('{') {
            let json: Json = serde_json::from_str(text).map_err(|_| ExternalAccountError::Form)?;
            return Self::new(json.kid.trim(), json.hmac_key.trim());
        }
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        match (lines.next(), lines.next(), lines.next()) {
            (Some(kid), Some(hmac_key), None) => Self::new(kid, hmac_key),
            _ => Err(ExternalAccountError::Form),
        }
    }

    /// The identifier of the key.
    #[must_use]
    pub fn kid(&self) -> &str {
        &self.kid
    }

    pub(crate) fn key(&self) -> instant_acme::ExternalAccountKey {
        instant_acme::ExternalAccountKey::new(self.kid.clone(), &self.hmac_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

    #[test]
    fn two_lines_and_json_are_read() {
        let expected = ExternalAccount::new("kid-1", KEY).unwrap();
        for text in [
            format!("kid-1\n{KEY}\n"),
            format!("\r\n kid-1 \r\n\r\n{KEY}=="),
            format!("{{\"kid\":\"kid-1\",\"hmac_key\":\"{KEY}\"}}"),
            format!(" {{\"key_id\":\"kid-1\",\"mac_key\":\"{KEY}\"}}"),
            format!("{{\"success\":true,\"eab_kid\":\"kid-1\",\"eab_hmac_key\":\"{KEY}\"}}"),
            format!("{{\"name\":\"x\",\"keyId\":\"kid-1\",\"b64MacKey\":\"{KEY}\"}}"),
        ] {
            assert_eq!(ExternalAccount::parse(&text).as_ref(), Ok(&expected), "{text}");
        }
        assert_eq!(ExternalAccount::new("k", "-_-_"), ExternalAccount::new("k", "+/+/"));
    }

    #[test]
    fn other_texts_are_refused_without_the_key() {
        for (text, error) in [
            (String::new(), ExternalAccountError::Form),
            ("kid-1".to_owned(), ExternalAccountError::Form),
            (format!("kid-1\n{KEY}\nmore"), ExternalAccountError::Form),
            ("{\"kid\":\"kid-1\"}".to_owned(), ExternalAccountError::Form),
            ("kid 1\nabcd".to_owned(), ExternalAccountError::Kid),
            (format!("{{\"kid\":\"\",\"hmac_key\":\"{KEY}\"}}"), ExternalAccountError::Kid),
            ("kid-1\nnot*base64".to_owned(), ExternalAccountError::HmacKey),
            ("kid-1\n==".to_owned(), ExternalAccountError::HmacKey),
            ("x".repeat(MAX_EXTERNAL_ACCOUNT_BYTES + 1), ExternalAccountError::TooLong),
        ] {
            let found = ExternalAccount::parse(&text).unwrap_err();
            assert_eq!(found, error, "{text}");
            assert!(!found.to_string().contains(KEY));
        }
        assert!(!format!("{:?}", ExternalAccount::new("kid-1", KEY)).contains("zWND"));
    }
}
