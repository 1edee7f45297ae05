//! JSON Web Tokens (RFC 7519) signed with HMAC-SHA-256, the common part of all kinds. Pure: time is an argument.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use sallyport_store::{SecretHash, SessionId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{random, secrets::Secrets};

/// The tolerated jump of the clock in either direction, in seconds.
const LEEWAY_SECONDS: i64 = 60;
/// Longer tokens are refused unread, in bytes.
const MAX_TOKEN_BYTES: usize = 2_048;

/// A kind of token. All are signed with one key; a token of one kind is not accepted as another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenKind {
    /// The type of the token (RFC 8725 section 3.11).
    pub(crate) name: &'static str,
    /// The audience of the token (RFC 7519 section 4.1.3).
    pub(crate) audience: &'static str,
    /// The lifetime in seconds.
    pub(crate) lifetime_seconds: i64,
}

/// The claims of every token, and those of its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Claims<C> {
    iss: String,
    aud: String,
    sid: String,
    iat: i64,
    exp: i64,
    #[serde(flatten)]
    own: C,
}

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("the access token is not valid")]
    Invalid,
    #[error("the access token has expired")]
    Expired,
}

/// Signs and verifies tokens of one kind.
pub(crate) struct SignedTokens {
    kind: TokenKind,
    issuer: String,
    sign: EncodingKey,
    verify: DecodingKey,
    validation: Validation,
}

impl SignedTokens {
    /// Tokens of the installation at this domain.
    pub(crate) fn new(secrets: &Secrets, domain: &str, kind: TokenKind) -> Self {
        let issuer = format!("https://api.{domain}");
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_issuer(&[&issuer]);
        validation.set_audience(&[kind.audience]);
        validation.set_required_spec_claims(&["iss", "aud", "exp"]);
        // The times are compared below, with the clock of the argument.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        Self {
            kind,
            issuer,
            sign: EncodingKey::from_secret(secrets.token_key()),
            verify: DecodingKey::from_secret(secrets.token_key()),
            validation,
        }
    }

    /// A token of this session with these claims of its kind, and its end in seconds since 1970.
    pub(crate) fn issue(
        &self,
        session: SessionId,
        own: impl Serialize,
        now: i64,
    ) -> Result<(String, i64), jsonwebtoken::errors::Error> {
        let exp = now + self.kind.lifetime_seconds;
        let claims = Claims {
            iss: self.issuer.clone(),
            aud: self.kind.audience.to_owned(),
            sid: URL_SAFE_NO_PAD.encode(session),
            iat: now,
            exp,
            own,
        };
        let mut header = Header::new(Algorithm::HS256);
        header.typ = Some(self.kind.name.to_owned());
        Ok((jsonwebtoken::encode(&header, &claims, &self.sign)?, exp))
    }

    /// The session of this token, and the claims of its kind.
    pub(crate) fn verify<C: DeserializeOwned>(&self, token: &str, now: i64) -> Result<(SessionId, C), TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::Invalid);
        }
        let data = jsonwebtoken::decode::<Claims<C>>(token, &self.verify, &self.validation)
            .map_err(|_| TokenError::Invalid)?;
        let claims = data.claims;
        if data.header.typ.as_deref() != Some(self.kind.name) || claims.iat > now.saturating_add(LEEWAY_SECONDS) {
            return Err(TokenError::Invalid);
        }
        if claims.exp.saturating_add(LEEWAY_SECONDS) <= now {
            return Err(TokenError::Expired);
        }
        let session = URL_SAFE_NO_PAD.decode(&claims.sid).ok().and_then(|sid| SessionId::try_from(sid).ok());
        Ok((session.ok_or(TokenError::Invalid)?, claims.own))
    }

    /// A keyed hash of a request, which may hold a guessable password.
    pub(crate) fn keyed_hash(&self, text: &[u8]) -> Result<SecretHash, jsonwebtoken::errors::Error> {
        Ok(random::hash(&jsonwebtoken::crypto::sign(text, &self.sign, Algorithm::HS256)?))
    }
}

#[cfg(test)]
mod tests {
    use sallyport_model::AccountId;

    use super::*;

    const NOW: i64 = 1_800_000_000;
    const KIND: TokenKind = TokenKind { name: "test+jwt", audience: "tests", lifetime_seconds: 900 };
    const SESSION: SessionId = [2; 16];

    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    struct ExtraClaims {
        sub: AccountId,
    }

    fn own() -> ExtraClaims {
        ExtraClaims { sub: AccountId::from_random([1; 16]) }
    }

    fn tokens(kind: TokenKind) -> (tempfile::TempDir, SignedTokens) {
        let dir = tempfile::tempdir().unwrap();
        let tokens = SignedTokens::new(&Secrets::open_or_create(dir.path()).unwrap(), "localhost", kind);
        (dir, tokens)
    }

    fn verify(tokens: &SignedTokens, token: &str, now: i64) -> Result<(SessionId, ExtraClaims), TokenError> {
        tokens.verify(token, now)
    }

    #[test]
    fn a_token_is_good_for_its_lifetime_and_a_small_jump_of_the_clock() {
        let (_dir, tokens) = tokens(KIND);
        let (token, exp) = tokens.issue(SESSION, own(), NOW).unwrap();
        assert_eq!(exp, NOW + 900);
        for now in [NOW - 60, NOW, NOW + 900, NOW + 959] {
            assert_eq!(verify(&tokens, &token, now), Ok((SESSION, own())), "{now}");
        }
        assert_eq!(verify(&tokens, &token, NOW + 960), Err(TokenError::Expired));
        assert_eq!(verify(&tokens, &token, NOW - 61), Err(TokenError::Invalid));
    }

    #[test]
    fn forged_tokens_are_refused() {
        let (_dir, tokens_here) = tokens(KIND);
        let (_other, tokens_there) = tokens(KIND);
        let (token, _) = tokens_here.issue(SESSION, own(), NOW).unwrap();
        assert_eq!(verify(&tokens_there, &token, NOW), Err(TokenError::Invalid), "another key");

        let part = |json: &str| URL_SAFE_NO_PAD.encode(json);
        let mut parts = token.split('.');
        let (header, claims, signature) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let none = part(r#"{"typ":"test+jwt","alg":"none"}"#);
        let forged_claims = part(&format!(r#"{{"iss":"https://api.localhost","sub":"{}"}}"#, own().sub));
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
            assert_eq!(verify(&tokens_here, &forged, NOW), Err(TokenError::Invalid), "{forged:.80}");
        }
    }

    #[test]
    fn other_tokens_signed_with_the_key_are_refused() {
        let (_dir, tokens) = tokens(KIND);
        let good = Claims {
            iss: "https://api.localhost".to_owned(),
            aud: "tests".to_owned(),
            sid: URL_SAFE_NO_PAD.encode(SESSION),
            iat: NOW,
            exp: NOW + 900,
            own: own(),
        };
        let sign =
            |header: &Header, claims: &Claims<ExtraClaims>| jsonwebtoken::encode(header, claims, &tokens.sign).unwrap();
        let mut header = Header::new(Algorithm::HS256);
        header.typ = Some("test+jwt".to_owned());
        assert_eq!(verify(&tokens, &sign(&header, &good), NOW), Ok((SESSION, own())));

        let elsewhere = Claims { iss: "https://api.elsewhere".to_owned(), ..good.clone() };
        let for_others = Claims { aud: "others".to_owned(), ..good.clone() };
        let no_session = Claims { sid: "x".to_owned(), ..good.clone() };
        for claims in [elsewhere, for_others, no_session] {
            assert_eq!(verify(&tokens, &sign(&header, &claims), NOW), Err(TokenError::Invalid), "{claims:?}");
        }
        assert_eq!(verify(&tokens, &sign(&Header::new(Algorithm::HS256), &good), NOW), Err(TokenError::Invalid));
        let mut wrong_algorithm = Header::new(Algorithm::HS512);
        wrong_algorithm.typ = Some("test+jwt".to_owned());
        assert_eq!(verify(&tokens, &sign(&wrong_algorithm, &good), NOW), Err(TokenError::Invalid));
    }
}
