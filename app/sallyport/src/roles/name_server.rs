//! The name server of a process: its ports, and the zones and addresses that it answers with.

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use sallyport_bus::{AcmeChallenges, Bus, Fleet, ServedZones};
use sallyport_dns::{Server, ServerConfig};
use sallyport_identity::{Purpose, Sealer};
use sallyport_model::{
    ALL_EDGES, ChallengeKind, ServedZone, ZoneId, ZoneRecord, acme_alias, challenge_name, is_private,
};
use sallyport_resolver::Resolver;
use sallyport_zone::{
    MAX_IDENTITY_BYTES, Name, Settings, View, Zone, Zones,
    data::HttpPorts,
    limit::CookieSecrets,
    served::{ServedZoneError, delegation, parent_zone, served_zone},
    transfer::catalog_zone,
};
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::{Semaphore, watch},
    task::{AbortHandle, JoinHandle, JoinSet},
};
use tracing::{info, warn};

use super::{
    answered_edges::{addresses_of, answered_edges, common_ports, edge_addresses},
    steered_edges::Published,
};
use crate::{
    args::dns::DnsArgs,
    failure::{Failure, Kind},
};

/// How long others may keep the addresses of edges, in seconds.
const EDGES_TTL_SECONDS: u32 = 30;
/// How long others may keep the answer to a challenge, in seconds.
const CHALLENGE_TTL_SECONDS: u32 = 1;
/// How long others may keep the addresses of another name, in seconds.
const ALIAS_TTL_SECONDS: u32 = 60;
/// How often the addresses of other names are looked up.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// The most lookups of other names at a time, and as many of names that are new.
const MAX_LOOKUPS: usize = 16;
/// The most UDP sockets, each with a thread.
const MAX_THREADS: usize = 16;

/// The ports of the name server, opened.
pub(super) struct DnsPorts {
    udp: Vec<std::net::UdpSocket>,
    tcp: std::net::TcpListener,
    address: SocketAddr,
}

impl DnsPorts {
    /// Opens the configured ports, if any. `tls` is the address of TLS. A process that takes over shares them with its
    /// predecessor until that one has ended.
    ///
    /// # Errors
    /// A port cannot be opened.
    pub(super) fn open(args: &DnsArgs, tls: SocketAddr, is_takeover: bool) -> anyhow::Result<Option<Self>> {
        let Some(listen) = args.listen_dns else { return Ok(None) };
        let address = listen.with_default(tls.ip());
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let opened = sallyport_dns::bind(address, threads, is_takeover);
        let (udp, tcp) = opened.map_err(|error| {
            let failure = Failure::new(Kind::Failed, format!("cannot answer DNS at {address} (--listen-dns): {error}"));
            match error.kind() {
                std::io::ErrorKind::AddrInUse => failure.next(
                    "a resolver of this machine may have the port: give the public address, such as --listen-dns \
                     192.0.2.10:53",
                ),
                _ => failure,
            }
        })?;
        let address = tcp.local_addr().context("the address of the name server is not known")?;
        Ok(Some(Self { udp, tcp, address }))
    }
}

/// What the name server answers with.
pub(super) struct NameServerParts {
    /// Zones and challenges, and the edges of the installation.
    pub(super) bus: Bus,
    /// Opens the keys of zones.
    pub(super) sealer: Arc<Sealer>,
    /// The secret that all edges share, from which cookies are derived.
    pub(super) shared_secret: [u8; 32],
    /// The addresses of this machine, where no other edges are known.
    pub(super) own: Vec<IpAddr>,
    /// The TCP port of this machine as clients see it.
    pub(super) own_port: u16,
    /// The UDP port at which this machine offers HTTP/3 to clients.
    pub(super) own_http3_port: watch::Receiver<Option<u16>>,
    /// Looks up the addresses of other names, for ALIAS records.
    pub(super) resolver: Option<Resolver>,
    /// The domain of the installation.
    pub(super) domain: String,
    /// What the server calls itself.
    pub(super) identity: String,
}

/// A running name server.
pub(super) struct NameServer {
    address: SocketAddr,
    server: Arc<Server>,
    tasks: Vec<JoinHandle<()>>,
}

impl NameServer {
    /// Starts the name server.
    ///
    /// # Errors
    /// The keys of secondaries cannot be read, or the system refuses.
    pub(super) fn start(ports: DnsPorts, args: &DnsArgs, parts: NameServerParts) -> anyhow::Result<Self> {
        let DnsPorts { udp, tcp, address } = ports;
        let (keys, key_names) = args.keys()?;
        let mut settings = Settings::default();
        (settings.cookies, settings.tsig_keys) = (Some(cookies(&parts.shared_secret)), keys);
        let identity = parts.identity.get(..MAX_IDENTITY_BYTES).unwrap_or(&parts.identity);
        settings.set_identity(Some(identity.to_owned()), None)?;
        let settings = Arc::new(settings);
        let mut config = ServerConfig::default();
        config.state.rate = args.rates();
        if parts.own.is_empty() && parts.bus.fleet.edges().is_empty() {
            warn!(
                "the address of this machine for others is not known, so the name server has no addresses to answer: \
                 give --public-address"
            );
        }
        let transfer = Transfer {
            settings: settings.clone(),
            key_names,
            secondaries: args.dns_secondaries.clone(),
            catalog: args.dns_catalog.clone(),
            members: None,
            notices: HashMap::new(),
        };
        let published = Published::read(&parts.bus.dns_steering);
        let mut answers = Answers { zones: HashMap::new(), parts, transfer, published };
        // From the first question on: a successor is asked while its predecessor still answers.
        let (zones, changed) = answers.collect();
        let mut view = View::default();
        answers.fill(&mut view, None);
        let zones = Arc::new(zones.unwrap_or_default());
        let server = Arc::new(Server::start_with(&config, zones, view, settings, udp, vec![tcp])?);
        server.change_view(|view| answers.fill(view, Some(server.counters())));
        answers.tell_secondaries(&changed);
        info!(listen = %address, zones = answers.zones.len(), "answering DNS");
        let keeper = Keeper { server: server.clone(), answers };
        let aliases = keeper.answers.parts.resolver.clone().map(|resolver| {
            let keeper = AliasKeeper {
                server: server.clone(),
                resolver,
                zones: keeper.answers.parts.bus.zones.clone(),
                fleet: keeper.answers.parts.bus.fleet.clone(),
                own: keeper.answers.parts.own.clone().into(),
            };
            tokio::spawn(keeper.run())
        });
        let task = tokio::spawn(keeper.run());
        Ok(Self { address, server, tasks: aliases.into_iter().chain([task]).collect() })
    }

    /// The address at which it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counters of the server.
    pub(super) fn counters(&self) -> Arc<sallyport_dns::Counters> {
        self.server.counters().clone()
    }

    /// Stops answering.
    pub(super) async fn end(self) {
        self.server.withdraw();
        for task in self.tasks {
            task.abort();
            // A task that has ended holds the server no more.
            let _ = task.await;
        }
        if let Ok(server) = Arc::try_unwrap(self.server) {
            server.stop().await;
        }
    }
}

/// The secrets of cookies: the same at all edges, so that a client may come to any (RFC 9018 section 1).
fn cookies(shared: &[u8; 32]) -> CookieSecrets {
    let mut hash = Sha256::new();
    hash.update(b"sallyport cookies of the name server\0");
    hash.update(shared);
    let digest: [u8; 32] = hash.finalize().into();
    CookieSecrets::new(*digest.first_chunk().unwrap_or(&[0; 16]), None)
}

/// How zones reach secondaries.
struct Transfer {
    settings: Arc<Settings>,
    key_names: Vec<Name>,
    secondaries: Vec<SocketAddr>,
    catalog: Option<Name>,
    /// The catalog zone as it is served, with the zones in it.
    members: Option<(Vec<Name>, Arc<Zone>)>,
    /// The notices that are under way: one for each zone and secondary.
    notices: HashMap<(Name, SocketAddr), AbortHandle>,
}

/// A zone that answers.
struct AnsweringZone {
    /// The zone as control has published it.
    source: Arc<ServedZone>,
    /// The records by which the zone delegates those below it.
    delegations: Vec<ZoneRecord>,
    zone: Arc<Zone>,
}

/// What the name server answers with.
struct Answers {
    parts: NameServerParts,
    /// The zones that answer now.
    zones: HashMap<ZoneId, AnsweringZone>,
    transfer: Transfer,
    /// What steers clients.
    published: Published,
}

/// Keeps what the name server answers with up to date.
struct Keeper {
    server: Arc<Server>,
    answers: Answers,
}

impl Keeper {
    async fn run(mut self) {
        let Bus { zones, challenges, fleet, dns_steering, .. } = self.answers.parts.bus.clone();
        let (mut zones, mut challenges, mut edges) = (zones.subscribe(), challenges.subscribe(), fleet.subscribe());
        let mut steering = dns_steering.subscribe();
        // What has changed since the start.
        steering.mark_changed();
        let mut own_http3_port = self.answers.parts.own_http3_port.clone();
        loop {
            tokio::select! {
                changed = zones.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.take_zones();
                    self.take_view();
                }
                changed = challenges.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.take_view();
                }
                changed = edges.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.take_view();
                }
                changed = steering.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let bus = dns_steering.clone();
                    // Meanwhile other threads answer with what they have.
                    if let Ok(published) = tokio::task::spawn_blocking(move || Published::read(&bus)).await {
                        self.answers.published = published;
                        self.take_view();
                    }
                }
                // The sender ends with the edge.
                Ok(()) = own_http3_port.changed() => self.take_view(),
            }
        }
    }

    /// Serves the zones of the bus, and then tells the secondaries what has changed.
    fn take_zones(&mut self) {
        let (zones, changed) = self.answers.collect();
        if let Some(zones) = zones {
            self.server.set_zones(Arc::new(zones));
        }
        self.answers.tell_secondaries(&changed);
    }

    /// Serves the addresses of the edges that are there, and the answers to challenges.
    fn take_view(&self) {
        self.server.change_view(|view| self.answers.fill(view, Some(self.server.counters())));
    }
}

impl Answers {
    /// The zones of the bus, and those of them that have changed. No zones: the former ones stay.
    fn collect(&mut self) -> (Option<Zones>, Vec<Arc<Zone>>) {
        let mut former = std::mem::take(&mut self.zones);
        let mut changed = Vec::new();
        let mut all = self.parts.bus.zones.all();
        // Zones below others come first: these delegate them, and have the DS records of their keys.
        all.sort_by_key(|served| (std::cmp::Reverse(served.apex.split('.').count()), served.serial));
        let apexes: HashMap<&str, &Arc<ServedZone>> = all.iter().map(|served| (served.apex.as_str(), served)).collect();
        let mut delegations: HashMap<&str, Vec<ZoneRecord>> = HashMap::new();
        for served in &all {
            // One zone must not stop the others: of two for a name, the one that has changed last is served.
            if apexes.get(served.apex.as_str()).is_some_and(|last| last.id != served.id) {
                warn!(zone = served.apex, "a zone is there twice: the one that has changed last is served");
                continue;
            }
            let below = delegations.remove(served.apex.as_str()).unwrap_or_default();
            let known = former.remove(&served.id);
            let zone = match known {
                Some(known) if Arc::ptr_eq(&known.source, served) && known.delegations == below => known.zone,
                known => match self.build(served, &below, known.map(|known| known.zone)) {
                    Some(zone) => {
                        changed.push(zone.clone());
                        zone
                    }
                    None => continue,
                },
            };
            let parent = parent_zone(&served.apex, |name| apexes.contains_key(name));
            if let Some(parent) = parent.and_then(|name| apexes.get(name)) {
                let ds = zone.keys().map(|keys| keys.ds_values(unix_now())).unwrap_or_default();
                delegations.entry(&parent.apex).or_default().extend(delegation(parent, served, &ds));
            }
            self.zones.insert(served.id, AnsweringZone { source: served.clone(), delegations: below, zone });
        }
        let mut all: Vec<Arc<Zone>> = self.zones.values().map(|one| one.zone.clone()).collect();
        if let Some((catalog, is_new)) = self.catalog(&all) {
            changed.extend(is_new.then(|| catalog.clone()));
            all.push(catalog);
        }
        match Zones::new(all) {
            Ok(zones) => (Some(zones), changed),
            Err(error) => {
                warn!(%error, "the zones cannot be served: the former ones are");
                (None, Vec::new())
            }
        }
    }

    /// The zone that answers. A zone that cannot be built keeps its former version.
    fn build(&self, served: &ServedZone, below: &[ZoneRecord], former: Option<Arc<Zone>>) -> Option<Arc<Zone>> {
        let open = |sealed: &str| self.parts.sealer.open::<[u8; 32]>(Purpose::ZoneKey, sealed);
        let mut whole = served.clone();
        whole.records.extend_from_slice(below);
        let made = served_zone(&whole, open, unix_now()).or_else(|error| {
            // Records of the owner may exclude a delegation.
            let alone = served_zone(served, open, unix_now())?;
            warn!(zone = served.apex, %error, "a zone cannot delegate those below it");
            Ok::<_, ServedZoneError>(alone)
        });
        let zone = match made {
            Ok(zone) => zone,
            Err(error) => {
                warn!(zone = served.apex, %error, "a zone cannot be answered for");
                return former;
            }
        };
        if !zone.is_static() || self.transfer.key_names.is_empty() {
            return Some(Arc::new(zone));
        }
        let zone = zone.with_transfer_keys(self.transfer.key_names.clone());
        let zone = match &former {
            Some(former) if former.serial() != zone.serial() => zone.with_history_of(former),
            _ => zone,
        };
        Some(Arc::new(zone))
    }

    /// Tells the secondaries which zones have changed.
    fn tell_secondaries(&mut self, changed: &[Arc<Zone>]) {
        changed.iter().filter(|zone| zone.is_static()).for_each(|zone| self.send_notices(zone));
    }

    /// Tells the secondaries that a zone has changed, in place of a notice of it that is still under way.
    fn send_notices(&mut self, zone: &Arc<Zone>) {
        let Transfer { settings, key_names, secondaries, notices, .. } = &mut self.transfer;
        notices.retain(|_, notice| !notice.is_finished());
        for secondary in secondaries.clone() {
            let (told, settings, key) = (zone.clone(), settings.clone(), key_names.first().cloned());
            let notice = tokio::spawn(async move {
                let answer = sallyport_dns::notify(&told, secondary, &settings.tsig_keys, key.as_ref()).await;
                if let Err(error) = answer {
                    warn!(zone = %told.apex(), %error, "a secondary does not know of a change");
                }
            });
            if let Some(former) = notices.insert((zone.apex().clone(), secondary), notice.abort_handle()) {
                former.abort();
            }
        }
    }

    /// The zone that lists the others for secondaries, and whether it is new: its serial number grows with each change.
    fn catalog(&mut self, zones: &[Arc<Zone>]) -> Option<(Arc<Zone>, bool)> {
        let name = self.transfer.catalog.clone()?;
        if zones.iter().any(|zone| *zone.apex() == name) {
            warn!(%name, "a zone has the name of the catalog, which is left out: see --dns-catalog");
            return None;
        }
        let mut members: Vec<Name> =
            zones.iter().filter(|zone| zone.is_static()).map(|zone| zone.apex().clone()).collect();
        members.sort_unstable();
        let mut serial = u32::try_from(unix_now()).unwrap_or(u32::MAX);
        if let Some((known, catalog)) = &self.transfer.members {
            if *known == members {
                return Some((catalog.clone(), false));
            }
            serial = serial.max(catalog.serial().saturating_add(1));
        }
        match catalog_zone(name, serial, &members) {
            Ok(catalog) => {
                let catalog = Arc::new(catalog.with_transfer_keys(self.transfer.key_names.clone()));
                self.transfer.members = Some((members, catalog.clone()));
                Some((catalog, true))
            }
            Err(error) => {
                warn!(%error, "the catalog of zones cannot be made");
                None
            }
        }
    }

    /// Puts the addresses of the edges that are there, and the answers to challenges, into a view.
    fn fill(&self, view: &mut View, counters: Option<&sallyport_dns::Counters>) {
        let edges = answered_edges(&self.parts.bus.fleet);
        let addresses = addresses_of(&edges, &self.parts.own);
        let ports = match edges.is_empty() {
            true => self.parts.own_http3_port.borrow().map(|udp| HttpPorts { tcp: self.parts.own_port, udp }),
            false => common_ports(edges.iter().map(|edge| edge.card.as_ref())),
        };
        let texts = challenge_texts(&self.parts.bus.challenges, &self.parts.domain);
        let result = view
            .set_group(ALL_EDGES, EDGES_TTL_SECONDS, &addresses, ports)
            .and_then(|()| view.set_challenges(CHALLENGE_TTL_SECONDS, &texts));
        if let Err(error) = result {
            warn!(%error, "the name server answers with former addresses");
            return;
        }
        let steering = counters.and_then(|counters| self.published.steering(&edges, counters, EDGES_TTL_SECONDS));
        view.set_steering(steering.map(Arc::new));
    }
}

/// Keeps the addresses of other names up to date, for ALIAS records.
struct AliasKeeper {
    server: Arc<Server>,
    resolver: Resolver,
    zones: ServedZones,
    fleet: Fleet,
    own: Arc<[IpAddr]>,
}

impl AliasKeeper {
    /// Looks new names up at once, and all of them regularly. Names that are slow delay no new ones.
    async fn run(self) {
        let mut changes = self.zones.subscribe();
        let mut look = tokio::time::interval(LOOK_EVERY);
        let mut known = BTreeSet::new();
        let (mut regular, mut first) = (JoinSet::new(), JoinSet::new());
        let (for_regular, for_first) = (Arc::new(Semaphore::new(MAX_LOOKUPS)), Arc::new(Semaphore::new(MAX_LOOKUPS)));
        loop {
            let is_regular = tokio::select! {
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    false
                }
                _ = look.tick() => true,
                Some(_) = regular.join_next() => continue,
                Some(_) = first.join_next() => continue,
            };
            let targets = alias_targets(&self.zones);
            for target in targets.difference(&known) {
                first.spawn(self.look_up(target, for_first.clone()));
            }
            // A round that takes longer than its time is not begun again.
            if is_regular && regular.is_empty() {
                for target in targets.intersection(&known) {
                    regular.spawn(self.look_up(target, for_regular.clone()));
                }
            }
            self.server.change_view(|view| {
                for gone in known.difference(&targets) {
                    if let Ok(name) = Name::from_text(gone) {
                        view.remove_alias(&name);
                    }
                }
            });
            known = targets;
        }
    }

    /// The lookup of one name, when there is room for it.
    fn look_up(&self, target: &str, room: Arc<Semaphore>) -> impl Future<Output = ()> + Send + 'static {
        let (server, resolver, target) = (self.server.clone(), self.resolver.clone(), target.to_owned());
        let (fleet, own) = (self.fleet.clone(), self.own.clone());
        async move {
            let Ok(_place) = room.acquire().await else { return };
            let found = match resolver.addresses(&target).await {
                Ok(found) => published(found, &edge_addresses(&fleet, &own)),
                Err(error) => {
                    tracing::debug!(target, %error, "an alias keeps its former addresses");
                    return;
                }
            };
            let Ok(name) = Name::from_text(&target) else { return };
            server.change_view(|view| {
                if let Err(error) = view.set_alias(name, ALIAS_TTL_SECONDS, &found) {
                    warn!(target, %error, "an alias keeps its former addresses");
                }
            });
        }
    }
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The addresses of an alias that everybody may know. The operator's resolver may know names of a private network, which
/// only an installation within such a network publishes.
fn published(found: Vec<IpAddr>, of_edges: &[IpAddr]) -> Vec<IpAddr> {
    let is_private_installation = !of_edges.is_empty() && of_edges.iter().copied().all(is_private);
    found.into_iter().filter(|address| is_private_installation || !is_private(*address)).collect()
}

/// The TXT values of the challenges that run, by name.
fn challenge_texts(challenges: &AcmeChallenges, domain: &str) -> Vec<(Name, Vec<String>)> {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let mut by_name: HashMap<String, Vec<String>> = HashMap::new();
    for challenge in challenges.all().iter().filter(|challenge| challenge.kind == ChallengeKind::Dns01) {
        //= RFC 8555 section 8.4
        //# The record provisioned to the DNS contains the base64url encoding of this digest.
        let digest = Sha256::digest(challenge.key_authorization.as_bytes());
        let text = URL_SAFE_NO_PAD.encode(digest);
        // Names that are not of our zones lead here by an alias.
        for name in [challenge_name(&challenge.name), acme_alias(&challenge.name, domain)] {
            by_name.entry(name).or_default().push(text.clone());
        }
    }
    by_name.into_iter().filter_map(|(name, texts)| Some((Name::from_text(&name).ok()?, texts))).collect()
}

/// The names whose addresses ALIAS records stand for.
fn alias_targets(zones: &ServedZones) -> BTreeSet<String> {
    let mut targets = BTreeSet::new();
    for zone in zones.all() {
        let aliases = zone.records.iter().filter(|record| matches!(record.record_type.as_str(), "ALIAS" | "ANAME"));
        targets.extend(aliases.map(|record| match record.value.strip_suffix('.') {
            Some(full) => full.to_ascii_lowercase(),
            None => format!("{}.{}", record.value.to_ascii_lowercase(), zone.apex),
        }));
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_publishes_no_address_of_a_private_network() {
        let all = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let found = || all(&["10.1.2.3", "203.0.113.7", "fd00::1", "127.0.0.1"]);
        assert_eq!(published(found(), &all(&["198.51.100.1"])), all(&["203.0.113.7"]));
        assert_eq!(published(found(), &[]), all(&["203.0.113.7"]), "while no edge is known");
        assert_eq!(published(found(), &all(&["10.0.0.1"])), found(), "the installation is within such a network");
    }
}
