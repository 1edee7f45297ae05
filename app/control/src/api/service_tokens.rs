//! `/v1/service-tokens`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{
    AuditCertificate, CreateServiceToken, CreateServiceTokenCertificate, CreatedServiceToken, Page, PageQuery,
    ServiceToken, ServiceTokenCertificate,
};
use sallyport_model::{AccountId, Scope, ServiceTokenId};
use sallyport_pki::{ClientRequest, MAX_SERVICE_LIFETIME, ServiceSubject};
use sallyport_policy::check_scope;
use sallyport_store::{AuthorityKind, Creation, IssuedCertificate, NewServiceToken, StoredServiceToken};
use time::Duration;

use super::params::{IdempotencyHeader, TokenPath};
use crate::{
    clock::date,
    problem::ApiError,
    request::{
        caller::Caller,
        creation::{located, secret_already_shown},
        extract::{Input, PageOf, json},
    },
    security::random,
    state::App,
};

/// What secrets of service tokens begin with.
const SECRET_PREFIX: &str = "sps_";
/// The default lifetime of a certificate, in days.
const CERTIFICATE_DAYS: u32 = 30;
/// How many sockets a token may name.
const MAX_TOKEN_SOCKETS: usize = 100;

fn to_api(token: StoredServiceToken) -> ServiceToken {
    ServiceToken {
        id: token.id,
        name: token.name,
        sockets: token.sockets,
        created_at: date(token.created_at),
        expires_at: token.expires_at.map(date),
        scope: token.scope,
        certified_until: token.certified_until.map(date),
        email: token.email,
        display_name: token.display_name,
    }
}

fn location(id: ServiceTokenId) -> String {
    format!("/v1/service-tokens/{id}")
}

/// The organisation's service tokens, oldest first
#[utoipa::path(
    get, path = "/v1/service-tokens", tag = "identity", operation_id = "list_service_tokens", params(PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<ServiceToken>),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, page: PageOf) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityRead)?;
    let rows = app.store.service_tokens(caller.organisation, page.after, page.rows()).await?;
    Ok(json(StatusCode::OK, &page.page(rows, to_api)))
}

/// Make a service token
///
/// A machine sends a service token to sockets that require an identity. The response has the secret, which the API
/// never shows again. A repetition with the same idempotency key therefore gets 409 `secret-already-shown` and the
/// token's location. Policies name the token and decide what the token may do.
#[utoipa::path(
    post, path = "/v1/service-tokens", tag = "identity", operation_id = "create_service_token",
    params(IdempotencyHeader),
    request_body = CreateServiceToken,
    responses(
        (status = 201, description = "The token, with its secret.", body = CreatedServiceToken),
        (status = 409, description = "`secret-already-shown`, `name-taken` or `limit-reached`"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateServiceToken>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    app.limits.create(caller.organisation, app.clock.now().monotonic)?;
    let CreateServiceToken { name, mut sockets, expires_at, scope, email, display_name } = input.value;
    let now = app.clock.now().unix_seconds;
    let expires_at = expires_at.map(|end| end.unix_timestamp());
    if expires_at.is_some_and(|end| end <= now) {
        return Err(ApiError::field("expires_at", "it is in the past"));
    }
    let scope = check_scope(scope).map_err(|error| ApiError::field("scope", error))?;
    sockets.sort_unstable();
    sockets.dedup();
    if sockets.len() > MAX_TOKEN_SOCKETS {
        let detail = format!("a token names at most {MAX_TOKEN_SOCKETS} sockets: leave them out for all");
        return Err(ApiError::field("sockets", detail));
    }
    for socket in &sockets {
        if app.store.socket(caller.organisation, *socket).await?.is_none() {
            return Err(ApiError::field("sockets", format!("there is no socket {socket}")));
        }
    }
    let (secret, hash) = random::secret(SECRET_PREFIX)?;
    let id = ServiceTokenId::from_random(random::bytes()?);
    let token = StoredServiceToken {
        id,
        name,
        sockets,
        created_at: now,
        expires_at,
        scope,
        certified_until: None,
        email,
        display_name,
    };
    let new = NewServiceToken { organisation: caller.organisation, token, hash };
    // Publishing follows the order of the store, also while the store is read again.
    let _turn = app.publishing.lock().await;
    match app.store.create_service_token(&new, input.keyed.as_ref()).await? {
        Creation::Made(()) => {
            app.identities.put_token(new.route());
            tracing::info!(token = %id, organisation = %caller.organisation, "a service token was made");
            let created = CreatedServiceToken { details: to_api(new.token), secret };
            Ok(located(json(StatusCode::CREATED, &created), &location(id)))
        }
        Creation::Repeated(stored) => Err(secret_already_shown(
            "service token",
            "delete it and make a new one",
            &location(ServiceTokenId::from_bytes(stored.resource)),
        )),
    }
}

/// A service token
#[utoipa::path(
    get, path = "/v1/service-tokens/{id}", tag = "identity", operation_id = "get_service_token",
    params(TokenPath),
    responses(
        (status = 200, description = "The token, without its secret.", body = ServiceToken),
    )
)]
pub(crate) async fn get(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityRead)?;
    let found = app.service_token(caller.organisation, &id).await?;
    Ok(json(StatusCode::OK, &to_api(found.token)))
}

/// Get a client certificate for a service token
///
/// The holder of the key has the token's access to `tls` sockets and HTTP sockets of the organisation that require an
/// identity. The certificate ends with the token at the latest. Deleting the token ends its certificates at once.
#[utoipa::path(
    post, path = "/v1/service-tokens/{id}/certificate", tag = "identity",
    operation_id = "create_service_token_certificate",
    params(TokenPath),
    request_body = CreateServiceTokenCertificate,
    responses(
        (status = 200, description = "The certificate.", body = ServiceTokenCertificate),
        (status = 409, description = "`token-ended`"),
    )
)]
pub(crate) async fn certificate(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    input: Input<CreateServiceTokenCertificate>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let organisation = caller.organisation;
    let moment = app.clock.now();
    app.limits.create(organisation, moment.monotonic)?;
    let CreateServiceTokenCertificate { csr, days } = input.value;
    let token = app.service_token(organisation, &id).await?.token;
    let days = days.unwrap_or(CERTIFICATE_DAYS);
    let longest = MAX_SERVICE_LIFETIME.whole_days();
    if !(1..=longest).contains(&i64::from(days)) {
        return Err(ApiError::field("days", format!("a certificate is good for 1 to {longest} days")));
    }
    let now = moment.unix_seconds;
    let left = token.expires_at.map_or(i64::MAX, |end| end.saturating_sub(now));
    if left <= 0 {
        let detail = "the service token has ended: make a new one";
        return Err(ApiError::new(StatusCode::CONFLICT, "token-ended", detail));
    }
    let request = ClientRequest::from_pem(&csr).map_err(|error| ApiError::field("csr", error))?;
    let authority = app.client_authority(organisation).await?;
    let (name, id) = (token.name.to_string(), token.id.to_string());
    let lifetime = Duration::seconds(left.min(i64::from(days) * 86_400));
    let subject = ServiceSubject { name: &name, token: &id, lifetime };
    let issued = authority.issue_service(&request, subject, date(now), random::bytes()?).map_err(ApiError::internal)?;
    let until = issued.not_after.unix_timestamp();
    // Recorded before it is handed out.
    let noted = IssuedCertificate {
        organisation,
        kind: AuthorityKind::ClientTls,
        serial: issued.serial.to_vec(),
        socket: None,
        subject: format!("service:{name}"),
        not_before: issued.not_before.unix_timestamp(),
        not_after: until,
    };
    app.store.record_certificate(&noted).await?;
    {
        let _turn = app.publishing.lock().await;
        let certified = app.store.certify_service_token(organisation, token.id, until).await?;
        let certified = certified.ok_or_else(|| ApiError::not_found("service token"))?;
        app.identities.put_token(certified.route());
    }
    // Sockets from before the authority learn of it.
    app.publish_organisation(organisation).await?;
    let serial: String = issued.serial.iter().map(|byte| format!("{byte:02x}")).collect();
    app.audit_certificate(
        organisation,
        AuditCertificate {
            identity: noted.subject,
            socket: None,
            certificate_type: "tls-service".to_owned(),
            serial: serial.clone(),
            not_after: issued.not_after,
            client: None,
        },
    );
    tracing::info!(token = %token.id, %organisation, "a certificate of a service token was issued");
    let authority = authority.certificate_pem();
    let valid_until = issued.not_after;
    Ok(json(StatusCode::OK, &ServiceTokenCertificate { certificate: issued.pem, authority, serial, valid_until }))
}

impl App {
    async fn service_token(&self, organisation: AccountId, id: &str) -> Result<NewServiceToken, ApiError> {
        let missing = || ApiError::not_found("service token");
        let id = id.parse().map_err(|_| missing())?;
        self.store.service_token(organisation, id).await?.ok_or_else(missing)
    }
}

/// Delete a service token
///
/// Connections that use the token are cut.
#[utoipa::path(
    delete, path = "/v1/service-tokens/{id}", tag = "identity", operation_id = "delete_service_token",
    params(TokenPath),
    responses(
        (status = 204, description = "The token is no longer good."),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let id: ServiceTokenId = id.parse().map_err(|_| ApiError::not_found("service token"))?;
    let _turn = app.publishing.lock().await;
    if !app.store.delete_service_token(caller.organisation, id).await? {
        return Err(ApiError::not_found("service token"));
    }
    app.identities.remove_token(id);
    tracing::info!(token = %id, organisation = %caller.organisation, "a service token was deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}
