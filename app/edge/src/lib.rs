//! The edge: takes clients and tunnels on one TLS port, and brings requests to origins.
//!
//! The way of a request is [`request`](self) `serve`: one function of named steps. Around it:
//! `listener`, `http1` and `http2` bring requests in, `guarded_io` keeps malformed ones out, `sockets` and `origin` know
//! where they can go, `exchange` is one attempt to get an answer there, `body` is what streams through, `record` is
//! what remains; `identity` asks who comes; `mesh` brings requests to tunnels at other edges. `ports` opens the ports that sockets have for themselves; `flow` is the way of a TCP or TLS connection,
//! `udp` that of a datagram. `admission` lets tunnels in. `docs/life-of-a-request.md` walks through all of it.

mod access;
mod body;
mod client;
mod config;
mod http;
mod lifecycle;
mod listener;
mod mesh;
mod metrics;
mod origins;
mod policy;
mod record;
mod ssh;
mod tcp;
mod tunnels;
mod udp;
mod util;

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ::http::{Request, Response};
use prometheus_client::registry::Registry;
use sallyport_bus::{Directory, RouteChange, Routes};
use sallyport_http::page::Site;
use sallyport_model::ClientAddr;
use sallyport_net::{Certificates, Listening, OwnPorts, Shutdown};
use sallyport_tunnel::{EdgeTunnels, EdgeTunnelsConfig};
use tokio::net::TcpListener;

pub use access::EdgeIdentity;
pub use body::upload::{ApiBody, ApiRequestBody, BoxError};
pub use config::EdgeConfig;
pub use lifecycle::{phase::DrainReport, readiness::Readiness};
pub use mesh::{MeshSettings, MeshTls, MeshTlsPair};
pub use origins::affinity::AffinityKey;
pub use record::audit::EdgeAudit;
pub use ssh::{SshCaller, SshConcierge, SshSettings, SshTarget};
pub use tunnels::unheard::{AskTunnel, TunnelStatus};

use body::upload_meter;
use http::guarded_io;
use lifecycle::{
    counts, flow_count,
    phase::{Phase, Phases},
    readiness,
};
use listener::{accept, handshake::Doors, ports::Ports, redirect};
use origins::pool;
use policy::basic_auth;
use tunnels::{admission, unheard};
use udp::address_validation;
use util::ids;

/// Answers requests to `api.<domain>`, and to `login.<domain>` where people log in. Made by whoever puts edge and control into one process.
pub type ApiService = Arc<
    dyn Fn(Request<ApiRequestBody>, ClientAddr) -> Pin<Box<dyn Future<Output = Response<ApiBody>> + Send>>
        + Send
        + Sync,
>;

/// Lines for `/healthz`, which everybody may read; empty when all is as it should be.
pub type HealthNotes = Arc<dyn Fn() -> String + Send + Sync>;

/// How often connections to origins are looked through for those that ended.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How long, at a shutdown, clients that keep their connections get to hear that they should not.
const MAX_LINGER: Duration = Duration::from_secs(1);
/// How long, at a shutdown, tunnels get to end their streams after the last request has ended.
const MAX_TUNNEL_DRAIN: Duration = Duration::from_secs(2);
/// How long what was cut off has to end.
const MAX_CUT: Duration = Duration::from_secs(1);

/// An edge. Made once for a process.
pub struct Edge {
    config: EdgeConfig,
    api_host: String,
    login_host: String,
    tunnel_host: String,
    routes: Routes,
    directory: Directory,
    sockets: Arc<pool::Sockets>,
    gate: Arc<admission::Gate>,
    tunnels: EdgeTunnels,
    gatekeeper: basic_auth::Gatekeeper,
    reception: access::Reception,
    metrics: metrics::Metrics,
    no_socket: Arc<metrics::SocketMetrics>,
    registry: OnceLock<Registry>,
    readiness: OnceLock<readiness::Asker>,
    health: OnceLock<HealthNotes>,
    ssh: OnceLock<Ssh>,
    mesh: OnceLock<Arc<mesh::Mesh>>,
    api: ApiService,
    ids: ids::RequestIds,
    refusal_path: guarded_io::RefusalPath,
    handshakes: Arc<counts::Handshakes>,
    ssh_logins: Arc<counts::Handshakes>,
    connections: Arc<counts::Connections>,
    /// Those of tunnels' legs, which have shown a secret: they and clients take no place from one another.
    legs: Arc<counts::Connections>,
    running: counts::Running,
    udp_flows: Arc<flow_count::FlowCounts>,
    /// The open ports of sockets, once there is one for datagrams.
    own_ports: OnceLock<OwnPorts>,
    /// What flows of each address may send beyond what they have earned, on all ports.
    udp_allowances: Mutex<address_validation::Allowances>,
    uploads: Arc<upload_meter::UploadBudget>,
    draining: AtomicBool,
    /// It is to be emptied, or is empty; those who come are served.
    emptied: Arc<AtomicBool>,
    phase: Phases,
}

/// The server for stock ssh clients, and the tunnels that they hold up.
struct Ssh {
    server: sallyport_ssh::SshServer,
    tunnels: Arc<ssh::SshTunnels>,
    listener: Mutex<Option<TcpListener>>,
}

impl std::fmt::Debug for Edge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edge").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Edge {
    /// Whose pages visitors see now.
    pub(crate) fn site(&self) -> Arc<Site> {
        self.config.site.borrow().clone()
    }

    /// An edge for these routes, which tells the directory of its tunnels. It takes nothing before [`Edge::serve`].
    ///
    /// # Panics
    /// When the operating system gives no random bytes: nothing here would be safe then.
    #[must_use]
    pub fn new(config: EdgeConfig, routes: Routes, directory: Directory, api: ApiService) -> Arc<Self> {
        let sockets = Arc::new(pool::Sockets::new(pool::Shared::new(&config, routes.clone(), directory.clone())));
        let gate = Arc::new(admission::Gate::new(
            config.domain.clone(),
            config.public_port,
            routes.clone(),
            directory.clone(),
            sockets.clone(),
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
        let metrics = metrics::Metrics::new();
        Arc::new(Self {
            api_host: format!("api.{}", config.domain),
            login_host: format!("login.{}", config.domain),
            tunnel_host: format!("tunnel.{}", config.domain),
            routes,
            directory,
            sockets,
            gate,
            tunnels,
            gatekeeper: basic_auth::Gatekeeper::new(ids::random()),
            reception: access::Reception::new(&config),
            no_socket: metrics.of_no_socket(),
            metrics,
            registry: OnceLock::new(),
            readiness: OnceLock::new(),
            health: OnceLock::new(),
            ssh: OnceLock::new(),
            mesh: OnceLock::new(),
            api,
            ids: ids::RequestIds::new(ids::random()),
            refusal_path: guarded_io::RefusalPath::from_random(ids::random()),
            handshakes: Arc::default(),
            ssh_logins: Arc::new(counts::Handshakes::of_ssh()),
            connections: counts::Connections::new(config.max_connections, config.max_connections_per_address),
            legs: counts::Connections::new(config.max_connections, config.max_connections_per_address),
            running: counts::Running::default(),
            udp_flows: Arc::default(),
            own_ports: OnceLock::new(),
            udp_allowances: Mutex::new(address_validation::Allowances::new(Instant::now())),
            uploads: Arc::default(),
            draining: AtomicBool::new(false),
            emptied: Arc::default(),
            phase: Phases::new(),
            config,
        })
    }

    /// Relays for other edges from now on, and has them relay. To be called before [`Edge::serve`]; only the first call counts.
    pub fn join_mesh(&self, settings: MeshSettings) {
        self.sockets.shared().dialer.is_among(settings.fleet.clone());
        let _ = self.mesh.set(mesh::Mesh::new(self, settings));
    }

    /// Makes the edge's metrics known to the registry, those of ssh clients only after [`Edge::serve_ssh`], and those of the
    /// mesh after [`Edge::join_mesh`].
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(registry);
        self.sockets.shared().metrics.register(&self.sockets, registry);
        self.sockets.shared().dialer.register(registry);
        self.sockets.shared().regions.register(registry);
        registry.register_collector(Box::new(metrics::Gauges {
            tunnels: metrics::TunnelsInDebug(self.tunnels.clone()),
            connections: self.connections.clone(),
            handshakes: self.handshakes.clone(),
            udp_flows: self.udp_flows.clone(),
            uploads: self.uploads.clone(),
            emptied: self.emptied.clone(),
            shards: self.config.shards.clone(),
        }));
        if let Some(mesh) = self.mesh.get() {
            mesh.register_metrics(registry);
        }
        if let Some(ssh) = self.ssh.get() {
            registry.register_collector(Box::new(ssh::metrics::SshMetrics(ssh.server.stats().clone())));
        }
    }

    /// What `/metrics` shows from now on: a registry in which [`Edge::register_metrics`] and whoever else counts in
    /// this process has been. Only the first call counts; before it there is no `/metrics`.
    pub fn publish_metrics(&self, registry: Registry) {
        let _ = self.registry.set(registry);
    }

    /// Whom `/readyz` asks from now on, beside the edge itself, and what it says when that cannot. Only the first call counts.
    pub fn ask_readiness(&self, told: &'static str, ask: Readiness) {
        let _ = self.readiness.set(readiness::Asker::new(told, ask));
    }

    /// Whom connectors' tunnels are asked about from now on of which the edge has not heard, before one is refused for good. Only the
    /// first call counts.
    pub fn ask_about_tunnels(&self, ask: AskTunnel) {
        let metrics = self.metrics.clone();
        self.gate.ask(unheard::Unheard::new(ask, move |status| metrics.tunnel_asked(status)));
    }

    /// What `/healthz` says from now on besides that it is well: lines of what is not as it should be, and is served on
    /// without. Only the first call counts.
    pub fn tell_health(&self, notes: HealthNotes) {
        let _ = self.health.set(notes);
    }

    /// Serves stock ssh clients from now on: on the port that all share, and on one of their own where there is one.
    /// To be called before [`Edge::serve`]; only the first call counts.
    pub fn serve_ssh(self: &Arc<Self>, mut settings: SshSettings) {
        // Those that make room take a moment to be gone.
        settings.config.max_unauthenticated = 2 * self.ssh_logins.max();
        let listener = Mutex::new(settings.listener.take());
        let (server, tunnels) = ssh::server(self, settings);
        self.gate.tell(Arc::downgrade(&tunnels));
        let _ = self.ssh.set(Ssh { server, tunnels, listener });
    }

    /// The published metrics in the OpenMetrics text format; `None` when none are published. Reads files where there are
    /// UDP sockets.
    #[must_use]
    pub fn metrics_text(&self) -> Option<String> {
        self.metrics_with(self.own_ports.get().map_or(0, OwnPorts::new_kernel_drops))
    }

    /// The same where others wait: files are read on a thread for that, one at a time.
    pub(crate) async fn metrics_text_aside(&self) -> Option<String> {
        let drops = match self.own_ports.get().cloned() {
            Some(ports) => tokio::task::spawn_blocking(move || ports.new_kernel_drops()).await.unwrap_or(0),
            None => 0,
        };
        self.metrics_with(drops)
    }

    /// The metrics, after the kernel has dropped so many more datagrams.
    fn metrics_with(&self, drops: u64) -> Option<String> {
        if drops > 0 {
            self.metrics.datagrams_dropped("kernel", usize::try_from(drops).unwrap_or(usize::MAX));
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, self.registry.get()?).ok()?;
        Some(text)
    }

    /// Serves clients and tunnels until the shutdown, then lets finish what runs, and returns. Called once.
    ///
    /// # Errors
    /// When the kernel does not say where it listens, or does not watch it, or nobody listens any more. What goes wrong
    /// with one connection concerns that connection alone.
    pub async fn serve(
        self: &Arc<Self>,
        listening: Listening,
        certificates: Arc<Certificates>,
        shutdown: Shutdown,
    ) -> anyhow::Result<DrainReport> {
        let doors = Doors::new(certificates, self.config.trusted_proxies.clone());
        let changes = self.routes.subscribe();
        let address = listening.tls.local_addr()?;
        let ip = address.ip();
        self.sockets.shared().dialer.listens_on(address.port());
        let ports = Ports::new(self.clone(), doors.clone(), ip, listening.own.clone(), shutdown.clone())
            .follow(self.routes.subscribe());
        let ports = async {
            ports.await;
            Ok(())
        };
        let shards = &self.config.shards;
        let clients = {
            let (edge, doors) = (self.clone(), doors.clone());
            let take = move |stream, peer| accept::take_tls(&edge, &doors, stream, peer);
            accept::accept_in_shard(shards, listening.tls, shutdown.clone(), take)
        };
        let plain = async {
            match listening.redirect {
                Some(listener) => {
                    let take = |stream, peer| redirect::take_plain(self, stream, peer);
                    accept::accept(listener, shutdown.clone(), take).await;
                }
                None => shutdown.wait().await,
            }
            Ok(())
        };
        let geo = async {
            if let Some(geo) = &self.config.geo {
                geo.clone().follow().await;
            }
        };
        let ssh_listener =
            self.ssh.get().and_then(|ssh| ssh.listener.lock().unwrap_or_else(PoisonError::into_inner).take());
        let ssh = async {
            match ssh_listener {
                Some(listener) => {
                    let edge = self.clone();
                    let take = move |stream, peer| accept::take_ssh(&edge, &doors, stream, peer);
                    accept::accept_in_shard(shards, listener, shutdown.clone(), take).await
                }
                None => {
                    shutdown.wait().await;
                    Ok(())
                }
            }
        };
        let upkeep = async {
            let judged = access::follow(self);
            let emptied = self.follow_emptied(&shutdown);
            let mesh = async {
                if let Some(mesh) = self.mesh.get() {
                    mesh.run(self).await;
                }
            };
            tokio::join!(
                self.gate.follow(&self.tunnels, changes),
                self.follow_ssh(),
                self.sweep(),
                geo,
                judged,
                emptied,
                mesh
            )
        };
        let mut upkeep = pin!(upkeep);
        let is_kept_up = tokio::select! {
            served = async { tokio::try_join!(clients, plain, ports, ssh) } => served.map(|_| true)?,
            _ = &mut upkeep => false,
        };
        // What runs out is judged like what came before, to its end.
        let mut drain = pin!(self.drain());
        tokio::select! {
            report = &mut drain => Ok(report),
            _ = upkeep, if is_kept_up => Ok(drain.await),
        }
    }

    /// Sends ssh clients away whose tunnel or key is gone, for as long as the routes change.
    async fn follow_ssh(&self) {
        let Some(ssh) = self.ssh.get() else { return };
        let (mut changes, mut logins) = (self.routes.subscribe(), ssh.tunnels.login_changes());
        loop {
            tokio::select! {
                change = changes.next() => match change {
                    None => return,
                    Some(RouteChange::Changed(route)) => ssh.tunnels.look_at(Some(route.id)),
                    Some(RouteChange::Removed(socket)) => ssh.tunnels.look_at(Some(socket)),
                    Some(RouteChange::Missed) => ssh.tunnels.look_at(None),
                },
                Ok(()) = logins.changed() => ssh.tunnels.look_at_logins(),
            }
        }
    }

    /// Lets go of origins' connections that ended, for as long as the edge serves.
    async fn sweep(&self) {
        let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            for pool in self.sockets.all() {
                pool.origins().iter().for_each(|origin| origin.sweep(now));
            }
        }
    }

    /// Resolves when nothing runs, and nothing is about to: a connection that was taken and is in its handshake will bring
    /// a request, and nobody else has it. In this order, since what a handshake brings runs before the handshake is over;
    /// new ones do not come, because nothing is accepted any more.
    async fn quiet(&self) {
        self.handshakes.none_left().await;
        self.running.none_left().await;
    }

    /// Ends what runs: first by asking, at last by force.
    async fn drain(&self) -> DrainReport {
        let began = Instant::now();
        let ran = self.running.count();
        // Answers say from here on that they are the last on their connection. Tunnels still serve those requests.
        self.draining.store(true, Ordering::Relaxed);
        self.phase.all(Phase::Lingering);
        let linger = MAX_LINGER.min(self.config.drain);
        let _ = tokio::time::timeout(linger, self.quiet()).await;
        self.phase.all(Phase::Draining);
        self.tunnels.go_away("the edge is shutting down");
        let ssh_over = self.ssh.get().map(|ssh| {
            let (server, grace) = (ssh.server.clone(), self.config.drain);
            tokio::spawn(async move { server.shutdown("the edge is shutting down", grace).await })
        });
        let rest = || self.config.drain.saturating_sub(began.elapsed());
        let _ = tokio::time::timeout(rest(), self.running.none_left()).await;
        let cut = self.running.count();
        for pool in self.sockets.all() {
            pool.origins().iter().for_each(|origin| origin.leave());
        }
        let _ = tokio::time::timeout(MAX_TUNNEL_DRAIN.min(rest()), self.tunnels.drained()).await;
        self.phase.all(Phase::Cut);
        // What is cut off resets its client and is recorded, before the process ends.
        let _ = tokio::time::timeout(MAX_CUT, self.running.none_left()).await;
        if let Some(over) = ssh_over {
            let _ = tokio::time::timeout(rest(), over).await;
        }
        DrainReport { finished: ran.saturating_sub(cut), cut }
    }
}
