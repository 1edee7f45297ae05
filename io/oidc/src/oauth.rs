//! Token requests (RFC 6749 section 4.1.3), and the dialects without OpenID Connect.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Method;
use sallyport_identity::{Claims, PersonError};
use sallyport_model::{ProviderConfig, ProviderKind};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    AuthorizationRequest, AuthorizationResponse, OidcError, Prompt,
    discovery::ClientAuth,
    error::harmless,
    http::{Answer, Call, Http},
    query::{encoded, form, with_query},
};

const GITHUB: &str = "https://github.com";
const GITHUB_API: &str = "https://api.github.com";
const FACEBOOK: &str = "https://www.facebook.com";
const FACEBOOK_API: &str = "https://graph.facebook.com";
/// The version of Facebook's API.
const FACEBOOK_VERSION: &str = "v23.0";

/// The answer to a code or a refresh token.
#[derive(Deserialize)]
pub(crate) struct Tokens {
    #[serde(default)]
    pub(crate) access_token: Option<String>,
    #[serde(default)]
    pub(crate) id_token: Option<String>,
    #[serde(default)]
    pub(crate) refresh_token: Option<String>,
    /// Validity of the access token in seconds.
    #[serde(default)]
    pub(crate) expires_in: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
    #[serde(default)]
    error_description: Option<String>,
}

/// The client's credentials at its provider.
#[derive(Clone, Copy)]
pub(crate) struct ClientOf<'a> {
    pub(crate) config: &'a ProviderConfig,
    pub(crate) secret: &'a str,
    pub(crate) auth: ClientAuth,
}

/// Exchanges the authorization code.
pub(crate) async fn exchange(
    http: &Http,
    client: ClientOf<'_>,
    endpoint: &str,
    response: &AuthorizationResponse<'_>,
) -> Result<Tokens, OidcError> {
    let parameters = vec![
        ("grant_type", "authorization_code"),
        ("code", response.code),
        ("redirect_uri", response.redirect_uri),
        ("code_verifier", response.verifier),
    ];
    tokens(post(http, client, endpoint, "the exchange of its code", parameters).await?)
}

/// Exchanges a refresh token (RFC 6749 section 6).
pub(crate) async fn refresh(
    http: &Http,
    client: ClientOf<'_>,
    endpoint: &str,
    refresh_token: &str,
) -> Result<Tokens, OidcError> {
    let parameters = vec![("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
    tokens(post(http, client, endpoint, "the exchange of a refresh token", parameters).await?)
}

/// Whether an access token is still valid (RFC 7662 section 2).
pub(crate) async fn introspect(
    http: &Http,
    client: ClientOf<'_>,
    endpoint: &str,
    access_token: &str,
) -> Result<bool, OidcError> {
    #[derive(Deserialize)]
    struct Introspected {
        active: bool,
    }
    let parameters = vec![("token", access_token), ("token_type_hint", "access_token")];
    let answer = post(http, client, endpoint, "a question about a token", parameters).await?;
    Ok(answer.good::<Introspected>()?.active)
}

/// Posts a form with client authentication.
async fn post<'a>(
    http: &Http,
    client: ClientOf<'a>,
    endpoint: &str,
    to: &'static str,
    mut parameters: Vec<(&'a str, &'a str)>,
) -> Result<Answer, OidcError> {
    let ClientOf { config, secret, auth } = client;
    let mut authorization = None;
    match auth {
        // RFC 6749 section 2.3.1: both are form-encoded first.
        ClientAuth::Basic if !secret.is_empty() => {
            let pair = format!("{}:{}", encoded(&config.client_id), encoded(secret));
            authorization = Some(format!("Basic {}", STANDARD.encode(pair)));
        }
        _ => {
            parameters.push(("client_id", &config.client_id));
            if !secret.is_empty() {
                parameters.push(("client_secret", secret));
            }
        }
    }
    let body = Some(form(&parameters));
    let call = Call { to, method: Method::POST, url: endpoint, authorization, body, more: Vec::new() };
    http.call(config.ca_pem.as_deref(), call).await
}

/// The tokens of an answer.
fn tokens(answer: Answer) -> Result<Tokens, OidcError> {
    let tokens: Result<Tokens, OidcError> = answer.json();
    match tokens {
        Ok(Tokens { error: Some(error), error_description, .. }) => {
            // GitHub and Facebook report errors with status 200, and Facebook as an object.
            let error = error.as_str().or_else(|| error.get("message")?.as_str()).unwrap_or("no reason").to_owned();
            let detail = error_description.map_or(error.clone(), |more| format!("{error} ({more})"));
            Err(OidcError::Refused { host: answer.host, error: harmless(&detail) })
        }
        Ok(tokens) if answer.status.is_success() => Ok(tokens),
        Ok(_) => Err(answer.bad(format!("status {}", answer.status.as_u16()))),
        Err(_) if !answer.status.is_success() => Err(answer.bad(format!("status {}", answer.status.as_u16()))),
        Err(error) => Err(error),
    }
}

/// The URLs of GitHub or Facebook: for the browser, for the code, and for the API.
fn places(config: &ProviderConfig) -> (String, String, String) {
    let given = config.issuer.as_deref().map(|issuer| issuer.trim_end_matches('/'));
    if config.kind == ProviderKind::Github {
        let site = given.unwrap_or(GITHUB);
        let api = given.map_or(GITHUB_API.to_owned(), |site| format!("{site}/api/v3"));
        return (format!("{site}/login/oauth/authorize"), format!("{site}/login/oauth/access_token"), api);
    }
    let (site, api) = (given.unwrap_or(FACEBOOK), given.unwrap_or(FACEBOOK_API));
    let api = format!("{api}/{FACEBOOK_VERSION}");
    (format!("{site}/{FACEBOOK_VERSION}/dialog/oauth"), format!("{api}/oauth/access_token"), api)
}

/// The login URL of a provider without OpenID Connect.
pub(crate) fn begin(config: &ProviderConfig, request: &AuthorizationRequest<'_>) -> String {
    let usual = if config.kind == ProviderKind::Github { "read:user user:email" } else { "email public_profile" };
    let scope = std::iter::once(usual).chain(config.scopes.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    let mut parameters = vec![
        ("response_type", "code"),
        ("client_id", config.client_id.as_str()),
        ("redirect_uri", request.redirect_uri),
        ("scope", &scope),
        ("state", request.state),
        ("code_challenge", request.challenge),
        ("code_challenge_method", "S256"),
    ];
    if request.prompt != Prompt::IfNeeded {
        parameters.push(match config.kind {
            ProviderKind::Github => ("prompt", "select_account"),
            _ => ("auth_type", "reauthenticate"),
        });
    }
    with_query(&places(config).0, &parameters)
}

/// The claims of the person, in the terms of OpenID Connect.
pub(crate) async fn finish(
    http: &Http,
    config: &ProviderConfig,
    secret: &str,
    response: &AuthorizationResponse<'_>,
) -> Result<Claims, OidcError> {
    let (_, endpoint, api) = places(config);
    let tokens = exchange(http, ClientOf { config, secret, auth: ClientAuth::Post }, &endpoint, response).await?;
    let token = tokens.access_token.ok_or_else(|| OidcError::Answer {
        host: api.clone(),
        to: "the exchange of its code",
        reason: "the access token is missing".to_owned(),
    })?;
    let ask = async |to: &'static str, path: &str| {
        let url = format!("{api}{path}");
        let authorization = Some(format!("Bearer {token}"));
        http.call(config.ca_pem.as_deref(), Call { authorization, ..Call::get(to, &url) }).await?.good::<Value>()
    };
    let claims = if config.kind == ProviderKind::Github {
        let user = ask("a request for the user", "/user").await?;
        let addresses = ask("a request for the user's addresses", "/user/emails").await?;
        let is_primary = |address: &&Value| address["primary"] == json!(true);
        let primary = addresses.as_array().and_then(|all| all.iter().find(is_primary)).ok_or(PersonError::NoEmail)?;
        json!({
            "sub": user["id"].as_u64().map(|id| id.to_string()),
            "name": user["name"].as_str().or(user["login"].as_str()),
            "email": primary["email"],
            "email_verified": primary["verified"] == json!(true),
        })
    } else {
        let user = ask("a request for the user", "/me?fields=id,name,email").await?;
        json!({ "sub": user["id"], "name": user["name"], "email": user["email"] })
    };
    match claims {
        Value::Object(claims) => Ok(claims),
        _ => Err(OidcError::Person(PersonError::NoSubject)),
    }
}

/// The login URL, for a test of the configuration.
pub(crate) fn authorization_endpoint(config: &ProviderConfig) -> String {
    places(config).0
}
