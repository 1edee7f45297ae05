//! Whether a login is good still where it was made: asked of the provider, or told by it.

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

/// The longest token of a provider that is kept, in bytes.
pub const MAX_KEPT_TOKEN_BYTES: usize = 8_192;

/// Who came back, and what the provider gave with it.
#[derive(Debug)]
pub struct Finished {
    /// Who it is.
    pub person: Person,
    /// What the provider calls the login there, where it does.
    pub sid: Option<String>,
    /// What the provider is asked with later.
    pub tokens: ProviderTokens,
}

/// What a provider gave with a login. It is for who keeps it sealed, and for nobody else.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderTokens {
    /// By which the provider knows which login is to end there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_token: Option<String>,
    /// What is exchanged for new tokens for as long as the login is good there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// What the provider is asked about, where there is no refresh token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_token: Option<String>,
    /// Until when the access token is good, in seconds since 1970 (UTC); 0 where that is not known.
    #[serde(default)]
    pub access_until: i64,
}

impl fmt::Debug for ProviderTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProviderTokens(..)")
    }
}

impl ProviderTokens {
    /// Those that came, as far as they are short enough to be kept.
    pub(crate) fn of(tokens: Tokens, now: i64) -> Self {
        let kept = |token: Option<String>| token.filter(|token| (1..=MAX_KEPT_TOKEN_BYTES).contains(&token.len()));
        let seconds = match &tokens.expires_in {
            Some(Value::Number(seconds)) => seconds.as_i64(),
            Some(Value::String(seconds)) => seconds.parse().ok(),
            _ => None,
        };
        let refresh_token = kept(tokens.refresh_token);
        // With a refresh token nobody needs the other.
        let access_token = kept(tokens.access_token).filter(|_| refresh_token.is_none() && seconds.is_some());
        let access_until = now.saturating_add(seconds.unwrap_or(0));
        Self { id_token: kept(tokens.id_token), refresh_token, access_token, access_until }
    }

    /// Whether there is anything to ask with, at `now` in seconds since 1970 (UTC).
    #[must_use]
    pub fn can_ask(&self, now: i64) -> bool {
        self.refresh_token.is_some() || (self.access_token.is_some() && now < self.access_until)
    }
}

/// What a provider says of a login that was made there.
#[derive(Debug, PartialEq, Eq)]
pub enum Checked {
    /// It is good.
    Good {
        /// What the provider is asked with from now on, where it is something else.
        tokens: Option<ProviderTokens>,
        /// The person as the provider describes them now, where it does.
        person: Option<Box<Person>>,
    },
    /// It is over, for this reason.
    Ended(String),
    /// There is nothing to ask with, and there will not be.
    CannotAsk,
}

/// Why the end of a login was not believed.
#[derive(Debug, thiserror::Error)]
pub enum LogoutError {
    /// The token is not one to believe.
    #[error("{0}")]
    Token(#[from] LogoutTokenError),
    /// The provider's keys could not be had.
    #[error("{0}")]
    Provider(#[from] OidcError),
}

/// Answers to a refresh token that mean that the login is over, or that the person has to come once more (RFC 6749 section
/// 5.2, OpenID Connect Core 1.0 section 3.1.2.6).
const OVER: [&str; 4] = ["invalid_grant", "interaction_required", "login_required", "consent_required"];

impl Providers {
    /// Asks the provider whether the login of the person with this subject is good still.
    ///
    /// # Errors
    /// Nobody can tell now: the provider cannot be reached, or gives no answer that means anything.
    pub async fn check(
        &self,
        config: &ProviderConfig,
        name: &ProviderName,
        secret: &str,
        (subject, tokens): (&str, &ProviderTokens),
        now: i64,
    ) -> Result<Checked, OidcError> {
        if !config.kind.is_oidc() || !tokens.can_ask(now) {
            return Ok(Checked::CannotAsk);
        }
        let discovery = self.known(config).lock().await.discovery(&self.http, config).await?;
        let client = ClientOf { config, secret, auth: discovery.client_auth() };
        if let Some(refresh_token) = &tokens.refresh_token {
            let new = oauth::refresh(&self.http, client, &discovery.token_endpoint, refresh_token).await;
            return match new {
                Ok(new) => self.refreshed(config, name, (subject, tokens), new, now).await,
                Err(OidcError::Refused { error, .. }) if OVER.iter().any(|over| is_code(&error, over)) => {
                    Ok(Checked::Ended(format!("the provider refused the refresh token: {error}")))
                }
                Err(error) => Err(error),
            };
        }
        let (Some(endpoint), Some(token)) = (&discovery.introspection_endpoint, &tokens.access_token) else {
            return Ok(Checked::CannotAsk);
        };
        let is_active = oauth::introspect(&self.http, client, endpoint, token).await?;
        Ok(match is_active {
            true => Checked::Good { tokens: None, person: None },
            false => Checked::Ended("the provider says that the access token is not good any more".to_owned()),
        })
    }

    /// New tokens came for the old one: whom they describe.
    async fn refreshed(
        &self,
        config: &ProviderConfig,
        name: &ProviderName,
        (subject, old): (&str, &ProviderTokens),
        new: Tokens,
        now: i64,
    ) -> Result<Checked, OidcError> {
        let (id_token, access_token) = (new.id_token.clone(), new.access_token.clone());
        let mut tokens = ProviderTokens::of(new, now);
        // A provider that does not give another one takes the former again.
        tokens.refresh_token = tokens.refresh_token.or_else(|| old.refresh_token.clone());
        tokens.access_token = None;
        tokens.id_token = tokens.id_token.or_else(|| old.id_token.clone());
        let person = match id_token.filter(|token| token.len() <= MAX_ID_TOKEN_BYTES) {
            Some(token) => match self.described(config, name, subject, &token, access_token, now).await {
                Ok(described) => described,
                // The token was taken, so the person is still there; what they are called can wait for the next time.
                Err(error) => {
                    tracing::debug!(provider = %name, %error, "a refreshed login is not described");
                    Ok(None)
                }
            },
            None => Ok(None),
        };
        Ok(match person {
            Ok(person) => {
                let tokens = Some(tokens).filter(|tokens| tokens != old);
                Checked::Good { tokens, person: person.map(Box::new) }
            }
            Err(reason) => Checked::Ended(reason),
        })
    }

    /// The person whom a refreshed ID token describes; inside, why the login is over.
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
            return Ok(Err("the provider means another person by it now".to_owned()));
        }
        let discovery = self.known(config).lock().await.discovery(&self.http, config).await?;
        let asks_userinfo =
            config.kind == ProviderKind::Oidc && discovery.userinfo_endpoint.is_some() && access_token.is_some();
        let claims = self.with_userinfo(config, &discovery, claims, access_token).await?;
        // A refreshed token need not say groups again. Where userinfo says none either there are none, as at a login: some
        // providers leave an empty claim out.
        if !has_groups(config, &claims) && !asks_userinfo {
            return Ok(Ok(None));
        }
        Ok(match person(config, name, &claims) {
            Ok(person) => Ok(Some(person)),
            // It need not say all of it once more (OpenID Connect Core 1.0 section 12.2).
            Err(PersonError::NoEmail) => Ok(None),
            Err(refused) => Err(refused.to_string()),
        })
    }

    /// Whose login a logout token of this provider ends. Whether it came before is for the caller to know.
    ///
    /// # Errors
    /// The token is not to be believed, or the provider's keys cannot be had.
    pub async fn logout(&self, config: &ProviderConfig, token: &str, now: i64) -> Result<LogoutToken, LogoutError> {
        let issuer = config.oidc_issuer().ok_or(OidcError::NotAsked)?;
        let known = self.known(config);
        let keys = known.lock().await.keys(&self.http, config).await?;
        let verify = |keys: &[_]| verify_logout_token(token, keys, &issuer, &config.client_id, now);
        match verify(&keys) {
            Err(error) if error.may_be_a_newer_key() => {
                let newer = known.lock().await.newer_keys(&self.http, config).await?;
                Ok(newer.map_or(Err(error), |keys| verify(&keys))?)
            }
            verified => Ok(verified?),
        }
    }

    /// Where browsers are sent to log out at the provider; `None`: it has no such place.
    ///
    /// # Errors
    /// The provider cannot be asked.
    pub async fn end_session_endpoint(&self, config: &ProviderConfig) -> Result<Option<String>, OidcError> {
        if !config.kind.is_oidc() {
            return Ok(None);
        }
        let known = self.known(config);
        let discovery = known.lock().await.discovery(&self.http, config).await?;
        Ok(discovery.end_session_endpoint)
    }
}

/// Whether what a provider said begins with this code and no longer one.
fn is_code(said: &str, code: &str) -> bool {
    said.strip_prefix(code).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}
