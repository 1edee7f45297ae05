//! `/v1/domains`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{CreateDomain, Domain, Page, PageQuery};
use sallyport_model::Scope;

use super::params::{DomainPath, IdempotencyHeader};
use crate::{
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, PageOf, json},
        once::Made,
    },
    state::App,
};

/// The organisation's domains, oldest first
#[utoipa::path(
    get, path = "/v1/domains", tag = "domains", operation_id = "list_domains", params(PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<Domain>),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, page: PageOf) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let rows = app.store.domains(caller.organisation, page.after, page.rows()).await?;
    let mut shown = Vec::with_capacity(rows.len());
    for (position, domain) in rows {
        shown.push((position, app.domain_to_api(&domain, None).await?));
    }
    Ok(json(StatusCode::OK, &page.page(shown, |domain| domain)))
}

/// Add a domain to the organisation
///
/// The response has the records to set at the name service of the domain. The domain is verified at once if its record
/// is there already. Otherwise control looks for the record every minute, and at each check.
#[utoipa::path(
    post, path = "/v1/domains", tag = "domains", operation_id = "create_domain",
    params(IdempotencyHeader),
    request_body = CreateDomain,
    responses(
        (status = 201, description = "The domain.", body = Domain),
        (status = 409, description = "`domain-taken`, or `limit-reached`"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateDomain>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let make = async {
        let (domain, lookup) = app.add_domain(caller.organisation, &input.value.name).await?;
        let location = Some(format!("/v1/domains/{}", domain.name));
        Ok(Made { location, body: app.domain_to_api(&domain, Some(&lookup)).await? })
    };
    app.once(caller.organisation, input.keyed.as_ref(), None, make).await
}

/// One domain
#[utoipa::path(
    get, path = "/v1/domains/{name}", tag = "domains", operation_id = "get_domain",
    params(DomainPath),
    responses(
        (status = 200, description = "The domain.", body = Domain),
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let domain = app.find_domain(caller.organisation, &name).await?;
    Ok(json(StatusCode::OK, &app.domain_to_api(&domain, None).await?))
}

/// Look the records of a domain up now
#[utoipa::path(
    post, path = "/v1/domains/{name}/check", tag = "domains", operation_id = "check_domain",
    params(DomainPath),
    responses(
        (status = 200, description = "The domain, with what was found.", body = Domain),
        (status = 409, description = "`domain-taken`"),
    )
)]
pub(crate) async fn check(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let domain = app.find_domain(caller.organisation, &name).await?;
    app.limits.create(caller.organisation, app.clock.now().monotonic)?;
    let (domain, lookup) = app.check_domain(&domain).await?;
    Ok(json(StatusCode::OK, &app.domain_to_api(&domain, Some(&lookup)).await?))
}

/// Remove a domain
///
/// The domain leads nowhere from now on. Another organisation gets the name only with its own record.
#[utoipa::path(
    delete, path = "/v1/domains/{name}", tag = "domains", operation_id = "delete_domain",
    params(DomainPath),
    responses(
        (status = 204, description = "The domain is removed."),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    app.delete_domain(caller.organisation, &name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
