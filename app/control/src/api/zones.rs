//! `/v1/zones`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, Uri};
use sallyport_api::{CreateZone, CreateZoneRecord, Page, PageQuery, Zone, ZoneRecord};
use sallyport_model::Scope;
use sallyport_store::StoredZone;

use super::params::{IdempotencyHeader, ZonePath, ZoneRecordPath};
use crate::{
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, PageOf, json},
        once::Made,
    },
    state::App,
};

/// Whether the caller may see and change the zone of the installation.
async fn is_owner(app: &App, caller: &Caller) -> bool {
    caller.require_installation_owner(app).await.is_ok()
}

async fn find(app: &App, caller: &Caller, name: &str) -> Result<StoredZone, ApiError> {
    app.find_zone(caller.organisation, is_owner(app, caller).await, name).await
}

/// The zones of the organisation, and for the owner of the installation the installation's, by name
#[utoipa::path(
    get, path = "/v1/zones", tag = "zones", operation_id = "list_zones", params(PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<Zone>),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, page: PageOf) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let owner = is_owner(&app, &caller).await;
    let visible = app.store.zones().await?.into_iter();
    let visible = visible.filter(|zone| zone.organisation.map_or(owner, |of| of == caller.organisation));
    let rows = (1..).zip(visible).filter(|(position, _)| *position > page.after);
    let mut shown = Vec::new();
    for (position, zone) in rows.take(usize::try_from(page.rows()).unwrap_or(usize::MAX)) {
        shown.push((position, app.zone_to_api(&zone).await?));
    }
    Ok(json(StatusCode::OK, &page.page(shown, |zone| zone)))
}

/// Make a zone, which the name server answers for
///
/// Its name is a verified domain of the organisation. The response has the name servers and the DS records to set at the
/// parent.
#[utoipa::path(
    post, path = "/v1/zones", tag = "zones", operation_id = "create_zone",
    params(IdempotencyHeader),
    request_body = CreateZone,
    responses(
        (status = 201, description = "The zone.", body = Zone),
        (status = 409, description = "`zone-taken`, `domain-not-verified`, `no-name-server` or `limit-reached`"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateZone>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let owner = is_owner(&app, &caller).await;
    let make = async {
        let zone = app.create_zone(caller.organisation, owner, &input.value).await?;
        let location = Some(format!("/v1/zones/{}", zone.apex));
        Ok(Made { location, body: app.zone_to_api(&zone).await? })
    };
    app.once(caller.organisation, input.keyed.as_ref(), None, make).await
}

/// One zone
#[utoipa::path(
    get, path = "/v1/zones/{name}", tag = "zones", operation_id = "get_zone",
    params(ZonePath),
    responses(
        (status = 200, description = "The zone.", body = Zone),
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let zone = find(&app, &caller, &name).await?;
    Ok(json(StatusCode::OK, &app.zone_to_api(&zone).await?))
}

/// Remove a zone
#[utoipa::path(
    delete, path = "/v1/zones/{name}", tag = "zones", operation_id = "delete_zone",
    params(ZonePath),
    responses(
        (status = 204, description = "The name server no longer answers for the zone."),
        (status = 409, description = "`own-zone`"),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let zone = match find(&app, &caller, &name).await {
        Err(error) if error.status() == StatusCode::NOT_FOUND => {
            app.find_zone_below_own(caller.organisation, &name).await?
        }
        found => found?,
    };
    app.delete_zone(&zone).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Replace the key that signs a zone
///
/// The first call adds a key. When the DS records of the zone have changed and the parent has the new one, a second call
/// ends the former key. With `key=zsk`, one call replaces the key of the records of a zone with split keys.
#[utoipa::path(
    post, path = "/v1/zones/{name}/rollover", tag = "zones", operation_id = "roll_zone_key",
    params(ZonePath, ("key" = Option<String>, Query, description = "`zsk`: the key of the records alone")),
    responses(
        (status = 200, description = "The zone.", body = Zone),
        (status = 409, description = "`not-signed`, `rollover-too-early` or `rollover-runs`"),
    )
)]
pub(crate) async fn rollover(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let of_records = match uri.query().unwrap_or_default() {
        "" => false,
        "key=zsk" => true,
        _ => return Err(ApiError::field("key", "it is zsk or absent, and there is no other parameter")),
    };
    let zone = find(&app, &caller, &name).await?;
    app.roll_zone_key(&zone, of_records).await?;
    Ok(json(StatusCode::OK, &app.zone_to_api(&zone).await?))
}

/// The records of a zone
#[utoipa::path(
    get, path = "/v1/zones/{name}/records", tag = "zones", operation_id = "list_zone_records",
    params(ZonePath, PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<ZoneRecord>),
    )
)]
pub(crate) async fn list_records(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    page: PageOf,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsRead)?;
    let zone = find(&app, &caller, &name).await?;
    let rows = (1..).zip(app.zone_records(&zone).await?).filter(|(position, _)| *position > page.after);
    let rows = rows.take(usize::try_from(page.rows()).unwrap_or(usize::MAX)).collect();
    Ok(json(StatusCode::OK, &page.page(rows, |record| record)))
}

/// Add a record to a zone
#[utoipa::path(
    post, path = "/v1/zones/{name}/records", tag = "zones", operation_id = "create_zone_record",
    params(ZonePath, IdempotencyHeader), request_body = CreateZoneRecord,
    responses(
        (status = 201, description = "The record. The name server of `up` answers with it already.", body = ZoneRecord),
        (status = 409, description = "`limit-reached`"),
    )
)]
pub(crate) async fn create_record(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    input: Input<CreateZoneRecord>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let zone = find(&app, &caller, &name).await?;
    let make = async {
        let record = app.add_zone_record(&zone, input.value).await?;
        Ok(Made { location: None, body: record })
    };
    app.once(caller.organisation, input.keyed.as_ref(), None, make).await
}

/// Remove a record of a zone
#[utoipa::path(
    delete, path = "/v1/zones/{name}/records/{id}", tag = "zones", operation_id = "delete_zone_record",
    params(ZoneRecordPath),
    responses(
        (status = 204, description = "The record is removed."),
    )
)]
pub(crate) async fn delete_record(
    State(app): State<App>,
    caller: Caller,
    Path((name, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    caller.require(Scope::SocketsWrite)?;
    let zone = find(&app, &caller, &name).await?;
    app.delete_zone_record(&zone, &id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
