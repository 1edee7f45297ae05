//! `/v1/egress` and `/geofeed.csv`: addresses that edges share by slices of ports.

use axum::{
    extract::{Path, Query, State},
    response::{IntoResponse as _, Response},
};
use http::{StatusCode, Uri, header};
use sallyport_api::{
    CreateEgressAddress, CreateEgressSlice, EgressAddress, EgressSlice, MoveEgressSlice, Page, ReleaseEgressSliceQuery,
};

use super::params::IdempotencyHeader;
use crate::{
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, json},
        once::Made,
    },
    state::App,
};

/// List the addresses that edges share
///
/// Only the account that owns the installation may do so.
#[utoipa::path(
    get, path = "/v1/egress/addresses", tag = "egress", operation_id = "list_egress_addresses",
    responses(
        (status = 200, description = "All items, on one page.", body = Page<EgressAddress>),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn list_addresses(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    Ok(json(StatusCode::OK, &Page { items: app.egress_addresses().await?, next: None }))
}

/// Add an address that edges share
///
/// Only the account that owns the installation may do so. The address has 31 slices of 2,048 ports. Edges dial direct
/// origins from the slices that they have.
#[utoipa::path(
    post, path = "/v1/egress/addresses", tag = "egress", operation_id = "create_egress_address",
    params(IdempotencyHeader), request_body = CreateEgressAddress,
    responses(
        (status = 201, description = "The address.", body = EgressAddress),
        (status = 403, description = "`not-owner`"),
        (status = 409, description = "`egress-taken`: it is there already; or `limit-reached`"),
    )
)]
pub(crate) async fn create_address(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateEgressAddress>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let (value, keyed) = (input.value, input.keyed);
    let make = async {
        app.limits.create(caller.organisation, app.clock.now().monotonic)?;
        let body = app.create_egress_address(value).await?;
        Ok(Made { location: Some(format!("/v1/egress/addresses/{}", body.address)), body })
    };
    app.once(caller.organisation, keyed.as_ref(), None, make).await
}

/// Remove an address that edges share
///
/// Only the account that owns the installation may do so. No edge has a slice of it any more.
#[utoipa::path(
    delete, path = "/v1/egress/addresses/{id}", tag = "egress", operation_id = "delete_egress_address",
    params(("id" = String, Path, description = "The address.")),
    responses(
        (status = 204, description = "The removal is done."),
        (status = 403, description = "`not-owner`"),
        (status = 409, description = "`address-in-use`: edges have slices of it."),
    )
)]
pub(crate) async fn delete_address(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    app.delete_egress_address(&id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// List the slices that edges have
///
/// Only the account that owns the installation may do so. A balancer sends packets to `address` with a destination port
/// from `first_port` to `last_port` to the edge, whatever the state of the slice.
#[utoipa::path(
    get, path = "/v1/egress/slices", tag = "egress", operation_id = "list_egress_slices",
    responses(
        (status = 200, description = "All items, on one page.", body = Page<EgressSlice>),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn list_slices(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    Ok(json(StatusCode::OK, &Page { items: app.egress_slices().await?, next: None }))
}

/// Give an edge a slice
///
/// Only the account that owns the installation may do so. The edge dials direct origins from the slice within seconds.
#[utoipa::path(
    post, path = "/v1/egress/slices", tag = "egress", operation_id = "create_egress_slice",
    params(IdempotencyHeader), request_body = CreateEgressSlice,
    responses(
        (status = 201, description = "The slice.", body = EgressSlice),
        (status = 403, description = "`not-owner`"),
        (status = 409, description = "`slice-taken`: an edge has it; `no-slice-free`; or `slice-changed`"),
    )
)]
pub(crate) async fn create_slice(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateEgressSlice>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let (value, keyed) = (input.value, input.keyed);
    let make = async {
        app.limits.create(caller.organisation, app.clock.now().monotonic)?;
        let body = app.create_egress_slice(value).await?;
        Ok(Made { location: Some(format!("/v1/egress/slices/{}", body.id)), body })
    };
    app.once(caller.organisation, keyed.as_ref(), None, make).await
}

/// Move a slice to another edge
///
/// Only the account that owns the installation may do so. The former edge opens no more connections from the slice at
/// once. Its flows go on, and get their packets, until the last one has ended or the time is over. Then the other edge
/// has the slice. An edge that does not answer keeps the slice until its lease has ended.
#[utoipa::path(
    post, path = "/v1/egress/slices/{id}/move", tag = "egress", operation_id = "move_egress_slice",
    params(("id" = String, Path, description = "The slice's id.")), request_body = MoveEgressSlice,
    responses(
        (status = 200, description = "The slice.", body = EgressSlice),
        (status = 403, description = "`not-owner`"),
        (status = 409, description = "`slice-changed`"),
    )
)]
pub(crate) async fn move_slice(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    input: Input<MoveEgressSlice>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    Ok(json(StatusCode::OK, &app.move_egress_slice(&id, input.value).await?))
}

/// Take a slice from its edge
///
/// Only the account that owns the installation may do so. The edge opens no more connections from the slice at once. The
/// slice is free when the last flow has ended or the time is over.
#[utoipa::path(
    delete, path = "/v1/egress/slices/{id}", tag = "egress", operation_id = "delete_egress_slice",
    params(("id" = String, Path, description = "The slice's id."), ReleaseEgressSliceQuery),
    responses(
        (status = 204, description = "The edge is told."),
        (status = 403, description = "`not-owner`"),
        (status = 409, description = "`slice-changed`"),
    )
)]
pub(crate) async fn delete_slice(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let Query(how) = Query::<ReleaseEgressSliceQuery>::try_from_uri(&uri).map_err(|rejection| {
        let detail = format!("the query is not valid: {}", rejection.body_text());
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query", detail)
    })?;
    app.delete_egress_slice(&id, how).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The geofeed of the egress addresses, for everybody: `/geofeed.csv` (RFC 8805).
pub(crate) async fn geofeed(State(app): State<App>) -> Response {
    let text = sallyport_ports::geofeed(&app.egress.get().addresses);
    ([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], text).into_response()
}
