//! Direct origins, which an edge dials itself, without a connector.
//!
//! The owner of a socket chooses the address, and this machine dials it. So every dial checks the resolved address, and
//! only the operator's networks are allowed. A name that resolves elsewhere later is refused then.
//!
//! May use what `transport` may use.

pub(crate) mod egress;
mod flow;
mod stream;
mod tls;

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use sallyport_bus::{Fleet, Routes};
use sallyport_geo::Geo;
use sallyport_model::{DirectOriginId, DirectOriginRoute, EdgeName, OriginAddr, RegionName, SocketId, SocketType};
use sallyport_net::{RelayEnd, ShardTcpStream};
use sallyport_policy::{Country, DialedNetworks};
use sallyport_ports::NoSlice;
use sallyport_wire::{FailureReason, OpenFailure, StreamProtocol};
use tokio::net::TcpStream;

pub(crate) use self::{egress::Lane, flow::DirectFlow, stream::DirectStream};
use self::{
    egress::{Egress, Leave, SliceFlow},
    stream::Opened,
    tls::Tls,
};

use crate::config::EdgeConfig;

/// How long a resolved address is reused.
const RESOLVED_FOR: Duration = Duration::from_secs(5);
/// How long it is reused while the name cannot be resolved.
const RESOLVED_AT_MOST: Duration = Duration::from_secs(300);
/// The client of what has none.
const NO_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// How soon the same error of an origin is logged again, and how soon a different one.
const SAME_ERROR_AFTER: Duration = Duration::from_secs(30);
const OTHER_ERROR_AFTER: Duration = Duration::from_secs(2);

/// A connection to an origin, with or without TLS.
pub(crate) trait Dialed: RelayEnd + Send {}

impl<S: RelayEnd + Send> Dialed for S {}

/// Dials all direct origins of this edge.
#[derive(Debug)]
pub(crate) struct Dialer {
    networks: DialedNetworks,
    timeout: Duration,
    routes: Routes,
    /// The port of clients and connectors.
    own_port: OnceLock<u16>,
    /// The edges of the installation.
    fleet: OnceLock<Fleet>,
    tls: tls::SystemConfigs,
    metrics: DialMetrics,
    geo: Option<Arc<Geo>>,
    /// The slices of egress addresses.
    egress: OnceLock<Arc<Egress>>,
}

/// Why a dial has no connection.
#[derive(Debug)]
struct DialFailure {
    failure: OpenFailure,
    /// Whether this machine has no local port left for the destination.
    is_out_of_ports: bool,
}

impl From<OpenFailure> for DialFailure {
    fn from(failure: OpenFailure) -> Self {
        Self { failure, is_out_of_ports: false }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// The metrics of dials.
#[derive(Debug, Clone, Default)]
struct DialMetrics {
    dials: Family<OutcomeLabel, Counter>,
}

impl Dialer {
    /// A dialer with this configuration.
    pub(crate) fn new(config: &EdgeConfig, routes: Routes) -> Arc<Self> {
        Arc::new(Self {
            networks: config.direct_origins.clone(),
            timeout: config.connect_timeout,
            routes,
            own_port: OnceLock::new(),
            fleet: OnceLock::new(),
            tls: tls::SystemConfigs::default(),
            metrics: DialMetrics::default(),
            geo: config.geo.clone(),
            egress: OnceLock::new(),
        })
    }

    /// Whether this edge may dial any network.
    pub(crate) fn is_allowed(&self) -> bool {
        !self.networks.is_empty()
    }

    /// Sets the port at which the edge listens. Only the first call counts.
    pub(crate) fn listens_on(&self, port: u16) {
        let _ = self.own_port.set(port);
    }

    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let edge = registry.sub_registry_with_prefix("sallyport_edge");
        let help = "Connections and flows that this edge opened to direct origins itself, by outcome";
        edge.register("direct_dials", help, self.metrics.dials.clone());
        if let Some(egress) = self.egress.get() {
            egress.register(registry);
        }
    }

    /// Sets the slices from which the edge dials. Only the first call counts.
    pub(crate) fn leave_from(&self, egress: Arc<Egress>) {
        let _ = self.egress.set(egress);
    }

    /// The slices from which the edge dials.
    pub(crate) fn egress(&self) -> Option<&Arc<Egress>> {
        self.egress.get()
    }

    /// The country of a client, if known.
    fn country(&self, client: IpAddr) -> Option<Country> {
        self.geo.as_ref()?.country(client)
    }

    /// Sets the edges of the installation. Only the first call counts.
    pub(crate) fn set_fleet(&self, fleet: Fleet) {
        let _ = self.fleet.set(fleet);
    }

    /// Why the address may not be dialed. The operator has not allowed its network, or an edge serves clients there,
    /// which would be a loop.
    fn refusal(&self, address: SocketAddr, transport: SocketType) -> Option<String> {
        let ip = address.ip();
        if !self.networks.permit(ip) {
            return Some(format!(
                "{ip}, which this edge may not dial: the operator allows networks with --direct-origins"
            ));
        }
        let edge = if is_own(ip) && self.serves(address.port(), transport) {
            "this edge".to_owned()
        } else {
            format!("the edge {}", self.edge_at(address, transport)?)
        };
        Some(format!("{address}, where {edge} serves clients: edges do not dial edges, because the traffic would loop"))
    }

    /// The edge that serves clients at this address.
    fn edge_at(&self, address: SocketAddr, transport: SocketType) -> Option<EdgeName> {
        let there = self.fleet.get()?.at(address.ip());
        let by_clients = there.iter().find(|(_, port)| *port == address.port() && transport != SocketType::Udp);
        let by_socket = || there.first().filter(|_| self.serves_sockets_at(address.port(), transport));
        by_clients.or_else(by_socket).map(|(name, _)| name.clone())
    }

    /// Whether this edge serves clients at this port.
    fn serves(&self, port: u16, transport: SocketType) -> bool {
        let by_clients = transport != SocketType::Udp && self.own_port.get() == Some(&port);
        by_clients || self.serves_sockets_at(port, transport)
    }

    /// Whether a socket has this port, which every edge serves.
    fn serves_sockets_at(&self, port: u16, transport: SocketType) -> bool {
        let is_udp = |one: SocketType| one == SocketType::Udp;
        let same_kind = |route: &SocketType| is_udp(*route) == is_udp(transport);
        self.routes.all().iter().any(|route| route.port == Some(port) && same_kind(&route.socket_type))
    }
}

/// Whether this machine has the address.
fn is_own(ip: IpAddr) -> bool {
    ip.is_loopback() || std::net::UdpSocket::bind((ip, 0)).is_ok()
}

/// The last resolution of a name.
#[derive(Debug)]
struct Resolved {
    addresses: Vec<SocketAddr>,
    at: Instant,
}

/// Limits the log of an origin's errors, because every request meets the same error.
#[derive(Debug, Default)]
struct ErrorLogLimit(Mutex<Option<(String, Instant)>>);

impl ErrorLogLimit {
    /// Whether this error is logged now.
    fn is_due(&self, text: &str, now: Instant) -> bool {
        let mut last = self.0.lock();
        let is_due = last.as_ref().is_none_or(|(logged, at)| {
            let pause = if logged == text { SAME_ERROR_AFTER } else { OTHER_ERROR_AFTER };
            now.saturating_duration_since(*at) >= pause
        });
        if is_due {
            *last = Some((text.to_owned(), now));
        }
        is_due
    }
}

/// The transport to one direct origin.
#[derive(Debug)]
pub(crate) struct DirectTransport {
    socket: SocketId,
    origin: DirectOriginRoute,
    socket_type: SocketType,
    dialer: Arc<Dialer>,
    is_gone: AtomicBool,
    /// By the countries of visitors that have an egress address of their own: a name service may answer each one
    /// differently.
    resolved: tokio::sync::Mutex<BTreeMap<Option<Country>, Resolved>>,
    /// Made at first use.
    tls: OnceLock<Result<Tls, String>>,
    log_limit: ErrorLogLimit,
    /// How many datagram flows it has.
    flows: AtomicUsize,
    /// How long connecting takes, smoothed, in microseconds; 0 before the first measurement.
    round_trip_us: AtomicU64,
    /// The shortest round trip of the edge's own measurements lately, in microseconds; 0 without one.
    measured_us: AtomicU64,
}

impl DirectTransport {
    /// The transport to this origin of a socket of this type.
    pub(crate) fn new(
        socket: SocketId,
        origin: DirectOriginRoute,
        socket_type: SocketType,
        dialer: Arc<Dialer>,
    ) -> Arc<Self> {
        Arc::new(Self {
            socket,
            origin,
            socket_type,
            dialer,
            is_gone: AtomicBool::new(false),
            resolved: tokio::sync::Mutex::default(),
            tls: OnceLock::new(),
            log_limit: ErrorLogLimit::default(),
            flows: AtomicUsize::new(0),
            round_trip_us: AtomicU64::new(0),
            measured_us: AtomicU64::new(0),
        })
    }

    /// The origin's id.
    pub(crate) fn id(&self) -> DirectOriginId {
        self.origin.id
    }

    /// The address to dial.
    pub(crate) fn address(&self) -> &OriginAddr {
        &self.origin.address
    }

    /// The configured region, if any.
    pub(crate) fn region(&self) -> Option<&RegionName> {
        self.origin.region.as_ref()
    }

    /// How long connecting takes, about one round trip; else the measured round trip.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        micros(&self.round_trip_us).or_else(|| micros(&self.measured_us))
    }

    /// The shortest measured round trip of the last minutes; else how long connecting takes.
    pub(crate) fn distance(&self) -> Option<Duration> {
        micros(&self.measured_us).or_else(|| micros(&self.round_trip_us))
    }

    /// Sets the shortest measured round trip of the last minutes.
    pub(crate) fn set_measured(&self, shortest: Option<Duration>) {
        let us = shortest.map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1));
        self.measured_us.store(us, Ordering::Relaxed);
    }

    /// Whether the origin gets datagrams.
    pub(crate) fn is_of_datagrams(&self) -> bool {
        self.socket_type == SocketType::Udp
    }

    /// The addresses to measure: those that this edge may dial.
    pub(crate) async fn probed_addresses(&self) -> Result<Vec<SocketAddr>, String> {
        self.addresses(NO_CLIENT).await.map_err(|failure| failure.message)
    }

    fn took(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).clamp(1, u64::MAX / 8);
        let former = self.round_trip_us.load(Ordering::Relaxed);
        let smoothed = if former == 0 { us } else { (7 * former + us) / 8 };
        self.round_trip_us.store(smoothed.max(1), Ordering::Relaxed);
    }

    /// Whether this transport fits the origin's current settings, apart from weight, paths and capacity.
    pub(crate) fn leads_to(&self, origin: &DirectOriginRoute, socket_type: SocketType) -> bool {
        let (weight, path, capacity) = (self.origin.weight, self.origin.path.clone(), self.origin.capacity.clone());
        let same_share = DirectOriginRoute { weight, path, capacity, ..origin.clone() };
        same_share == self.origin && socket_type == self.socket_type
    }

    /// Whether new connections can be opened.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_gone.load(Ordering::Acquire)
    }

    /// Ends new connections.
    pub(crate) fn leave(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    /// The clients with which a client may share connections.
    pub(crate) fn lane(&self, client: IpAddr) -> Lane {
        self.dialer.egress.get().map(|egress| egress.lane(|| self.dialer.country(client))).unwrap_or_default()
    }

    /// A lane of connections that may be opened now.
    pub(crate) fn newest_lane(&self) -> Lane {
        self.dialer.egress.get().map(|egress| egress.lane(|| None)).unwrap_or_default()
    }

    /// Opens a stream to the origin for this client. Does not wait for the connection.
    pub(crate) fn open(self: &Arc<Self>, protocol: StreamProtocol, client: IpAddr) -> DirectStream {
        let transport = self.clone();
        DirectStream::new(self.lane(client), async move { transport.dial(protocol, client).await })
    }

    /// Connects to the origin.
    async fn dial(&self, protocol: StreamProtocol, client: IpAddr) -> Result<Opened, OpenFailure> {
        let began = Instant::now();
        let outcome = match tokio::time::timeout(self.dialer.timeout, self.connect(protocol, client, began)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let text = format!("{} did not answer within {:?}", self.origin.address, self.dialer.timeout);
                Err(OpenFailure::new(FailureReason::TimedOut, &text).into())
            }
        };
        self.count(outcome.as_ref().err());
        outcome.map_err(|failed| failed.failure)
    }

    async fn connect(&self, protocol: StreamProtocol, client: IpAddr, began: Instant) -> Result<Opened, DialFailure> {
        let addresses = self.addresses(client).await?;
        let dialed = Instant::now();
        let (tcp, flow) = match self.connect_tcp(&addresses, client).await {
            Ok((tcp, flow)) => {
                self.took(dialed.elapsed());
                (ShardTcpStream::new(tcp), flow)
            }
            Err(failed) => {
                // The name may resolve elsewhere by now.
                self.resolved.lock().await.clear();
                return Err(failed);
            }
        };
        if self.socket_type != SocketType::Https {
            return Ok((Box::new(tcp), flow));
        }
        let made = self.tls.get_or_init(|| Tls::new(&self.origin, &self.dialer.tls));
        let tls = made.as_ref().map_err(|error| OpenFailure::new(FailureReason::Tls, error))?;
        let left = self.dialer.timeout.saturating_sub(began.elapsed());
        Ok((tls.start(tcp, &self.origin.address, protocol, left).await?, flow))
    }

    /// Connects to one of the addresses: from slices, if the edge has any.
    async fn connect_tcp(
        &self,
        addresses: &[SocketAddr],
        client: IpAddr,
    ) -> Result<(TcpStream, Option<SliceFlow>), DialFailure> {
        let time = self.dialer.timeout;
        let Some(egress) = self.dialer.egress.get() else {
            let connected = sallyport_net::connect_tcp_to(addresses, time).await;
            return connected.map(|tcp| (tcp, None)).map_err(|error| why_not_connected(&error));
        };
        let country = self.dialer.country(client);
        let routes = self.routes(egress, country, addresses)?;
        let mut choice = 0;
        loop {
            let requests: Vec<_> = routes.iter().filter_map(|(to, leave)| leave.request(*to, choice)).collect();
            match sallyport_net::connect_tcp_as(&requests, time).await {
                Ok(tcp) => {
                    let flow = egress.opened(routes.iter().map(|(_, leave)| leave), tcp.local_addr());
                    return Ok((tcp, flow));
                }
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                    choice += 1;
                    if routes.iter().any(|(to, leave)| leave.request(*to, choice).is_some()) {
                        continue;
                    }
                    if egress.refuse(NoSlice::Exhausted).is_err() {
                        return Err(why_not_connected(&error));
                    }
                    let connected = sallyport_net::connect_tcp_to(addresses, time).await;
                    return connected.map(|tcp| (tcp, None)).map_err(|error| why_not_connected(&error));
                }
                Err(error) => return Err(why_not_connected(&error)),
            }
        }
    }

    /// From where a connection may leave to each of the addresses; at least one.
    fn routes(
        &self,
        egress: &Egress,
        country: Option<Country>,
        addresses: &[SocketAddr],
    ) -> Result<Vec<(SocketAddr, Leave)>, OpenFailure> {
        let (mut routes, mut refused) = (Vec::new(), None);
        for address in addresses {
            match egress.leave(country, address.ip()) {
                Ok(leave) => routes.push((*address, leave)),
                Err(reason) => refused = Some(reason),
            }
        }
        match refused {
            Some(reason) if routes.is_empty() => {
                let text = format!("{} is not dialed: the edge has slices, and {reason}", self.origin.address);
                egress.refused(reason);
                Err(OpenFailure::new(FailureReason::Other, &text))
            }
            _ => Ok(routes),
        }
    }

    /// The allowed addresses of the origin; at least one.
    async fn addresses(&self, client: IpAddr) -> Result<Vec<SocketAddr>, OpenFailure> {
        let found = self.resolve(client).await?;
        let (mut allowed, mut refused) = (Vec::new(), Vec::new());
        for address in found {
            match self.dialer.refusal(address, self.socket_type) {
                None => allowed.push(address),
                Some(why) => refused.push(why),
            }
        }
        if allowed.is_empty() {
            let text = format!("{} is at {}", self.origin.address, refused.join("; and at "));
            return Err(OpenFailure::new(FailureReason::Other, &text));
        }
        Ok(allowed)
    }

    /// Resolves the origin's name. One caller resolves; others wait for the result.
    async fn resolve(&self, client: IpAddr) -> Result<Vec<SocketAddr>, OpenFailure> {
        let address = &self.origin.address;
        if let Some(ip) = address.ip() {
            return Ok(vec![SocketAddr::new(ip, address.port)]);
        }
        let country = self.lane(client).country();
        let mut resolved = self.resolved.lock().await;
        if let Some(known) = resolved.get(&country).filter(|known| known.at.elapsed() < RESOLVED_FOR) {
            return Ok(known.addresses.clone());
        }
        match self.look_up(country).await {
            Ok(addresses) => {
                resolved.insert(country, Resolved { addresses: addresses.clone(), at: Instant::now() });
                Ok(addresses)
            }
            Err(error) => match resolved.get(&country).filter(|known| known.at.elapsed() < RESOLVED_AT_MOST) {
                Some(known) => {
                    tracing::debug!(%address, %error, "the name of a direct origin cannot be resolved: the last address is dialed");
                    Ok(known.addresses.clone())
                }
                None => Err(OpenFailure::new(FailureReason::Unresolved, &error.to_string())),
            },
        }
    }

    /// Asks the name service: from a slice, if the edge has any and the name service can be reached from there.
    async fn look_up(&self, country: Option<Country>) -> io::Result<Vec<SocketAddr>> {
        let OriginAddr { host, port } = &self.origin.address;
        if let Some(egress) = self.dialer.egress.get()
            && let Some(found) = egress.look_up(country, host).await
        {
            return Ok(found.into_iter().map(|ip| SocketAddr::new(ip, *port)).collect());
        }
        sallyport_net::resolve(host, *port).await
    }

    /// Counts a dial, and logs its failure for the operator.
    fn count(&self, failed: Option<&DialFailure>) {
        let failure = failed.map(|failed| &failed.failure);
        let outcome = match failure.map(|failure| failure.reason) {
            None => "connected",
            Some(_) if failed.is_some_and(|failed| failed.is_out_of_ports) => "no-port",
            Some(FailureReason::Refused) => "refused",
            Some(FailureReason::TimedOut) => "timed-out",
            Some(FailureReason::Unresolved) => "unresolved",
            Some(FailureReason::Tls) => "tls",
            Some(FailureReason::Draining | FailureReason::Other) => "failed",
        };
        self.dialer.metrics.dials.get_or_create(&OutcomeLabel { outcome }).inc();
        if let Some(failure) = failure
            && self.log_limit.is_due(&failure.message, Instant::now())
        {
            let reason = &failure.message;
            tracing::warn!(socket = %self.socket, origin = %self.origin.id, reason, "a direct origin is not reached");
        }
    }
}

/// A time in microseconds, unless it is 0.
fn micros(us: &AtomicU64) -> Option<Duration> {
    let us = us.load(Ordering::Relaxed);
    (us > 0).then(|| Duration::from_micros(us))
}

fn why_not_connected(error: &io::Error) -> DialFailure {
    let reason = match error.kind() {
        io::ErrorKind::ConnectionRefused => FailureReason::Refused,
        io::ErrorKind::TimedOut => FailureReason::TimedOut,
        io::ErrorKind::NotFound => FailureReason::Unresolved,
        _ => FailureReason::Other,
    };
    // The kind is of `ConnectError::NoPortLeft` alone.
    let is_out_of_ports = error.kind() == io::ErrorKind::AddrNotAvailable;
    DialFailure { failure: OpenFailure::new(reason, &error.to_string()), is_out_of_ports }
}
