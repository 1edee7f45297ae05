//! The two halves of a login: the redirect to the provider, and the return.

use std::{collections::HashMap, sync::Arc};

use http::Method;
use parking_lot::Mutex as SyncMutex;
use sallyport_identity::{
    Claims, Expected, IdTokenError, has_groups, join_groups, person, session_of, verify_id_token,
};
use sallyport_model::{ProviderConfig, ProviderKind, ProviderName};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::{
    OidcError, Reach,
    discovery::{CachedProvider, Discovery, ProviderMetadata},
    http::{Call, Http, check_url},
    oauth::{self, ClientOf},
    query::with_query,
    revalidation::{CompletedLogin, ProviderTokens},
};

/// Bound on cached providers; others are fetched each time.
pub const MAX_CACHED_PROVIDERS: usize = 1_024;

/// The parameters of an authorization request (RFC 6749 section 4.1.1), which starts a login.
#[derive(Debug, Clone, Copy)]
pub struct AuthorizationRequest<'a> {
    /// URL that the browser returns to.
    pub redirect_uri: &'a str,
    /// The `state` that the browser returns.
    pub state: &'a str,
    /// The nonce for the ID token.
    pub nonce: &'a str,
    /// SHA-256 of the verifier, in base64url (RFC 7636 section 4.2).
    pub challenge: &'a str,
    /// Whether the provider asks the person.
    pub prompt: Prompt,
}

/// Whether a provider asks for the identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prompt {
    /// Only if the person is not logged in there.
    IfNeeded,
    /// In any case: the person has logged out here.
    Always,
    /// The person wants to log in as another identity.
    SelectAccount,
}

/// The parameters of an authorization response (RFC 6749 section 4.1.2), and what the start of the login stored.
#[derive(Debug, Clone, Copy)]
pub struct AuthorizationResponse<'a> {
    /// As at the start.
    pub redirect_uri: &'a str,
    /// The authorization code.
    pub code: &'a str,
    /// The issuer in the browser's URL, if the provider sends it (RFC 9207).
    pub issuer: Option<&'a str>,
    /// The verifier of the challenge.
    pub verifier: &'a str,
    /// As at the start.
    pub nonce: &'a str,
    /// The current time in seconds since 1970 (UTC).
    pub now: i64,
}

/// A client of identity providers, with a cache of their discovery documents and keys.
#[derive(Debug)]
pub struct Providers {
    pub(crate) http: Http,
    cached: SyncMutex<HashMap<String, Arc<Mutex<CachedProvider>>>>,
}

impl Providers {
    /// A client with this reach; `agent` is its user agent.
    #[must_use]
    pub fn new(reach: Reach, agent: impl Into<String>) -> Self {
        Self { http: Http::new(reach, agent.into()), cached: SyncMutex::default() }
    }

    /// The URL for the browser's login.
    ///
    /// # Errors
    /// The provider cannot be reached, or its discovery document is invalid.
    pub async fn begin(&self, config: &ProviderConfig, request: AuthorizationRequest<'_>) -> Result<String, OidcError> {
        match config.kind {
            ProviderKind::Github | ProviderKind::Facebook => Ok(oauth::begin(config, &request)),
            ProviderKind::Local => Err(OidcError::NotAsked),
            ProviderKind::Oidc | ProviderKind::Google | ProviderKind::Microsoft => {
                let cached = self.cached(config);
                let discovery = cached.lock().await.discovery(&self.http, config).await?;
                Ok(authorization_url(config, &discovery, &request))
            }
        }
    }

    /// Completes a login.
    ///
    /// # Errors
    /// The provider cannot be reached, refuses the code, or gives no valid identity.
    pub async fn finish(
        &self,
        config: &ProviderConfig,
        name: &ProviderName,
        secret: &str,
        response: AuthorizationResponse<'_>,
    ) -> Result<CompletedLogin, OidcError> {
        let (claims, tokens) = match config.kind {
            ProviderKind::Local => return Err(OidcError::NotAsked),
            kind if kind.is_oidc() => self.finish_oidc(config, secret, &response).await?,
            _ => (oauth::finish(&self.http, config, secret, &response).await?, ProviderTokens::default()),
        };
        Ok(CompletedLogin { person: person(config, name, &claims)?, sid: session_of(&claims)?, tokens })
    }

    /// Tests the provider, ignoring the cache.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub async fn test(&self, config: &ProviderConfig) -> Result<ProviderMetadata, OidcError> {
        if config.kind == ProviderKind::Local {
            return Err(OidcError::NotAsked);
        }
        if !config.kind.is_oidc() {
            let authorization_endpoint = oauth::authorization_endpoint(config);
            check_url(&authorization_endpoint)?;
            return Ok(ProviderMetadata {
                issuer: String::new(),
                authorization_endpoint,
                keys: 0,
                sends_logout_tokens: false,
                introspects: false,
                has_offline_access: false,
            });
        }
        let mut fresh = CachedProvider::default();
        let discovery = fresh.discovery(&self.http, config).await?;
        let keys = fresh.keys(&self.http, config).await?.len();
        if keys == 0 {
            return Err(OidcError::Config("the provider has no signing keys".to_owned()));
        }
        let metadata = discovery.metadata(keys);
        *self.cached(config).lock().await = fresh;
        Ok(metadata)
    }

    async fn finish_oidc(
        &self,
        config: &ProviderConfig,
        secret: &str,
        response: &AuthorizationResponse<'_>,
    ) -> Result<(Claims, ProviderTokens), OidcError> {
        let cached = self.cached(config);
        let discovery = cached.lock().await.discovery(&self.http, config).await?;
        let issuer = config.oidc_issuer().unwrap_or_default();
        let is_issuer = match response.issuer {
            Some(returned) => returned == issuer,
            None => !discovery.authorization_response_iss_parameter_supported,
        };
        if !is_issuer {
            return Err(IdTokenError::Claim("iss").into());
        }
        let client = ClientOf { config, secret, auth: discovery.client_auth() };
        let tokens = oauth::exchange(&self.http, client, &discovery.token_endpoint, response).await?;
        let token = tokens.id_token.clone().ok_or(IdTokenError::Malformed)?;
        let claims = self.id_claims(config, &token, Some(response.nonce), response.now).await?;
        // Userinfo may lack the claims of the session.
        let sid = claims.get("sid").cloned();
        let access_token = tokens.access_token.clone();
        let mut claims = self.with_userinfo(config, &discovery, claims, access_token).await?;
        match sid {
            Some(sid) => claims.insert("sid".to_owned(), sid),
            None => claims.remove("sid"),
        };
        Ok((claims, ProviderTokens::of(tokens, response.now)))
    }

    /// The claims of an ID token that this provider has signed.
    pub(crate) async fn id_claims(
        &self,
        config: &ProviderConfig,
        token: &str,
        nonce: Option<&str>,
        now: i64,
    ) -> Result<Claims, OidcError> {
        let issuer = config.oidc_issuer().unwrap_or_default();
        let cached = self.cached(config);
        let expected = Expected { issuer: &issuer, client_id: &config.client_id, nonce, now };
        let keys = cached.lock().await.keys(&self.http, config).await?;
        let mut verified = verify_id_token(token, &keys, expected);
        // An unknown key, or a wrong signature: the provider may have newer keys.
        if matches!(verified, Err(IdTokenError::UnknownKey | IdTokenError::Signature))
            && let Some(keys) = cached.lock().await.newer_keys(&self.http, config).await?
        {
            verified = verify_id_token(token, &keys, expected);
        }
        Ok(verified?)
    }

    /// Adds the claims of userinfo if the token lacks needed ones (OpenID Connect Core 1.0 section 5.3).
    pub(crate) async fn with_userinfo(
        &self,
        config: &ProviderConfig,
        discovery: &Discovery,
        mut claims: Claims,
        access_token: Option<String>,
    ) -> Result<Claims, OidcError> {
        let has_email = claims.contains_key("email") && (claims.contains_key("email_verified"));
        let has_groups = has_groups(config, &claims);
        let (Some(url), Some(token)) = (&discovery.userinfo_endpoint, access_token) else { return Ok(claims) };
        if config.kind != ProviderKind::Oidc || (has_email && has_groups) {
            return Ok(claims);
        }
        let call = Call {
            authorization: Some(format!("Bearer {token}")),
            method: Method::GET,
            ..Call::get("a request for the person's claims", url)
        };
        let mut more: Claims = self.http.call(config.ca_pem.as_deref(), call).await?.good()?;
        // The claims of another person are never used.
        if more.get("sub").and_then(Value::as_str) != claims.get("sub").and_then(Value::as_str) {
            return Err(IdTokenError::Claim("sub").into());
        }
        join_groups(config, &mut claims, &more)?;
        // An address and its verification must come from one source.
        if !has_email && more.contains_key("email") {
            claims.remove("email");
            claims.remove("email_verified");
        } else {
            more.remove("email");
            more.remove("email_verified");
        }
        for (name, value) in more {
            claims.entry(name).or_insert(value);
        }
        Ok(claims)
    }

    /// The cached state of the provider. The same issuer with other CAs counts as another provider.
    pub(crate) fn cached(&self, config: &ProviderConfig) -> Arc<Mutex<CachedProvider>> {
        let key =
            format!("{}\n{}", config.oidc_issuer().unwrap_or_default(), config.ca_pem.as_deref().unwrap_or_default());
        let mut cached = self.cached.lock();
        if cached.len() >= MAX_CACHED_PROVIDERS && !cached.contains_key(&key) {
            cached.clear();
        }
        cached.entry(key).or_default().clone()
    }
}

fn authorization_url(config: &ProviderConfig, discovery: &Discovery, request: &AuthorizationRequest<'_>) -> String {
    let mut scopes = vec!["openid", "email", "profile"];
    // If groups are configured, their usual scope is requested if the provider supports it.
    if config.kind == ProviderKind::Oidc && config.groups_claim.is_some() && discovery.may_have_scope("groups") {
        scopes.push("groups");
    }
    for scope in &config.scopes {
        if !scopes.contains(&scope.as_str()) {
            scopes.push(scope);
        }
    }
    let scope = scopes.join(" ");
    let mut parameters = vec![
        ("response_type", "code"),
        ("client_id", config.client_id.as_str()),
        ("redirect_uri", request.redirect_uri),
        ("scope", &scope),
        ("state", request.state),
        ("nonce", request.nonce),
        ("code_challenge", request.challenge),
        ("code_challenge_method", "S256"),
    ];
    match request.prompt {
        Prompt::IfNeeded => {}
        Prompt::Always => parameters.push(("prompt", Discovery::login_prompt(config.kind))),
        Prompt::SelectAccount => parameters.push(("prompt", discovery.switch_prompt(config.kind))),
    }
    with_query(&discovery.authorization_endpoint, &parameters)
}
