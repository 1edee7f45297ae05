//! What an OpenID provider says of itself (OpenID Connect Discovery 1.0), and its keys, kept for a while.

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

/// How long what a provider says of itself is believed.
const DISCOVERY_FRESH: Duration = Duration::from_secs(3_600);
/// How long its keys are believed without looking again: how long one that was withdrawn still signs people in.
const KEYS_FRESH: Duration = Duration::from_secs(600);
/// How long a provider that cannot be asked is left alone.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(3);
/// How often, in [`REFETCH_WINDOW`], a key that is not known makes us look for newer ones.
const MAX_REFETCHES: u32 = 6;
const REFETCH_WINDOW: Duration = Duration::from_secs(60);

/// What a provider says of itself, as far as it matters here.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Discovery {
    issuer: String,
    pub(crate) authorization_endpoint: String,
    pub(crate) token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    pub(crate) userinfo_endpoint: Option<String>,
    /// Where a browser is logged out (OpenID Connect RP-Initiated Logout 1.0 section 2.1).
    #[serde(default)]
    pub(crate) end_session_endpoint: Option<String>,
    /// Where it is asked about a token (RFC 7662, RFC 8414 section 2).
    #[serde(default)]
    pub(crate) introspection_endpoint: Option<String>,
    /// Whether it tells of logouts (OpenID Connect Back-Channel Logout 1.0 section 2.1).
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

/// How the client shows its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientAuth {
    Basic,
    Post,
}

impl Discovery {
    /// The way that the provider takes; by default the one that all must know (OpenID Connect Discovery 1.0 section 3).
    pub(crate) fn client_auth(&self) -> ClientAuth {
        let has = |way: &str| self.token_endpoint_auth_methods_supported.iter().flatten().any(|has| has == way);
        if has("client_secret_post") && !has("client_secret_basic") { ClientAuth::Post } else { ClientAuth::Basic }
    }

    /// The word that makes the provider let the person be somebody else.
    pub(crate) fn switch_prompt(&self, kind: ProviderKind) -> &'static str {
        let has_chooser = self.prompt_values_supported.iter().flatten().any(|has| has == "select_account");
        if has_chooser || kind != ProviderKind::Oidc { "select_account" } else { "login" }
    }

    /// The word that makes the provider ask who it is, whether or not it knows. Google has none but the choice of an account.
    pub(crate) fn login_prompt(kind: ProviderKind) -> &'static str {
        if kind == ProviderKind::Google { "select_account" } else { "login" }
    }

    /// What is said of it.
    pub(crate) fn found(&self, keys: usize) -> Found {
        let scopes = self.scopes_supported.as_ref();
        Found {
            issuer: self.issuer.clone(),
            authorization_endpoint: self.authorization_endpoint.clone(),
            keys,
            tells_of_logouts: self.backchannel_logout_supported,
            introspects: self.introspection_endpoint.is_some(),
            has_offline_access: scopes.is_some_and(|scopes| scopes.iter().any(|scope| scope == "offline_access")),
        }
    }

    /// Whether the provider knows the scope, as far as it says.
    pub(crate) fn may_have_scope(&self, scope: &str) -> bool {
        self.scopes_supported.as_ref().is_none_or(|scopes| scopes.iter().any(|has| has == scope))
    }
}

/// What asking a provider found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its issuer; empty for what does not speak OpenID Connect.
    pub issuer: String,
    /// Where browsers are sent.
    pub authorization_endpoint: String,
    /// How many keys it signs with that can be used.
    pub keys: usize,
    /// Whether it says that it tells of logouts.
    pub tells_of_logouts: bool,
    /// Whether it can be asked about a token.
    pub introspects: bool,
    /// Whether it knows the scope by which some give refresh tokens.
    pub has_offline_access: bool,
}

/// One provider, as it is known.
#[derive(Debug, Default)]
pub(crate) struct Known {
    discovery: Option<(Instant, Discovery)>,
    keys: Option<(Instant, Vec<Jwk>)>,
    failed: Option<(Instant, OidcError)>,
    window: Option<(Instant, u32)>,
}

impl Known {
    /// What the provider says of itself.
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

    /// The keys that the provider signs with.
    pub(crate) async fn keys(&mut self, http: &Http, config: &ProviderConfig) -> Result<Vec<Jwk>, OidcError> {
        match &self.keys {
            Some((at, keys)) if at.elapsed() < KEYS_FRESH => Ok(keys.clone()),
            _ => self.fetch_keys(http, config).await,
        }
    }

    /// Newer keys, after one came that is not known; `None` when that was asked too often.
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
        // Keys of kinds that are not known here, and shared secrets, stand beside those that sign.
        let is_public =
            |key: &Jwk| !matches!(key.algorithm, AlgorithmParameters::Other(_) | AlgorithmParameters::OctetKey(_));
        let read = listed.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        let keys: Vec<Jwk> = read.filter(is_public).take(MAX_KEYS).collect();
        self.keys = Some((Instant::now(), keys.clone()));
        Ok(keys)
    }
}

async fn discover(http: &Http, config: &ProviderConfig) -> Result<Discovery, OidcError> {
    let issuer =
        config.oidc_issuer().ok_or_else(|| OidcError::Config("it does not speak OpenID Connect".to_owned()))?;
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let answer = http.call(config.ca_pem.as_deref(), Call::get("a request for its discovery document", &url)).await?;
    let mut discovery: Discovery = answer.good()?;
    if discovery.issuer != issuer {
        return Err(OidcError::Issuer { expected: issuer, found: harmless(&discovery.issuer) });
    }
    let needed = [&discovery.authorization_endpoint, &discovery.token_endpoint, &discovery.jwks_uri];
    for url in needed.into_iter().chain(discovery.userinfo_endpoint.as_ref()) {
        check_url(url)?;
        // A provider with TLS has it everywhere: nobody is sent from there to what listens on this machine.
        if issuer.starts_with("https://") && !url.starts_with("https://") {
            return Err(OidcError::Insecure(harmless(url)));
        }
    }
    // Logins do without these two, so they do not fail where one of them cannot be used.
    let is_usable =
        |url: &String| check_url(url).is_ok() && (url.starts_with("https://") || issuer.starts_with("http://"));
    discovery.end_session_endpoint = discovery.end_session_endpoint.filter(is_usable);
    discovery.introspection_endpoint = discovery.introspection_endpoint.filter(is_usable);
    Ok(discovery)
}
