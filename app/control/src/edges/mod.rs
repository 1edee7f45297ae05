//! Edges of this installation: `/v1/edges` and `/v1/edge-tokens`, how they join, and what they are told.

mod join;
mod source;

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
};

use axum::{
    extract::{FromRequestParts, Path, State},
    response::{IntoResponse as _, Response},
};
use http::{StatusCode, request::Parts};
use sallyport_api::{
    CreateEdgeToken, CreatedEdgeToken, Edge, EdgeCertificates, EdgeState, EdgeWorld, JOIN_SECRET_PREFIX, JoinToken,
    Page, Problem,
};
use sallyport_model::{EdgeId, EdgeName, ScopeSet};
use sallyport_store::{NewEdgeToken, StoredEdge};

use crate::{
    App, audit_trail,
    auth::Caller,
    clock::date,
    extract::{Input, json},
    problem::ApiError,
    random,
};

pub use join::NodePeer;
pub use source::ConfigPublishing;

/// How long a join token is good for when nobody says otherwise, in minutes.
const DEFAULT_TOKEN_MINUTES: u32 = 60;
/// How long it may be good for at most, in minutes.
const MAX_TOKEN_MINUTES: u32 = 7 * 24 * 60;

/// Signs certificates for edges.
pub trait EdgeIssuer: Send + Sync {
    /// Certificates for the key of this request (PKCS #10 in PEM): the edge's among machines, and the domain's for clients.
    ///
    /// # Errors
    /// The request is of no use, in a sentence; or no certificate can be signed.
    fn issue(&self, request: &str, id: EdgeId, name: &EdgeName) -> Result<EdgeCertificates, IssueFailure>;
}

/// Why an edge got no certificates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssueFailure {
    /// What it sent is of no use.
    #[error("{0}")]
    Request(String),
    /// It could not be signed.
    #[error("{0}")]
    Sign(String),
}

/// What control needs to take edges.
pub struct EdgesConfig {
    /// Signs their certificates.
    pub issuer: Arc<dyn EdgeIssuer>,
    /// What they are told.
    pub world: EdgeWorld,
    /// The fingerprint of the root of the installation's machines.
    pub fingerprint: String,
}

impl std::fmt::Debug for EdgesConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EdgesConfig(..)")
    }
}

/// What control has of edges, once it takes any.
pub(crate) type Edges = OnceLock<EdgesConfig>;

fn config(app: &App) -> Result<&EdgesConfig, ApiError> {
    app.edges.get().ok_or_else(|| {
        let detail = "this installation is one machine: edges join one that runs as `sallyport control`";
        ApiError::new(StatusCode::CONFLICT, "one-machine", detail)
    })
}

/// Refuses all but the owner of the installation, with everything that it may do.
async fn require_owner(app: &App, caller: &Caller) -> Result<(), ApiError> {
    caller.require_own()?;
    if app.store.first_account().await? != Some(caller.who.id) {
        let detail = "edges are for the account that owns this installation: the first that was made";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "not-owner", detail));
    }
    if !caller.scopes.covers(&ScopeSet::all()) {
        let detail = "this token may not do that: log in, or use a token with all scopes";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "missing-scope", detail));
    }
    Ok(())
}

fn shown(app: &App, edge: StoredEdge) -> Edge {
    let seen = app.fleet.edge(edge.id);
    let state = match &seen {
        _ if app.fleet.stale_since().is_some() => EdgeState::Unknown,
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
        version: card.map(|card| card.program.clone()),
        tunnels: seen.as_ref().map_or(0, |seen| seen.tunnels),
        since: card.map(|card| date(card.since)),
        created_at: date(edge.created_at),
    }
}

/// The edges of this installation, by name
///
/// For the account that owns it. On one machine there are none.
#[utoipa::path(
    get, path = "/v1/edges", tag = "edges", operation_id = "list_edges",
    responses(
        (status = 200, description = "All of them.", body = Page<Edge>),
        (status = 403, description = "`not-owner`", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    require_owner(&app, &caller).await?;
    let edges = app.store.edges().await?;
    let items = edges.into_iter().map(|edge| shown(&app, edge)).collect();
    Ok(json(StatusCode::OK, &Page::<Edge> { items, next: None }))
}

/// Remove an edge
///
/// Its certificates are not renewed any more, and control takes nothing from it. Stop the program on its machine too.
#[utoipa::path(
    delete, path = "/v1/edges/{id}", tag = "edges", operation_id = "delete_edge",
    params(("id" = uuid::Uuid, Path, description = "The edge's id.")),
    responses(
        (status = 204, description = "It is gone."),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    require_owner(&app, &caller).await?;
    let id: EdgeId = id.parse().map_err(|_| ApiError::not_found("edge"))?;
    if !app.store.delete_edge(id).await? {
        return Err(ApiError::not_found("edge"));
    }
    tracing::info!(edge = %id, "an edge was removed");
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Make a token with which one edge may join
///
/// For the account that owns the installation. The token is in the answer and never shown again.
#[utoipa::path(
    post, path = "/v1/edge-tokens", tag = "edges", operation_id = "create_edge_token", request_body = CreateEdgeToken,
    responses(
        (status = 201, description = "The token.", body = CreatedEdgeToken),
        (status = 403, description = "`not-owner`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`one-machine`", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Why not.", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create_token(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateEdgeToken>,
) -> Result<Response, ApiError> {
    require_owner(&app, &caller).await?;
    let config = config(&app)?;
    app.limits.create(caller.who.id, app.clock.now().monotonic)?;
    let CreateEdgeToken { name, region, minutes } = input.value;
    let minutes = minutes.unwrap_or(DEFAULT_TOKEN_MINUTES);
    if !(1..=MAX_TOKEN_MINUTES).contains(&minutes) {
        return Err(ApiError::field("minutes", format!("a join token is good for 1 to {MAX_TOKEN_MINUTES} minutes")));
    }
    let (secret, hash) = random::secret(JOIN_SECRET_PREFIX)?;
    let created_at = app.clock.now().unix_seconds;
    let expires_at = created_at + i64::from(minutes) * 60;
    let new = NewEdgeToken { hash, name: name.clone(), region: region.clone(), created_at, expires_at };
    app.store.create_edge_token(&new).await?;
    if let Some(name) = &name {
        audit_trail::target(name);
    }
    let (controls, fingerprint) = (config.world.controls.clone(), config.fingerprint.clone());
    let token = JoinToken { secret, controls, fingerprint }.to_secret();
    let created = CreatedEdgeToken { token, name, region, expires_at: date(expires_at) };
    Ok(json(StatusCode::CREATED, &created))
}

/// The edge by which a request came, where it came by one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Via(Option<EdgeId>);

impl Via {
    /// The port at which that edge is reached, when it says so.
    pub(crate) fn port(self, app: &App) -> Option<u16> {
        let seen = app.fleet.edge(self.0?)?;
        seen.card.addresses.first().map(std::net::SocketAddr::port)
    }
}

impl FromRequestParts<App> for Via {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get::<NodePeer>().and_then(|peer| peer.edge)))
    }
}
