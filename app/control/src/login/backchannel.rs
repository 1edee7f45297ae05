//! `/backchannel-logout/...`: a provider reports that a login ended (OpenID Connect Back-Channel Logout 1.0).

use axum::{
    body::Body,
    extract::{Path, State},
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sallyport_identity::{CLOCK_LEEWAY_SECONDS, LOGIN_SECONDS, MAX_ID_TOKEN_BYTES};
use sallyport_oidc::LogoutError;
use sallyport_store::{LogoutSubject, StoredProvider};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::start::parameters;
use crate::{problem::ApiError, request::extract, security::client::Client, state::App};

/// A refusal of a logout, in the form of section 2.8.
struct Refusal {
    status: StatusCode,
    error: &'static str,
    detail: String,
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        let word = if error.status().is_client_error() { "invalid_request" } else { "server_error" };
        Self { status: error.status(), error: word, detail: error.sentence().to_owned() }
    }
}

impl From<sallyport_store::StoreError> for Refusal {
    fn from(error: sallyport_store::StoreError) -> Self {
        ApiError::from(error).into()
    }
}

fn invalid(detail: impl Into<String>) -> Refusal {
    Refusal { status: StatusCode::BAD_REQUEST, error: "invalid_request", detail: detail.into() }
}

/// `POST`: ends the logins that the provider's logout token names.
pub(super) async fn logout(
    State(app): State<App>,
    client: Client,
    Path((organisation, provider)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let place = organisation.parse().ok().zip(provider.parse().ok());
    let done = async {
        app.limits.provider_logout(client, app.clock.now().monotonic)?;
        let form = headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().to_ascii_lowercase().starts_with(b"application/x-www-form-urlencoded"));
        if !form {
            return Err(invalid("send the logout token as application/x-www-form-urlencoded"));
        }
        let body = extract::read(body).await?;
        let form = std::str::from_utf8(&body).ok().and_then(|text| parameters(Some(text)));
        let token = form.and_then(|mut form| form.remove("logout_token"));
        let token = token.ok_or_else(|| invalid("there is no logout_token in the form"))?;
        if token.len() > MAX_ID_TOKEN_BYTES {
            return Err(invalid("the logout token is too long"));
        }
        let found = match place {
            Some((organisation, name)) => app.store.provider(organisation, &name).await?,
            None => None,
        };
        let provider = found.filter(|provider| provider.config.kind.is_oidc());
        let provider = provider.ok_or_else(|| invalid("no provider has this address"))?;
        end(&app, &provider, &token).await
    };
    let (status, body) = match done.await {
        Ok(ended) => {
            app.metrics.provider_logout(if ended > 0 { "ended" } else { "nobody" });
            (StatusCode::OK, json!({ "ended": ended }))
        }
        Err(Refusal { status, error, detail }) => {
            app.metrics.provider_logout("refused");
            tracing::warn!(
                organisation,
                provider,
                status = status.as_u16(),
                detail,
                "a logout of a provider is refused"
            );
            (status, json!({ "error": error, "error_description": detail }))
        }
    };
    let mut response = (status, body.to_string()).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn end(app: &App, provider: &StoredProvider, token: &str) -> Result<usize, Refusal> {
    let now = app.clock.now().unix_seconds;
    let logout = app.providers.logout(&provider.config, token, now).await.map_err(|error| match error {
        LogoutError::Token(error) => invalid(error.to_string()),
        LogoutError::Provider(error) => {
            Refusal { status: StatusCode::BAD_GATEWAY, error: "server_error", detail: error.to_string() }
        }
    })?;
    if app.store.is_used(provider.organisation, logout.id, now).await? {
        return Err(invalid("the logout token was used before"));
    }
    // A login that is just returning from the provider is not known yet, and checks this mark later.
    if let Some(sid) = &logout.sid {
        let until = now.saturating_add(LOGIN_SECONDS + CLOCK_LEEWAY_SECONDS);
        app.store.use_once(provider.organisation, ended_mark(provider, sid), until, now).await?;
    }
    let of = LogoutSubject { subject: logout.subject.as_deref(), sid: logout.sid.as_deref() };
    let ended = app.end_at_provider(provider, of).await?;
    // Used up only after success, so that the provider can retry with the same token. Two at once end the same logins
    // twice.
    app.store.use_once(provider.organisation, logout.id, logout.good_until, now).await?;
    Ok(ended)
}

/// The mark of a login that the provider has ended, by the provider's session id.
fn ended_mark(provider: &StoredProvider, sid: &str) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.update(b"ended at the provider\0");
    hash.update(provider.id.as_bytes());
    hash.update(sid);
    let digest: [u8; 32] = hash.finalize().into();
    let mut mark = [0; 16];
    mark.copy_from_slice(&digest[..16]);
    mark
}

impl App {
    /// Whether the provider has lately ended the login with this session id.
    pub(super) async fn has_ended_there(&self, provider: &StoredProvider, sid: &str) -> Result<bool, ApiError> {
        Ok(self.store.is_used(provider.organisation, ended_mark(provider, sid), self.clock.now().unix_seconds).await?)
    }

    /// Ends logins that the provider has ended, at edges too when this returns. Returns how many.
    pub(crate) async fn end_at_provider(
        &self,
        provider: &StoredProvider,
        of: LogoutSubject<'_>,
    ) -> Result<usize, ApiError> {
        let ended = self.store.end_provider_sessions(provider.organisation, provider.id, of).await?;
        self.identities.end_these(&ended.iter().map(|session| session.id).collect::<Vec<_>>());
        for session in &ended {
            self.audit_ended_by_provider(session, "logged out at the provider");
        }
        tracing::info!(
            account = %provider.organisation, provider = %provider.name, ended = ended.len(),
            "a provider ended logins"
        );
        Ok(ended.len())
    }
}
