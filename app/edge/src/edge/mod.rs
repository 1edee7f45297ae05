//! The edge of one process: [`Edge`] composes the rooms below, and answers queries of control.
//!
//! May use every room but `listener` and `serve`.

mod clients;
mod drain_order;
mod gauges;
mod queries;

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use sallyport_bus::{Directory, Routes, ServedNetworks};
use sallyport_tunnel::{EdgeTunnels, EdgeTunnelsConfig};
use tokio::{net::TcpListener, sync::watch};

use self::{
    clients::ClientCollector,
    gauges::{Gauges, TunnelsInDebug},
};

use crate::{
    access::Access,
    anycast::{Anycast, AnycastSettings},
    balanced::{Balanced, BalancedSettings},
    config::{EdgeConfig, EgressSettings},
    http::server::{ApiService, HealthNotes, HttpServer},
    lifecycle::{
        counts::{Connections, Handshakes},
        readiness::{Readiness, ReadinessCheck},
    },
    measure::Measurements,
    mesh::{Mesh, MeshSettings},
    metrics::quic::{QuicCollector, QuicMetrics},
    networks::Networks,
    origins::transport::direct::egress::Egress,
    ssh::{self, SshSettings, SshTunnels, metrics::SshMetrics},
    state::EdgeState,
    steering::{SteeringFollower, SteeringSettings},
    tunnels::{
        admission::TunnelAdmission,
        lookup::{AskTunnel, TunnelLookup},
    },
    udp::ports::UdpPorts,
};

/// The least time that a withdrawal has.
const MIN_WITHDRAWAL: Duration = Duration::from_secs(4);

/// The edge of a process.
pub struct Edge {
    pub(crate) state: Arc<EdgeState>,
    pub(crate) access: Arc<Access>,
    pub(crate) http: Arc<HttpServer>,
    pub(crate) udp: Arc<UdpPorts>,
    pub(crate) gate: Arc<TunnelAdmission>,
    pub(crate) tunnels: EdgeTunnels,
    pub(crate) ssh: OnceLock<Ssh>,
    pub(crate) mesh: OnceLock<Arc<Mesh>>,
    pub(crate) steering: OnceLock<Arc<SteeringFollower>>,
    pub(crate) anycast: OnceLock<Arc<Anycast>>,
    pub(crate) balanced: OnceLock<Arc<Balanced>>,
    pub(crate) networks: OnceLock<Arc<Networks>>,
    pub(crate) measurements: Arc<Measurements>,
    pub(crate) handshakes: Arc<Handshakes>,
    pub(crate) ssh_logins: Arc<Handshakes>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) quic: Arc<QuicMetrics>,
}

/// The server for stock ssh clients, and their tunnels.
pub(crate) struct Ssh {
    pub(crate) server: sallyport_ssh::SshServer,
    pub(crate) tunnels: Arc<SshTunnels>,
    pub(crate) listener: Mutex<Option<TcpListener>>,
}

impl std::fmt::Debug for Edge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edge").field("config", &self.state.config).finish_non_exhaustive()
    }
}

impl Edge {
    /// An edge for these routes, which publishes its tunnels in the directory. It accepts nothing before
    /// [`Edge::serve`].
    ///
    /// # Panics
    /// The operating system gives no random bytes.
    #[must_use]
    pub fn new(config: EdgeConfig, routes: Routes, directory: Directory, api: ApiService) -> Arc<Self> {
        let state = EdgeState::new(config, routes, directory);
        let config = &state.config;
        let gate = Arc::new(TunnelAdmission::new(
            config.domain.clone(),
            config.public_port,
            state.routes.clone(),
            state.directory.clone(),
            state.sockets.clone(),
        ));
        let tunnels = EdgeTunnels::new(
            EdgeTunnelsConfig {
                session: config.session.clone(),
                ready_legs: config.ready_legs,
                max_sessions: config.max_sessions,
                max_legs_per_session: config.max_legs_per_session,
                neighbours: config.neighbours.clone(),
            },
            gate.clone(),
        );
        let connections = Connections::new(config.max_connections, config.max_connections_per_address);
        let access = Access::new(state.clone());
        Arc::new(Self {
            http: HttpServer::new(access.clone(), api, tunnels.clone()),
            quic: Arc::default(),
            udp: UdpPorts::new(access.clone()),
            gate,
            tunnels,
            ssh: OnceLock::new(),
            mesh: OnceLock::new(),
            steering: OnceLock::new(),
            anycast: OnceLock::new(),
            balanced: OnceLock::new(),
            networks: OnceLock::new(),
            measurements: Measurements::new(&state),
            handshakes: Arc::default(),
            ssh_logins: Arc::new(Handshakes::of_ssh()),
            connections,
            access,
            state,
        })
    }

    /// Joins the mesh: relays for other edges, and through them. To be called before [`Edge::serve`]; only the first
    /// call counts.
    pub fn join_mesh(&self, settings: MeshSettings) {
        self.state.sockets.shared().dialer.set_fleet(settings.fleet.clone());
        let mesh = Mesh::new(&self.state, &self.tunnels, settings);
        let noted = mesh.clone();
        let _ = self.http.mesh_health.set(Arc::new(move || noted.notes()));
        let _ = self.mesh.set(mesh);
    }

    /// Takes part in steering: reports loads, and follows quotas. To be called before [`Edge::serve`]; only the first
    /// call counts.
    pub fn join_steering(&self, settings: SteeringSettings) {
        let steering = SteeringFollower::new(&self.state, settings);
        let noted = steering.clone();
        let _ = self.http.steering_health.set(Arc::new(move || noted.note()));
        let _ = self.steering.set(steering);
    }

    /// Dials direct origins from slices of egress addresses. To be called before [`Edge::serve`] and
    /// [`Edge::register_metrics`]; only the first call counts.
    pub fn leave_from(&self, settings: EgressSettings) {
        let egress = Egress::new(settings, self.state.config.region.clone());
        let noted = egress.clone();
        let _ = self.http.egress_health.set(Arc::new(move || noted.note()));
        self.state.sockets.shared().dialer.leave_from(egress);
    }

    /// Carries the packets of these networks between their machines. To be called before [`Edge::serve`] and
    /// [`Edge::register_metrics`]; only the first call counts.
    pub fn carry_networks(&self, served: ServedNetworks) {
        let networks = Networks::new(served);
        self.tunnels.set_networks(networks.clone());
        let _ = self.networks.set(networks);
    }

    /// Announces prefixes by BIRD. To be called before [`Edge::serve`]; only the first call counts.
    pub fn announce(&self, settings: AnycastSettings) {
        let anycast = Anycast::new(&self.state, settings);
        let noted = anycast.clone();
        let _ = self.http.anycast_health.set(Arc::new(move || noted.notes()));
        let _ = self.anycast.set(anycast);
    }

    /// The service addresses of what the edge announces now; `None` for an edge that announces nothing.
    #[must_use]
    pub fn anycast_addresses(&self) -> Option<watch::Receiver<Vec<IpAddr>>> {
        self.anycast.get().map(|anycast| anycast.served())
    }

    /// Serves behind the balancer of the region. To be called before [`Edge::serve`]; only the first call counts.
    pub fn serve_behind_balancer(&self, settings: BalancedSettings) {
        let balanced = Balanced::new(settings);
        let noted = balanced.clone();
        let _ = self.http.balanced_health.set(Arc::new(move || noted.notes()));
        let _ = self.balanced.set(balanced);
    }

    /// Why balancers must not send to this edge yet, and whether it leaves; `None` for an edge that is behind none.
    #[must_use]
    pub fn balanced(&self) -> Option<(watch::Receiver<Option<String>>, watch::Receiver<bool>)> {
        self.balanced.get().map(|balanced| (balanced.fault(), balanced.leaves()))
    }

    /// Leads clients elsewhere before the edge stops, within the time that running work has for its end: withdraws
    /// announced prefixes, and tells balancers. Without any, this returns at once.
    pub async fn withdraw(&self) {
        let within = self.state.config.shutdown_grace;
        let withdraws = async {
            if let Some(anycast) = self.anycast.get() {
                anycast.withdraw(within.max(MIN_WITHDRAWAL)).await;
            }
        };
        let leaves = async {
            if let Some(balanced) = self.balanced.get() {
                balanced.leave(within).await;
            }
        };
        tokio::join!(withdraws, leaves);
    }

    /// Registers the edge's metrics; those of announcements only after [`Edge::announce`], those of ssh clients only after
    /// [`Edge::serve_ssh`], those of the mesh only after [`Edge::join_mesh`], and those of steering only after
    /// [`Edge::join_steering`].
    pub fn register_metrics(&self, registry: &mut Registry) {
        let sockets = &self.state.sockets;
        self.state.metrics.register(registry);
        sockets.shared().metrics.register(sockets, registry);
        sockets.shared().dialer.register(registry);
        sockets.shared().regions.register(registry);
        registry.register_collector(Box::new(Gauges {
            tunnels: TunnelsInDebug(self.tunnels.clone()),
            connections: self.connections.clone(),
            handshakes: self.handshakes.clone(),
            udp_flows: self.udp.flows.clone(),
            uploads: self.http.uploads.clone(),
            drain_ordered: self.state.drain_ordered.clone(),
            shards: self.state.config.shards.clone(),
        }));
        registry.register_collector(Box::new(QuicCollector(self.quic.clone())));
        registry.register_collector(Box::new(ClientCollector(self.state.clients.clone())));
        if let Some(mesh) = self.mesh.get() {
            mesh.register_metrics(registry);
        }
        if let Some(steering) = self.steering.get() {
            steering.register_metrics(registry);
        }
        if let Some(anycast) = self.anycast.get() {
            anycast.register_metrics(registry);
        }
        if let Some(networks) = self.networks.get() {
            networks.register_metrics(registry);
        }
        self.measurements.register_metrics(registry);
        if let Some(ssh) = self.ssh.get() {
            registry.register_collector(Box::new(SshMetrics(ssh.server.stats().clone())));
        }
    }

    /// Publishes a registry at `/metrics`, after [`Edge::register_metrics`] and all other metrics of the process. Only
    /// the first call counts; before it there is no `/metrics`.
    pub fn publish_metrics(&self, registry: Registry) {
        self.http.exposition.publish(registry);
    }

    /// Sets a further check for `/readyz`, and the public reason if it fails. Only the first call counts.
    pub fn ask_readiness(&self, reason: &'static str, ask: Readiness) {
        let _ = self.http.readiness.set(ReadinessCheck::new(reason, ask));
    }

    /// Sets how the edge asks control about a tunnel that the edge does not know. Only the first call counts.
    pub fn ask_about_tunnels(&self, ask: AskTunnel) {
        let metrics = self.state.metrics.clone();
        self.gate.set_lookup(TunnelLookup::new(ask, move |status| metrics.tunnel_asked(status.as_str())));
    }

    /// Sets further lines for `/healthz`, about faults that do not stop the service. Only the first call counts.
    pub fn set_health_notes(&self, notes: HealthNotes) {
        let _ = self.http.health.set(notes);
    }

    /// Serves stock ssh clients: on the shared port, and on a port of their own if there is one. To be called before
    /// [`Edge::serve`]; only the first call counts.
    pub fn serve_ssh(&self, mut settings: SshSettings) {
        // Displaced clients take a moment to disconnect.
        settings.config.max_unauthenticated = 2 * self.ssh_logins.max();
        let listener = Mutex::new(settings.listener.take());
        let (server, tunnels) = ssh::server(&self.state, &self.tunnels, settings);
        self.gate.set_ssh_tunnels(Arc::downgrade(&tunnels));
        let _ = self.ssh.set(Ssh { server, tunnels, listener });
    }

    /// The published metrics in the OpenMetrics text format; `None` without a published registry. Reads files if there
    /// are UDP sockets.
    #[must_use]
    pub fn metrics_text(&self) -> Option<String> {
        self.http.exposition.text()
    }
}
