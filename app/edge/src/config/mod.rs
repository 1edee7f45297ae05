//! The configuration of an edge.
//!
//! May use `util`.

mod affinity_key;
mod audit;
mod egress;
mod identity;

use std::{sync::Arc, time::Duration};

use sallyport_bus::{AcmeChallenges, LiveFlows};
use sallyport_geo::Geo;
use sallyport_http::page::Site;
use sallyport_model::RegionName;
use sallyport_net::Congestion;
use sallyport_policy::{DialedNetworks, Network};
use sallyport_shards::Shards;
use sallyport_wire::{Neighbours, SessionConfig};
use tokio::{sync::watch, time::Instant};

pub use self::{
    affinity_key::AffinityKey,
    audit::EdgeAudit,
    egress::{EgressSettings, Renewed},
    identity::EdgeIdentity,
};

use crate::util::ids;

/// The default of [`EdgeConfig::send_timeout`].
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// The configuration of an edge. [`EdgeConfig::new`] gives the defaults.
#[derive(Debug, Clone)]
pub struct EdgeConfig {
    /// The domain that sockets' names are under, in lower case, without dots around it.
    pub domain: String,
    /// The port of the edge in URLs that the edge hands out.
    pub public_port: u16,
    /// Name and look of the pages that visitors see when no origin responds.
    pub site: watch::Receiver<Arc<Site>>,
    /// The region of the edge, in installations with regions.
    pub region: Option<RegionName>,
    /// How long an origin may take to accept a connection before another origin is tried.
    pub connect_timeout: Duration,
    /// How long a client may take to send the header section of a request.
    pub header_timeout: Duration,
    /// How long an idle client connection is kept open.
    pub idle_timeout: Duration,
    /// How long an origin may take from the last byte of the request to the first byte of the response.
    pub response_timeout: Duration,
    /// How long a client may take no byte of a response before its connection, in HTTP/2 its stream, is ended. The same
    /// bound applies to a client that sends no byte of a request body after its response has come.
    pub send_timeout: Duration,
    /// How long an HTTP/2 client may be silent before a PING, and how long the answer may take.
    pub ping_interval: Duration,
    /// How long an idle datagram flow lasts; flows with little traffic end sooner.
    pub udp_idle_timeout: Duration,
    /// How long a shutdown waits for running work.
    pub shutdown_grace: Duration,
    /// Keepalive and windows of the connectors' sessions.
    pub session: SessionConfig,
    /// The name of this edge and the addresses of its neighbours, for connectors; empty for a lone edge.
    pub neighbours: watch::Receiver<Arc<Neighbours>>,
    /// The end of a drain that has been ordered; `None` without a drain.
    pub drain_until: watch::Receiver<Option<Instant>>,
    /// The congestion control of the connectors' TCP connections; `None` for that of the kernel.
    pub tunnel_congestion: Option<Congestion>,
    /// How many legs of each connector are kept ready.
    pub ready_legs: usize,
    /// How many connectors may be connected.
    pub max_sessions: usize,
    /// How many legs one connector may have.
    pub max_legs_per_session: usize,
    /// How many connections may be open, and how many legs of tunnels besides.
    pub max_connections: usize,
    /// How many connections one address may have open (in IPv6, one network of 64 bits), and how many legs besides.
    pub max_connections_per_address: usize,
    /// How many requests one client connection may carry.
    pub max_requests_per_connection: u64,
    /// How often the edge measures the ways to other edges and to origins; `None`: never.
    pub measure_every: Option<Duration>,
    /// Whether measurements of the catchment may ping private addresses, as laboratories need it.
    pub measure_private: bool,
    /// The networks of balancers. Connections from there begin with a PROXY protocol header.
    pub trusted_proxies: Vec<Network>,
    /// The networks in which direct origins may be.
    pub direct_origins: DialedNetworks,
    /// The database of countries and autonomous systems for access lists. Without it, access lists that need it refuse
    /// every client.
    pub geo: Option<Arc<Geo>>,
    /// The secret by which a client meets the same origin again. A new secret moves clients to other origins.
    pub affinity_key: AffinityKey,
    /// The keys and logins that identify clients. Without it, sockets with an identity admit no client.
    pub identity: Option<EdgeIdentity>,
    /// Whether each request is logged, under the target `access`.
    pub access_log: bool,
    /// Where the use of sockets is recorded.
    pub audit: Option<EdgeAudit>,
    /// The running flows.
    pub flows: LiveFlows,
    /// The challenges of ACME servers that the edge answers.
    pub challenges: AcmeChallenges,
    /// The threads that serve connections. Everything else runs on the caller's runtime.
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
            shutdown_grace: Duration::from_secs(30),
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
            measure_every: None,
            measure_private: false,
            trusted_proxies: Vec::new(),
            direct_origins: DialedNetworks::default(),
            geo: None,
            affinity_key: AffinityKey::from(ids::random()),
            identity: None,
            access_log: true,
            audit: None,
            flows: LiveFlows::default(),
            challenges: AcmeChallenges::default(),
            shards: Shards::default(),
        }
    }
}
