//! The token of the original clients: a JSON Web Token with the claim `user_id`, which they read unverified. Pure: time
//! is an argument.
//!
//! These clients keep a token in a file and ask for a password when the token is refused, so it lives for a day instead
//! of minutes. Its login session is checked at every request.

use sallyport_model::AccountId;
use sallyport_store::SessionId;
use serde::{Deserialize, Serialize};

use super::{
    secrets::Secrets,
    signed_token::{SignedTokens, TokenError, TokenKind},
};

/// How long after its login a token can be renewed.
const MAX_LOGIN_SECONDS: i64 = 30 * 86_400;
const KIND: TokenKind =
    TokenKind { name: "mysocket+jwt", audience: "sallyport-mysocket", lifetime_seconds: 24 * 3_600 };

#[derive(Debug, Serialize, Deserialize)]
struct ExtraClaims {
    user_id: AccountId,
    /// When the password was given.
    auth_time: i64,
}

/// The claims of a token of the original clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MysocketClaims {
    pub(crate) account: AccountId,
    pub(crate) session: SessionId,
    /// When the password was given, in seconds since 1970.
    pub(crate) logged_in_at: i64,
}

/// Signs and verifies these tokens.
pub(crate) struct MysocketTokens(SignedTokens);

impl MysocketTokens {
    /// Tokens of the installation at this domain.
    pub(crate) fn new(secrets: &Secrets, domain: &str) -> Self {
        Self(SignedTokens::new(secrets, domain, KIND))
    }

    /// A token with these claims; `None` if the login is older than [`MAX_LOGIN_SECONDS`].
    pub(crate) fn issue(&self, shown: MysocketClaims, now: i64) -> Result<Option<String>, jsonwebtoken::errors::Error> {
        if now >= shown.logged_in_at.saturating_add(MAX_LOGIN_SECONDS) {
            return Ok(None);
        }
        let own = ExtraClaims { user_id: shown.account, auth_time: shown.logged_in_at };
        self.0.issue(shown.session, own, now).map(|(token, _)| Some(token))
    }

    /// The claims of this token.
    pub(crate) fn verify(&self, token: &str, now: i64) -> Result<MysocketClaims, TokenError> {
        let (session, ExtraClaims { user_id, auth_time }) = self.0.verify(token, now)?;
        Ok(MysocketClaims { account: user_id, session, logged_in_at: auth_time })
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

    use super::*;
    use crate::security::access_token::{AccessTokens, Bearer};

    const NOW: i64 = 1_800_000_000;

    #[test]
    fn a_token_lives_for_a_day_and_a_login_for_a_month() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = Secrets::open_or_create(dir.path()).unwrap();
        let tokens = MysocketTokens::new(&secrets, "localhost");
        let shown = MysocketClaims { account: AccountId::from_random([1; 16]), session: [2; 16], logged_in_at: NOW };
        let token = tokens.issue(shown, NOW).unwrap().unwrap();
        assert_eq!(tokens.verify(&token, NOW + 86_400), Ok(shown));
        assert_eq!(tokens.verify(&token, NOW + 86_460), Err(TokenError::Expired));
        assert_eq!(tokens.verify(&token, NOW - 61), Err(TokenError::Invalid));
        assert!(tokens.issue(shown, NOW + 30 * 86_400 - 1).unwrap().is_some());
        assert!(tokens.issue(shown, NOW + 30 * 86_400).unwrap().is_none());
        let claims = String::from_utf8(URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap();
        assert!(claims.contains(&format!("\"user_id\":\"{}\"", shown.account)), "{claims}");

        // Tokens of one kind are not accepted as the other.
        let access = AccessTokens::new(&secrets, "localhost");
        let bearer = Bearer { account: shown.account, session: shown.session };
        assert!(access.verify(&token, NOW).is_err());
        assert_eq!(tokens.verify(&access.issue(bearer, NOW).unwrap().0, NOW), Err(TokenError::Invalid));
        for forged in ["", "..", &token[1..], &"x".repeat(10_000)] {
            assert_eq!(tokens.verify(forged, NOW), Err(TokenError::Invalid), "{forged:.60}");
        }
    }
}
