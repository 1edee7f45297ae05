//! The token by which original programs of persons request certificates. Pure: time is an argument.

use sallyport_model::LoginSessionId;
use serde::{Deserialize, Serialize};

use super::{
    secrets::Secrets,
    signed_token::{SignedTokens, TokenError, TokenKind},
};

/// Signs and verifies the token of the original programs: a JSON Web Token for minutes and one socket, because it
/// travels in a URL.
pub(crate) struct MysocketClientTokens(SignedTokens);

const MYSOCKET: TokenKind =
    TokenKind { name: "mysocket-client+jwt", audience: "sallyport-mysocket-client", lifetime_seconds: 300 };

/// Its claims, which these programs read unverified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MysocketClient {
    pub(crate) user_email: String,
    pub(crate) socket_dns: String,
    pub(crate) socket_port: u16,
}

impl MysocketClientTokens {
    pub(crate) fn new(secrets: &Secrets, domain: &str) -> Self {
        Self(SignedTokens::new(secrets, domain, MYSOCKET))
    }

    pub(crate) fn issue(
        &self,
        session: LoginSessionId,
        says: &MysocketClient,
        now: i64,
    ) -> Result<String, jsonwebtoken::errors::Error> {
        self.0.issue(*session.as_bytes(), says, now).map(|(token, _)| token)
    }

    pub(crate) fn verify(&self, token: &str, now: i64) -> Result<(LoginSessionId, MysocketClient), TokenError> {
        let (session, says) = self.0.verify(token, now)?;
        Ok((LoginSessionId::from_bytes(session), says))
    }
}
