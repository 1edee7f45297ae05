//! `/v1/balancers`: virtual addresses that the edges of a site share.

use axum::{
    extract::{Path, State},
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, StatusCode};
use sallyport_api::{Balancer, Page, SetBalancer};

use super::params::BalancerPath;
use crate::{
    problem::ApiError,
    request::{
        caller::Caller,
        etag::EntityTag,
        extract::{Input, json},
    },
    state::App,
};

/// List the balancers of sites
///
/// Only the account that owns the installation may do so.
#[utoipa::path(
    get, path = "/v1/balancers", tag = "balancers", operation_id = "list_balancers",
    responses(
        (status = 200, description = "All items, on one page.", body = Page<Balancer>),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    Ok(json(StatusCode::OK, &Page::<Balancer> { items: app.list_balancers().await?, next: None }))
}

/// Show the balancer of a site, its services and its edges
///
/// Only the account that owns the installation may do so. A machine that balances asks for it again and again: a request
/// with the last `ETag` in `If-None-Match` gets 304 while nothing has changed.
#[utoipa::path(
    get, path = "/v1/balancers/{site}", tag = "balancers", operation_id = "get_balancer", params(BalancerPath),
    responses(
        (status = 200, description = "The balancer, with its `ETag`.", body = Balancer),
        (status = 304, description = "It is as in the response with this `ETag`."),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(site): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let balancer = app.balancer(&site).await?;
    let tag = EntityTag::of(&app, &balancer)?;
    if tag.is_known_to(&headers) {
        return Ok(tag.on(StatusCode::NOT_MODIFIED.into_response()));
    }
    Ok(tag.on(json(StatusCode::OK, &balancer)))
}

/// Set the balancer of a site
///
/// Only the account that owns the installation may do so. A site is a region, in which an edge has joined. Two sites
/// share a virtual address only where an anycast prefix has the address.
#[utoipa::path(
    put, path = "/v1/balancers/{site}", tag = "balancers", operation_id = "set_balancer", params(BalancerPath),
    request_body = SetBalancer,
    responses(
        (status = 200, description = "The balancer, with notes.", body = Balancer),
        (status = 403, description = "`not-owner`"),
        (status = 409, description = "`one-machine`, or `limit-reached`"),
        (status = 422, description = "`invalid-request`, or `virtual-address-taken`: another site has the address."),
    )
)]
pub(crate) async fn set(
    State(app): State<App>,
    caller: Caller,
    Path(site): Path<String>,
    input: Input<SetBalancer>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    Ok(json(StatusCode::OK, &app.set_balancer(&site, input.value).await?))
}

/// Remove the balancer of a site
///
/// Edges take no more encapsulated packets. Machines that balance keep what they knew last; stop them too.
#[utoipa::path(
    delete, path = "/v1/balancers/{site}", tag = "balancers", operation_id = "delete_balancer", params(BalancerPath),
    responses(
        (status = 204, description = "The removal is done."),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(site): Path<String>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    app.delete_balancer(&site).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
