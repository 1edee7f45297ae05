//! Measures the ways to other edges, to origins, and to hosts that control names.
//!
//! May use `state`, `origins`, `mesh`, `util`.

mod catchment;
mod hosts;
mod metrics;
mod probe;
mod table;

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use sallyport_bus::{CatchmentAnswer, CatchmentAsk, EdgeCard, WayFigures, WayKind, WayList, WayMethod};
use sallyport_ping::Target;
use sallyport_probe::{Family, ProbeError, Prober};
use tokio::{sync::Notify, task::JoinSet};

use self::{
    catchment::{CatchmentCollector, CatchmentPings},
    hosts::{HostList, ProbedHost},
    metrics::{MeasureMetrics, MinimumGauges},
    probe::{ProbeOutcome, Unmeasured},
    table::{WayKey, WayTable},
};
use crate::{
    mesh::Mesh,
    origins::transport::{OriginTransport, direct::DirectTransport},
    state::EdgeState,
    util::ids,
};

/// The most other edges that one edge measures.
const MAX_EDGES: usize = 200;
/// The most addresses of direct origins, and the most tunnels, that one edge measures.
const MAX_ORIGINS: usize = 128;
/// How many probes of a round wait for their answers at once.
const MAX_AT_ONCE: usize = 16;
/// How many probes of told hosts wait for their answers at once.
const MAX_HOST_PROBES: usize = 64;
/// How long a probe waits for its answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a told host is probed.
const HOST_PERIOD: Duration = Duration::from_secs(1);

/// The measurements of an edge.
pub(crate) struct Measurements {
    state: Arc<EdgeState>,
    started: Instant,
    prober: Option<Arc<Prober>>,
    table: Mutex<WayTable>,
    hosts: Mutex<HostList>,
    /// Notified when a host is told.
    told: Notify,
    /// Why echo requests are not sent, over IPv4 and over IPv6.
    no_echo: Mutex<[Option<String>; 2]>,
    metrics: MeasureMetrics,
    pings: Arc<CatchmentPings>,
}

/// A probe of a round.
enum RoundProbe {
    /// Echo requests to an edge.
    Echo(WayKey, Vec<SocketAddr>),
    /// TCP connects to an edge.
    Connect(WayKey, Vec<SocketAddr>),
    /// The address of a direct origin, and all transports that lead there.
    Origin(WayKey, Vec<Arc<DirectTransport>>),
}

impl Measurements {
    pub(crate) fn new(state: &Arc<EdgeState>) -> Arc<Self> {
        let (prober, no_echo) = match Prober::new() {
            Ok(prober) => (Some(Arc::new(prober)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let pings = CatchmentPings::new(prober.clone(), state.config.measure_private);
        Arc::new(Self {
            pings,
            state: state.clone(),
            started: Instant::now(),
            prober,
            table: Mutex::default(),
            hosts: Mutex::default(),
            told: Notify::new(),
            no_echo: Mutex::new([no_echo.clone(), no_echo]),
            metrics: MeasureMetrics::default(),
        })
    }

    /// The time of the edge, from which records count.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Measures for as long as the edge serves.
    pub(crate) async fn run(self: &Arc<Self>, mesh: &OnceLock<Arc<Mesh>>) {
        tokio::join!(self.measure_rounds(mesh), self.measure_hosts());
    }

    /// Has the edge measure a host for a minute. Returns why not, if it does not.
    pub(crate) fn tell(&self, text: &str) -> Result<(), String> {
        let target: Target = text.parse().map_err(|error: sallyport_ping::TargetError| error.to_string())?;
        self.hosts.lock().tell(target, self.now()).map_err(|error| error.to_string())?;
        self.told.notify_one();
        Ok(())
    }

    /// Answers a question about pings from an anycast address; `None`: it is about clients.
    pub(crate) fn answer_catchment(&self, ask: CatchmentAsk) -> Option<CatchmentAnswer> {
        let answer = match ask {
            CatchmentAsk::Clients { .. } => return None,
            CatchmentAsk::Open(open) => self.pings.open(open),
            CatchmentAsk::Targets { id, first, targets } => self.pings.add(&id, first, &targets),
            CatchmentAsk::Begin { id, is_sender } => self.pings.begin(&id, is_sender),
            CatchmentAsk::Progress { id, from } => self.pings.progress(&id, from),
            CatchmentAsk::Close { id } => self.pings.close(&id),
        };
        Some(answer)
    }

    /// The ways, with this note besides.
    pub(crate) fn list(&self, note: Option<String>) -> WayList {
        let mut notes: Vec<_> = self.no_echo.lock().iter().flatten().cloned().collect();
        notes.dedup();
        notes.extend(note);
        self.forget_old_hosts();
        let ways = self.table.lock().list(self.now());
        WayList { ways, notes, has_more: false }
    }

    /// Forgets the figures of hosts that were told long ago.
    fn forget_old_hosts(&self) {
        let known = self.hosts.lock().known(self.now());
        self.table.lock().retain(|key| key.kind != WayKind::Host || known.contains(&key.to));
    }

    /// Measures edges and origins at the configured interval, jittered so that edges do not measure in step.
    async fn measure_rounds(self: &Arc<Self>, mesh: &OnceLock<Arc<Mesh>>) {
        let Some(period) = self.state.config.measure_every else { return };
        tokio::time::sleep(jittered(period / 2)).await;
        loop {
            self.measure_round(mesh.get()).await;
            tokio::time::sleep(jittered(period)).await;
        }
    }

    async fn measure_round(self: &Arc<Self>, mesh: Option<&Arc<Mesh>>) {
        let others = mesh.map(|mesh| mesh.others()).unwrap_or_default();
        let others = &others[..others.len().min(MAX_EDGES)];
        let mut probes = Vec::new();
        for card in others {
            self.add_edge(card, &mut probes).await;
        }
        let mut passive = mesh.map(|mesh| link_round_trips(mesh, others)).unwrap_or_default();
        passive.extend(self.add_origins(&mut probes));
        let known: HashSet<WayKey> =
            probes.iter().map(RoundProbe::key).chain(passive.iter().map(|one| &one.0)).cloned().collect();
        self.table.lock().retain(|key| key.kind == WayKind::Host || known.contains(key));
        let now = self.now();
        for (key, round_trip) in passive {
            self.table.lock().record(key, Ok((round_trip, None)), now);
        }
        let mut running = JoinSet::new();
        for one in probes {
            while running.len() >= MAX_AT_ONCE {
                running.join_next().await;
            }
            let this = self.clone();
            running.spawn(async move { this.probe(one).await });
        }
        running.join_all().await;
    }

    /// The probes of another edge.
    async fn add_edge(&self, card: &EdgeCard, probes: &mut Vec<RoundProbe>) {
        let addresses: Vec<_> = card.addresses.iter().filter(|one| !one.ip().is_unspecified()).copied().collect();
        let Some(first) = addresses.first() else { return };
        let key = |by| WayKey { kind: WayKind::Edge, to: card.name.to_string(), by };
        if self.can_echo(Family::of(first.ip().to_canonical())).await {
            probes.push(RoundProbe::Echo(key(WayMethod::Icmp), addresses.clone()));
        }
        probes.push(RoundProbe::Connect(key(WayMethod::Tcp), addresses));
    }

    /// The probes of direct origins, and the known round trips of tunnels.
    fn add_origins(&self, probes: &mut Vec<RoundProbe>) -> Vec<(WayKey, Duration)> {
        let mut direct: HashMap<WayKey, Vec<Arc<DirectTransport>>> = HashMap::new();
        let mut tunnels = Vec::new();
        let pools = self.state.sockets.all();
        let origins = pools.iter().flat_map(|pool| pool.origins().into_iter().map(move |origin| (pool, origin)));
        for (pool, origin) in origins {
            match origin.handle() {
                OriginTransport::Direct(transport) => {
                    let by = if transport.is_of_datagrams() { WayMethod::Icmp } else { WayMethod::Tcp };
                    let key = WayKey { kind: WayKind::Origin, to: transport.address().to_string(), by };
                    direct.entry(key).or_default().push(transport.clone());
                }
                OriginTransport::Tunnel(handle) => {
                    let Some(round_trip) = handle.smoothed_rtt() else { continue };
                    let to = format!("{}/{}", pool.name().unwrap_or_default(), handle.tunnel());
                    tunnels.push((WayKey { kind: WayKind::Origin, to, by: WayMethod::Link }, round_trip));
                }
                OriginTransport::Ssh(_) | OriginTransport::Remote(_) => {}
            }
        }
        let mut direct: Vec<_> = direct.into_iter().collect();
        direct.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        direct.truncate(MAX_ORIGINS);
        probes.extend(direct.into_iter().map(|(key, transports)| RoundProbe::Origin(key, transports)));
        tunnels.sort_unstable();
        tunnels.dedup_by(|one, other| one.0 == other.0);
        tunnels.truncate(MAX_ORIGINS);
        tunnels
    }

    /// Whether echo requests may be sent. The reason why not is logged once.
    async fn can_echo(&self, family: Family) -> bool {
        let Some(prober) = &self.prober else { return false };
        let failure = prober.open(family).await.err().map(|error| error.to_string());
        let mut no_echo = self.no_echo.lock();
        let known = &mut no_echo[usize::from(family == Family::V6)];
        if let Some(reason) = &failure
            && known.as_ref() != Some(reason)
        {
            tracing::info!(reason, "ways are measured by TCP connects alone");
        }
        *known = failure;
        known.is_none()
    }

    /// Makes one probe of a round, and records its outcome.
    async fn probe(&self, one: RoundProbe) {
        let (key, outcome, fed) = match one {
            RoundProbe::Echo(key, addresses) => {
                let outcome = match &self.prober {
                    Some(prober) => probe::echo_first(prober, &addresses).await,
                    None => return,
                };
                (key, outcome, Vec::new())
            }
            RoundProbe::Connect(key, addresses) => (key, probe::connect_first(&addresses).await, Vec::new()),
            RoundProbe::Origin(key, transports) => {
                let outcome = self.probe_origin(&key, &transports).await;
                (key, outcome, transports)
            }
        };
        let floor = self.record(key, outcome);
        fed.iter().for_each(|transport| transport.set_measured(floor));
    }

    async fn probe_origin(&self, key: &WayKey, transports: &[Arc<DirectTransport>]) -> ProbeOutcome {
        let Some(first) = transports.first() else { return Err(Unmeasured::not_sent("the origin is gone")) };
        // Only addresses that this edge may dial.
        let addresses = first.probed_addresses().await.map_err(Unmeasured::not_sent)?;
        if key.by == WayMethod::Tcp {
            return probe::connect_first(&addresses).await;
        }
        let family = addresses.first().map(|address| Family::of(address.ip().to_canonical()));
        match (&self.prober, family) {
            (Some(prober), Some(family)) if self.can_echo(family).await => probe::echo_first(prober, &addresses).await,
            _ => Err(Unmeasured::not_sent("datagrams cannot be measured without echo requests")),
        }
    }

    /// Records an outcome. Returns the shortest round trip of the last minutes.
    fn record(&self, key: WayKey, outcome: ProbeOutcome) -> Option<Duration> {
        self.metrics.probed(&key, &outcome);
        self.table.lock().record(key, outcome, self.now())
    }

    /// Measures the hosts that control names, once a second each.
    async fn measure_hosts(self: &Arc<Self>) {
        let mut running = JoinSet::new();
        loop {
            while running.try_join_next().is_some() {}
            if !self.hosts.lock().is_busy(self.now()) {
                self.forget_old_hosts();
                self.told.notified().await;
                continue;
            }
            let due = self.hosts.lock().due(self.now());
            for host in due {
                if running.len() >= MAX_HOST_PROBES {
                    self.hosts.lock().handle_end(&host.target);
                    continue;
                }
                let this = self.clone();
                running.spawn(async move { this.probe_host(host).await });
            }
            tokio::time::sleep(HOST_PERIOD).await;
        }
    }

    async fn probe_host(&self, host: ProbedHost) {
        let by = if host.target.port().is_some() { WayMethod::Tcp } else { WayMethod::Icmp };
        let key = WayKey { kind: WayKind::Host, to: host.target.to_string(), by };
        let outcome = match self.address_of(&host).await {
            Ok(address) if by == WayMethod::Tcp => probe::connect_first(&[address]).await,
            Ok(address) => match &self.prober {
                Some(prober) => probe::echo_first(prober, &[address]).await,
                None => Err(Unmeasured::not_sent("echo requests cannot be sent here")),
            },
            Err(why) => Err(Unmeasured::not_sent(why)),
        };
        self.record(key, outcome);
        self.hosts.lock().handle_end(&host.target);
    }

    /// The address of a told host, resolved once for each telling.
    async fn address_of(&self, host: &ProbedHost) -> Result<SocketAddr, String> {
        if let Some(address) = host.resolved {
            return Ok(address);
        }
        let port = host.target.port().unwrap_or_default();
        let found = sallyport_net::resolve(host.target.host(), port).await.map_err(|error| error.to_string())?;
        let address = found.first().copied().ok_or("the name has no address")?;
        sallyport_probe::check_target(address.ip()).map_err(|error: ProbeError| error.to_string())?;
        self.hosts.lock().set_resolved(&host.target, address);
        Ok(address)
    }

    /// The shortest recent round trips to other edges, for metrics.
    fn edge_floors(&self) -> Vec<WayFigures> {
        let mut ways = self.table.lock().list(self.now());
        ways.retain(|way| way.kind == WayKind::Edge);
        ways
    }

    pub(crate) fn register_metrics(self: &Arc<Self>, registry: &mut Registry) {
        self.metrics.register(registry);
        registry.register_collector(Box::new(MinimumGauges(self.clone())));
        registry.register_collector(Box::new(CatchmentCollector(self.pings.clone())));
    }
}

impl RoundProbe {
    fn key(&self) -> &WayKey {
        match self {
            Self::Echo(key, _) | Self::Connect(key, _) | Self::Origin(key, _) => key,
        }
    }
}

/// The round trips of open links to these edges.
fn link_round_trips(mesh: &Mesh, others: &[Arc<EdgeCard>]) -> Vec<(WayKey, Duration)> {
    let linked = others.iter().filter_map(|card| {
        let round_trip = mesh.link_round_trip(card.edge)?;
        Some((WayKey { kind: WayKind::Edge, to: card.name.to_string(), by: WayMethod::Link }, round_trip))
    });
    linked.collect()
}

/// Between three and five quarters of a time.
fn jittered(time: Duration) -> Duration {
    let part = f64::from(u16::from_be_bytes(ids::random())) / f64::from(u16::MAX);
    time.mul_f64(0.75 + part / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_spread() {
        let times: HashSet<_> = (0..50).map(|_| jittered(Duration::from_secs(10))).collect();
        assert!(times.len() > 10);
        assert!(times.iter().all(|time| (Duration::from_millis(7_499)..=Duration::from_millis(12_501)).contains(time)));
    }
}
