//! Requests of edges: joining, new certificates, the configuration, and lookups of tunnels.

use axum::{
    extract::{FromRequestParts, State},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{StatusCode, request::Parts};
use sallyport_api::{
    BootstrapRequest, BootstrapResponse, EdgeBootstrap, JoinEdge, JoinedEdge, RenewEdge, TunnelCheck,
    TunnelCheckRequest,
};
use sallyport_bus::SteeringKey;
use sallyport_model::{EdgeId, EdgeOrders};
use sallyport_store::{JoinRefusal, JoiningEdge, StoredEdge};

use super::relay::find_edge;
use crate::{
    audit::{self, Actor},
    config::{EdgesConfig, IssueFailure},
    problem::ApiError,
    request::{
        extract::{Input, json},
        via::NodePeer,
    },
    security::{client::Client, random},
    state::App,
};

/// Answers whether a tunnel with this credential exists.
pub(super) async fn check_tunnel(
    State(app): State<App>,
    EdgeCaller(_): EdgeCaller,
    input: Input<TunnelCheckRequest>,
) -> Result<Response, ApiError> {
    let TunnelCheckRequest { tunnel, credential } = input.value;
    let check = match app.store.tunnel_credential(tunnel).await? {
        None => TunnelCheck::Unknown,
        Some(stored) if stored == credential => TunnelCheck::Known,
        Some(_) => TunnelCheck::BadCredential,
    };
    Ok(json(StatusCode::OK, &check))
}

/// The edge that sent the request, while it belongs to the installation.
pub(super) struct EdgeCaller(pub(super) StoredEdge);

impl FromRequestParts<App> for EdgeCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let peer = parts.extensions.get::<NodePeer>().and_then(|peer| peer.edge);
        find_known_edge(app, peer).await.map(Self)
    }
}

async fn find_known_edge(app: &App, edge: Option<EdgeId>) -> Result<StoredEdge, ApiError> {
    find_edge(app, edge).await?.ok_or_else(|| {
        let detail = "this edge was removed: join again with a new token, in an empty data directory";
        ApiError::new(StatusCode::FORBIDDEN, "edge-removed", detail)
    })
}

/// Joins an edge that has a join token.
pub(super) async fn join(State(app): State<App>, client: Client, input: Input<JoinEdge>) -> Result<Response, ApiError> {
    let config = app.edges_config()?;
    // The port is open to everyone: join tokens cannot be guessed, and this limit bounds the events in the log.
    app.limits.login_step(client, app.clock.now().monotonic)?;
    let JoinEdge { secret, name, region, request } = input.value;
    let owner = app.store.first_account().await?;
    if let Some(owner) = owner {
        audit::set_actor(Actor { organisation: owner, account: owner, name: "join-token".to_owned() });
    }
    let joining =
        JoiningEdge { id: EdgeId::from_random(random::bytes()?), name, region, now: app.clock.now().unix_seconds };
    // Signed before the token is used up, so that a bad certificate request does not cost the token.
    let probe = joining.name.clone().unwrap_or_else(|| "edge".parse().expect("a name"));
    config.issuer.issue(&request, joining.id, &probe).map_err(failed)?;
    let _turn = app.publishing.lock().await;
    let edge = app.store.join_edge(random::hash(secret.expose()), &joining).await?.map_err(|refusal| {
        tracing::warn!(reason = %refusal, "an edge was refused");
        if let JoinRefusal::Used { by, .. } = &refusal {
            audit::set_target(by);
        }
        refused(&refusal)
    })?;
    audit::set_target(&edge.name);
    app.orders.put(EdgeOrders { edge: edge.id, drain: None, server: edge.server });
    tracing::info!(edge = %edge.name, region = %edge.region, "an edge has joined");
    Ok(json(StatusCode::CREATED, &answer(&app, config, &request, edge)?))
}

/// New certificates for an edge, and its present configuration.
pub(super) async fn renew(
    State(app): State<App>,
    EdgeCaller(edge): EdgeCaller,
    input: Input<RenewEdge>,
) -> Result<Response, ApiError> {
    let config = app.edges_config()?;
    Ok(json(StatusCode::OK, &answer(&app, config, &input.value.request, edge)?))
}

/// The present configuration of an edge.
pub(super) async fn show_bootstrap(
    State(app): State<App>,
    EdgeCaller(edge): EdgeCaller,
    _: Input<BootstrapRequest>,
) -> Result<Response, ApiError> {
    let config = app.edges_config()?;
    let bootstrap = bootstrap_of(&app, config, edge.id);
    Ok(json(StatusCode::OK, &BootstrapResponse { bootstrap, now: app.clock.now().unix_seconds }))
}

/// The configuration of this edge.
fn bootstrap_of(app: &App, config: &EdgesConfig, edge: EdgeId) -> EdgeBootstrap {
    let key = SteeringKey::derive(&app.steering_secret, edge);
    EdgeBootstrap {
        controls: app.control_addresses(config),
        steering_key: Some(URL_SAFE_NO_PAD.encode(key).into()),
        ..config.bootstrap.clone()
    }
}

fn answer(app: &App, config: &EdgesConfig, request: &str, edge: StoredEdge) -> Result<JoinedEdge, ApiError> {
    let certificates = config.issuer.issue(request, edge.id, &edge.name).map_err(failed)?;
    let StoredEdge { id, name, region, .. } = edge;
    let now = app.clock.now().unix_seconds;
    let bootstrap = bootstrap_of(app, config, id);
    Ok(JoinedEdge { id, name, region, certificates, bootstrap, now })
}

fn failed(failure: IssueFailure) -> ApiError {
    match failure {
        IssueFailure::Request(detail) => ApiError::field("request", detail),
        IssueFailure::Sign(detail) => ApiError::internal(detail),
    }
}

fn refused(refusal: &JoinRefusal) -> ApiError {
    let (status, code) = match refusal {
        JoinRefusal::Unknown => (StatusCode::FORBIDDEN, "join-token-unknown"),
        JoinRefusal::Used { .. } => (StatusCode::FORBIDDEN, "join-token-used"),
        JoinRefusal::Ended => (StatusCode::FORBIDDEN, "join-token-ended"),
        JoinRefusal::Other { .. } => (StatusCode::CONFLICT, "join-token-for-another"),
        JoinRefusal::NoRegion => (StatusCode::UNPROCESSABLE_ENTITY, "no-region"),
        JoinRefusal::NameTaken { .. } => (StatusCode::CONFLICT, "edge-name-taken"),
    };
    ApiError::new(status, code, refusal.to_string())
}
