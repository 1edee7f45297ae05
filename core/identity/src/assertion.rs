//! Signed assertions of an identity for origins (JWS and JWT: RFC 7515, RFC 7519; ES256 of RFC 7518).

use std::fmt;

use aws_lc_rs::{
    agreement::{ECDH_P256, PrivateKey},
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// Validity of an assertion, in seconds.
pub const ASSERTION_SECONDS: i64 = 120;
/// The longest list of groups that is sent to an origin, in bytes: servers accept header fields of 8 KiB, and the
/// assertion repeats the groups.
pub const MAX_HEADER_GROUPS_BYTES: usize = 4_096;
/// Attempts to derive a key; one in four billion fails.
const MAX_KEY_TRIES: u8 = 16;

/// The signing key of assertions. All edges of an installation have the same.
pub struct AssertionKey {
    pair: EcdsaKeyPair,
    x: String,
    y: String,
    id: String,
}

/// The claims of an assertion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Assertion<'a> {
    /// Issuer: the URL of the login host.
    pub iss: &'a str,
    /// Audience: the URL of the socket.
    pub aud: &'a str,
    /// Subject: the provider's id of the person, or the id of a service token.
    pub sub: &'a str,
    /// The e-mail address of a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<&'a str>,
    /// Name of the person, or of the service token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
    /// The groups of a person.
    pub groups: &'a [String],
    /// The identity provider; `service` for service tokens.
    pub provider: &'a str,
    /// Issue time in seconds since 1970 (UTC).
    pub iat: i64,
    /// Expiry time in seconds since 1970 (UTC).
    pub exp: i64,
    /// Unique id.
    pub jti: &'a str,
}

impl AssertionKey {
    /// Derives the key from this secret of 256 random bits.
    #[must_use]
    pub fn new(secret: [u8; 32]) -> Option<Self> {
        (0..MAX_KEY_TRIES).find_map(|turn| Self::of_scalar(&secret, turn))
    }

    fn of_scalar(secret: &[u8; 32], turn: u8) -> Option<Self> {
        let mut hash = Sha256::new();
        hash.update(b"sallyport key of assertions\0");
        hash.update([turn]);
        hash.update(secret);
        let scalar = hash.finalize();
        let public = PrivateKey::from_private_key(&ECDH_P256, &scalar).ok()?.compute_public_key().ok()?;
        let public = public.as_ref();
        let pair =
            EcdsaKeyPair::from_private_key_and_public_key(&ECDSA_P256_SHA256_FIXED_SIGNING, &scalar, public).ok()?;
        // An uncompressed point (SEC 1 section 2.3.3): 4, x, y.
        let (x, y) = public.strip_prefix(&[4])?.split_at_checked(32)?;
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        //= RFC 7638 section 3.1
        //# the hash of the UTF-8 representation of this JSON object
        let thumbprint = Sha256::digest(format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#));
        Some(Self { pair, x, y, id: URL_SAFE_NO_PAD.encode(thumbprint) })
    }

    /// Signs the assertion (JWS compact serialization).
    #[must_use]
    pub fn sign(&self, assertion: &Assertion<'_>) -> Option<String> {
        let header = format!(r#"{{"alg":"ES256","typ":"sallyport-assertion+jwt","kid":"{}"}}"#, self.id);
        let claims = serde_json::to_vec(assertion).ok()?;
        let mut token = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        // The library draws the nonce of a signature itself.
        let signature = self.pair.sign(&SystemRandom::new(), token.as_bytes()).ok()?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Some(token)
    }

    /// The public key set for verifiers, as JSON (RFC 7517).
    #[must_use]
    pub fn key_set(&self) -> String {
        let Self { x, y, id, .. } = self;
        format!(
            r#"{{"keys":[{{"kty":"EC","crv":"P-256","alg":"ES256","use":"sig","kid":"{id}","x":"{x}","y":"{y}"}}]}}"#
        )
    }
}

impl fmt::Debug for AssertionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AssertionKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Encodes a text as the value of a header field. All but letters, digits and usual signs of ASCII is percent-encoded
/// in UTF-8, including `%`, so that decoding is unambiguous.
#[must_use]
pub fn header_text(text: &str) -> String {
    encoded(text.trim_matches(' '), |byte| (byte.is_ascii_graphic() || byte == b' ') && byte != b'%')
}

/// Encodes groups as one value, separated by commas; commas and all but plain ASCII inside a group are encoded. `None`
/// if they exceed [`MAX_HEADER_GROUPS_BYTES`]. A partial list is never sent: an origin would take it for all groups.
#[must_use]
pub fn header_groups(groups: &[String]) -> Option<String> {
    let mut value = String::new();
    for group in groups {
        if !value.is_empty() {
            value.push(',');
        }
        value.push_str(&encoded(group, |byte| byte.is_ascii_graphic() && byte != b'%' && byte != b','));
        if value.len() > MAX_HEADER_GROUPS_BYTES {
            return None;
        }
    }
    Some(value)
}

fn encoded(text: &str, is_plain: impl Fn(u8) -> bool) -> String {
    let mut value = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_plain(byte) {
            value.push(char::from(byte));
        } else {
            value.push_str(&format!("%{byte:02X}"));
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    fn assertion<'a>(groups: &'a [String]) -> Assertion<'a> {
        Assertion {
            iss: "https://login.localhost",
            aud: "https://calm-bay-1000.localhost",
            sub: "42",
            email: Some("ann@example.com"),
            name: None,
            groups,
            provider: "dex",
            iat: 100,
            exp: 220,
            jti: "a",
        }
    }

    #[test]
    fn who_has_the_key_set_can_check_an_assertion() {
        let key = AssertionKey::new([7; 32]).unwrap();
        let token = key.sign(&assertion(&["staff".to_owned()])).unwrap();
        let set: serde_json::Value = serde_json::from_str(&key.key_set()).unwrap();
        let jwk = &set["keys"][0];
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
        let point = [&[4][..], &decode(jwk["x"].as_str().unwrap()), &decode(jwk["y"].as_str().unwrap())].concat();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &point);
        assert!(public.verify(signed.as_bytes(), &decode(signature)).is_ok());
        assert!(public.verify(format!("{signed}A").as_bytes(), &decode(signature)).is_err());
        let (header, claims) = signed.split_once('.').unwrap();
        let header: serde_json::Value = serde_json::from_slice(&decode(header)).unwrap();
        assert_eq!((header["alg"].as_str(), &header["kid"]), (Some("ES256"), &jwk["kid"]));
        let claims: serde_json::Value = serde_json::from_slice(&decode(claims)).unwrap();
        assert_eq!(
            (claims["aud"].as_str(), &claims["groups"][0]),
            (Some("https://calm-bay-1000.localhost"), &"staff".into())
        );
        assert!(claims.get("name").is_none());
    }

    #[test]
    fn the_key_is_the_same_for_the_same_secret_and_is_not_shown() {
        let key = AssertionKey::new([7; 32]).unwrap();
        assert_eq!(key.key_set(), AssertionKey::new([7; 32]).unwrap().key_set());
        assert_ne!(key.key_set(), AssertionKey::new([8; 32]).unwrap().key_set());
        assert!(!key.key_set().contains("\"d\""));
    }

    #[test]
    fn values_are_ascii_and_are_read_back_in_one_way() {
        for (text, value) in [
            ("Ann Smith", "Ann Smith"),
            ("J\u{fc}rg", "J%C3%BCrg"),
            ("100%", "100%25"),
            ("a\r\nX-Auth-Email: root@x.test", "a%0D%0AX-Auth-Email: root@x.test"),
            (" padded ", "padded"),
            ("", ""),
        ] {
            assert_eq!(header_text(text), value);
        }
        let groups =
            |names: &[&str]| header_groups(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        assert_eq!(groups(&["staff", "a,admins", "w x", "%2C"]), "staff,a%2Cadmins,w%20x,%252C");
        assert_eq!(groups(&[]), "");
        assert_eq!(groups(&["a", " a"]), "a,%20a", "two groups do not become one");
        let many: Vec<String> = (0..200).map(|number| format!("{number:0128}")).collect();
        assert!(header_groups(&many[..MAX_HEADER_GROUPS_BYTES / 129]).is_some());
        assert_eq!(header_groups(&many), None, "some of them would be taken for all");
    }
}
