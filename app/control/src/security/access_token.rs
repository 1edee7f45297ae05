//! Access tokens: JSON Web Tokens in the profile of RFC 9068. Pure: time is an argument.

use sallyport_model::AccountId;
use sallyport_store::{SecretHash, SessionId};
use serde::{Deserialize, Serialize};

use super::{
    secrets::Secrets,
    signed_token::{SignedTokens, TokenError, TokenKind},
};

/// How long an access token lives.
pub(crate) const LIFETIME_SECONDS: i64 = 15 * 60;
const KIND: TokenKind = TokenKind { name: "at+jwt", audience: "sallyport-api", lifetime_seconds: LIFETIME_SECONDS };

#[derive(Debug, Serialize, Deserialize)]
struct ExtraClaims {
    sub: AccountId,
}

/// The account and session of an access token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bearer {
    pub(crate) account: AccountId,
    pub(crate) session: SessionId,
}

/// Signs and verifies access tokens.
pub(crate) struct AccessTokens(SignedTokens);

impl AccessTokens {
    /// Tokens of the installation at this domain.
    pub(crate) fn new(secrets: &Secrets, domain: &str) -> Self {
        Self(SignedTokens::new(secrets, domain, KIND))
    }

    /// A token for this account and session, and when it ends.
    pub(crate) fn issue(&self, bearer: Bearer, now: i64) -> Result<(String, i64), jsonwebtoken::errors::Error> {
        self.0.issue(bearer.session, ExtraClaims { sub: bearer.account }, now)
    }

    /// The account and session of this token.
    pub(crate) fn verify(&self, token: &str, now: i64) -> Result<Bearer, TokenError> {
        let (session, ExtraClaims { sub: account }) = self.0.verify(token, now)?;
        Ok(Bearer { account, session })
    }

    /// A keyed hash of a request, which may hold a guessable password.
    pub(crate) fn keyed_hash(&self, text: &[u8]) -> Result<SecretHash, jsonwebtoken::errors::Error> {
        self.0.keyed_hash(text)
    }
}
