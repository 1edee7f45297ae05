//! The connector: runs next to a private service and brings the streams of its tunnels to it.
//!
//! [`Connector`] keeps the session with the edge ([`sallyport_tunnel::run_changing_connector`]). `dial` connects to the
//! edge, `gauge` counts what its connections move, and `link_report` names the links that carry them. For every stream,
//! `services` finds the service, `origin` connects to the service, with TLS where needed (`origin_tls`), and `relay`
//! moves the bytes. A service with several addresses has a `pool`, which selects one for each stream. `flows` does the
//! same for datagrams. [`network`] is a machine of a network instead: a packet carrier and a TUN device. With an inspector, `capture` copies what is relayed.

mod capture;
mod dial;
mod flows;
mod gauge;
mod link_report;
pub mod network;
mod origin;
mod origin_tls;
mod pool;
mod quick_ack;
mod relay;
mod services;

use std::{sync::Arc, time::Duration};

pub use capture::{Capture, CaptureEvent, Captured, CapturedStream, RelayedFrom, Wanted};
use dial::{Edge, EdgeAddress};
pub use dial::{EdgePaths, Links, Transport, TransportChoice, UnknownTransport};
pub use origin_tls::{OriginTls, OriginTlsError};
pub use pool::{ClientAffinity, Endpoint, EndpointStatus, OriginPool, PoolStatus, ServiceOrigin, StreamCounts};
pub use sallyport_balance::endpoints::{EndpointState, MAX_ENDPOINTS, TooManyEndpoints};
pub use sallyport_links_model::{ChoiceError, LinkChoice};
use sallyport_model::RegionName;
pub use sallyport_multipath::{PathSettings, PathState, PathStats};
pub use sallyport_multipath_udp::PathReport;
use sallyport_net::{Outbound, Shutdown};
use sallyport_shards::Shards;
use sallyport_tunnel::{ConnectorConfig, TunnelChange, run_changing_connector};
pub use sallyport_tunnel::{ConnectorError, ConnectorEvent, TunnelCredential};
pub use sallyport_wire::{
    ALPN, EdgePlace,
    edge_selector::{DEFAULT_REDUNDANCY, MAX_REDUNDANCY},
    session::MAX_TUNNELS_PER_SESSION as MAX_SERVICES,
};
pub use services::{Service, ServiceConnection, Services};
use tokio::sync::mpsc;

/// The options of a connector.
#[derive(Debug, Clone)]
pub struct ConnectorOptions {
    /// Name and version of the program, which the edge shows.
    pub agent: String,
    /// The host of the edge; its certificate must be for this name.
    pub edge_host: String,
    /// The port of the edge.
    pub edge_port: u16,
    /// The QUIC port of the edge, if known.
    pub quic_port: Option<u16>,
    /// TLS to the edge, with the trusted roots. The ALPN comes from the transport.
    pub tls: Arc<rustls::ClientConfig>,
    /// The transport of the tunnels.
    pub transport: TransportChoice,
    /// The links that carry the tunnels together. `None`: one link, as the kernel's routes say, or every link if the
    /// transport is [`Transport::Multipath`].
    pub links: Option<LinkChoice>,
    /// How connections leave this machine.
    pub outbound: Outbound,
    /// The private services, each with its tunnel: at most [`MAX_SERVICES`].
    pub services: Vec<Service>,
    /// At how many edges each tunnel is held, if there are as many: 1 to [`MAX_REDUNDANCY`].
    pub redundancy: usize,
    /// The region of the services; `None` for that of the first edge.
    pub region: Option<RegionName>,
    /// Further edges that are known at the start.
    pub edges: Vec<EdgePlace>,
    /// How many legs there may be; 0: all streams share the control connection.
    pub max_legs: usize,
    /// After how long a silent edge gets a ping.
    pub keepalive: Duration,
    /// How long streams may continue after the shutdown begins.
    pub drain: Duration,
    /// The threads that serve streams; the session runs on the caller's runtime.
    pub shards: Shards,
    /// Where copies of what streams relay go, for the inspector; `None` without one.
    pub capture: Option<Capture>,
}

/// A connector, before it runs.
pub struct Connector {
    config: ConnectorConfig,
    edge: Arc<Edge>,
    links: Links,
    services: Services,
    changes: mpsc::Receiver<TunnelChange>,
    events: mpsc::Sender<ConnectorEvent>,
}

impl Connector {
    /// A connector for these services, which reports to `events`.
    ///
    /// # Errors
    /// The options cannot be used.
    pub fn new(options: ConnectorOptions, events: mpsc::Sender<ConnectorEvent>) -> anyhow::Result<Self> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| anyhow::anyhow!("the system gives no random bytes: {error}"))?;
        let tunnels = options.services.iter().map(Service::attachment).collect();
        let mut config = ConnectorConfig::new(&options.agent, id, tunnels);
        (config.redundancy, config.home, config.edges) = (options.redundancy, options.region, options.edges);
        config.host = host_name();
        config.max_legs = options.max_legs;
        config.ready_legs = config.ready_legs.min(options.max_legs);
        config.session.keepalive = options.keepalive;
        config.drain = options.drain;
        config.shards = options.shards;
        let (services, changes) = Services::new(events.clone(), options.capture);
        options.services.into_iter().try_for_each(|service| services.know(service))?;
        let (has_links, links) = (options.links.is_some(), Links::new(options.links));
        let edge = Edge::new(EdgeAddress {
            host: options.edge_host,
            port: options.edge_port,
            addresses: Vec::new(),
            quic_port: options.quic_port,
            agent: options.agent,
            tls: options.tls,
            outbound: options.outbound,
            choice: options.transport,
            has_links,
            links: links.clone(),
            services: services.clone(),
        });
        Ok(Self { config, edge: Arc::new(edge), links, services, changes, events })
    }

    /// Its services, which can be changed while it runs.
    #[must_use]
    pub fn services(&self) -> Services {
        self.services.clone()
    }

    /// Its links, and the paths by which they carry the tunnels.
    #[must_use]
    pub fn links(&self) -> Links {
        self.links.clone()
    }

    /// Holds the tunnels until the shutdown, then lets their streams finish.
    ///
    /// # Errors
    /// The edge refuses all tunnels.
    pub async fn run(self, shutdown: Shutdown) -> anyhow::Result<()> {
        let Self { config, edge, services, changes, events, .. } = self;
        let (dial, origins) = (edge.clone(), Arc::new(services));
        let ended = run_changing_connector(config, dial, origins, events, changes, shutdown.wait()).await;
        edge.close().await;
        Ok(ended?)
    }
}

/// The host name of this machine, if it has one.
#[must_use]
pub fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty() && name != "(none)")
}

/// Holds the tunnels of fixed services; see [`Connector`].
///
/// # Errors
/// The options cannot be used, or the edge refuses all tunnels.
pub async fn run(
    options: ConnectorOptions,
    events: mpsc::Sender<ConnectorEvent>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    Connector::new(options, events)?.run(shutdown).await
}
