//! `/v1/anycast/dials` and `/v1/anycast/resolve`: which region the name server answers whom.

use axum::{
    extract::{Query, State},
    response::Response,
};
use http::{StatusCode, Uri};
use sallyport_api::{AnycastDials, AnycastResolution, AnycastResolveQuery, SetAnycastDials};

use crate::{
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, json},
    },
    state::App,
};

/// Show the dials of regions for DNS
///
/// Only the account that owns the installation may do so.
#[utoipa::path(
    get, path = "/v1/anycast/dials", tag = "anycast", operation_id = "get_anycast_dials",
    responses(
        (status = 200, description = "The dials, with notes.", body = AnycastDials),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn get(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    Ok(json(StatusCode::OK, &app.anycast_dials().await?))
}

/// Replace the dials of regions for DNS
///
/// Only the account that owns the installation may do so. A region with a dial of 50 keeps half of the clients that the
/// name server would send there; the other half gets the next best region. Dials of 0 for all regions with edges are
/// refused.
#[utoipa::path(
    put, path = "/v1/anycast/dials", tag = "anycast", operation_id = "set_anycast_dials", request_body = SetAnycastDials,
    responses(
        (status = 200, description = "The dials, with notes.", body = AnycastDials),
        (status = 403, description = "`not-owner`"),
        (status = 422, description = "`invalid-request`"),
    )
)]
pub(crate) async fn set(
    State(app): State<App>,
    caller: Caller,
    input: Input<SetAnycastDials>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    Ok(json(StatusCode::OK, &app.set_anycast_dials(input.value).await?))
}

/// Say which region the name server would answer a client
///
/// Only the account that owns the installation may do so. The answer supposes that the resolver names the network of
/// its client.
#[utoipa::path(
    get, path = "/v1/anycast/resolve", tag = "anycast", operation_id = "resolve_anycast", params(AnycastResolveQuery),
    responses(
        (status = 200, description = "The region, and why.", body = AnycastResolution),
        (status = 403, description = "`not-owner`"),
        (status = 422, description = "`invalid-query`, or `invalid-request`"),
    )
)]
pub(crate) async fn resolve(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let Query(query) = Query::<AnycastResolveQuery>::try_from_uri(&uri).map_err(|rejection| {
        let detail = format!("the query is not valid: {}", rejection.body_text());
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query", detail)
    })?;
    Ok(json(StatusCode::OK, &app.resolve_anycast(query).await?))
}
