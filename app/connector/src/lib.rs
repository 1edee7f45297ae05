//! The connector: runs next to a private service and brings the streams of its tunnels to it.
//!
//! [`Connector`] keeps the session with the edge ([`sallyport_tunnel::run_changing_connector`]), which `dial` reaches. For
//! every stream, `services` knows which service is meant, `origin` reaches it, with TLS where it speaks it (`origin_tls`),
//! and `relay` moves the bytes. `flows` does so for datagrams.

mod dial;
mod flows;
mod origin;
mod origin_tls;
mod quick_ack;
mod relay;
mod services;

use std::{sync::Arc, time::Duration};

use dial::{Edge, EdgeAddress};
pub use dial::{Transport, TransportChoice, UnknownTransport};
pub use origin_tls::{OriginTls, OriginTlsError};
use sallyport_model::RegionName;
use sallyport_net::{Outbound, Shutdown};
use sallyport_shards::Shards;
use sallyport_tunnel::{ConnectorConfig, TunnelChange, run_changing_connector};
pub use sallyport_tunnel::{ConnectorError, ConnectorEvent, TunnelCredential};
pub use sallyport_wire::{
    ALPN, EdgePlace,
    edge_selector::{DEFAULT_REDUNDANCY, MAX_REDUNDANCY},
    session::MAX_TUNNELS_PER_SESSION as MAX_SERVICES,
};
pub use services::{Service, Services};
use tokio::sync::mpsc;

/// What a connector needs to know.
#[derive(Debug, Clone)]
pub struct ConnectorOptions {
    /// Name and version of the program, as the edge shows it.
    pub agent: String,
    /// The host of the edge; its certificate must be for this name.
    pub edge_host: String,
    /// The port of the edge.
    pub edge_port: u16,
    /// The port of the edge for QUIC, when it is known.
    pub quic_port: Option<u16>,
    /// TLS to the edge: whom to trust. The protocols (ALPN) are those of the transport.
    pub tls: Arc<rustls::ClientConfig>,
    /// What carries the tunnels.
    pub transport: TransportChoice,
    /// By which way its connections leave this machine.
    pub outbound: Outbound,
    /// The private services, each with its tunnel: at most [`MAX_SERVICES`].
    pub services: Vec<Service>,
    /// At how many edges each tunnel is held, where there are so many: 1 to [`MAX_REDUNDANCY`].
    pub redundancy: usize,
    /// The region that the services are in; `None`: that of the edge to which the connector comes first.
    pub region: Option<RegionName>,
    /// Other edges that are known from the beginning.
    pub edges: Vec<EdgePlace>,
    /// How many legs there may be; 0: all streams share the control connection.
    pub max_legs: usize,
    /// After how much silence the edge is asked for a sign of life.
    pub keepalive: Duration,
    /// How long streams may run on after the shutdown.
    pub drain: Duration,
    /// Where streams are served; the session itself stays in the caller's scheduler.
    pub shards: Shards,
}

/// A connector, before it runs.
pub struct Connector {
    config: ConnectorConfig,
    edge: Arc<Edge>,
    services: Services,
    changes: mpsc::Receiver<TunnelChange>,
    events: mpsc::Sender<ConnectorEvent>,
}

impl Connector {
    /// A connector for these services. What happens is told to `events`.
    ///
    /// # Errors
    /// The options cannot be used.
    pub fn new(options: ConnectorOptions, events: mpsc::Sender<ConnectorEvent>) -> anyhow::Result<Self> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| anyhow::anyhow!("the system gives no random bytes: {error}"))?;
        let tunnels = options.services.iter().map(|service| service.tunnel.clone()).collect();
        let mut config = ConnectorConfig::new(&options.agent, id, tunnels);
        (config.redundancy, config.home, config.edges) = (options.redundancy, options.region, options.edges);
        config.host = host_name();
        config.max_legs = options.max_legs;
        config.ready_legs = config.ready_legs.min(options.max_legs);
        config.session.keepalive = options.keepalive;
        config.drain = options.drain;
        config.shards = options.shards;
        let edge = Edge::new(EdgeAddress {
            host: options.edge_host,
            port: options.edge_port,
            addresses: Vec::new(),
            quic_port: options.quic_port,
            agent: options.agent,
            tls: options.tls,
            outbound: options.outbound,
            choice: options.transport,
        });
        let (services, changes) = Services::new(events.clone());
        options.services.into_iter().try_for_each(|service| services.know(service))?;
        Ok(Self { config, edge: Arc::new(edge), services, changes, events })
    }

    /// Its services, which may be changed while it runs.
    #[must_use]
    pub fn services(&self) -> Services {
        self.services.clone()
    }

    /// Holds the tunnels until the shutdown, then lets their streams finish.
    ///
    /// # Errors
    /// When the edge lets none of the tunnels be held.
    pub async fn run(self, shutdown: Shutdown) -> anyhow::Result<()> {
        let Self { config, edge, services, changes, events } = self;
        let (dial, origins) = (edge.clone(), Arc::new(services));
        let ended = run_changing_connector(config, dial, origins, events, changes, shutdown.wait()).await;
        edge.close().await;
        Ok(ended?)
    }
}

/// The name of this machine, where it has one.
#[must_use]
pub fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty() && name != "(none)")
}

/// Holds the tunnels of services that stay the same; see [`Connector`].
///
/// # Errors
/// When the options cannot be used, or the edge lets none of the tunnels be held.
pub async fn run(
    options: ConnectorOptions,
    events: mpsc::Sender<ConnectorEvent>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    Connector::new(options, events)?.run(shutdown).await
}
