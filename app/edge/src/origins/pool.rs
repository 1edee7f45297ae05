//! The origins of each socket, and the selection among them.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Mutex, RwLock};
use sallyport_balance::{
    Attempts, Rotation,
    affinity::AffinityCode,
    ejection::{self, EjectionConfig, PoolCount},
    health::HealthEvent,
    regions::Rolls,
};
use sallyport_bus::{Directory, Routes};
use sallyport_geo::Geo;
use sallyport_model::{HealthFailure, OriginHealth, OriginRef, RegionName, SocketId, SocketRoute, TunnelId};
use sallyport_wire::FailureReason;
use tokio::sync::{Notify, Semaphore, watch};

use crate::{
    config::AffinityKey,
    config::EdgeConfig,
    metrics::SocketMetrics,
    origins::{
        affinity::{AffinityHint, origin_id},
        dials::{self, RegionMetrics},
        health::{self, Checks, MAX_CHECKS_AT_ONCE, Probe},
        http::forwarding::Group,
        locality::Place,
        metrics::OriginMetrics,
        origin::{InFlight, Origin},
        quotas::{HeldQuotas, PoolQuotas},
        rules::Rules,
        selection::{Choice, Chosen, Ordered},
        set::Origins,
        transport::{
            Holder, OriginTransport,
            direct::{Dialer, DirectTransport},
        },
    },
    policy::limits::Bounds,
    util::ids,
};

/// How many requests may wait for a tunnel to return, over all sockets.
const MAX_HELD_REQUESTS: usize = 1_024;
/// How long a request waits for a tunnel to return.
const MAX_HOLD: Duration = Duration::from_secs(5);
/// How long a tunnel is expected (back) after the socket's last tunnel left, or after the edge started.
const MAX_ABSENCE: Duration = Duration::from_secs(10);

/// The pool of every socket that has, or had, tunnels here.
#[derive(Debug)]
pub(crate) struct Sockets {
    shared: Arc<PoolContext>,
    pools: RwLock<HashMap<SocketId, Arc<SocketPool>>>,
    started: Instant,
    waiting: Semaphore,
}

/// What all pools share.
#[derive(Debug)]
pub(crate) struct PoolContext {
    /// The sockets.
    pub(crate) routes: Routes,
    /// Where the health of origins is published.
    pub(crate) directory: Directory,
    /// The database of countries and autonomous systems.
    pub(crate) geo: Option<Arc<Geo>>,
    /// The secret of client affinity.
    pub(crate) key: AffinityKey,
    /// Whether this edge can identify clients.
    pub(crate) knows_identities: bool,
    /// The domain of the sockets' names.
    pub(crate) domain: String,
    /// When origins are ejected.
    pub(crate) ejection: EjectionConfig,
    /// The region of this edge.
    pub(crate) region: Option<RegionName>,
    /// Permits for health checks.
    pub(crate) checks: Semaphore,
    /// The metrics of origins.
    pub(crate) metrics: OriginMetrics,
    /// Dials direct origins.
    pub(crate) dialer: Arc<Dialer>,
    /// The metrics of sockets with regional dials.
    pub(crate) regions: RegionMetrics,
    /// When the edge started.
    pub(crate) started: Instant,
    /// The quotas of this edge.
    pub(crate) held_quotas: Arc<HeldQuotas>,
    /// Notified when requests wait for a quota.
    pub(crate) quota_wanted: Arc<Notify>,
}

impl PoolContext {
    /// The context of an edge with this configuration.
    pub(crate) fn new(config: &EdgeConfig, routes: Routes, directory: Directory) -> Self {
        Self {
            dialer: Dialer::new(config, routes.clone()),
            regions: RegionMetrics::default(),
            routes,
            directory,
            geo: config.geo.clone(),
            key: config.affinity_key.clone(),
            knows_identities: config.identity.is_some(),
            domain: config.domain.clone(),
            region: config.region.clone(),
            ejection: EjectionConfig::default(),
            checks: Semaphore::new(MAX_CHECKS_AT_ONCE),
            metrics: OriginMetrics::default(),
            started: Instant::now(),
            held_quotas: Arc::default(),
            quota_wanted: Arc::default(),
        }
    }
}

/// The origins of one socket, and its owner's rules.
#[derive(Debug)]
pub(crate) struct SocketPool {
    socket: SocketId,
    shared: Arc<PoolContext>,
    rules: RwLock<Option<Arc<Rules>>>,
    /// Locked while origins get new rules, so that the newest rules win.
    applying: Mutex<()>,
    bounds: Arc<Bounds>,
    quotas: Arc<PoolQuotas>,
    origins: RwLock<Origins>,
    rotations: Mutex<Rotations>,
    rolls: Mutex<Rolls>,
    /// When the last tunnel of each group left, for groups that lost it within [`MAX_ABSENCE`].
    lost: Mutex<Vec<(Group, Instant)>>,
    arrival: Notify,
    /// Notified when flows are to be evaluated again.
    calls: watch::Sender<()>,
    /// Whether the socket has an identity or policies.
    judges: AtomicBool,
    /// Whether regional dials apply.
    has_dials: AtomicBool,
    metrics: OnceLock<Arc<SocketMetrics>>,
}

/// The rotations of round robin, one for each group.
#[derive(Debug, Default)]
struct Rotations {
    root: Rotation<u64>,
    others: HashMap<Group, Rotation<u64>>,
}

impl Rotations {
    fn of(&mut self, group: Group) -> &mut Rotation<u64> {
        if group == Group::ROOT { &mut self.root } else { self.others.entry(group).or_default() }
    }
}

impl SocketPool {
    fn new(socket: SocketId, shared: Arc<PoolContext>) -> Self {
        Self {
            socket,
            rules: RwLock::default(),
            applying: Mutex::default(),
            bounds: Arc::default(),
            quotas: PoolQuotas::new(socket, shared.started, shared.held_quotas.clone(), shared.quota_wanted.clone()),
            origins: RwLock::default(),
            rotations: Mutex::default(),
            rolls: Mutex::new(Rolls::from(u64::from_be_bytes(ids::random()))),
            has_dials: AtomicBool::new(false),
            lost: Mutex::default(),
            arrival: Notify::new(),
            calls: watch::Sender::new(()),
            judges: AtomicBool::new(false),
            metrics: OnceLock::new(),
            shared,
        }
    }
}

impl Sockets {
    /// No sockets yet.
    pub(crate) fn new(shared: PoolContext) -> Self {
        let (started, waiting) = (shared.started, Semaphore::new(MAX_HELD_REQUESTS));
        Self { shared: Arc::new(shared), pools: RwLock::default(), started, waiting }
    }

    /// The pool of this socket, made if there is none. Only for sockets with a route, which bounds the number of pools.
    pub(crate) fn pool(&self, socket: SocketId) -> Arc<SocketPool> {
        if let Some(pool) = self.pools.read().get(&socket) {
            return pool.clone();
        }
        let mut pools = self.pools.write();
        pools.entry(socket).or_insert_with(|| Arc::new(SocketPool::new(socket, self.shared.clone()))).clone()
    }

    /// The pool of this socket, if there is one.
    pub(crate) fn known(&self, socket: SocketId) -> Option<Arc<SocketPool>> {
        self.pools.read().get(&socket).cloned()
    }

    /// When this edge started.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// The socket's route has changed.
    pub(crate) fn changed(&self, route: &Arc<SocketRoute>) {
        let known = self.pools.read().get(&route.id).cloned();
        // Direct origins are checked before any client comes.
        if let Some(pool) = known.or_else(|| (!route.origins.is_empty()).then(|| self.pool(route.id))) {
            pool.rules(route);
        }
    }

    /// What all pools share.
    pub(crate) fn shared(&self) -> &PoolContext {
        &self.shared
    }

    /// The socket was deleted.
    pub(crate) fn forget(&self, socket: SocketId) {
        let forgotten = self.pools.write().remove(&socket);
        if let Some(pool) = forgotten {
            pool.mark_removed();
        }
    }

    /// Forgets the sockets for which `is_wanted` is false.
    pub(crate) fn retain(&self, is_wanted: impl Fn(SocketId) -> bool) {
        let mut pools = self.pools.write();
        let forgotten: Vec<_> = pools.extract_if(|socket, _| !is_wanted(*socket)).map(|(_, pool)| pool).collect();
        drop(pools);
        forgotten.iter().for_each(|pool| pool.mark_removed());
    }

    /// A tunnel left. Returns whether another holder still has it here.
    pub(crate) fn left(&self, tunnel: TunnelId, holder: Holder) -> bool {
        let mut is_still_here = false;
        for pool in self.all() {
            is_still_here |= pool.left(tunnel, holder);
        }
        is_still_here
    }

    /// All pools, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<SocketPool>> {
        self.pools.read().values().cloned().collect()
    }

    /// Whether a tunnel of the group is expected (back) soon.
    pub(crate) fn expects(&self, pool: &SocketPool, group: Group) -> bool {
        self.started.elapsed() < MAX_ABSENCE || pool.lost_within(MAX_ABSENCE, group)
    }

    /// Waits up to [`MAX_HOLD`] for a usable, untried origin of the group, if one is expected: after a restart of edge
    /// or connector. Returns whether one came.
    pub(crate) async fn hold(&self, pool: &SocketPool, group: Group, tried: &Attempts<u64>, since: Instant) -> bool {
        if !self.expects(pool, group) || since.elapsed() >= MAX_HOLD {
            return false;
        }
        let Ok(_place) = self.waiting.try_acquire() else { return false };
        let wait = async {
            loop {
                let arrival = pool.arrival.notified();
                if pool.has_usable(group, tried) {
                    return;
                }
                arrival.await;
            }
        };
        tokio::time::timeout(MAX_HOLD.saturating_sub(since.elapsed()), wait).await.is_ok()
    }
}

impl SocketPool {
    /// The rules of this route, which is the socket's current one.
    pub(crate) fn rules(self: &Arc<Self>, route: &Arc<SocketRoute>) -> Arc<Rules> {
        let known = self.rules.read().clone();
        if let Some(rules) = known.filter(|rules| rules.are_of(route)) {
            return rules;
        }
        self.bounds.set(route.settings.limits);
        self.quotas.set_route(route);
        let rules = Arc::new(Rules::new(route.clone(), &self.shared));
        let former = self.rules.write().replace(rules.clone());
        let has_dials = self.shared.region.is_some() && !route.settings.regions.is_empty();
        self.has_dials.store(has_dials, Ordering::Release);
        // Removed groups lose their rotations.
        self.rotations.lock().others.clear();
        self.keep_direct(route, &rules);
        self.apply_rules();
        self.judges.store(rules.judge().is_some(), Ordering::Release);
        if rules.judge().is_some() || former.is_some_and(|former| former.judge().is_some()) {
            self.calls.send_replace(());
        }
        rules
    }

    /// Whether the socket has an identity or policies, as far as its rules are known.
    pub(crate) fn judges(&self) -> bool {
        self.judges.load(Ordering::Acquire)
    }

    /// Changes whenever the socket's flows are to be evaluated again.
    pub(crate) fn calls(&self) -> watch::Receiver<()> {
        self.calls.subscribe()
    }

    /// Asks for a new evaluation of the socket's flows, if the socket has an identity or policies.
    pub(crate) fn call_judged(&self) {
        let is_judged = || {
            let rules = self.rules.read();
            rules.as_ref().is_some_and(|rules| rules.judge().is_some())
        };
        if self.calls.receiver_count() > 0 && is_judged() {
            self.calls.send_replace(());
        }
    }

    /// Applies the rules to the origins.
    fn apply_rules(self: &Arc<Self>) {
        let _applying = self.applying.lock();
        let Some(rules) = self.rules.read().clone() else { return };
        for origin in self.origins() {
            if let Some(weight) = rules.route().weight(origin.handle().origin()) {
                origin.health_state().weighs(weight);
            }
            origin.health_state().set_group(rules.group_of(origin.handle().origin()));
            // The edge that holds the tunnel checks its origin.
            if !origin.place().is_local {
                continue;
            }
            if origin.health_state().is_checked(rules.probe(), |probe| Checks::start(self, &origin, probe)) {
                self.shared.directory.checked(origin.handle().origin(), None);
                health::publish(&self.shared.directory, &origin);
            }
        }
        self.origins.read().update_weights();
    }

    /// Records a change of an origin's health, with the reason if the origin is down.
    pub(crate) fn checked(
        &self,
        origin: &Origin,
        probe: &Arc<Probe>,
        event: HealthEvent,
        failure: Option<HealthFailure>,
    ) {
        if origin.health_state().set_failure(probe, failure.clone()) {
            health::log(self, origin, event, failure.as_ref());
            self.shared.metrics.changed(failure.is_some());
            match failure {
                None => self.shared.directory.checked(origin.handle().origin(), Some(true)),
                Some(failure) => self.shared.directory.check_failed(origin.handle().origin(), failure),
            }
            health::publish(&self.shared.directory, origin);
            self.arrival.notify_waiters();
        }
    }

    /// Records the newest reason of an origin that stays down.
    pub(crate) fn fails_as(&self, origin: &Origin, probe: &Arc<Probe>, why: &HealthFailure) {
        if let Some(failure) = origin.health_state().set_failure_reason(probe, why) {
            self.shared.directory.check_failed(origin.handle().origin(), failure);
            health::publish(&self.shared.directory, origin);
        }
    }

    /// The origin did not accept a connection. After several failures in a row, or one timeout, the origin is ejected
    /// for a while, unless it is the last.
    pub(crate) fn record_failure(&self, origin: &Arc<Origin>, failure: ejection::Failure) {
        let origins = self.origins();
        let group = origin.health_state().group();
        let usable = || origins.iter().filter(|origin| origin.health_state().group() == group && origin.is_usable());
        let ejected = usable().filter(|origin| origin.health_state().is_ejected()).count();
        let count = PoolCount { origins: usable().count(), ejected };
        if let Some(ejected) = origin.health_state().record_failure(&self.shared.ejection, failure, count) {
            let seconds = ejected.until.saturating_duration_since(Instant::now()).as_secs();
            tracing::info!(
                socket = %self.socket,
                origin = %origin.handle().origin(),
                failures = ejected.failures,
                seconds,
                "an origin is ejected for a while: several connections in a row failed, or one timed out"
            );
            let what = match failure {
                ejection::Failure::Connect => "took no connection",
                ejection::Failure::Silent => "did not take a connection in time",
                ejection::Failure::Gateway => "answered as a gateway that fails",
            };
            let times =
                if ejected.failures == 1 { String::new() } else { format!(" {} times in a row", ejected.failures) };
            let message = format!("it {what}{times}: left out for {seconds} s");
            origin.health_state().record_ejection(&message, health::wall_seconds());
            self.shared.metrics.ejected();
            health::publish_until(&self.shared.directory, origin, ejected.until);
        }
    }

    /// A connection to the origin failed, for a client of another edge.
    pub(crate) fn not_reached(&self, origin: &Arc<Origin>, reason: FailureReason) {
        match reason {
            FailureReason::Draining => {}
            FailureReason::TimedOut => self.record_failure(origin, ejection::Failure::Silent),
            _ => self.record_failure(origin, ejection::Failure::Connect),
        }
    }

    /// Whether the group has tunnels, but no origin that takes flows: all are down, ejected or without weight.
    pub(crate) fn is_unhealthy(&self, group: Group) -> bool {
        let origins = self.origins.read();
        let of_group = || origins.iter().filter(|origin| origin.health_state().group() == group);
        of_group().any(|origin| origin.is_up()) && !of_group().any(|origin| origin.is_usable())
    }

    /// A transport that is up and can pass log lines to the owner, whether or not its origin is healthy.
    pub(crate) fn any_up(&self) -> Option<OriginTransport> {
        let origins = self.origins.read();
        let has_owner = |origin: &&Arc<Origin>| origin.is_up() && origin.handle().has_owner();
        origins.iter().find(has_owner).map(|origin| origin.handle().clone())
    }

    /// How many origins take new flows.
    pub(crate) fn healthy(&self) -> usize {
        let origins = self.origins.read();
        let well = origins.iter().filter(|origin| origin.is_usable() && !origin.health_state().is_ejected());
        // An origin that several edges hold counts once.
        well.map(|origin| origin.handle().origin()).collect::<HashSet<_>>().len()
    }

    /// The socket's name, once a route is known.
    pub(crate) fn name(&self) -> Option<String> {
        let rules = self.rules.read();
        rules.as_ref().map(|rules| rules.route().name.as_str().to_owned())
    }

    pub(crate) fn socket(&self) -> SocketId {
        self.socket
    }

    /// What all pools share.
    pub(crate) fn shared(&self) -> &PoolContext {
        &self.shared
    }

    /// The limits of the socket.
    pub(crate) fn bounds(&self) -> &Arc<Bounds> {
        &self.bounds
    }

    /// A tunnel attached to this edge.
    pub(crate) fn arrived(self: &Arc<Self>, transport: OriginTransport) {
        let presence = transport.tunnel().and_then(|tunnel| self.shared.directory.get(tunnel));
        let home = presence.and_then(|presence| presence.home);
        let region = home.or_else(|| self.shared.region.clone());
        self.arrived_at(transport, Place::local(region));
    }

    /// A tunnel attached, to this edge or another one.
    pub(crate) fn arrived_at(self: &Arc<Self>, transport: OriginTransport, place: Place) {
        if let Some(route) = self.shared.routes.get(self.socket) {
            self.rules(&route);
        }
        let origin = Origin::new(transport, place);
        // Before the origin is used, so that later changes come after these.
        if let Some(rules) = self.rules.read().as_ref() {
            origin.health_state().set_group(rules.group_of(origin.handle().origin()));
        }
        let mut origins = self.origins.write();
        origins.push(origin, self.shared.region.as_ref());
        drop(origins);
        self.apply_rules();
        self.arrival.notify_waiters();
    }

    /// Adds the direct origins of this route, and removes all others.
    fn keep_direct(&self, route: &SocketRoute, rules: &Rules) {
        let is_allowed = self.shared.dialer.is_allowed();
        if !is_allowed && !route.origins.is_empty() {
            tracing::warn!(
                socket = %route.id,
                "a socket has direct origins, and this edge may dial no network: allow networks with --direct-origins"
            );
        }
        let wanted = if is_allowed { route.origins.as_slice() } else { &[] };
        let stays = |origin: &Origin| {
            let OriginTransport::Direct(transport) = origin.handle() else { return true };
            wanted.iter().any(|wanted| wanted.id == transport.id() && transport.leads_to(wanted, route.socket_type))
        };
        let mut origins = self.origins.write();
        let own = self.shared.region.as_ref();
        let gone = origins.take(|origin| !stays(origin), own);
        for wanted in wanted {
            let id = OriginRef::from(wanted.id);
            if !origins.iter().any(|origin| origin.handle().origin() == id) {
                let dialer = self.shared.dialer.clone();
                let transport = DirectTransport::new(route.id, wanted.clone(), route.socket_type, dialer);
                let region = transport.region().or(own).cloned();
                let origin = Origin::new(OriginTransport::Direct(transport), Place::local(region));
                origin.health_state().set_group(rules.group_of(id));
                origins.push(origin, own);
            }
        }
        drop(origins);
        self.notify_gone(&gone);
        self.arrival.notify_waiters();
    }

    /// The socket was deleted: its direct origins and its flows end.
    fn mark_removed(&self) {
        self.calls.send_replace(());
        let is_direct = |origin: &Origin| matches!(origin.handle(), OriginTransport::Direct(_));
        let mut origins = self.origins.write();
        let gone = origins.take(is_direct, self.shared.region.as_ref());
        drop(origins);
        self.notify_gone(&gone);
    }

    /// These direct origins were removed from the socket.
    fn notify_gone(&self, gone: &[Arc<Origin>]) {
        for origin in gone {
            origin.leave();
            self.shared.directory.checked(origin.handle().origin(), None);
        }
    }

    /// Removes this holder's tunnel. Returns whether another holder still has the tunnel here.
    fn left(&self, tunnel: TunnelId, holder: Holder) -> bool {
        let mut origins = self.origins.write();
        let is_it = |o: &Origin| o.handle().tunnel() == Some(tunnel) && o.handle().holder() == holder;
        if let Some(origin) = origins.take_one(is_it, self.shared.region.as_ref()) {
            origin.leave();
            self.note_loss(&origins, origin.health_state().group());
        }
        origins.iter().any(|origin| origin.place().is_local && origin.handle().tunnel() == Some(tunnel))
    }

    /// Removes the tunnel of another edge with this place.
    pub(crate) fn left_from(&self, tunnel: TunnelId, holder: Holder, place: &Place) {
        let mut origins = self.origins.write();
        let is_it =
            |o: &Origin| o.handle().tunnel() == Some(tunnel) && o.handle().holder() == holder && o.place() == place;
        if let Some(origin) = origins.take_one(is_it, self.shared.region.as_ref()) {
            origin.leave();
            self.note_loss(&origins, origin.health_state().group());
        }
    }

    /// Applies the health that the other edge reports for the tunnel's origin.
    pub(crate) fn set_reported_health(&self, tunnel: TunnelId, holder: Holder, place: &Place, health: OriginHealth) {
        let is_it = |o: &&Arc<Origin>| {
            o.handle().tunnel() == Some(tunnel) && o.handle().holder() == holder && o.place() == place
        };
        if let Some(origin) = self.origins.read().iter().find(is_it) {
            origin.health_state().set_reported(health);
        }
        self.arrival.notify_waiters();
    }

    /// Remembers when the last tunnel of a group left.
    fn note_loss(&self, origins: &[Arc<Origin>], group: Group) {
        if !has_tunnels(origins, group) {
            let now = Instant::now();
            let mut lost = self.lost.lock();
            // Bounded by the number of the socket's groups.
            lost.retain(|(of, at)| *of != group && now.saturating_duration_since(*at) < MAX_ABSENCE);
            lost.push((group, now));
        }
    }

    /// The origin behind a tunnel that is attached here.
    pub(crate) fn attached(&self, tunnel: TunnelId) -> Option<Arc<Origin>> {
        let origins = self.origins.read();
        let is_it = |o: &&Arc<Origin>| o.place().is_local && o.handle().tunnel() == Some(tunnel) && o.is_up();
        origins.iter().rfind(is_it).cloned()
    }

    /// The name of this origin in affinity cookies.
    pub(crate) fn code(&self, origin: &Origin) -> AffinityCode {
        let socket = self.socket.as_bytes();
        AffinityCode::new(self.shared.key.hash_key(), socket, &origin_id(origin.handle().origin()))
    }

    /// Selects an origin of the group that is usable and untried. Among the nearest, the hinted origin wins, else the
    /// one with the least load for its weight, in rotation if several are equal. The origin counts as tried and as
    /// loaded from here on.
    pub(crate) fn choose(&self, group: Group, tried: &mut Attempts<u64>, hint: &AffinityHint) -> Option<InFlight> {
        let origins = self.origins.read();
        // The load rises under the lock of the rotation, so that concurrent requests see each other.
        let mut rotations = self.rotations.lock();
        let rotation = rotations.of(group);
        let own = self.shared.region.as_ref();
        let dialing = self.dialing();
        let dialed = dialing.as_ref().map(|rules| (&rules.route().settings, self.roll(hint)));
        let choice = Choice { origins: &origins, own, hint, code: |origin: &Origin| self.code(origin), dialed };
        let usable = |o: &Arc<Origin>| o.health_state().group() == group && o.is_usable() && tried.may_try(&o.number());
        // A failed origin is better than none.
        let Chosen { origin, why } = choice
            .make(rotation, |o| usable(o) && !o.health_state().is_ejected() && !o.handle().is_unresponsive())
            .or_else(|| choice.make(rotation, usable))?;
        tried.record(origin.number());
        if let Some(why) = why {
            self.shared.regions.record(origin.place().region.as_ref().or(own), why);
        }
        Some(InFlight::enter(origin))
    }

    /// The quotas of the socket.
    pub(crate) fn quotas(&self) -> &Arc<PoolQuotas> {
        &self.quotas
    }

    /// The usable, untried origins of the group, each once, the preferred one first and then by distance and load.
    /// Ejected ones are among them only if there are no others.
    pub(crate) fn candidates(&self, group: Group, tried: &Attempts<u64>, hint: &AffinityHint) -> Ordered {
        let origins = self.origins.read();
        let own = self.shared.region.as_ref();
        let choice = Choice { origins: &origins, own, hint, code: |origin: &Origin| self.code(origin), dialed: None };
        let usable = |o: &Arc<Origin>| o.health_state().group() == group && o.is_usable() && tried.may_try(&o.number());
        let good = choice.in_order(|o| usable(o) && !o.health_state().is_ejected() && !o.handle().is_unresponsive());
        if good.origins.is_empty() { choice.in_order(usable) } else { good }
    }

    /// The rules, if regional dials apply: the socket has some, and this edge has a region.
    fn dialing(&self) -> Option<Arc<Rules>> {
        if !self.has_dials.load(Ordering::Acquire) {
            return None;
        }
        self.rules.read().clone()
    }

    /// The number that distributes flows over regions; the same for a client with affinity.
    fn roll(&self, hint: &AffinityHint) -> u64 {
        match hint {
            AffinityHint::Address(_, hash) => dials::roll_of(*hash),
            AffinityHint::Any | AffinityHint::Cookie(..) => self.rolls.lock().roll(),
        }
    }

    /// Whether every path has a usable origin.
    pub(crate) fn is_reachable(&self) -> bool {
        self.has_usable(Group::ROOT, &Attempts::default())
    }

    fn has_usable(&self, group: Group, tried: &Attempts<u64>) -> bool {
        let origins = self.origins.read();
        let is_fit = |origin: &&Arc<Origin>| origin.health_state().group() == group && origin.is_usable();
        origins.iter().filter(is_fit).any(|origin| tried.may_try(&origin.number()))
    }

    fn lost_within(&self, absence: Duration, group: Group) -> bool {
        // A tunnel with a closing session is unusable before it has left.
        has_tunnels(&self.origins.read(), group) || {
            let lost = self.lost.lock();
            lost.iter().any(|(of, at)| *of == group && at.elapsed() < absence)
        }
    }

    /// All origins.
    pub(crate) fn origins(&self) -> Vec<Arc<Origin>> {
        self.origins.read().to_vec()
    }

    /// The socket's metrics, if the socket was used.
    pub(crate) fn counted(&self) -> Option<&Arc<SocketMetrics>> {
        self.metrics.get()
    }

    /// The socket's metrics, made at first use.
    pub(crate) fn metrics(&self, make: impl FnOnce() -> Arc<SocketMetrics>) -> Arc<SocketMetrics> {
        self.metrics.get_or_init(make).clone()
    }
}

/// Whether the group has tunnels.
fn has_tunnels(origins: &[Arc<Origin>], group: Group) -> bool {
    origins.iter().any(|origin| origin.handle().tunnel().is_some() && origin.health_state().group() == group)
}
