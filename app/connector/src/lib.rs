//! The connector: runs next to a private service and brings the streams of its tunnels to it.
//!
//! [`run`] keeps the session with the edge ([`sallyport_tunnel::run_connector`]), which `dial` reaches. For every stream,
//! `origin` reaches the service, with TLS where it speaks it (`origin_tls`), and `relay` moves the bytes. `flows` does so
//! for datagrams.

mod dial;
mod flows;
mod origin;
mod origin_tls;
mod quick_ack;
mod relay;

use std::{sync::Arc, time::Duration};

use dial::{Edge, EdgeAddress};
pub use dial::{Transport, TransportChoice, UnknownTransport};
use origin::Origin;
pub use origin_tls::{OriginTls, OriginTlsError};
use sallyport_model::OriginAddr;
use sallyport_net::{Outbound, Shutdown};
use sallyport_shards::Shards;
use sallyport_tunnel::{ConnectorConfig, run_connector};
pub use sallyport_tunnel::{ConnectorError, ConnectorEvent, TunnelCredential};
pub use sallyport_wire::ALPN;
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
    /// The private service.
    pub origin: OriginAddr,
    /// TLS to the service, where it speaks it.
    pub origin_tls: Option<OriginTls>,
    /// How long the service may take to accept a connection, its TLS handshake included.
    pub connect_timeout: Duration,
    /// The tunnels to hold.
    pub tunnels: Vec<TunnelCredential>,
    /// How many legs there may be; 0: all streams share the control connection.
    pub max_legs: usize,
    /// After how much silence the edge is asked for a sign of life.
    pub keepalive: Duration,
    /// How long streams may run on after the shutdown.
    pub drain: Duration,
    /// Where streams are served; the session itself stays in the caller's scheduler.
    pub shards: Shards,
}

/// Holds the tunnels until the shutdown, then lets their streams finish. What happens is told to `events`.
///
/// # Errors
/// When the options cannot be used, or the edge lets none of the tunnels be held.
pub async fn run(
    options: ConnectorOptions,
    events: mpsc::Sender<ConnectorEvent>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let mut connector_id = [0; 16];
    getrandom::fill(&mut connector_id).map_err(|error| anyhow::anyhow!("the system gives no random bytes: {error}"))?;
    let mut config = ConnectorConfig::new(&options.agent, connector_id, options.tunnels);
    config.max_legs = options.max_legs;
    config.ready_legs = config.ready_legs.min(options.max_legs);
    config.session.keepalive = options.keepalive;
    config.drain = options.drain;
    config.shards = options.shards;
    let edge = Edge::new(EdgeAddress {
        host: options.edge_host,
        port: options.edge_port,
        quic_port: options.quic_port,
        agent: options.agent,
        tls: options.tls,
        outbound: options.outbound,
        choice: options.transport,
    });
    let (address, tls) = (options.origin, options.origin_tls.as_ref());
    let origin = Origin::new(address, tls, options.connect_timeout, events.clone())?;
    let edge = Arc::new(edge);
    let ended = run_connector(config, edge.clone(), Arc::new(origin), events, shutdown.wait()).await;
    edge.close().await;
    Ok(ended?)
}
