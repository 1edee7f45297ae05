//! `/v1/anycast`: prefixes that edges announce by BGP, their neighbours, and orders about edges.

use axum::{
    extract::{Path, Query, State},
    response::{IntoResponse as _, Response},
};
use http::{StatusCode, Uri};
use ipnet::IpNet;
use sallyport_anycast::model::{AnycastPrefix as Prefix, Order, Peer};
use sallyport_api::{
    AnycastOrder, AnycastPeer, AnycastPrefix, AnycastPreview, AnycastRouteQuery, AnycastRoutes, AnycastStatus,
    CreateAnycastOrder, CreateAnycastPeer, CreateAnycastPrefix, Page,
};
use sallyport_bus::{Answer, AnycastAnswer, AnycastAsk, Ask};
use sallyport_store::StoredAnycast;

use super::{flows::silent, params::IdempotencyHeader, ways::name_of};
use crate::{
    problem::ApiError,
    request::{
        caller::Caller,
        creation::located,
        extract::{Input, json},
    },
    state::App,
};

/// List the prefixes that edges announce
///
/// Only the account that owns the installation may do so.
#[utoipa::path(
    get, path = "/v1/anycast/prefixes", tag = "anycast", operation_id = "list_anycast_prefixes",
    responses(
        (status = 200, description = "All items, on one page.", body = Page<AnycastPrefix>),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn list_prefixes(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let items = app.store.anycast().await?.prefixes.into_iter().map(|one| app.anycast_prefix_to_api(one)).collect();
    Ok(json(StatusCode::OK, &Page::<AnycastPrefix> { items, next: None }))
}

/// Have edges announce a prefix
///
/// Only the account that owns the installation may do so. The prefix is within one that the operator allows with
/// `--anycast-allow`, at control and at each edge.
#[utoipa::path(
    post, path = "/v1/anycast/prefixes", tag = "anycast", operation_id = "create_anycast_prefix",
    params(IdempotencyHeader), request_body = CreateAnycastPrefix,
    responses(
        (status = 201, description = "The prefix.", body = AnycastPrefix),
        (status = 403, description = "`not-owner`"),
        (status = 409, description = "`limit-reached`"),
        (status = 422, description = "`invalid-request`, or `anycast-taken`: it is there already."),
    )
)]
pub(crate) async fn create_prefix(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateAnycastPrefix>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let made = app.create_anycast_prefix(caller.organisation, input.value, input.keyed.as_ref()).await?;
    let location = format!("/v1/anycast/prefixes/{}", made.id);
    Ok(located(json(StatusCode::CREATED, &made), &location))
}

/// Have edges no longer announce a prefix
#[utoipa::path(
    delete, path = "/v1/anycast/prefixes/{id}", tag = "anycast", operation_id = "delete_anycast_prefix",
    params(("id" = uuid::Uuid, Path, description = "The prefix's id.")),
    responses(
        (status = 204, description = "Edges withdraw the prefix within seconds."),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn delete_prefix(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    app.delete_anycast::<Prefix>(&id, "prefix").await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// List the routers with which edges speak BGP
///
/// Only the account that owns the installation may do so. Passwords are never shown.
#[utoipa::path(
    get, path = "/v1/anycast/peers", tag = "anycast", operation_id = "list_anycast_peers",
    responses(
        (status = 200, description = "All items, on one page.", body = Page<AnycastPeer>),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn list_peers(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let items = app.store.anycast().await?.peers.into_iter().map(|one| app.anycast_peer_to_api(one)).collect();
    Ok(json(StatusCode::OK, &Page::<AnycastPeer> { items, next: None }))
}

/// Have edges speak BGP with a router
///
/// Only the account that owns the installation may do so.
#[utoipa::path(
    post, path = "/v1/anycast/peers", tag = "anycast", operation_id = "create_anycast_peer",
    params(IdempotencyHeader), request_body = CreateAnycastPeer,
    responses(
        (status = 201, description = "The router.", body = AnycastPeer),
        (status = 403, description = "`not-owner`"),
        (status = 409, description = "`limit-reached`"),
        (status = 422, description = "`invalid-request`, or `anycast-taken`: its name or its address is there already."),
    )
)]
pub(crate) async fn create_peer(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateAnycastPeer>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let made = app.create_anycast_peer(caller.organisation, input.value, input.keyed.as_ref()).await?;
    let location = format!("/v1/anycast/peers/{}", made.id);
    Ok(located(json(StatusCode::CREATED, &made), &location))
}

/// End the sessions of edges with a router
#[utoipa::path(
    delete, path = "/v1/anycast/peers/{id}", tag = "anycast", operation_id = "delete_anycast_peer",
    params(("id" = uuid::Uuid, Path, description = "The router's id.")),
    responses(
        (status = 204, description = "Edges end their sessions within seconds."),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn delete_peer(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    app.delete_anycast::<Peer>(&id, "router").await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// List the orders that hold
///
/// Only the account that owns the installation may do so.
#[utoipa::path(
    get, path = "/v1/anycast/orders", tag = "anycast", operation_id = "list_anycast_orders",
    responses(
        (status = 200, description = "All items, on one page.", body = Page<AnycastOrder>),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn list_orders(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    Ok(json(StatusCode::OK, &Page::<AnycastOrder> { items: orders(&app, app.store.anycast().await?), next: None }))
}

fn orders(app: &App, stored: StoredAnycast) -> Vec<AnycastOrder> {
    stored.orders.into_iter().map(|one| app.anycast_order_to_api(one)).collect()
}

/// Have edges drain, or ask routers to prefer others
///
/// Only the account that owns the installation may do so. The order holds until it is removed, past restarts too. It
/// replaces the former one for the same edges. An edge refuses to withdraw where too few would be left.
#[utoipa::path(
    post, path = "/v1/anycast/orders", tag = "anycast", operation_id = "create_anycast_order",
    params(IdempotencyHeader), request_body = CreateAnycastOrder,
    responses(
        (status = 201, description = "The order.", body = AnycastOrder),
        (status = 403, description = "`not-owner`"),
        (status = 409, description = "`limit-reached`"),
    )
)]
pub(crate) async fn create_order(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateAnycastOrder>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let made = app.create_anycast_order(caller.organisation, input.value, input.keyed.as_ref()).await?;
    let location = format!("/v1/anycast/orders/{}", made.id);
    Ok(located(json(StatusCode::CREATED, &made), &location))
}

/// Take an order back
#[utoipa::path(
    delete, path = "/v1/anycast/orders/{id}", tag = "anycast", operation_id = "delete_anycast_order",
    params(("id" = uuid::Uuid, Path, description = "The order's id.")),
    responses(
        (status = 204, description = "The edges announce as their health allows."),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn delete_order(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    app.delete_anycast::<Order>(&id, "order").await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// What is missing before anything is announced.
fn notes(app: &App, stored: &StoredAnycast, edges_with_bird: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if stored.prefixes.is_empty() {
        notes.push("there is no prefix: `sallyport anycast prefix add PREFIX`".to_owned());
    }
    if stored.peers.is_empty() && !stored.prefixes.is_empty() {
        notes.push("there is no router: `sallyport anycast peer add NAME --address ADDR --as NUMBER`".to_owned());
    }
    if edges_with_bird == 0 && !stored.prefixes.is_empty() {
        let program = if app.edges.get().is_some() { "edge" } else { "up" };
        notes.push(format!("no edge speaks with BIRD: start `sallyport {program}` with --bird SOCKET"));
    }
    notes
}

/// Show how prefixes stand at edges
///
/// Only the account that owns the installation may do so. Control asks all edges.
#[utoipa::path(
    get, path = "/v1/anycast/status", tag = "anycast", operation_id = "get_anycast_status",
    responses(
        (status = 200, description = "The prefixes and routers of each edge.", body = AnycastStatus),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn status(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let stored = app.store.anycast().await?;
    let gathered = app.config.asker.ask_all(&Ask::Anycast(AnycastAsk::Status)).await;
    let mut edges = Vec::new();
    for answered in gathered.answered {
        let (edge, card) = (name_of(&answered), answered.edge);
        let Answer::Anycast(AnycastAnswer::Status(mut status)) = answered.answer else { continue };
        status.edge = edge;
        status.region = card.map(|card| card.region.to_string()).or(status.region);
        edges.push(*status);
    }
    edges.sort_by(|one, other| one.edge.cmp(&other.edge));
    let notes = notes(&app, &stored, edges.len());
    let status = AnycastStatus { edges, notes, silent: silent(&gathered.silent), orders: orders(&app, stored) };
    Ok(json(StatusCode::OK, &status))
}

/// Show what edges would change at their BIRD
///
/// Only the account that owns the installation may do so. The response has no passwords.
#[utoipa::path(
    get, path = "/v1/anycast/preview", tag = "anycast", operation_id = "preview_anycast",
    responses(
        (status = 200, description = "The changes of each edge.", body = AnycastPreview),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn preview(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let gathered = app.config.asker.ask_all(&Ask::Anycast(AnycastAsk::Preview)).await;
    let mut edges = Vec::new();
    for answered in gathered.answered {
        let edge = name_of(&answered);
        let Answer::Anycast(AnycastAnswer::Preview(mut preview)) = answered.answer else { continue };
        preview.edge = edge;
        edges.push(*preview);
    }
    edges.sort_by(|one, other| one.edge.cmp(&other.edge));
    Ok(json(StatusCode::OK, &AnycastPreview { edges, silent: silent(&gathered.silent) }))
}

/// Show by which routes others see the prefixes
///
/// Only the account that owns the installation may do so. Routers send edges the routes that others have announced to
/// them. A route that no router sends is not there: its absence proves nothing.
#[utoipa::path(
    get, path = "/v1/anycast/explain", tag = "anycast", operation_id = "explain_anycast", params(AnycastRouteQuery),
    responses(
        (status = 200, description = "The routes that edges were sent.", body = AnycastRoutes),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn explain(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let Query(query) = Query::<AnycastRouteQuery>::try_from_uri(&uri).map_err(|rejection| {
        let detail = format!("the query is not valid: {}", rejection.body_text());
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query", detail)
    })?;
    let wanted: Option<IpNet> = query
        .prefix
        .map(|text| text.parse().map_err(|_| ApiError::field("prefix", "it is no prefix such as 198.51.100.0/24")))
        .transpose()?;
    let stored = app.store.anycast().await?;
    if let Some(wanted) = wanted
        && !stored.prefixes.iter().any(|one| one.item.net == wanted)
    {
        let detail = format!("{wanted} is no prefix of this installation: `sallyport anycast prefix ls` lists them");
        return Err(ApiError::field("prefix", detail));
    }
    let gathered = app.config.asker.ask_all(&Ask::Anycast(AnycastAsk::Routes)).await;
    let (mut routes, mut cut) = (Vec::new(), Vec::new());
    for answered in gathered.answered {
        let (edge, card) = (name_of(&answered), answered.edge);
        let Answer::Anycast(AnycastAnswer::Routes(list)) = answered.answer else { continue };
        let region = card.map(|card| card.region.to_string());
        for mut route in list.routes {
            if wanted.is_some_and(|wanted| route.prefix.parse() != Ok(wanted)) {
                continue;
            }
            route.edge.clone_from(&edge);
            route.region = region.clone().or(route.region);
            routes.push(route);
        }
        if list.has_more {
            cut.push(edge);
        }
    }
    routes.sort_by(|one, other| (&one.prefix, &one.edge, &one.peer).cmp(&(&other.prefix, &other.edge, &other.peer)));
    let (sites, sessions) = app.anycast_sites(&stored).await?;
    let answer = AnycastRoutes { routes, sites, sessions, cut, silent: silent(&gathered.silent) };
    Ok(json(StatusCode::OK, &answer))
}
