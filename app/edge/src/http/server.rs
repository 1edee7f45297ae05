//! What the requests of all clients share.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
};

use http::{Request, Response};
use sallyport_model::ClientAddr;
use sallyport_tunnel::EdgeTunnels;

use crate::{
    access::Access,
    body::{
        upload::{ApiBody, ApiRequestBody},
        upload_meter::UploadBudget,
    },
    lifecycle::{counts::Connections, readiness::ReadinessCheck},
    metrics::{SocketMetrics, exposition::Exposition},
    policy::basic_auth::BasicAuthenticator,
    state::EdgeState,
    util::ids,
};

/// Answers requests to `api.<domain>`, and to `login.<domain>` where people log in. Made by whoever puts edge and control into
/// one process.
pub type ApiService = Arc<
    dyn Fn(Request<ApiRequestBody>, ClientAddr) -> Pin<Box<dyn Future<Output = Response<ApiBody>> + Send>>
        + Send
        + Sync,
>;

/// Lines for `/healthz`, which everybody may read; empty when all is as it should be.
pub type HealthNotes = Arc<dyn Fn() -> String + Send + Sync>;

/// HTTP with all clients of an edge.
pub(crate) struct HttpServer {
    /// The state that all rooms share.
    pub(crate) state: Arc<EdgeState>,
    /// Who may come in.
    pub(crate) access: Arc<Access>,
    /// `api.<domain>`.
    pub(crate) api_host: String,
    /// `login.<domain>`.
    pub(crate) login_host: String,
    /// `tunnel.<domain>`, which connectors dial.
    pub(crate) tunnel_host: String,
    /// Answers requests to the API.
    pub(crate) api: ApiService,
    /// Checks user names and passwords.
    pub(crate) basic_auth: BasicAuthenticator,
    /// What is counted of requests that belong to no socket.
    pub(crate) no_socket: Arc<SocketMetrics>,
    /// What uploads over HTTP/2 may hold.
    pub(crate) uploads: Arc<UploadBudget>,
    /// The tunnels, for those that come as WebSockets.
    pub(crate) tunnels: EdgeTunnels,
    /// Legs of tunnels, which have shown a secret: they and clients take no place from one another.
    pub(crate) legs: Arc<Connections>,
    /// Whom `/readyz` asks, beside the edge itself.
    pub(crate) readiness: OnceLock<ReadinessCheck>,
    /// What `/healthz` says besides that the edge is well.
    pub(crate) health: OnceLock<HealthNotes>,
    /// What `/healthz` says of other edges.
    pub(crate) mesh_health: OnceLock<HealthNotes>,
    /// What `/metrics` shows.
    pub(crate) exposition: Exposition,
}

impl HttpServer {
    /// A server for the sockets of this edge, its API, and its tunnels.
    pub(crate) fn new(access: Arc<Access>, api: ApiService, tunnels: EdgeTunnels) -> Arc<Self> {
        let state = access.state.clone();
        let config = &state.config;
        Arc::new(Self {
            api_host: format!("api.{}", config.domain),
            login_host: format!("login.{}", config.domain),
            tunnel_host: format!("tunnel.{}", config.domain),
            api,
            basic_auth: BasicAuthenticator::new(ids::random()),
            no_socket: state.metrics.of_no_socket(),
            uploads: Arc::default(),
            tunnels,
            legs: Connections::new(config.max_connections, config.max_connections_per_address),
            readiness: OnceLock::new(),
            health: OnceLock::new(),
            mesh_health: OnceLock::new(),
            exposition: Exposition::new(state.metrics.clone()),
            access,
            state,
        })
    }
}
