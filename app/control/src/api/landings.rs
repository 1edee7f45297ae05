//! `/v1/catchment`: where clients land.

use axum::{
    extract::{Query, State},
    response::Response,
};
use http::{StatusCode, Uri};
use sallyport_api::{
    CatchmentSuggestion, ImportCatchment, ImportedCatchment, LandingPage, LandingQuery, Measurement, MeasurementPage,
    StartMeasurement,
};

use crate::{
    audit,
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, json},
    },
    state::App,
};

/// List where clients land
///
/// Only the account that owns the installation may do so. Each item has the networks of a group that land at one site.
/// Those that lose the most come first.
#[utoipa::path(
    get, path = "/v1/catchment", tag = "catchment", operation_id = "list_catchment", params(LandingQuery),
    responses(
        (status = 200, description = "Where networks land.", body = LandingPage),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let Query(query) = Query::<LandingQuery>::try_from_uri(&uri).map_err(|rejection| {
        let detail = format!("the query is not valid: {}", rejection.body_text());
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query", detail)
    })?;
    Ok(json(StatusCode::OK, &app.catchment(query.by.unwrap_or_default(), query.limit).await?))
}

/// Suggest one change of where clients land
///
/// Only the account that owns the installation may do so. The change with the greatest predicted gain is suggested.
/// Nothing is changed.
#[utoipa::path(
    get, path = "/v1/catchment/suggestion", tag = "catchment", operation_id = "suggest_catchment_change",
    responses(
        (status = 200, description = "The change, if one gains.", body = CatchmentSuggestion),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn suggest(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    Ok(json(StatusCode::OK, &app.suggest_change().await?))
}

/// Measure by pings where networks land
///
/// Only the account that owns the installation may do so. One edge pings an address of each network from the anycast
/// address. All edges count the replies that come to them, and measure their own round trips. One measurement runs at a
/// time.
#[utoipa::path(
    post, path = "/v1/catchment/measurements", tag = "catchment", operation_id = "start_measurement",
    request_body = StartMeasurement,
    responses(
        (status = 202, description = "The measurement has started.", body = Measurement),
        (status = 403, description = "`not-owner`"),
        (status = 409, description = "`measurement-runs`, `no-targets`"),
    )
)]
pub(crate) async fn measure(
    State(app): State<App>,
    caller: Caller,
    input: Input<StartMeasurement>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    audit::set_target(&input.value.address);
    Ok(json(StatusCode::ACCEPTED, &app.start_measurement(&input.value).await?))
}

/// List the last measurements
///
/// Only the account that owns the installation may do so. A measurement that runs is shown as far as it is.
#[utoipa::path(
    get, path = "/v1/catchment/measurements", tag = "catchment", operation_id = "list_measurements",
    responses(
        (status = 200, description = "The last measurements, the newest first.", body = MeasurementPage),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn measurements(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    Ok(json(StatusCode::OK, &app.measurements().await?))
}

/// Add what others have measured
///
/// Only the account that owns the installation may do so. Rows come from answers of the name server and from RIPE
/// Atlas. Addresses to ping and networks that want no pings are kept for all later measurements.
#[utoipa::path(
    post, path = "/v1/catchment/imports", tag = "catchment", operation_id = "import_catchment",
    request_body = ImportCatchment,
    responses(
        (status = 200, description = "What was added.", body = ImportedCatchment),
        (status = 403, description = "`not-owner`"),
        (status = 409, description = "`limit-reached`"),
    )
)]
pub(crate) async fn import(
    State(app): State<App>,
    caller: Caller,
    input: Input<ImportCatchment>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let ImportCatchment { rows, targets, opt_outs, .. } = &input.value;
    let counts = [(rows.len(), "rows"), (targets.len(), "targets"), (opt_outs.len(), "opt-outs")];
    let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    audit::set_target(counts.collect::<Vec<_>>().join(", "));
    Ok(json(StatusCode::OK, &app.import_catchment(&input.value).await?))
}
