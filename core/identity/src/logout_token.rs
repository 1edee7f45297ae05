//! Verification of logout tokens (OpenID Connect Back-Channel Logout 1.0 section 2.6).

use std::fmt;

use jsonwebtoken::jwk::Jwk;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    id_token::{IdTokenError, MAX_AGE_SECONDS, PROVIDER_LEEWAY_SECONDS, check_parties, check_times, signed_claims},
    person::Claims,
};

/// The longest `sid`, `sub` or `jti`, in bytes.
pub const MAX_SID_BYTES: usize = 255;
/// The event name that identifies a logout token.
const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// The content of a logout token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogoutToken {
    /// The provider's id of the person.
    pub subject: Option<String>,
    /// The provider's session id; `None` means all sessions of the person.
    pub sid: Option<String>,
    /// Id of this token of this issuer: a token is accepted once.
    pub id: [u8; 16],
    /// Time until which the id must be remembered, in seconds since 1970 (UTC).
    pub good_until: i64,
}

/// Reason why a logout token is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogoutTokenError(IdTokenError);

impl LogoutTokenError {
    /// Whether newer keys of the provider may help.
    #[must_use]
    pub fn may_be_a_newer_key(&self) -> bool {
        matches!(self.0, IdTokenError::UnknownKey | IdTokenError::Signature)
    }
}

impl fmt::Display for LogoutTokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            IdTokenError::Malformed => f.write_str("the logout token is malformed"),
            IdTokenError::Algorithm(name) => write!(f, "the logout token is signed with {name}, which is not accepted"),
            IdTokenError::UnknownKey => {
                f.write_str("the logout token is signed with a key that the provider does not have")
            }
            IdTokenError::Signature => f.write_str("the signature of the logout token is wrong"),
            IdTokenError::Claim(name) => write!(f, "the logout token has a wrong `{name}`"),
            IdTokenError::Time => f.write_str("the logout token is not valid now: check the clocks, here and there"),
        }
    }
}

impl std::error::Error for LogoutTokenError {}

impl From<IdTokenError> for LogoutTokenError {
    fn from(error: IdTokenError) -> Self {
        Self(error)
    }
}

/// Verifies a logout token for this client at `now`, in seconds since 1970 (UTC). The caller checks whether the token
/// was used before.
///
/// # Errors
/// The reason of the rejection.
pub fn verify_logout_token(
    token: &str,
    keys: &[Jwk],
    issuer: &str,
    client_id: &str,
    now: i64,
) -> Result<LogoutToken, LogoutTokenError> {
    let claims = signed_claims(token, keys)?;
    check_parties(&claims, issuer, client_id)?;
    check_times(&claims, now)?;
    let wrong = |name| LogoutTokenError(IdTokenError::Claim(name));
    let events = claims.get("events").and_then(Value::as_object).ok_or_else(|| wrong("events"))?;
    if !events.get(EVENT).is_some_and(Value::is_object) {
        return Err(wrong("events"));
    }
    //= OpenID Connect Back-Channel Logout 1.0 section 2.4
    //# A nonce Claim MUST NOT be present.
    if claims.contains_key("nonce") {
        return Err(wrong("nonce"));
    }
    let (subject, sid) = (word(&claims, "sub")?, word(&claims, "sid")?);
    if subject.is_none() && sid.is_none() {
        return Err(wrong("sub"));
    }
    let jti = word(&claims, "jti")?.ok_or_else(|| wrong("jti"))?;
    let mut hash = Sha256::new();
    for part in ["logout token", issuer, client_id, &jti] {
        hash.update(part);
        hash.update(b"\0");
    }
    let digest: [u8; 32] = hash.finalize().into();
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    Ok(LogoutToken { subject, sid, id, good_until: now.saturating_add(MAX_AGE_SECONDS + 2 * PROVIDER_LEEWAY_SECONDS) })
}

/// The provider's session id, if the token has one. An id that is too long to store is an error, because no logout
/// could name it.
///
/// # Errors
/// The claim is no text, or longer than [`MAX_SID_BYTES`].
pub fn session_of(claims: &Claims) -> Result<Option<String>, IdTokenError> {
    word(claims, "sid")
}

/// The text of a claim, if present.
fn word(claims: &Claims, name: &'static str) -> Result<Option<String>, IdTokenError> {
    match claims.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if (1..=MAX_SID_BYTES).contains(&text.len()) => Ok(Some(text.clone())),
        Some(_) => Err(IdTokenError::Claim(name)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::id_token::tests::Signer;

    const NOW: i64 = 1_800_000_000;

    fn good() -> Value {
        json!({"iss": "https://id.test", "aud": "c", "iat": NOW, "exp": NOW + 120, "jti": "j", "sub": "1", "sid": "s",
               "events": {EVENT: {}}})
    }

    #[test]
    fn a_logout_token_that_says_what_it_must_is_believed_and_no_other() {
        let signer = Signer::new("k");
        let verify = |header: Value, claims: &Value, now: i64| {
            verify_logout_token(&signer.sign(&header, claims), &[signer.jwk()], "https://id.test", "c", now)
        };
        let header = || json!({"alg": "ES256", "kid": "k", "typ": "logout+jwt"});
        let logout = verify(header(), &good(), NOW).unwrap();
        assert_eq!((logout.subject.as_deref(), logout.sid.as_deref()), (Some("1"), Some("s")));
        assert_eq!(logout.id, verify(header(), &good(), NOW + 1).unwrap().id);
        let with = |name: &str, value: Value| {
            let mut claims = good();
            claims[name] = value;
            claims
        };
        let without = |names: &[&str]| {
            let mut claims = good();
            names.iter().for_each(|name| drop(claims.as_object_mut().unwrap().remove(*name)));
            claims
        };
        assert_ne!(logout.id, verify(header(), &with("jti", json!("k")), NOW).unwrap().id);
        assert_eq!(verify(header(), &without(&["sid"]), NOW).unwrap().sid, None);
        assert_eq!(verify(header(), &without(&["sub"]), NOW).unwrap().subject, None);
        for (claims, wrong) in [
            (with("iss", json!("https://evil.test")), "`iss`"),
            (with("aud", json!("d")), "`aud`"),
            (with("aud", json!(["c", "d"])), "`azp`"),
            (with("nonce", json!("n")), "`nonce`"),
            (with("nonce", json!(null)), "`nonce`"),
            (with("events", json!({})), "`events`"),
            (with("events", json!({EVENT: "yes"})), "`events`"),
            (with("events", json!([EVENT])), "`events`"),
            (with("sid", json!(7)), "`sid`"),
            (with("sid", json!("x".repeat(256))), "`sid`"),
            (with("sub", json!("")), "`sub`"),
            (without(&["sub", "sid"]), "`sub`"),
            (without(&["jti"]), "`jti`"),
            (without(&["exp"]), "`exp`"),
            (without(&["iat"]), "`iat`"),
            (with("exp", json!(NOW - 121)), "not valid now"),
            (with("iat", json!(NOW - 1_000)), "not valid now"),
            (with("iat", json!(NOW + 1_000)), "not valid now"),
        ] {
            let refused = verify(header(), &claims, NOW).unwrap_err().to_string();
            assert!(refused.contains(wrong), "{refused}: {claims}");
        }
        let foreign = Signer::new("k");
        let refused =
            verify_logout_token(&foreign.sign(&header(), &good()), &[signer.jwk()], "https://id.test", "c", NOW);
        assert!(refused.unwrap_err().may_be_a_newer_key());
        let unsigned = verify(json!({"alg": "none"}), &good(), NOW).unwrap_err();
        assert!(!unsigned.may_be_a_newer_key() && unsigned.to_string().contains("signed with none"));
    }
}
