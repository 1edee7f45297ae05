//! What can be set of an edge.
//!
//! May use `util`.

mod affinity_key;
mod audit;
mod identity;

use std::{sync::Arc, time::Duration};

use sallyport_bus::LiveFlows;
use sallyport_geo::Geo;
use sallyport_http::page::Site;
use sallyport_model::RegionName;
use sallyport_net::Congestion;
use sallyport_policy::{DialedNetworks, Network};
use sallyport_shards::Shards;
use sallyport_wire::{Neighbours, SessionConfig};
use tokio::{sync::watch, time::Instant};

pub use self::{affinity_key::AffinityKey, audit::EdgeAudit, identity::EdgeIdentity};

use crate::util::ids;

/// How long a client may take nothing of what waits for it, when nothing else is said.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// How an edge behaves. [`EdgeConfig::new`] gives the defaults.
#[derive(Debug, Clone)]
pub struct EdgeConfig {
    /// The domain that sockets' names are under, in lower case, without dots around it.
    pub domain: String,
    /// The port that clients know us by; for addresses that we hand out.
    pub public_port: u16,
    /// Whose pages visitors see where no origin answers.
    pub site: watch::Receiver<Arc<Site>>,
    /// The region that the edge is in, where there are regions.
    pub region: Option<RegionName>,
    /// How long an origin may take to accept a connection before another is tried.
    pub connect_timeout: Duration,
    /// How long a client may take to send a request's header.
    pub header_timeout: Duration,
    /// How long a client's connection is kept without requests.
    pub idle_timeout: Duration,
    /// How long an origin may take to begin its answer, counted from the last byte of the request that it got.
    pub response_timeout: Duration,
    /// How long a client may take nothing of what waits for it before its connection, or in HTTP/2 its stream, is ended; and
    /// how long one may send nothing of a request's body whose answer it has.
    pub send_timeout: Duration,
    /// How often a quiet HTTP/2 client is asked whether it is there, and how long it may take to say so.
    pub ping_interval: Duration,
    /// How long a flow of datagrams lasts in which nothing moves; those in which little has moved end sooner.
    pub udp_idle_timeout: Duration,
    /// How long a shutdown waits for what runs.
    pub drain: Duration,
    /// Keepalive and windows of the connectors' sessions.
    pub session: SessionConfig,
    /// What this edge is called and which others serve, for connectors; nothing where it is alone.
    pub neighbours: watch::Receiver<Arc<Neighbours>>,
    /// Until when what runs may go on, when the edge is to be drain_until; `None`: it serves.
    pub drain_until: watch::Receiver<Option<Instant>>,
    /// How congestion of the connectors' TCP connections is controlled; `None`: as the kernel does it.
    pub tunnel_congestion: Option<Congestion>,
    /// How many legs of each connector stand ready.
    pub ready_legs: usize,
    /// How many connectors may be connected.
    pub max_sessions: usize,
    /// How many legs one connector may have.
    pub max_legs_per_session: usize,
    /// How many connections may be open; as many again as legs of tunnels.
    pub max_connections: usize,
    /// How many connections one address may have open (in IPv6, one network of 64 bits); as many again as legs.
    pub max_connections_per_address: usize,
    /// How many requests are served on one client connection.
    pub max_requests_per_connection: u64,
    /// From which networks connections begin with a PROXY protocol header that is believed.
    pub trusted_proxies: Vec<Network>,
    /// Which networks may be dialed for direct origins.
    pub direct_origins: DialedNetworks,
    /// Where addresses are, for access lists that ask for countries or autonomous systems. A list that asks for what is
    /// not here lets nobody in.
    pub geo: Option<Arc<Geo>>,
    /// The secret behind which origin a client meets, where it meets the same again. Kept for as long as clients shall.
    pub affinity_key: AffinityKey,
    /// What it takes to know who comes. Without it, nobody enters a socket that asks.
    pub identity: Option<EdgeIdentity>,
    /// Whether each request is logged, under the target `access`.
    pub access_log: bool,
    /// Where it is recorded who used what.
    pub audit: Option<EdgeAudit>,
    /// The flows that run.
    pub flows: LiveFlows,
    /// Where connections are served; what else the edge does stays in the caller's scheduler.
    pub shards: Shards,
}

impl EdgeConfig {
    /// The defaults, for this domain and public port.
    #[must_use]
    pub fn new(domain: &str, public_port: u16) -> Self {
        let domain = domain.trim_matches('.').to_ascii_lowercase();
        Self {
            site: watch::Sender::new(Arc::new(Site::of_domain(&domain))).subscribe(),
            domain,
            public_port,
            region: None,
            connect_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            response_timeout: Duration::from_secs(60),
            send_timeout: SEND_TIMEOUT,
            ping_interval: Duration::from_secs(20),
            udp_idle_timeout: Duration::from_secs(60),
            drain: Duration::from_secs(30),
            session: SessionConfig::default(),
            neighbours: watch::Sender::default().subscribe(),
            drain_until: watch::Sender::default().subscribe(),
            tunnel_congestion: None,
            ready_legs: 8,
            max_sessions: 10_000,
            max_legs_per_session: 4_096,
            max_connections: 65_536,
            max_connections_per_address: 16_384,
            max_requests_per_connection: 100_000,
            trusted_proxies: Vec::new(),
            direct_origins: DialedNetworks::default(),
            geo: None,
            affinity_key: AffinityKey::from(ids::random()),
            identity: None,
            access_log: true,
            audit: None,
            flows: LiveFlows::default(),
            shards: Shards::default(),
        }
    }
}
