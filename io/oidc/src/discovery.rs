//! The discovery document of an OpenID provider (OpenID Connect Discovery 1.0) and its keys, both cached.

use std::time::Duration;

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk};
use sallyport_identity::MAX_KEYS;
use sallyport_model::{ProviderConfig, ProviderKind};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    OidcError,
    error::harmless,
    http::{Call, Http, check_url},
};

/// Time that a discovery document is cached.
const DISCOVERY_FRESH: Duration = Duration::from_secs(3_600);
/// Time that keys are cached, and so the time that a withdrawn key is still accepted.
const KEYS_FRESH: Duration = Duration::from_secs(600);
/// Pause after a provider could not be reached.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(3);
/// Bound on refetches of keys because of unknown ones, within [`REFETCH_WINDOW`].
const MAX_REFETCHES: u32 = 6;
const REFETCH_WINDOW: Duration = Duration::from_secs(60);

/// The used part of a discovery document.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Discovery {
    issuer: String,
    pub(crate) authorization_endpoint: String,
    pub(crate) token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    pub(crate) userinfo_endpoint: Option<String>,
    /// URL for logging out in the browser (OpenID Connect RP-Initiated Logout 1.0 section 2.1).
    #[serde(default)]
    pub(crate) end_session_endpoint: Option<String>,
    /// URL for querying a token (RFC 7662, RFC 8414 section 2).
    #[serde(default)]
    pub(crate) introspection_endpoint: Option<String>,
    /// Whether the provider sends logout tokens (OpenID Connect Back-Channel Logout 1.0 section 2.1).
    #[serde(default)]
    backchannel_logout_supported: bool,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    prompt_values_supported: Option<Vec<String>>,
    #[serde(default)]
    scopes_supported: Option<Vec<String>>,
}

/// The client authentication method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientAuth {
    Basic,
    Post,
}

impl Discovery {
    /// The method to use; by default the one that all must support (OpenID Connect Discovery 1.0 section 3).
    pub(crate) fn client_auth(&self) -> ClientAuth {
        let has = |way: &str| self.token_endpoint_auth_methods_supported.iter().flatten().any(|has| has == way);
        if has("client_secret_post") && !has("client_secret_basic") { ClientAuth::Post } else { ClientAuth::Basic }
    }

    /// The `prompt` that lets the person log in as another identity.
    pub(crate) fn switch_prompt(&self, kind: ProviderKind) -> &'static str {
        let has_chooser = self.prompt_values_supported.iter().flatten().any(|has| has == "select_account");
        if has_chooser || kind != ProviderKind::Oidc { "select_account" } else { "login" }
    }

    /// The `prompt` that makes the provider ask in any case. Google supports only the account selection.
    pub(crate) fn login_prompt(kind: ProviderKind) -> &'static str {
        if kind == ProviderKind::Google { "select_account" } else { "login" }
    }

    /// The summary of a test.
    pub(crate) fn metadata(&self, keys: usize) -> ProviderMetadata {
        let scopes = self.scopes_supported.as_ref();
        ProviderMetadata {
            issuer: self.issuer.clone(),
            authorization_endpoint: self.authorization_endpoint.clone(),
            keys,
            sends_logout_tokens: self.backchannel_logout_supported,
            introspects: self.introspection_endpoint.is_some(),
            has_offline_access: scopes.is_some_and(|scopes| scopes.iter().any(|scope| scope == "offline_access")),
        }
    }

    /// Whether the provider supports the scope, as far as stated.
    pub(crate) fn may_have_scope(&self, scope: &str) -> bool {
        self.scopes_supported.as_ref().is_none_or(|scopes| scopes.iter().any(|has| has == scope))
    }
}

/// The result of testing a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderMetadata {
    /// Its issuer; empty for providers without OpenID Connect.
    pub issuer: String,
    /// URL of the login.
    pub authorization_endpoint: String,
    /// Number of usable signing keys.
    pub keys: usize,
    /// Whether it sends logout tokens.
    pub sends_logout_tokens: bool,
    /// Whether tokens can be introspected.
    pub introspects: bool,
    /// Whether it supports the scope `offline_access`, which some require for refresh tokens.
    pub has_offline_access: bool,
}

/// Cached state of one provider.
#[derive(Debug, Default)]
pub(crate) struct CachedProvider {
    discovery: Option<(Instant, Discovery)>,
    keys: Option<(Instant, Vec<Jwk>)>,
    failed: Option<(Instant, OidcError)>,
    window: Option<(Instant, u32)>,
}

impl CachedProvider {
    /// The discovery document.
    pub(crate) async fn discovery(&mut self, http: &Http, config: &ProviderConfig) -> Result<Discovery, OidcError> {
        if let Some((at, discovery)) = &self.discovery
            && at.elapsed() < DISCOVERY_FRESH
        {
            return Ok(discovery.clone());
        }
        if let Some((at, error)) = &self.failed
            && at.elapsed() < REST_AFTER_FAILURE
        {
            return Err(error.clone());
        }
        match discover(http, config).await {
            Ok(discovery) => {
                self.failed = None;
                self.discovery = Some((Instant::now(), discovery.clone()));
                Ok(discovery)
            }
            Err(error) => {
                self.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// The signing keys.
    pub(crate) async fn keys(&mut self, http: &Http, config: &ProviderConfig) -> Result<Vec<Jwk>, OidcError> {
        match &self.keys {
            Some((at, keys)) if at.elapsed() < KEYS_FRESH => Ok(keys.clone()),
            _ => self.fetch_keys(http, config).await,
        }
    }

    /// Fetches the keys again after an unknown key; `None` if that was done too often.
    pub(crate) async fn newer_keys(
        &mut self,
        http: &Http,
        config: &ProviderConfig,
    ) -> Result<Option<Vec<Jwk>>, OidcError> {
        let (began, count) = self.window.filter(|(at, _)| at.elapsed() < REFETCH_WINDOW).unwrap_or((Instant::now(), 0));
        if count >= MAX_REFETCHES {
            return Ok(None);
        }
        self.window = Some((began, count + 1));
        self.fetch_keys(http, config).await.map(Some)
    }

    async fn fetch_keys(&mut self, http: &Http, config: &ProviderConfig) -> Result<Vec<Jwk>, OidcError> {
        #[derive(Deserialize)]
        struct Keys {
            keys: Vec<Value>,
        }
        let discovery = self.discovery(http, config).await?;
        let answer =
            http.call(config.ca_pem.as_deref(), Call::get("a request for its keys", &discovery.jwks_uri)).await?;
        let listed: Keys = answer.good()?;
        // Keys of unknown kinds and shared secrets are skipped.
        let is_public =
            |key: &Jwk| !matches!(key.algorithm, AlgorithmParameters::Other(_) | AlgorithmParameters::OctetKey(_));
        let read = listed.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        let keys: Vec<Jwk> = read.filter(is_public).take(MAX_KEYS).collect();
        self.keys = Some((Instant::now(), keys.clone()));
        Ok(keys)
    }
}

async fn discover(http: &Http, config: &ProviderConfig) -> Result<Discovery, OidcError> {
    let issuer = config
        .oidc_issuer()
        .ok_or_else(|| OidcError::Config("the provider does not speak OpenID Connect".to_owned()))?;
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let answer = http.call(config.ca_pem.as_deref(), Call::get("a request for its discovery document", &url)).await?;
    let mut discovery: Discovery = answer.good()?;
    if discovery.issuer != issuer {
        return Err(OidcError::Issuer { expected: issuer, found: harmless(&discovery.issuer) });
    }
    let needed = [&discovery.authorization_endpoint, &discovery.token_endpoint, &discovery.jwks_uri];
    for url in needed.into_iter().chain(discovery.userinfo_endpoint.as_ref()) {
        check_url(url)?;
        // A provider with TLS must use it everywhere: browsers are not sent from there to a service on this machine.
        if issuer.starts_with("https://") && !url.starts_with("https://") {
            return Err(OidcError::Insecure(harmless(url)));
        }
    }
    // Logins do not need these two, so an unusable one is ignored.
    let is_usable =
        |url: &String| check_url(url).is_ok() && (url.starts_with("https://") || issuer.starts_with("http://"));
    discovery.end_session_endpoint = discovery.end_session_endpoint.filter(is_usable);
    discovery.introspection_endpoint = discovery.introspection_endpoint.filter(is_usable);
    Ok(discovery)
}
