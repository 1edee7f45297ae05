//! The name server of a process: its ports, and the zones and addresses that it answers with.

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use sallyport_bus::{AcmeChallenges, Bus, EdgeState, Fleet, ServedZones};
use sallyport_dns::{Server, ServerConfig};
use sallyport_identity::{Purpose, Sealer};
use sallyport_model::{ALL_EDGES, ChallengeKind, ServedZone, ZoneId, acme_alias};
use sallyport_resolver::Resolver;
use sallyport_zone::{Name, Settings, Zone, Zones, limit::CookieSecrets, served::served_zone, transfer::catalog_zone};
use sha2::{Digest as _, Sha256};
use tokio::task::AbortHandle;
use tracing::{info, warn};

use crate::args::dns::{DNS_PORT, DnsArgs};

/// How long others may keep the addresses of edges, in seconds.
const EDGES_TTL_SECONDS: u32 = 30;
/// How long others may keep the answer to a challenge, in seconds.
const CHALLENGE_TTL_SECONDS: u32 = 1;
/// How long others may keep the addresses of another name, in seconds.
const ALIAS_TTL_SECONDS: u32 = 60;
/// How often the addresses of other names are looked up, and phases of keys are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);
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
        let (udp, tcp) = opened.with_context(|| {
            let hint = if address.port() == DNS_PORT { ", which a resolver of this machine may use" } else { "" };
            format!("cannot answer DNS at {address} (--listen-dns){hint}")
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
    /// Looks up the addresses of other names, for ALIAS records.
    pub(super) resolver: Option<Resolver>,
    /// The domain of the installation.
    pub(super) domain: String,
    /// What the server calls itself.
    pub(super) identity: String,
}

/// A running name server.
pub(super) struct NameServer {
    server: Arc<Server>,
    task: AbortHandle,
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
        settings.set_identity(Some(parts.identity.clone()), None)?;
        let settings = Arc::new(settings);
        let mut config = ServerConfig::default();
        config.state.rate = args.rates();
        let server = Server::start(&config, Arc::default(), settings.clone(), udp, vec![tcp])?;
        let server = Arc::new(server);
        if parts.own.is_empty() && parts.bus.fleet.edges().is_empty() {
            warn!("the address of this machine for others is not known: the name server leads nowhere until it is");
        }
        let mut keeper = Keeper {
            server: server.clone(),
            zones: HashMap::new(),
            parts,
            transfer: Transfer {
                settings,
                key_names,
                secondaries: args.dns_secondaries.clone(),
                catalog: args.dns_catalog.clone(),
            },
        };
        // The view first: a group without addresses gives no answer.
        keeper.take_view();
        keeper.take_zones();
        info!(listen = %address, zones = keeper.zones.len(), "answering DNS");
        let task = tokio::spawn(keeper.run()).abort_handle();
        Ok(Self { server, task })
    }

    /// The counters of the server.
    pub(super) fn counters(&self) -> Arc<sallyport_dns::Counters> {
        self.server.counters().clone()
    }

    /// Stops answering.
    pub(super) async fn end(self) {
        self.task.abort();
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
}

/// Keeps what the name server answers with up to date.
struct Keeper {
    server: Arc<Server>,
    parts: NameServerParts,
    /// The zones that answer now, with their sources.
    zones: HashMap<ZoneId, (Arc<ServedZone>, Arc<Zone>)>,
    transfer: Transfer,
}

impl Keeper {
    async fn run(mut self) {
        let Bus { zones, challenges, fleet, .. } = self.parts.bus.clone();
        let (mut zones, mut challenges, mut edges) = (zones.subscribe(), challenges.subscribe(), fleet.subscribe());
        let mut look = tokio::time::interval(LOOK_EVERY);
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
                _ = look.tick() => self.look_aliases_up().await,
            }
        }
    }

    /// Serves the zones of the bus.
    fn take_zones(&mut self) {
        let mut former = std::mem::take(&mut self.zones);
        for served in self.parts.bus.zones.all() {
            let known = former.remove(&served.id);
            let zone = match known {
                Some((same, zone)) if Arc::ptr_eq(&same, &served) => zone,
                known => match self.build(&served, known.map(|(_, zone)| zone)) {
                    Some(zone) => zone,
                    None => continue,
                },
            };
            self.zones.insert(served.id, (served, zone));
        }
        let mut all: Vec<Arc<Zone>> = self.zones.values().map(|(_, zone)| zone.clone()).collect();
        all.extend(self.catalog(&all));
        match Zones::new(all) {
            Ok(zones) => self.server.set_zones(Arc::new(zones)),
            Err(error) => warn!(%error, "the zones cannot be served: the former ones are"),
        }
    }

    /// The zone that answers. A zone that cannot be built keeps its former version.
    fn build(&self, served: &ServedZone, former: Option<Arc<Zone>>) -> Option<Arc<Zone>> {
        let open = |sealed: &str| self.parts.sealer.open::<[u8; 32]>(Purpose::ZoneKey, sealed);
        let zone = match served_zone(served, open, unix_now()) {
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
        let zone = Arc::new(zone);
        self.tell_secondaries(&zone);
        Some(zone)
    }

    /// Tells the secondaries that a zone has changed.
    fn tell_secondaries(&self, zone: &Arc<Zone>) {
        let key = self.transfer.key_names.first().cloned();
        for secondary in self.transfer.secondaries.clone() {
            let (zone, settings, key) = (zone.clone(), self.transfer.settings.clone(), key.clone());
            tokio::spawn(async move {
                let told = sallyport_dns::notify(&zone, secondary, &settings.tsig_keys, key.as_ref()).await;
                if let Err(error) = told {
                    warn!(zone = %zone.apex(), %error, "a secondary does not know of a change");
                }
            });
        }
    }

    /// The zone that lists the others for secondaries.
    fn catalog(&self, zones: &[Arc<Zone>]) -> Option<Arc<Zone>> {
        let name = self.transfer.catalog.clone()?;
        let members: Vec<Name> = zones.iter().filter(|zone| zone.is_static()).map(|zone| zone.apex().clone()).collect();
        let serial = u32::try_from(unix_now()).unwrap_or(u32::MAX);
        match catalog_zone(name, serial, &members) {
            Ok(catalog) => {
                let catalog = Arc::new(catalog.with_transfer_keys(self.transfer.key_names.clone()));
                self.tell_secondaries(&catalog);
                Some(catalog)
            }
            Err(error) => {
                warn!(%error, "the catalog of zones cannot be made");
                None
            }
        }
    }

    /// Serves the addresses of the edges that are there, and the answers to challenges.
    fn take_view(&self) {
        let addresses = edge_addresses(&self.parts.bus.fleet, &self.parts.own);
        let texts = challenge_texts(&self.parts.bus.challenges, &self.parts.domain);
        self.server.change_view(|view| {
            let result = view
                .set_group(ALL_EDGES, EDGES_TTL_SECONDS, &addresses)
                .and_then(|()| view.set_challenges(CHALLENGE_TTL_SECONDS, &texts));
            if let Err(error) = result {
                warn!(%error, "the name server answers with former addresses");
            }
        });
    }

    /// Looks the addresses of other names up, for ALIAS records.
    async fn look_aliases_up(&self) {
        let targets = alias_targets(&self.parts.bus.zones);
        let Some(resolver) = self.parts.resolver.as_ref().filter(|_| !targets.is_empty()) else { return };
        let mut found = Vec::new();
        for target in targets {
            match resolver.addresses(&target).await {
                Ok(addresses) => found.push((target, addresses)),
                Err(error) => tracing::debug!(target, %error, "an alias keeps its former addresses"),
            }
        }
        self.server.change_view(|view| {
            for (target, addresses) in found {
                let Ok(name) = Name::from_text(&target) else { continue };
                if let Err(error) = view.set_alias(name, ALIAS_TTL_SECONDS, &addresses) {
                    warn!(target, %error, "an alias keeps its former addresses");
                }
            }
        });
    }
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The addresses of the edges that accept clients; without any those of draining ones, and without other edges the own
/// ones.
fn edge_addresses(fleet: &Fleet, own: &[IpAddr]) -> Vec<IpAddr> {
    let edges = fleet.edges();
    let of = |is_in: &dyn Fn(EdgeState) -> bool| {
        let there = edges.iter().filter(|edge| is_in(edge.card.state));
        let addresses: BTreeSet<IpAddr> =
            there.flat_map(|edge| edge.card.addresses.iter().map(|address| address.ip())).collect();
        addresses.into_iter().collect::<Vec<_>>()
    };
    let serving = of(&|state| state == EdgeState::Serving);
    if !serving.is_empty() {
        return serving;
    }
    let any = of(&|_| true);
    if any.is_empty() { own.to_vec() } else { any }
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
        for name in [format!("_acme-challenge.{}", challenge.name), acme_alias(&challenge.name, domain)] {
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
