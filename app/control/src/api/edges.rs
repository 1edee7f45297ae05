//! `/v1/edges`, `/v1/edge-tokens` and `/v1/installation`: the edges of this installation.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use axum::{
    extract::{Path, State},
    response::{IntoResponse as _, Response},
};
use http::StatusCode;
use sallyport_api::{
    CreateEdgeToken, CreatedEdgeToken, DrainEdge, Edge, EdgeState, EdgeToken, EdgeTokenState, HandOver,
    JOIN_SECRET_PREFIX, JoinToken, Page,
};
use sallyport_bus::{Answer, Ask, EdgeFigures, EdgeState as Serving};
use sallyport_model::{DrainOrder, EdgeId, EdgeOrders};
use sallyport_store::{NewEdgeToken, StoredEdge, StoredEdgeToken};

use super::params::{EdgePath, IdempotencyHeader};
use crate::{
    audit,
    clock::date,
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, OptionalInput, json},
        once::{Made, ShownSecret},
    },
    security::random,
    state::App,
};

/// The lifetime of a join token in minutes, unless the request gives another one.
const DEFAULT_TOKEN_MINUTES: u32 = 60;
/// The longest lifetime of a join token, in minutes.
const MAX_TOKEN_MINUTES: u32 = 7 * 24 * 60;

/// The time that running flows have when an edge drains, in seconds, unless the request gives another one.
const DEFAULT_DRAIN_SECONDS: u32 = 300;
/// The longest such time, in seconds.
const MAX_DRAIN_SECONDS: u32 = 86_400;

fn no_edge() -> ApiError {
    ApiError::not_found("edge")
}

fn edge_id(text: &str) -> Result<EdgeId, ApiError> {
    text.parse().map_err(|_| no_edge())
}

/// Stores an order to an edge, and publishes it.
async fn order(app: &App, id: EdgeId, drain: Option<DrainOrder>) -> Result<StoredEdge, ApiError> {
    let _turn = app.publishing.lock().await;
    let edge = app.store.drain_edge(id, drain.map(|drain| drain.until)).await?.ok_or_else(no_edge)?;
    audit::set_target(&edge.name);
    app.orders.put(EdgeOrders { edge: id, drain, server: edge.server });
    Ok(edge)
}

fn to_api(app: &App, edge: StoredEdge, figures: Option<(EdgeFigures, Duration)>) -> Edge {
    let seen = app.fleet.edge(edge.id);
    let (figures, took) = figures.unzip();
    let figures = figures.as_ref();
    let heard = app.fleet.last_seen(edge.id).map(|at| Instant::now().saturating_duration_since(at).as_secs());
    let state = match &seen {
        _ if app.fleet.stale_since().is_some() => EdgeState::Unknown,
        Some(seen) if seen.card.state == Serving::Draining => EdgeState::Draining,
        Some(_) => EdgeState::Up,
        None => EdgeState::Down,
    };
    let card = seen.as_ref().map(|seen| &seen.card);
    Edge {
        id: edge.id,
        name: edge.name,
        region: card.map_or(edge.region, |card| card.region.clone()),
        state,
        addresses: card.map(|card| card.addresses.clone()).unwrap_or_default(),
        http3_port: card.and_then(|card| card.http3_port),
        version: card.map(|card| card.program.clone()),
        tunnels: seen.as_ref().map_or(0, |seen| seen.tunnels),
        sockets: figures.map(|figures| figures.sockets),
        flows: figures.map(|figures| figures.flows),
        connections: figures.map(|figures| figures.connections),
        memory_bytes: figures.and_then(|figures| figures.memory_bytes),
        cpu_ms: figures.and_then(|figures| figures.cpu_ms),
        round_trip_ms: took.map(|took| took.as_secs_f64() * 1_000.0),
        heard_at: heard.map(|ago| date(app.clock.now().unix_seconds - i64::try_from(ago).unwrap_or(i64::MAX))),
        since: card.map(|card| date(card.since)),
        drain_until: edge.drain_until.map(date),
        created_at: date(edge.created_at),
    }
}

/// List the edges of this installation, by name
///
/// Only the account that owns the installation may do so. An installation on one machine has no edges. Control asks
/// every edge for its figures. The figures of an edge that does not respond within a second are absent.
#[utoipa::path(
    get, path = "/v1/edges", tag = "edges", operation_id = "list_edges",
    responses(
        (status = 200, description = "All items, on one page.", body = Page<Edge>),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let edges = app.store.edges().await?;
    let mut figures_of = HashMap::new();
    for answered in app.config.asker.ask_all(&Ask::Figures).await.answered {
        if let (Some(card), Answer::Figures(figures)) = (answered.edge, answered.answer) {
            figures_of.insert(card.edge, (figures, answered.took));
        }
    }
    let items = edges.into_iter().map(|edge| {
        let figures = figures_of.remove(&edge.id);
        to_api(&app, edge, figures)
    });
    let items = items.collect();
    Ok(json(StatusCode::OK, &Page::<Edge> { items, next: None }))
}

/// Remove an edge
///
/// Control neither renews the edge's certificates nor takes anything from the edge. Other edges send the edge no
/// clients. A program that runs on hands its connectors to other edges; stop the program too.
#[utoipa::path(
    delete, path = "/v1/edges/{id}", tag = "edges", operation_id = "delete_edge",
    params(EdgePath),
    responses(
        (status = 204, description = "The removal is done."),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let id = edge_id(&id)?;
    let _turn = app.publishing.lock().await;
    if !app.store.delete_edge(id).await? {
        return Err(no_edge());
    }
    app.orders.remove(id);
    tracing::info!(edge = %id, "an edge was removed");
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Drain an edge
///
/// The edge hands its connectors to other edges and reports on `/readyz` that it is not ready, so that clients use
/// other edges. The edge refuses no client meanwhile. Flows that still run at the end of the time are cut. The edge
/// stays drained, past restarts too, until `resume`.
#[utoipa::path(
    post, path = "/v1/edges/{id}/drain", tag = "edges", operation_id = "drain_edge", request_body = DrainEdge,
    params(EdgePath),
    responses(
        (status = 200, description = "The edge.", body = Edge),
        (status = 403, description = "`not-owner`"),
        (status = 409, description = "`edge-away`, `last-edge` or `edges-unknown`, unless `force` is set."),
    )
)]
pub(crate) async fn drain(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    input: OptionalInput<DrainEdge>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let id = edge_id(&id)?;
    let edge = app.store.edge(id).await?.ok_or_else(no_edge)?;
    audit::set_target(&edge.name);
    let DrainEdge { within_seconds, force } = input.value;
    let within = within_seconds.unwrap_or(DEFAULT_DRAIN_SECONDS);
    if within > MAX_DRAIN_SECONDS {
        return Err(ApiError::field(
            "within_seconds",
            format!("what runs may go on for {MAX_DRAIN_SECONDS} seconds at most"),
        ));
    }
    if !force {
        check_drainable(&app, &edge)?;
    }
    let until = app.clock.now().unix_seconds + i64::from(within);
    let edge = order(&app, id, Some(DrainOrder { until })).await?;
    tracing::info!(edge = %edge.name, within, "an edge drains");
    Ok(json(StatusCode::OK, &to_api(&app, edge, None)))
}

/// Refuses a drain if no other edge can take over.
fn check_drainable(app: &App, edge: &StoredEdge) -> Result<(), ApiError> {
    let conflict = |code, detail: String| Err(ApiError::new(StatusCode::CONFLICT, code, detail));
    let StoredEdge { id, name, .. } = edge;
    if app.fleet.stale_since().is_some() {
        let detail = "the bus is away, and which edges serve is not known: try again when it is back, or use force";
        return conflict("edges-unknown", detail.to_owned());
    }
    let edges = app.fleet.edges();
    if !edges.iter().any(|seen| seen.card.edge == *id) {
        let detail = format!("{name} is not there now: with force, it drains as soon as it is back");
        return conflict("edge-away", detail);
    }
    if !edges.iter().any(|seen| seen.card.edge != *id && seen.card.state == Serving::Serving) {
        let detail = format!(
            "{name} is the last edge that serves: without it no client is served. Let another edge serve first, or use \
             force"
        );
        return conflict("last-edge", detail);
    }
    Ok(())
}

/// Let an edge serve again
#[utoipa::path(
    post, path = "/v1/edges/{id}/resume", tag = "edges", operation_id = "resume_edge",
    params(EdgePath),
    responses(
        (status = 200, description = "The edge.", body = Edge),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn resume(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let edge = order(&app, edge_id(&id)?, None).await?;
    tracing::info!(edge = %edge.name, "an edge serves again");
    Ok(json(StatusCode::OK, &to_api(&app, edge, None)))
}

/// Make a token with which one edge may join
///
/// Only the account that owns the installation may do so. The response has the token, which the API never shows again.
#[utoipa::path(
    post, path = "/v1/edge-tokens", tag = "edges", operation_id = "create_edge_token",
    params(IdempotencyHeader), request_body = CreateEdgeToken,
    responses(
        (status = 201, description = "The token.", body = CreatedEdgeToken),
        (status = 403, description = "`not-owner`"),
        (status = 409, description = "`one-machine` or `secret-already-shown`"),
    )
)]
pub(crate) async fn create_token(
    State(app): State<App>,
    caller: Caller,
    input: OptionalInput<CreateEdgeToken>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let keyed = input.keyed;
    let make = async {
        let config = app.edges_config()?;
        app.limits.create(caller.who.id, app.clock.now().monotonic)?;
        let CreateEdgeToken { name, region, minutes } = input.value;
        let minutes = minutes.unwrap_or(DEFAULT_TOKEN_MINUTES);
        if !(1..=MAX_TOKEN_MINUTES).contains(&minutes) {
            return Err(ApiError::field(
                "minutes",
                format!("a join token is good for 1 to {MAX_TOKEN_MINUTES} minutes"),
            ));
        }
        let (secret, hash) = random::secret(JOIN_SECRET_PREFIX)?;
        let created_at = app.clock.now().unix_seconds;
        let expires_at = created_at + i64::from(minutes) * 60;
        let new = NewEdgeToken { hash, name: name.clone(), region: region.clone(), created_at, expires_at };
        app.store.create_edge_token(&new).await?;
        if let Some(name) = &name {
            audit::set_target(name);
        }
        let (controls, fingerprint) = (app.control_addresses(config), config.fingerprint.clone());
        let token = JoinToken { secret, controls, fingerprint }.to_secret();
        let created = CreatedEdgeToken { token, name, region, expires_at: date(expires_at) };
        Ok(Made { location: None, body: created })
    };
    let secret = ShownSecret { what: "token", way_out: "make another one with another key" };
    app.once(caller.who.id, keyed.as_ref(), Some(secret), make).await
}

/// List the tokens with which edges may join, or have joined
///
/// Only the account that owns the installation may do so. The newest come first, without their secrets. Control
/// remembers used and ended tokens for 30 days.
#[utoipa::path(
    get, path = "/v1/edge-tokens", tag = "edges", operation_id = "list_edge_tokens",
    responses(
        (status = 200, description = "All items, on one page.", body = Page<EdgeToken>),
        (status = 403, description = "`not-owner`"),
    )
)]
pub(crate) async fn list_tokens(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let now = app.clock.now().unix_seconds;
    let token_to_api = |token: StoredEdgeToken| EdgeToken {
        id: token.id.iter().map(|byte| format!("{byte:02x}")).collect(),
        state: match &token.used_by {
            Some(_) => EdgeTokenState::Used,
            None if token.expires_at <= now => EdgeTokenState::Ended,
            None => EdgeTokenState::Waiting,
        },
        name: token.name,
        region: token.region,
        used_by_id: token.used_by.as_ref().and_then(|user| user.id),
        used_by_removed: token.used_by.as_ref().map(|user| user.is_removed),
        used_by: token.used_by.map(|user| user.name),
        created_at: date(token.created_at),
        expires_at: date(token.expires_at),
    };
    let items = app.store.edge_tokens().await?.into_iter().map(token_to_api).collect();
    Ok(json(StatusCode::OK, &Page::<EdgeToken> { items, next: None }))
}

/// Remove a join token
///
/// An edge that joined with the token stays; `DELETE /v1/edges/{id}` removes the edge.
#[utoipa::path(
    delete, path = "/v1/edge-tokens/{id}", tag = "edges", operation_id = "delete_edge_token",
    params(("id" = String, Path, description = "The token's id.")),
    responses(
        (status = 204, description = "The removal is done."),
    )
)]
pub(crate) async fn delete_token(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let missing = || ApiError::not_found("join token");
    let number = Some(&id).filter(|id| id.len() == 16).and_then(|id| u64::from_str_radix(id, 16).ok());
    if !app.store.delete_edge_token(number.ok_or_else(missing)?.to_be_bytes()).await? {
        return Err(missing());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Make another account the owner of the installation
///
/// Only the present owner may do so, and owns the installation no longer.
#[utoipa::path(
    put, path = "/v1/installation/owner", tag = "edges", operation_id = "hand_installation_over",
    request_body = HandOver,
    responses(
        (status = 204, description = "The other account owns the installation."),
        (status = 403, description = "`not-owner`"),
        (status = 404, description = "There is no such account."),
    )
)]
pub(crate) async fn hand_over(
    State(app): State<App>,
    caller: Caller,
    input: Input<HandOver>,
) -> Result<Response, ApiError> {
    caller.require_installation_owner(&app).await?;
    let missing = || ApiError::not_found("account");
    let (next, _) = app.store.account_for_login(&input.value.email).await?.ok_or_else(missing)?;
    audit::set_target(next.email.as_str());
    if !app.store.hand_over(next.id).await? {
        return Err(missing());
    }
    audit::add_organisation(next.id);
    app.publish_anycast().await?;
    tracing::info!(account = %next.id, "the installation has another owner");
    Ok(StatusCode::NO_CONTENT.into_response())
}
