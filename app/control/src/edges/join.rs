//! What edges ask of control: to join, to get new certificates, and to answer what clients asked them.

use axum::{
    Router,
    extract::{FromRequestParts, State},
    response::Response,
    routing::post,
};
use http::{HeaderName, HeaderValue, Request, StatusCode, header, request::Parts};
use sallyport_api::{AskTunnel, AskWorld, EdgeTold, EdgeWorld, JoinEdge, JoinedEdge, RenewEdge, ToldTunnel};
use sallyport_model::{ClientAddr, EdgeId, EdgeOrders};
use sallyport_store::{JoinRefusal, JoiningEdge, StoredEdge};
use tower_service::Service as _;

use super::{EdgesConfig, IssueFailure, config, forwards, living};
use crate::{
    App, Control,
    audit_trail::{self, Actor},
    extract::{Input, json},
    finish,
    limits::Client,
    problem::ApiError,
    random,
};

/// The client of a request that an edge passes on.
const CLIENT: HeaderName = HeaderName::from_static("sallyport-client");

/// Who is at the other end of a connection between machines. Requests to [`Control::node_router`] carry it as an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePeer {
    /// The edge whose certificate was shown, and verified, in the handshake.
    pub edge: Option<EdgeId>,
    /// Where the connection comes from.
    pub address: ClientAddr,
}

impl Control {
    /// Takes edges from now on. Only the first call counts.
    pub fn take_edges(&self, config: EdgesConfig) {
        let _ = self.app.edges.set(config);
        self.app.peers.changed.notify_one();
    }

    /// Answers what edges ask themselves. Requests carry a [`NodePeer`] as an extension. Edges of former versions ask here for their
    /// clients too, and name the client of each such request: that goes to [`Control::clients_router`], whatever path it has.
    pub fn node_router(&self) -> Router {
        let clients = self.clients_router();
        let own = Router::new()
            .route("/node/v1/join", post(join))
            .route("/node/v1/renew", post(renew))
            .route("/node/v1/world", post(tell_world))
            .route("/node/v1/tunnel", post(tell_tunnel))
            .route("/node/v1/ssh/begin", post(forwards::begin))
            .route("/node/v1/ssh/forward", post(forwards::open))
            .route("/node/v1/ssh/ended", post(forwards::ended))
            .layer(axum::middleware::from_fn_with_state(self.app.clone(), finish::finish))
            .with_state(self.app.clone());
        let own = own.fallback_service(clients.clone());
        Router::new().fallback(move |request: Request<axum::body::Body>| {
            let mut router = if request.headers().contains_key(CLIENT) { clients.clone() } else { own.clone() };
            async move { router.call(request).await }
        })
    }

    /// Answers what clients of edges ask: as [`Control::router`] and [`Control::login_router`] do, and nothing else. Requests carry
    /// a [`NodePeer`] of a known edge as an extension, and name their client.
    pub fn clients_router(&self) -> Router {
        let (api, login) = (self.router(), self.login_router());
        let login_host = format!("login.{}", self.app.config.domain);
        let app = self.app.clone();
        Router::new().fallback(move |request: Request<axum::body::Body>| {
            let (app, login_host) = (app.clone(), login_host.clone());
            let (api, login) = (api.clone(), login.clone());
            async move {
                let (path, request_id) = (request.uri().path().to_owned(), finish::request_id(request.headers()));
                match passed_on(&app, request).await {
                    Ok(request) => {
                        let mut router = if is_for(&request, &login_host) { login } else { api };
                        let Ok(answer) = router.call(request).await;
                        answer
                    }
                    Err(error) => error.render(&path, &request_id),
                }
            }
        })
    }
}

/// Whether there is a tunnel with this credential, for an edge that has not heard of it.
async fn tell_tunnel(State(app): State<App>, Known(_): Known, input: Input<AskTunnel>) -> Result<Response, ApiError> {
    let AskTunnel { tunnel, credential } = input.value;
    let told = match app.store.tunnel_credential(tunnel).await? {
        None => ToldTunnel::Unknown,
        Some(stored) if stored == credential => ToldTunnel::Known,
        Some(_) => ToldTunnel::BadCredential,
    };
    Ok(json(StatusCode::OK, &told))
}

fn is_for<B>(request: &Request<B>, host: &str) -> bool {
    let header = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let asked = request.uri().host().or(header).unwrap_or_default();
    let asked = asked.rsplit_once(':').map_or(asked, |(asked, _)| asked);
    asked.trim_end_matches('.').eq_ignore_ascii_case(host)
}

/// The edge that asks, while it is one of ours.
pub(super) struct Known(pub(super) StoredEdge);

impl FromRequestParts<App> for Known {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let peer = parts.extensions.get::<NodePeer>().and_then(|peer| peer.edge);
        known(app, peer).await.map(Self)
    }
}

/// `None`: it was removed.
async fn find(app: &App, edge: Option<EdgeId>) -> Result<Option<StoredEdge>, ApiError> {
    let Some(id) = edge else {
        return Err(ApiError::unauthorized("no-certificate", "show the certificate of an edge"));
    };
    Ok(app.store.edge(id).await?)
}

async fn known(app: &App, edge: Option<EdgeId>) -> Result<StoredEdge, ApiError> {
    find(app, edge).await?.ok_or_else(|| {
        let detail = "this edge was removed: join again with a new token, in an empty data directory";
        ApiError::new(StatusCode::FORBIDDEN, "edge-removed", detail)
    })
}

/// What the client of an edge is told that was removed and runs on: another edge has its answer.
fn by_removed() -> ApiError {
    let detail = "the edge by which this came was removed from the installation: come by another one, at which the same address \
                  may lead the next time";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "edge-removed", detail)
        .header(header::RETRY_AFTER, HeaderValue::from_static("1"))
}

/// What a client asked an edge, as if it had asked us: with its address.
async fn passed_on(app: &App, mut request: Request<axum::body::Body>) -> Result<Request<axum::body::Body>, ApiError> {
    let edge = request.extensions().get::<NodePeer>().and_then(|peer| peer.edge);
    find(app, edge).await?.ok_or_else(by_removed)?;
    let client = request.headers_mut().remove(CLIENT);
    let client = client.as_ref().and_then(|client| client.to_str().ok()?.parse().ok());
    let Some(client) = client else {
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "no-client", "say whose request it is"));
    };
    request.extensions_mut().insert(ClientAddr(client));
    Ok(request)
}

/// Lets an edge join that shows a token.
async fn join(State(app): State<App>, client: Client, input: Input<JoinEdge>) -> Result<Response, ApiError> {
    let config = config(&app)?;
    // Whoever reaches the port may ask: secrets cannot be guessed, and the log of events cannot be filled.
    app.limits.login_step(client, app.clock.now().monotonic)?;
    let JoinEdge { secret, name, region, request } = input.value;
    let owner = app.store.first_account().await?;
    if let Some(owner) = owner {
        audit_trail::acts(Actor { organisation: owner, account: owner, name: "join-token".to_owned() });
    }
    let joining =
        JoiningEdge { id: EdgeId::from_random(random::bytes()?), name, region, now: app.clock.now().unix_seconds };
    // Before the token is used up: what cannot be signed is none of its fault.
    let probe = joining.name.clone().unwrap_or_else(|| "edge".parse().expect("a name"));
    config.issuer.issue(&request, joining.id, &probe).map_err(failed)?;
    let _turn = app.publishing.lock().await;
    let edge = app.store.join_edge(random::hash(secret.expose()), &joining).await?.map_err(|refusal| {
        tracing::warn!(reason = %refusal, "an edge was not let in");
        if let JoinRefusal::Used { by, .. } = &refusal {
            audit_trail::target(by);
        }
        refused(&refusal)
    })?;
    audit_trail::target(&edge.name);
    app.orders.put(EdgeOrders { edge: edge.id, drain: None });
    tracing::info!(edge = %edge.name, region = %edge.region, "an edge has joined");
    Ok(json(StatusCode::CREATED, &answer(&app, config, &request, edge)?))
}

/// New certificates for an edge, and what else it needs to know.
async fn renew(State(app): State<App>, Known(edge): Known, input: Input<RenewEdge>) -> Result<Response, ApiError> {
    let config = config(&app)?;
    Ok(json(StatusCode::OK, &answer(&app, config, &input.value.request, edge)?))
}

/// What an edge needs to know besides, as it is now.
async fn tell_world(State(app): State<App>, Known(_): Known, _: Input<AskWorld>) -> Result<Response, ApiError> {
    let config = config(&app)?;
    let world = EdgeWorld { controls: living(&app, config), ..config.world.clone() };
    Ok(json(StatusCode::OK, &EdgeTold { world, now: app.clock.now().unix_seconds }))
}

fn answer(app: &App, config: &EdgesConfig, request: &str, edge: StoredEdge) -> Result<JoinedEdge, ApiError> {
    let certificates = config.issuer.issue(request, edge.id, &edge.name).map_err(failed)?;
    let StoredEdge { id, name, region, .. } = edge;
    let now = app.clock.now().unix_seconds;
    let world = EdgeWorld { controls: living(app, config), ..config.world.clone() };
    Ok(JoinedEdge { id, name, region, certificates, world, now })
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
