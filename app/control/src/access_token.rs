//! Access tokens: JSON Web Tokens (RFC 7519, in the profile of RFC 9068) signed with HMAC-SHA-256. Pure: time is an
//! argument.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use sallyport_model::AccountId;
use sallyport_store::{SecretHash, SessionId};
use serde::{Deserialize, Serialize};

use crate::{Secrets, random};

/// How long an access token lives.
pub(crate) const LIFETIME_SECONDS: i64 = 15 * 60;
/// How far the clock may have jumped since the token was made, either way.
const LEEWAY_SECONDS: i64 = 60;
/// The longest token that is looked at.
const MAX_TOKEN_BYTES: usize = 2_048;
/// What the token is (RFC 9068 section 2.1), so that no other token signed with the same key passes for one.
const TYPE: &str = "at+jwt";
/// Whom the token is for.
const AUDIENCE: &str = "sallyport-api";

/// What an access token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    sub: AccountId,
    sid: String,
    iat: i64,
    nbf: i64,
    exp: i64,
}

/// Who shows an access token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bearer {
    pub(crate) account: AccountId,
    pub(crate) session: SessionId,
}

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("the access token is not valid")]
    Invalid,
    #[error("the access token has expired")]
    Expired,
}

/// Signs and verifies access tokens.
pub(crate) struct AccessTokens {
    issuer: String,
    sign: EncodingKey,
    verify: DecodingKey,
    validation: Validation,
}

impl AccessTokens {
    /// Tokens of the installation at this domain.
    pub(crate) fn new(secrets: &Secrets, domain: &str) -> Self {
        let issuer = format!("https://api.{domain}");
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_issuer(&[&issuer]);
        validation.set_audience(&[AUDIENCE]);
        validation.set_required_spec_claims(&["iss", "aud", "sub", "nbf", "exp"]);
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

    /// A token for this account and session, and when it ends.
    pub(crate) fn issue(&self, bearer: Bearer, now: i64) -> Result<(String, i64), jsonwebtoken::errors::Error> {
        let exp = now + LIFETIME_SECONDS;
        let claims = Claims {
            iss: self.issuer.clone(),
            aud: AUDIENCE.to_owned(),
            sub: bearer.account,
            sid: URL_SAFE_NO_PAD.encode(bearer.session),
            iat: now,
            nbf: now,
            exp,
        };
        let mut header = Header::new(Algorithm::HS256);
        header.typ = Some(TYPE.to_owned());
        Ok((jsonwebtoken::encode(&header, &claims, &self.sign)?, exp))
    }

    /// Who shows this token.
    pub(crate) fn verify(&self, token: &str, now: i64) -> Result<Bearer, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::Invalid);
        }
        let data =
            jsonwebtoken::decode::<Claims>(token, &self.verify, &self.validation).map_err(|_| TokenError::Invalid)?;
        let claims = data.claims;
        if data.header.typ.as_deref() != Some(TYPE) || claims.nbf > now.saturating_add(LEEWAY_SECONDS) {
            return Err(TokenError::Invalid);
        }
        if claims.exp.saturating_add(LEEWAY_SECONDS) <= now {
            return Err(TokenError::Expired);
        }
        let session = URL_SAFE_NO_PAD.decode(&claims.sid).ok().and_then(|sid| SessionId::try_from(sid).ok());
        Ok(Bearer { account: claims.sub, session: session.ok_or(TokenError::Invalid)? })
    }

    /// A hash of the text that only this installation can compute: of requests, which may hold guessable passwords.
    pub(crate) fn keyed_hash(&self, text: &[u8]) -> Result<SecretHash, jsonwebtoken::errors::Error> {
        Ok(random::hash(&jsonwebtoken::crypto::sign(text, &self.sign, Algorithm::HS256)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn tokens(domain: &str) -> (tempfile::TempDir, AccessTokens) {
        let dir = tempfile::tempdir().unwrap();
        let tokens = AccessTokens::new(&Secrets::open_or_create(dir.path()).unwrap(), domain);
        (dir, tokens)
    }

    fn bearer() -> Bearer {
        Bearer { account: AccountId::from_random([1; 16]), session: [2; 16] }
    }

    #[test]
    fn a_token_is_good_for_its_lifetime_and_a_small_jump_of_the_clock() {
        let (_dir, tokens) = tokens("localhost");
        let (token, exp) = tokens.issue(bearer(), NOW).unwrap();
        assert_eq!(exp, NOW + 900);
        for now in [NOW - 60, NOW, NOW + 900, NOW + 959] {
            assert_eq!(tokens.verify(&token, now), Ok(bearer()), "{now}");
        }
        assert_eq!(tokens.verify(&token, NOW + 960), Err(TokenError::Expired));
        assert_eq!(tokens.verify(&token, NOW - 61), Err(TokenError::Invalid));
    }

    #[test]
    fn forged_tokens_are_refused() {
        let (_dir, tokens_here) = tokens("localhost");
        let (_other, tokens_there) = tokens("localhost");
        let (token, _) = tokens_here.issue(bearer(), NOW).unwrap();
        assert_eq!(tokens_there.verify(&token, NOW), Err(TokenError::Invalid), "another key");

        let part = |json: &str| URL_SAFE_NO_PAD.encode(json);
        let mut parts = token.split('.');
        let (header, claims, signature) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let none = part(r#"{"typ":"at+jwt","alg":"none"}"#);
        let forged_claims = part(&format!(r#"{{"iss":"https://api.localhost","sub":"{}"}}"#, bearer().account));
        for forged in [
            format!("{none}.{claims}."),
            format!("{none}.{claims}.{signature}"),
            format!("{header}.{forged_claims}.{signature}"),
            format!("{header}.{claims}."),
            format!("{header}.{claims}"),
            String::new(),
            "..".to_owned(),
            "x".repeat(100_000),
        ] {
            assert_eq!(tokens_here.verify(&forged, NOW), Err(TokenError::Invalid), "{forged:.80}");
        }
    }

    #[test]
    fn other_tokens_signed_with_the_key_are_refused() {
        let (_dir, tokens) = tokens("localhost");
        let good = Claims {
            iss: "https://api.localhost".into(),
            aud: AUDIENCE.into(),
            sub: bearer().account,
            sid: URL_SAFE_NO_PAD.encode(bearer().session),
            iat: NOW,
            nbf: NOW,
            exp: NOW + 900,
        };
        let sign = |header: &Header, claims: &Claims| jsonwebtoken::encode(header, claims, &tokens.sign).unwrap();
        let mut header = Header::new(Algorithm::HS256);
        header.typ = Some(TYPE.into());
        assert_eq!(tokens.verify(&sign(&header, &good), NOW), Ok(bearer()));

        let elsewhere = Claims { iss: "https://api.elsewhere".into(), ..good.clone() };
        let for_others = Claims { aud: "others".into(), ..good.clone() };
        let no_session = Claims { sid: "x".into(), ..good.clone() };
        for claims in [elsewhere, for_others, no_session] {
            assert_eq!(tokens.verify(&sign(&header, &claims), NOW), Err(TokenError::Invalid), "{claims:?}");
        }
        assert_eq!(tokens.verify(&sign(&Header::new(Algorithm::HS256), &good), NOW), Err(TokenError::Invalid));
        let mut wrong_algorithm = Header::new(Algorithm::HS512);
        wrong_algorithm.typ = Some(TYPE.into());
        assert_eq!(tokens.verify(&sign(&wrong_algorithm, &good), NOW), Err(TokenError::Invalid));
    }
}
