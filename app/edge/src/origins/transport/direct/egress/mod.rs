//! Dialing direct origins from slices of egress addresses, which several edges share.

mod kept;
mod metrics;

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use sallyport_bus::EgressConfig;
use sallyport_connectx::{Connect, PortRange};
use sallyport_model::RegionName;
use sallyport_net::MAX_ADDRESSES;
use sallyport_policy::Country;
use sallyport_ports::{Candidate, Holder, Match, NoSlice, ORIGINS, SliceKey, UseState, Wanted, order};

use sallyport_resolver::ExitResolver;

use self::metrics::EgressMetrics;
use crate::config::EgressSettings;

/// How often leases and addresses are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often the file is written while nothing but time has changed.
const KEEP_EVERY: Duration = Duration::from_secs(5);

/// The slices of this edge.
#[derive(Debug)]
pub(crate) struct Egress {
    settings: EgressSettings,
    site: Option<RegionName>,
    state: Mutex<State>,
    metrics: EgressMetrics,
}

#[derive(Debug)]
struct State {
    holder: Holder,
    config: Arc<EgressConfig>,
    /// Number of connections from each slice.
    flows: BTreeMap<SliceKey, Arc<AtomicUsize>>,
    /// Why slices cannot be used on this machine.
    problems: BTreeMap<SliceKey, String>,
    /// Whether the edge has leases, and so a rule to leave from slices.
    has_rule: bool,
    /// The slices from which connections may be opened.
    usable: Arc<[SliceKey]>,
    /// How often the two have changed.
    epoch: u32,
}

/// The clients that may share connections to an origin: those whose connections would leave alike, from the same slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lane {
    country: Option<Country>,
    /// Number of the set of slices.
    epoch: u32,
}

impl Lane {
    /// The country of the visitors, if it has an address of its own.
    pub(super) fn country(self) -> Option<Country> {
        self.country
    }

    /// Whether the slices of this lane were others than those of a newer one.
    pub(crate) fn is_before(self, newer: Self) -> bool {
        self.epoch < newer.epoch
    }
}

/// A connection from a slice. Counts until it is dropped.
#[derive(Debug)]
pub(crate) struct SliceFlow(Arc<AtomicUsize>);

impl SliceFlow {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for SliceFlow {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// From where a connection may leave.
#[derive(Debug)]
pub(super) enum Leave {
    /// As the kernel chooses.
    AsKernelChooses,
    /// From one of these slices, the best first.
    Slices(Vec<Exit>),
}

/// A slice for one connection.
#[derive(Debug)]
pub(super) struct Exit {
    key: SliceKey,
    why: Match,
    ports: PortRange,
    count: Arc<AtomicUsize>,
}

impl Leave {
    /// The request for a connection to this destination: the best choice is 0, the next one 1. `None` if there is none.
    pub(super) fn request(&self, to: SocketAddr, choice: usize) -> Option<Connect> {
        match self {
            Self::AsKernelChooses => (choice == 0).then(|| Connect::to(to)),
            Self::Slices(exits) => exits.get(choice).map(|exit| exit.to(to)),
        }
    }

    fn exits(&self) -> &[Exit] {
        match self {
            Self::AsKernelChooses => &[],
            Self::Slices(exits) => exits,
        }
    }
}

impl Exit {
    /// The request for a connection to this destination.
    pub(super) fn to(&self, destination: SocketAddr) -> Connect {
        Connect::to(destination).from_address(self.key.0).within(self.ports)
    }
}

impl Egress {
    /// The slices of an edge at this site.
    pub(crate) fn new(settings: EgressSettings, site: Option<RegionName>) -> Arc<Self> {
        let record = settings.kept.as_deref().and_then(|file| kept::read(file, Instant::now()));
        let holder = Holder::new(settings.machine, record);
        let state = State {
            holder,
            config: Arc::default(),
            flows: BTreeMap::new(),
            problems: BTreeMap::new(),
            has_rule: false,
            usable: Arc::default(),
            epoch: 0,
        };
        let egress = Self { settings, site, state: Mutex::new(state), metrics: EgressMetrics::default() };
        egress.look();
        Arc::new(egress)
    }

    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// Follows the leases, reports what the edge does with them, and keeps what the next process must know. Runs until
    /// dropped.
    pub(crate) async fn run(&self, is_shutting_down: &AtomicBool) {
        let mut changed = self.settings.served.subscribe();
        let mut kept = None;
        loop {
            self.look();
            // A process that takes over has the file.
            if !is_shutting_down.load(Ordering::Relaxed) {
                self.keep(&mut kept);
            }
            let uses = {
                let state = self.state.lock();
                let mut uses = state.holder.uses(|key| state.open_flows(key) > 0);
                for one in &mut uses {
                    one.problem = state.problems.get(&(one.address, one.slice)).cloned();
                }
                uses
            };
            let states: Vec<UseState> = uses.iter().map(|one| one.state).collect();
            self.metrics.set_states(&states);
            self.settings.served.report(uses);
            tokio::select! {
                changed = changed.changed() => if changed.is_err() { std::future::pending::<()>().await },
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Takes the published leases, and what the clock and the machine say.
    fn look(&self) {
        let config = self.settings.served.get();
        let renewed = (self.settings.renewed)();
        let mut state = self.state.lock();
        let State { holder, .. } = &mut *state;
        holder.handle_leases(&config.leases);
        if let Some(sent) = renewed {
            holder.handle_renewed(sent);
        }
        if holder.handle_time(Instant::now()) {
            tracing::warn!("leases of slices have ended, because no beat reached the bus for too long");
        }
        state.config = config;
        let own: Vec<SliceKey> = state.holder.leases().map(sallyport_ports::Lease::key).collect();
        for (key, count) in &state.flows {
            self.metrics.set_flows(*key, count.load(Ordering::Relaxed));
        }
        state.flows.retain(|key, count| own.contains(key) || count.load(Ordering::Relaxed) > 0);
        let mut problems = BTreeMap::new();
        for key in own {
            state.flows.entry(key).or_default();
            if let Some(problem) = problem_of(key) {
                if state.problems.get(&key) != Some(&problem) {
                    tracing::warn!(address = %key.0, slice = %key.1, problem, "a slice cannot be used");
                }
                problems.insert(key, problem);
            }
        }
        state.problems = problems;
        let open = state.holder.open(Instant::now());
        let usable: Vec<_> = open.into_iter().filter(|key| !state.problems.contains_key(key)).collect();
        let has_rule = state.holder.refusal().is_some();
        if *state.usable != *usable || state.has_rule != has_rule {
            (state.usable, state.has_rule) = (usable.into(), has_rule);
            state.epoch += 1;
        }
    }

    /// Writes the file, before control is told what is in it.
    fn keep(&self, kept: &mut Option<(sallyport_ports::HolderRecord, Instant)>) {
        let Some(file) = self.settings.kept.as_deref() else { return };
        let Some((record, renewed)) = self.state.lock().holder.record() else { return };
        let now = Instant::now();
        let is_known = |(known, at): &(sallyport_ports::HolderRecord, Instant)| {
            *known == record && now.saturating_duration_since(*at) < KEEP_EVERY
        };
        if kept.as_ref().is_some_and(is_known) {
            return;
        }
        match kept::write(file, record.clone(), renewed, now) {
            Ok(()) => *kept = Some((record, now)),
            Err(error) => tracing::warn!(%error, file = %file.display(), "what is known of leases cannot be kept"),
        }
    }

    /// From where a connection for a visitor of this country may leave to the destination.
    ///
    /// # Errors
    /// The edge has slices, and can use none of them.
    pub(super) fn leave(&self, country: Option<Country>, to: IpAddr) -> Result<Leave, NoSlice> {
        let to = to.to_canonical();
        let mut state = self.state.lock();
        // What is on this machine is no matter of addresses that others see.
        if to.is_loopback() {
            return Ok(Leave::AsKernelChooses);
        }
        let open = state.holder.open(Instant::now());
        let Some(refusal) = state.holder.refusal() else { return Ok(Leave::AsKernelChooses) };
        let exits = state.exits(&open, country, self.site.as_ref(), to);
        let has_problem = open.iter().any(|key| state.problems.contains_key(key));
        drop(state);
        if !exits.is_empty() {
            return Ok(Leave::Slices(exits));
        }
        let reason = if refusal == NoSlice::NoAddress && has_problem { NoSlice::NotUsable } else { refusal };
        self.own_address(reason)
    }

    /// The addresses of a host, asked from the slices of a visitor's country. `None` if the name service cannot be
    /// reached from there, or has no address: the machine's own way to it may know more.
    pub(super) async fn look_up(&self, country: Option<Country>, host: &str) -> Option<Vec<IpAddr>> {
        let exits: Vec<_> = {
            let mut state = self.state.lock();
            let open = state.holder.open(Instant::now());
            let first = |to| state.exits(&open, country, self.site.as_ref(), to).into_iter().next();
            let families = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
            families.into_iter().filter_map(first).map(|exit| (exit.key.0, exit.ports)).collect()
        };
        if exits.is_empty() {
            return None;
        }
        let found = match ExitResolver::new(&self.settings.name_servers, &exits) {
            Ok(Some(resolver)) => resolver.addresses(host).await,
            Ok(None) => return None,
            Err(error) => Err(error),
        };
        match found {
            Ok(addresses) => {
                self.metrics.looked_up();
                Some(addresses.into_iter().take(MAX_ADDRESSES).collect()).filter(|found: &Vec<_>| !found.is_empty())
            }
            Err(error) => {
                tracing::debug!(host, %error, "the name service cannot be asked from a slice");
                None
            }
        }
    }

    /// What happens when no slice can be used.
    ///
    /// # Errors
    /// The machine's own address may not be used either.
    fn own_address(&self, reason: NoSlice) -> Result<Leave, NoSlice> {
        if !self.settings.may_use_own_address {
            return Err(reason);
        }
        self.metrics.used_own();
        Ok(Leave::AsKernelChooses)
    }

    /// What happens when the slices have no port left for a destination. Counts a refusal.
    ///
    /// # Errors
    /// The machine's own address may not be used either.
    pub(super) fn refuse(&self, reason: NoSlice) -> Result<Leave, NoSlice> {
        self.own_address(reason).inspect_err(|reason| self.refused(*reason))
    }

    /// Counts a connection that is not opened.
    pub(super) fn refused(&self, reason: NoSlice) {
        self.metrics.refused(reason);
    }

    /// The clients with which a client of this country may share connections.
    pub(super) fn lane(&self, country: impl FnOnce() -> Option<Country>) -> Lane {
        let state = self.state.lock();
        if state.usable.is_empty() {
            return Lane { country: None, epoch: state.epoch };
        }
        let (usable, config, epoch) = (state.usable.clone(), state.config.clone(), state.epoch);
        drop(state);
        // A country without an address of its own shares with all others.
        let is_served = |country: &Country| {
            let mut tagged = config.addresses.iter().filter(|one| one.country == Some(*country));
            tagged.any(|one| usable.iter().any(|key| key.0 == one.address))
        };
        Lane { country: country().filter(is_served), epoch }
    }

    /// Counts a connection that has left from one of these slices.
    pub(super) fn opened<'a>(
        &self,
        leaves: impl Iterator<Item = &'a Leave>,
        local: io::Result<SocketAddr>,
    ) -> Option<SliceFlow> {
        let local = local.ok()?;
        let is_it = |exit: &&Exit| exit.key.0 == local.ip().to_canonical() && exit.ports.has_port(local.port());
        let exit = leaves.flat_map(Leave::exits).find(is_it)?;
        self.metrics.dialed(exit.key, exit.why);
        Some(SliceFlow::new(&exit.count))
    }

    /// A line for `/healthz`, if slices cannot be used.
    pub(crate) fn note(&self) -> String {
        let mut state = self.state.lock();
        let open = state.holder.open(Instant::now());
        let usable = open.iter().filter(|key| !state.problems.contains_key(key)).count();
        match state.holder.leases().count() {
            all if usable < all => {
                format!("egress: {} of {all} slices cannot be used: `sallyport egress slice ls`\n", all - usable)
            }
            _ => String::new(),
        }
    }
}

impl State {
    fn open_flows(&self, key: SliceKey) -> usize {
        self.flows.get(&key).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// The slices that serve, the best first.
    fn exits(&self, open: &[SliceKey], country: Option<Country>, site: Option<&RegionName>, to: IpAddr) -> Vec<Exit> {
        let usable = open.iter().filter(|key| !self.problems.contains_key(key));
        let candidates: Vec<_> = usable
            .filter_map(|key| {
                let address = self.config.addresses.iter().find(|one| one.address == key.0)?;
                Some(Candidate { address, slice: key.1, flows: self.open_flows(*key) })
            })
            .collect();
        let wanted = Wanted { country, site, purpose: ORIGINS, is_six: to.is_ipv6() };
        let ordered = order(&candidates, &wanted).into_iter();
        ordered
            .filter_map(|(one, why)| {
                let key = (one.address.address, one.slice);
                let ports = PortRange::new(one.slice.first_port(), one.slice.last_port()).ok()?;
                Some(Exit { key, why, ports, count: self.flows.get(&key)?.clone() })
            })
            .collect()
    }
}

/// Why this machine cannot use a slice.
fn problem_of((address, slice): SliceKey) -> Option<String> {
    if let Err(error) = UdpSocket::bind((address, 0)) {
        if error.kind() != io::ErrorKind::AddrNotAvailable {
            return Some(format!("the address {address} cannot be used: {error}"));
        }
        let length = if address.is_ipv4() { 32 } else { 128 };
        return Some(format!(
            "this machine has no address {address}: add it with `ip addr add {address}/{length} dev lo`"
        ));
    }
    match PortRange::of_namespace() {
        Ok(range) if range.low() <= slice.first_port() && slice.last_port() <= range.high() => None,
        Ok(range) => Some(format!(
            "ports {}-{} are not within {range}, from which this machine takes ports: set `sysctl -w \
             net.ipv4.ip_local_port_range=\"2048 65535\"`",
            slice.first_port(),
            slice.last_port()
        )),
        Err(error) => Some(error.to_string()),
    }
}
