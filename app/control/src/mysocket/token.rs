//! The token of the original clients: a JSON Web Token with the claim `user_id`, which they read unverified. Pure: time
//! is an argument.
//!
//! These clients keep a token in a file and ask for a password when it is refused, so it lives for a day instead of
//! minutes. It is good only as long as its login session, which is looked up at every request.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use sallyport_model::AccountId;
use sallyport_store::SessionId;
use serde::{Deserialize, Serialize};

use crate::{Secrets, access_token::TokenError};

/// How long a token lives.
const LIFETIME_SECONDS: i64 = 24 * 3_600;
/// How long after its login a token can be renewed.
const MAX_LOGIN_SECONDS: i64 = 30 * 86_400;
/// How far the clock may have jumped since the token was made, either way.
const LEEWAY_SECONDS: i64 = 60;
/// The longest token that is looked at.
const MAX_TOKEN_BYTES: usize = 2_048;
/// What the token is, so that it does not pass for one of `/v1`, nor one of those for it.
const TYPE: &str = "mysocket+jwt";
/// Whom the token is for.
const AUDIENCE: &str = "sallyport-mysocket";

#[derive(Debug, Serialize, Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    user_id: AccountId,
    sid: String,
    iat: i64,
    exp: i64,
    /// When the password was given.
    auth_time: i64,
}

/// What a token says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) account: AccountId,
    pub(crate) session: SessionId,
    /// When the password was given, in seconds since 1970.
    pub(crate) logged_in_at: i64,
}

/// Signs and verifies these tokens.
pub(crate) struct MysocketTokens {
    issuer: String,
    sign: EncodingKey,
    verify: DecodingKey,
    validation: Validation,
}

impl MysocketTokens {
    /// Tokens of the installation at this domain.
    pub(crate) fn new(secrets: &Secrets, domain: &str) -> Self {
        let issuer = format!("https://api.{domain}");
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_issuer(&[&issuer]);
        validation.set_audience(&[AUDIENCE]);
        validation.set_required_spec_claims(&["iss", "aud", "exp"]);
        // The times are compared below, with the clock that is an argument.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        Self {
            issuer,
            sign: EncodingKey::from_secret(secrets.token_key()),
            verify: DecodingKey::from_secret(secrets.token_key()),
            validation,
        }
    }

    /// A token that says this; `None` when the login was too long ago.
    pub(crate) fn issue(&self, shown: Shown, now: i64) -> Result<Option<String>, jsonwebtoken::errors::Error> {
        if now >= shown.logged_in_at.saturating_add(MAX_LOGIN_SECONDS) {
            return Ok(None);
        }
        let claims = Claims {
            iss: self.issuer.clone(),
            aud: AUDIENCE.to_owned(),
            user_id: shown.account,
            sid: URL_SAFE_NO_PAD.encode(shown.session),
            iat: now,
            exp: now + LIFETIME_SECONDS,
            auth_time: shown.logged_in_at,
        };
        let mut header = Header::new(Algorithm::HS256);
        header.typ = Some(TYPE.to_owned());
        jsonwebtoken::encode(&header, &claims, &self.sign).map(Some)
    }

    /// What this token says.
    pub(crate) fn verify(&self, token: &str, now: i64) -> Result<Shown, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::Invalid);
        }
        let data =
            jsonwebtoken::decode::<Claims>(token, &self.verify, &self.validation).map_err(|_| TokenError::Invalid)?;
        let claims = data.claims;
        if data.header.typ.as_deref() != Some(TYPE) || claims.iat > now.saturating_add(LEEWAY_SECONDS) {
            return Err(TokenError::Invalid);
        }
        if claims.exp.saturating_add(LEEWAY_SECONDS) <= now {
            return Err(TokenError::Expired);
        }
        let session = URL_SAFE_NO_PAD.decode(&claims.sid).ok().and_then(|sid| SessionId::try_from(sid).ok());
        let session = session.ok_or(TokenError::Invalid)?;
        Ok(Shown { account: claims.user_id, session, logged_in_at: claims.auth_time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_token::{AccessTokens, Bearer};

    const NOW: i64 = 1_800_000_000;

    #[test]
    fn a_token_lives_for_a_day_and_a_login_for_a_month() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = Secrets::open_or_create(dir.path()).unwrap();
        let tokens = MysocketTokens::new(&secrets, "localhost");
        let shown = Shown { account: AccountId::from_random([1; 16]), session: [2; 16], logged_in_at: NOW };
        let token = tokens.issue(shown, NOW).unwrap().unwrap();
        assert_eq!(tokens.verify(&token, NOW + 86_400), Ok(shown));
        assert_eq!(tokens.verify(&token, NOW + 86_460), Err(TokenError::Expired));
        assert_eq!(tokens.verify(&token, NOW - 61), Err(TokenError::Invalid));
        assert!(tokens.issue(shown, NOW + 30 * 86_400 - 1).unwrap().is_some());
        assert!(tokens.issue(shown, NOW + 30 * 86_400).unwrap().is_none());
        let claims = String::from_utf8(URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap();
        assert!(claims.contains(&format!("\"user_id\":\"{}\"", shown.account)), "{claims}");

        // The two kinds of tokens do not pass for one another.
        let access = AccessTokens::new(&secrets, "localhost");
        let bearer = Bearer { account: shown.account, session: shown.session };
        assert!(access.verify(&token, NOW).is_err());
        assert_eq!(tokens.verify(&access.issue(bearer, NOW).unwrap().0, NOW), Err(TokenError::Invalid));
        for forged in ["", "..", &token[1..], &"x".repeat(10_000)] {
            assert_eq!(tokens.verify(forged, NOW), Err(TokenError::Invalid), "{forged:.60}");
        }
    }
}
