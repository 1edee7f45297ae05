//! `/v1/providers`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, Uri};
use sallyport_api::{CreateProvider, Page, PageQuery, Provider, ProviderFound, UpdateProvider};
use sallyport_model::{AccountId, ProviderKind, Scope};
use sallyport_store::StoredProvider;

use super::params::{IdempotencyHeader, ProviderPath};
use crate::{
    clock::date,
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, PageOf, json},
        once::Made,
    },
    state::App,
};

fn to_api(app: &App, provider: StoredProvider) -> Provider {
    let has_secret = app.open_secret(&provider).is_some_and(|secret| !secret.is_empty());
    // A local provider gets no redirects.
    let redirect_uri = match provider.config.kind {
        ProviderKind::Local => String::new(),
        _ => app.redirect_uri(provider.organisation, &provider.name),
    };
    let (mut backchannel_logout_uri, mut post_logout_redirect_uri) = (String::new(), String::new());
    if provider.config.kind.is_oidc() {
        backchannel_logout_uri = app.backchannel_logout_uri(provider.organisation, &provider.name);
        post_logout_redirect_uri = app.post_logout_redirect_uri();
    }
    let check_minutes =
        provider.config.check_seconds().map_or(0, |seconds| u16::try_from(seconds / 60).unwrap_or(u16::MAX));
    let config = provider.config;
    Provider {
        id: provider.id,
        name: provider.name,
        kind: config.kind,
        issuer: config.issuer,
        tenant: config.tenant,
        client_id: config.client_id,
        has_secret,
        scopes: config.scopes,
        groups_claim: config.groups_claim,
        trust_email: config.trust_email,
        ca_pem: config.ca_pem,
        hook: config.hook,
        require_totp: config.require_totp,
        check_minutes,
        backchannel_logout_uri,
        post_logout_redirect_uri,
        redirect_uri,
        created_at: date(provider.created_at),
    }
}

/// The organisation's identity providers, oldest first
#[utoipa::path(
    get, path = "/v1/providers", tag = "providers", operation_id = "list_providers", params(PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<Provider>),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, page: PageOf) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityRead)?;
    let rows = app.store.providers(caller.organisation, page.after, page.rows()).await?;
    Ok(json(StatusCode::OK, &page.page(rows, |provider| to_api(&app, provider))))
}

/// Add an identity provider
///
/// Control does not test the provider; `POST /v1/providers/{id}/test` does. Register the `redirect_uri` of the response
/// at the provider.
#[utoipa::path(
    post, path = "/v1/providers", tag = "providers", operation_id = "create_provider",
    params(IdempotencyHeader),
    request_body = CreateProvider,
    responses(
        (status = 201, description = "The provider.", body = Provider),
        (status = 409, description = "`provider-taken`, `local-provider-taken` or `limit-reached`"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateProvider>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let make = async {
        let provider = app.create_provider(caller.organisation, input.value).await?;
        Ok(Made { location: Some(format!("/v1/providers/{}", provider.name)), body: to_api(&app, provider) })
    };
    app.once(caller.organisation, input.keyed.as_ref(), None, make).await
}

/// One identity provider
#[utoipa::path(
    get, path = "/v1/providers/{id}", tag = "providers", operation_id = "get_provider",
    params(ProviderPath),
    responses(
        (status = 200, description = "The provider.", body = Provider),
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityRead)?;
    let provider = find(&app, caller.organisation, &name).await?;
    Ok(json(StatusCode::OK, &to_api(&app, provider)))
}

/// Change an identity provider
///
/// Another issuer, tenant or client id ends the logins through the provider.
#[utoipa::path(
    patch, path = "/v1/providers/{id}", tag = "providers", operation_id = "update_provider",
    params(ProviderPath), request_body = UpdateProvider,
    responses(
        (status = 200, description = "The provider.", body = Provider),
    )
)]
pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    input: Input<UpdateProvider>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let provider = find(&app, caller.organisation, &name).await?;
    let provider = app.update_provider(provider, input.value).await?;
    Ok(json(StatusCode::OK, &to_api(&app, provider)))
}

/// Delete an identity provider
///
/// The logins through the provider end.
#[utoipa::path(
    delete, path = "/v1/providers/{id}", tag = "providers", operation_id = "delete_provider",
    params(ProviderPath, ("force" = Option<bool>, Query, description = "Whether to delete the provider although a \
        socket would then have no provider, or the provider's persons are deleted too."),
    ),
    responses(
        (status = 204, description = "The provider is deleted."),
        (status = 409, description = "`provider-in-use`: a socket names the provider, or it is the last one; \
             `provider-has-persons`."),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let provider = find(&app, caller.organisation, &name).await?;
    let force = match uri.query().unwrap_or_default() {
        "" | "force=false" => false,
        "force=true" => true,
        _ => return Err(ApiError::field("force", "it is true or false, and there is no other parameter")),
    };
    app.delete_provider(&provider, force).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Test an identity provider
#[utoipa::path(
    post, path = "/v1/providers/{id}/test", tag = "providers", operation_id = "test_provider",
    params(ProviderPath),
    responses(
        (status = 200, description = "The result of the check.", body = ProviderFound),
    )
)]
pub(crate) async fn test(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let provider = find(&app, caller.organisation, &name).await?;
    app.limits.look(caller.organisation, app.clock.now().monotonic)?;
    Ok(json(StatusCode::OK, &app.test_provider(&provider).await))
}

async fn find(app: &App, organisation: AccountId, name: &str) -> Result<StoredProvider, ApiError> {
    let missing = || ApiError::not_found("provider");
    let name = name.parse().map_err(|_| missing())?;
    app.store.provider(organisation, &name).await?.ok_or_else(missing)
}
