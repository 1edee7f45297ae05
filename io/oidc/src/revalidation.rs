//! Revalidation of logins at their provider: by asking the provider, or by its logout tokens.

use std::fmt;

use sallyport_identity::{
    LogoutToken, LogoutTokenError, MAX_ID_TOKEN_BYTES, PersonError, has_groups, person, verify_logout_token,
};
use sallyport_model::{Person, ProviderConfig, ProviderKind, ProviderName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    OidcError, Providers,
    oauth::{self, ClientOf, Tokens},
};

/// The longest stored token of a provider, in bytes.
pub const MAX_STORED_TOKEN_BYTES: usize = 8_192;

/// The result of a login.
#[derive(Debug)]
pub struct CompletedLogin {
    /// The person.
    pub person: Person,
    /// The provider's session id, if it gives one.
    pub sid: Option<String>,
    /// The tokens for later checks.
    pub tokens: ProviderTokens,
}

/// The tokens of a login. They must be stored sealed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderTokens {
    /// Identifies the login for a logout at the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_token: Option<String>,
    /// Exchanged for new tokens while the login is valid at the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// Introspected at the provider, if there is no refresh token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_token: Option<String>,
    /// Expiry of the access token, in seconds since 1970 (UTC); 0 if unknown.
    #[serde(default)]
    pub access_until: i64,
}

impl fmt::Debug for ProviderTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProviderTokens(..)")
    }
}

impl ProviderTokens {
    /// The received tokens that are short enough to be stored.
    pub(crate) fn of(tokens: Tokens, now: i64) -> Self {
        let kept = |token: Option<String>| token.filter(|token| (1..=MAX_STORED_TOKEN_BYTES).contains(&token.len()));
        let seconds = match &tokens.expires_in {
            Some(Value::Number(seconds)) => seconds.as_i64(),
            Some(Value::String(seconds)) => seconds.parse().ok(),
            _ => None,
        };
        let refresh_token = kept(tokens.refresh_token);
        // With a refresh token the access token is not needed.
        let access_token = kept(tokens.access_token).filter(|_| refresh_token.is_none() && seconds.is_some());
        let access_until = now.saturating_add(seconds.unwrap_or(0));
        Self { id_token: kept(tokens.id_token), refresh_token, access_token, access_until }
    }

    /// Whether the tokens allow a check at `now`, in seconds since 1970 (UTC).
    #[must_use]
    pub fn can_ask(&self, now: i64) -> bool {
        self.refresh_token.is_some() || (self.access_token.is_some() && now < self.access_until)
    }
}

/// The result of a check at the provider.
#[derive(Debug, PartialEq, Eq)]
pub enum LoginCheck {
    /// The login is valid.
    Good {
        /// New tokens for later checks, if they have changed.
        tokens: Option<ProviderTokens>,
        /// The person's current data, if the provider gives it.
        person: Option<Box<Person>>,
    },
    /// The login has ended, for this reason.
    Ended(String),
    /// The tokens do not allow checks.
    CannotAsk,
}

/// Reason why a logout token was rejected.
#[derive(Debug, thiserror::Error)]
pub enum LogoutError {
    /// The token is invalid.
    #[error("{0}")]
    Token(#[from] LogoutTokenError),
    /// The provider's keys could not be fetched.
    #[error("{0}")]
    Provider(#[from] OidcError),
}

/// Errors for a refresh token that mean the end of the login, or that the person has to log in again (RFC 6749 section
/// 5.2, OpenID Connect Core 1.0 section 3.1.2.6).
const OVER: [&str; 4] = ["invalid_grant", "interaction_required", "login_required", "consent_required"];

impl Providers {
    /// Checks at the provider whether the login of the person with this subject is still valid.
    ///
    /// # Errors
    /// The result is unknown: the provider cannot be reached, or its answer is invalid.
    pub async fn check(
        &self,
        config: &ProviderConfig,
        name: &ProviderName,
        secret: &str,
        (subject, tokens): (&str, &ProviderTokens),
        now: i64,
    ) -> Result<LoginCheck, OidcError> {
        if !config.kind.is_oidc() || !tokens.can_ask(now) {
            return Ok(LoginCheck::CannotAsk);
        }
        let discovery = self.cached(config).lock().await.discovery(&self.http, config).await?;
        let client = ClientOf { config, secret, auth: discovery.client_auth() };
        if let Some(refresh_token) = &tokens.refresh_token {
            let new = oauth::refresh(&self.http, client, &discovery.token_endpoint, refresh_token).await;
            return match new {
                Ok(new) => self.refreshed(config, name, (subject, tokens), new, now).await,
                Err(OidcError::Refused { error, .. }) if OVER.iter().any(|over| is_code(&error, over)) => {
                    Ok(LoginCheck::Ended(format!("the provider refused the refresh token: {error}")))
                }
                Err(error) => Err(error),
            };
        }
        let (Some(endpoint), Some(token)) = (&discovery.introspection_endpoint, &tokens.access_token) else {
            return Ok(LoginCheck::CannotAsk);
        };
        let is_active = oauth::introspect(&self.http, client, endpoint, token).await?;
        Ok(match is_active {
            true => LoginCheck::Good { tokens: None, person: None },
            false => LoginCheck::Ended("the provider reports that the access token is no longer valid".to_owned()),
        })
    }

    /// Evaluates the new tokens after a refresh.
    async fn refreshed(
        &self,
        config: &ProviderConfig,
        name: &ProviderName,
        (subject, old): (&str, &ProviderTokens),
        new: Tokens,
        now: i64,
    ) -> Result<LoginCheck, OidcError> {
        let (id_token, access_token) = (new.id_token.clone(), new.access_token.clone());
        let mut tokens = ProviderTokens::of(new, now);
        // A provider that issues no new refresh token accepts the former one again.
        tokens.refresh_token = tokens.refresh_token.or_else(|| old.refresh_token.clone());
        tokens.access_token = None;
        tokens.id_token = tokens.id_token.or_else(|| old.id_token.clone());
        let person = match id_token.filter(|token| token.len() <= MAX_ID_TOKEN_BYTES) {
            Some(token) => match self.described(config, name, subject, &token, access_token, now).await {
                Ok(described) => described,
                // The refresh succeeded, so the person is still known; the description can wait for the next check.
                Err(error) => {
                    tracing::debug!(provider = %name, %error, "the person of a refreshed login is not described");
                    Ok(None)
                }
            },
            None => Ok(None),
        };
        Ok(match person {
            Ok(person) => {
                let tokens = Some(tokens).filter(|tokens| tokens != old);
                LoginCheck::Good { tokens, person: person.map(Box::new) }
            }
            Err(reason) => LoginCheck::Ended(reason),
        })
    }

    /// The person in a refreshed ID token; the inner error is the reason why the login is over.
    async fn described(
        &self,
        config: &ProviderConfig,
        name: &ProviderName,
        subject: &str,
        token: &str,
        access_token: Option<String>,
        now: i64,
    ) -> Result<Result<Option<Person>, String>, OidcError> {
        let claims = self.id_claims(config, token, None, now).await?;
        if claims.get("sub").and_then(Value::as_str) != Some(subject) {
            return Ok(Err("the refreshed token is for another person".to_owned()));
        }
        let discovery = self.cached(config).lock().await.discovery(&self.http, config).await?;
        let asks_userinfo =
            config.kind == ProviderKind::Oidc && discovery.userinfo_endpoint.is_some() && access_token.is_some();
        let claims = self.with_userinfo(config, &discovery, claims, access_token).await?;
        // A refreshed token may omit groups. If userinfo has none either there are none, as at a login: some providers
        // omit an empty claim.
        if !has_groups(config, &claims) && !asks_userinfo {
            return Ok(Ok(None));
        }
        Ok(match person(config, name, &claims) {
            Ok(person) => Ok(Some(person)),
            // A refreshed token may omit claims (OpenID Connect Core 1.0 section 12.2).
            Err(PersonError::NoEmail) => Ok(None),
            Err(refused) => Err(refused.to_string()),
        })
    }

    /// Verifies a logout token of this provider. The caller checks whether the token was used before.
    ///
    /// # Errors
    /// The token is invalid, or the provider's keys cannot be fetched.
    pub async fn logout(&self, config: &ProviderConfig, token: &str, now: i64) -> Result<LogoutToken, LogoutError> {
        let issuer = config.oidc_issuer().ok_or(OidcError::NotAsked)?;
        let cached = self.cached(config);
        let keys = cached.lock().await.keys(&self.http, config).await?;
        let verify = |keys: &[_]| verify_logout_token(token, keys, &issuer, &config.client_id, now);
        match verify(&keys) {
            Err(error) if error.may_be_a_newer_key() => {
                let newer = cached.lock().await.newer_keys(&self.http, config).await?;
                Ok(newer.map_or(Err(error), |keys| verify(&keys))?)
            }
            verified => Ok(verified?),
        }
    }

    /// The URL for logging out in the browser; `None` if the provider has none.
    ///
    /// # Errors
    /// The provider cannot be reached.
    pub async fn end_session_endpoint(&self, config: &ProviderConfig) -> Result<Option<String>, OidcError> {
        if !config.kind.is_oidc() {
            return Ok(None);
        }
        let cached = self.cached(config);
        let discovery = cached.lock().await.discovery(&self.http, config).await?;
        Ok(discovery.end_session_endpoint)
    }
}

/// Whether the provider's error is this code, possibly with a description.
fn is_code(error: &str, code: &str) -> bool {
    error.strip_prefix(code).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}
