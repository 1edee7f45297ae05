//! The state that all requests share.

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
    http::alt_svc::AltSvc,
    lifecycle::{counts::Connections, readiness::ReadinessCheck},
    metrics::{SocketMetrics, exposition::Exposition},
    policy::basic_auth::BasicAuthenticator,
    state::EdgeState,
    util::ids,
};

/// Serves requests to `api.<domain>` and `login.<domain>`. The process that runs edge and control provides it.
pub type ApiService = Arc<
    dyn Fn(Request<ApiRequestBody>, ClientAddr) -> Pin<Box<dyn Future<Output = Response<ApiBody>> + Send>>
        + Send
        + Sync,
>;

/// Lines for `/healthz`, which is public. Empty if all is well.
pub type HealthNotes = Arc<dyn Fn() -> String + Send + Sync>;

/// The HTTP server of an edge, for all clients.
pub(crate) struct HttpServer {
    /// The state that all rooms share.
    pub(crate) state: Arc<EdgeState>,
    /// Decides on admission.
    pub(crate) access: Arc<Access>,
    /// `api.<domain>`.
    pub(crate) api_host: String,
    /// `login.<domain>`.
    pub(crate) login_host: String,
    /// `desk.<domain>`.
    pub(crate) desk_host: String,
    /// `tunnel.<domain>`, which connectors dial.
    pub(crate) tunnel_host: String,
    /// Serves requests to the API.
    pub(crate) api: ApiService,
    /// Checks user names and passwords.
    pub(crate) basic_auth: BasicAuthenticator,
    /// The offer of HTTP/3.
    pub(crate) alt_svc: AltSvc,
    /// The metrics of requests without a socket.
    pub(crate) no_socket: Arc<SocketMetrics>,
    /// Bounds the memory of uploads over HTTP/2 and HTTP/3.
    pub(crate) uploads: Arc<UploadBudget>,
    /// The tunnels, for connectors that come over WebSockets.
    pub(crate) tunnels: EdgeTunnels,
    /// Bounds the legs of tunnels, which showed a secret. Legs and clients have separate bounds, so neither displaces
    /// the other.
    pub(crate) legs: Arc<Connections>,
    /// The check behind `/readyz`, in addition to the state of the edge.
    pub(crate) readiness: OnceLock<ReadinessCheck>,
    /// Further lines of `/healthz`.
    pub(crate) health: OnceLock<HealthNotes>,
    /// The lines of `/healthz` about other edges.
    pub(crate) mesh_health: OnceLock<HealthNotes>,
    /// Lines of `/healthz` about steering.
    pub(crate) steering_health: OnceLock<HealthNotes>,
    /// Lines of `/healthz` about announcements.
    pub(crate) anycast_health: OnceLock<HealthNotes>,
    pub(crate) balanced_health: OnceLock<HealthNotes>,
    /// The line about slices of egress addresses for `/healthz`.
    pub(crate) egress_health: OnceLock<HealthNotes>,
    /// The text of `/metrics`.
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
            desk_host: format!("desk.{}", config.domain),
            tunnel_host: format!("tunnel.{}", config.domain),
            api,
            basic_auth: BasicAuthenticator::new(ids::random()),
            alt_svc: AltSvc::default(),
            no_socket: state.metrics.of_no_socket(),
            uploads: Arc::default(),
            tunnels,
            legs: Connections::new(config.max_connections, config.max_connections_per_address),
            readiness: OnceLock::new(),
            health: OnceLock::new(),
            mesh_health: OnceLock::new(),
            steering_health: OnceLock::new(),
            anycast_health: OnceLock::new(),
            balanced_health: OnceLock::new(),
            egress_health: OnceLock::new(),
            exposition: Exposition::new(state.metrics.clone()),
            access,
            state,
        })
    }
}
