//! `/v1/sockets/{id}/plan`: which edge sends how much to which origin.

use axum::{
    extract::{Path, Query, State},
    response::Response,
};
use http::{StatusCode, Uri};
use sallyport_api::{PreviewPlan, SocketPlan};
use sallyport_model::Scope;
use serde::Deserialize;
use utoipa::IntoParams;

use super::params::SocketPath;
use crate::{
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, json},
    },
    state::App,
};

/// What of a plan is shown.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PlanQuery {
    /// Whether the last hour is shown too.
    #[serde(default)]
    history: bool,
}

/// Show the plan of a socket
///
/// Control plans which edge sends how much to which origin, so that no origin gets more than it can carry. The plan
/// says who gets what, and why.
#[utoipa::path(
    get, path = "/v1/sockets/{id}/plan", tag = "sockets", operation_id = "get_socket_plan",
    params(SocketPath, PlanQuery),
    responses(
        (status = 200, description = "The plan.", body = SocketPlan),
        (status = 404, description = "`no-plan`: no origin of the socket has a limit."),
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let Query(query) =
        Query::<PlanQuery>::try_from_uri(&uri).map_err(|_| ApiError::field("history", "it is true or false"))?;
    let socket = app.find_socket(caller.organisation, &id).await?;
    Ok(json(StatusCode::OK, &app.plan(&socket, query.history).await?))
}

/// Look at the plan of a socket with other numbers
///
/// Nothing changes. The demand at edges and the limits of origins are those of the request, and the measured ones where
/// it names none.
#[utoipa::path(
    post, path = "/v1/sockets/{id}/plan", tag = "sockets", operation_id = "preview_socket_plan",
    params(SocketPath),
    request_body = PreviewPlan,
    responses(
        (status = 200, description = "The plan that there would be.", body = SocketPlan),
        (status = 404, description = "`no-plan`: no origin of the socket has a limit."),
    )
)]
pub(crate) async fn preview(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    input: Input<PreviewPlan>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let socket = app.find_socket(caller.organisation, &id).await?;
    Ok(json(StatusCode::OK, &app.preview_plan(&socket, input.value).await?))
}
