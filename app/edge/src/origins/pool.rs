//! The origins of each socket, and the choice among them.

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
        rules::Rules,
        selection::{Choice, Chosen},
        set::Origins,
        transport::{
            Holder, OriginTransport,
            direct::{Dialer, DirectTransport},
        },
    },
    policy::limits::Bounds,
    util::ids,
};

/// How many requests may wait for a tunnel to come back, on all sockets together.
const MAX_HELD_REQUESTS: usize = 1_024;
/// How long a request waits for a tunnel to come back.
const MAX_HOLD: Duration = Duration::from_secs(5);
/// How long after a socket's last tunnel left, or after the edge started, a tunnel is believed to come (back).
const MAX_ABSENCE: Duration = Duration::from_secs(10);

/// Every socket that has, or had, tunnels here.
#[derive(Debug)]
pub(crate) struct Sockets {
    shared: Arc<PoolContext>,
    pools: RwLock<HashMap<SocketId, Arc<SocketPool>>>,
    started: Instant,
    held: Semaphore,
}

/// What all pools need to know.
#[derive(Debug)]
pub(crate) struct PoolContext {
    /// The sockets that there are.
    pub(crate) routes: Routes,
    /// Where it is told how origins are.
    pub(crate) directory: Directory,
    /// Where addresses are.
    pub(crate) geo: Option<Arc<Geo>>,
    /// The secret behind which origin a client meets.
    pub(crate) key: AffinityKey,
    /// Whether this edge can know who comes.
    pub(crate) knows_identities: bool,
    /// The domain that sockets' names are under.
    pub(crate) domain: String,
    /// When origins are left out for a while.
    pub(crate) ejection: EjectionConfig,
    /// The region of this edge.
    pub(crate) region: Option<RegionName>,
    /// Turns for health checks.
    pub(crate) checks: Semaphore,
    /// What is counted of origins.
    pub(crate) metrics: OriginMetrics,
    /// Dials direct origins.
    pub(crate) dialer: Arc<Dialer>,
    /// What is counted of flows of sockets that have dials.
    pub(crate) regions: RegionMetrics,
}

impl PoolContext {
    /// What an edge of this configuration says.
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
        }
    }
}

/// The origins of one socket, and its owner's rules.
#[derive(Debug)]
pub(crate) struct SocketPool {
    socket: SocketId,
    shared: Arc<PoolContext>,
    rules: RwLock<Option<Arc<Rules>>>,
    /// Held while origins are told the rules: what they are told last is what holds.
    telling: Mutex<()>,
    bounds: Arc<Bounds>,
    origins: RwLock<Origins>,
    rotations: Mutex<Rotations>,
    rolls: Mutex<Rolls>,
    /// When the last tunnel of a group has left, of those of which that was a moment ago.
    lost: Mutex<Vec<(Group, Instant)>>,
    arrival: Notify,
    /// Called when its flows are to be judged again.
    calls: watch::Sender<()>,
    /// Whether its rules judge anybody.
    judges: AtomicBool,
    /// Whether dials of regions decide where flows go.
    has_dials: AtomicBool,
    metrics: OnceLock<Arc<SocketMetrics>>,
}

/// Whose turn it is: in each group by itself.
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
            shared,
            rules: RwLock::default(),
            telling: Mutex::default(),
            bounds: Arc::default(),
            origins: RwLock::default(),
            rotations: Mutex::default(),
            rolls: Mutex::new(Rolls::from(u64::from_be_bytes(ids::random()))),
            has_dials: AtomicBool::new(false),
            lost: Mutex::default(),
            arrival: Notify::new(),
            calls: watch::Sender::new(()),
            judges: AtomicBool::new(false),
            metrics: OnceLock::new(),
        }
    }
}

impl Sockets {
    /// No sockets yet.
    pub(crate) fn new(shared: PoolContext) -> Self {
        let (started, held) = (Instant::now(), Semaphore::new(MAX_HELD_REQUESTS));
        Self { shared: Arc::new(shared), pools: RwLock::default(), started, held }
    }

    /// The pool of this socket. Only for sockets that exist, so that there are no more pools than routes.
    pub(crate) fn pool(&self, socket: SocketId) -> Arc<SocketPool> {
        if let Some(pool) = self.pools.read().get(&socket) {
            return pool.clone();
        }
        let mut pools = self.pools.write();
        pools.entry(socket).or_insert_with(|| Arc::new(SocketPool::new(socket, self.shared.clone()))).clone()
    }

    /// The pool of this socket, where there is one.
    pub(crate) fn known(&self, socket: SocketId) -> Option<Arc<SocketPool>> {
        self.pools.read().get(&socket).cloned()
    }

    /// When this edge began.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// The socket's route has changed.
    pub(crate) fn changed(&self, route: &Arc<SocketRoute>) {
        let known = self.pools.read().get(&route.id).cloned();
        // Direct origins are checked whether anybody has come or not.
        if let Some(pool) = known.or_else(|| (!route.origins.is_empty()).then(|| self.pool(route.id))) {
            pool.rules(route);
        }
    }

    /// What all pools need to know.
    pub(crate) fn shared(&self) -> &PoolContext {
        &self.shared
    }

    /// The socket is gone for good.
    pub(crate) fn forget(&self, socket: SocketId) {
        let forgotten = self.pools.write().remove(&socket);
        if let Some(pool) = forgotten {
            pool.mark_removed();
        }
    }

    /// Forgets every socket that is not wanted any more.
    pub(crate) fn retain(&self, is_wanted: impl Fn(SocketId) -> bool) {
        let mut pools = self.pools.write();
        let forgotten: Vec<_> = pools.extract_if(|socket, _| !is_wanted(*socket)).map(|(_, pool)| pool).collect();
        drop(pools);
        forgotten.iter().for_each(|pool| pool.mark_removed());
    }

    /// A tunnel left. Returns whether the same tunnel is still here by another one.
    pub(crate) fn left(&self, tunnel: TunnelId, holder: Holder) -> bool {
        let mut is_still_here = false;
        for pool in self.all() {
            is_still_here |= pool.left(tunnel, holder);
        }
        is_still_here
    }

    /// Every pool, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<SocketPool>> {
        self.pools.read().values().cloned().collect()
    }

    /// Whether a tunnel of the group may be expected to come (back) in a moment.
    pub(crate) fn expects(&self, pool: &SocketPool, group: Group) -> bool {
        self.started.elapsed() < MAX_ABSENCE || pool.lost_within(MAX_ABSENCE, group)
    }

    /// Waits a little for an origin of the group that is usable and was not tried yet, where one may be expected: after
    /// a restart on either side. Returns whether one came.
    pub(crate) async fn hold(&self, pool: &SocketPool, group: Group, tried: &Attempts<u64>, since: Instant) -> bool {
        if !self.expects(pool, group) || since.elapsed() >= MAX_HOLD {
            return false;
        }
        let Ok(_place) = self.held.try_acquire() else { return false };
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
    /// The rules of this route, which is the socket's as it is now.
    pub(crate) fn rules(self: &Arc<Self>, route: &Arc<SocketRoute>) -> Arc<Rules> {
        let known = self.rules.read().clone();
        if let Some(rules) = known.filter(|rules| rules.are_of(route)) {
            return rules;
        }
        self.bounds.set(route.settings.limits);
        let rules = Arc::new(Rules::new(route.clone(), &self.shared));
        let former = self.rules.write().replace(rules.clone());
        let has_dials = self.shared.region.is_some() && !route.settings.regions.is_empty();
        self.has_dials.store(has_dials, Ordering::Release);
        // Groups that are gone have no turns any more.
        self.rotations.lock().others.clear();
        self.keep_direct(route, &rules);
        self.tell_origins();
        self.judges.store(rules.judge().is_some(), Ordering::Release);
        if rules.judge().is_some() || former.is_some_and(|former| former.judge().is_some()) {
            self.calls.send_replace(());
        }
        rules
    }

    /// Whether the socket judges anybody, as far as its rules are known.
    pub(crate) fn judges(&self) -> bool {
        self.judges.load(Ordering::Acquire)
    }

    /// Sees a change whenever the socket's flows are to be judged again, from now on.
    pub(crate) fn calls(&self) -> watch::Receiver<()> {
        self.calls.subscribe()
    }

    /// Has the socket's flows judged again, when it judges anybody.
    pub(crate) fn call_judged(&self) {
        let is_judged = || {
            let rules = self.rules.read();
            rules.as_ref().is_some_and(|rules| rules.judge().is_some())
        };
        if self.calls.receiver_count() > 0 && is_judged() {
            self.calls.send_replace(());
        }
    }

    /// Tells the origins what the rules say of them.
    fn tell_origins(self: &Arc<Self>) {
        let _telling = self.telling.lock();
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
                health::tell(&self.shared.directory, &origin);
            }
        }
        self.origins.read().were_told_weights();
    }

    /// A check of this origin says something new; where it is down, why.
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
            health::tell(&self.shared.directory, origin);
            self.arrival.notify_waiters();
        }
    }

    /// A check of this origin, which is down, failed for this reason: those that ask are told the newest one.
    pub(crate) fn fails_as(&self, origin: &Origin, probe: &Arc<Probe>, why: &HealthFailure) {
        if let Some(failure) = origin.health_state().set_failure_reason(probe, why) {
            self.shared.directory.check_failed(origin.handle().origin(), failure);
            health::tell(&self.shared.directory, origin);
        }
    }

    /// The origin took no connection. When that happens too often, or took too long once, it is left out for a while, unless
    /// it is the last.
    pub(crate) fn failed(&self, origin: &Arc<Origin>, failure: ejection::Failure) {
        let origins = self.origins();
        let group = origin.health_state().group();
        let usable = || origins.iter().filter(|origin| origin.health_state().group() == group && origin.is_usable());
        let ejected = usable().filter(|origin| origin.health_state().is_ejected()).count();
        let count = PoolCount { origins: usable().count(), ejected };
        if let Some(ejected) = origin.health_state().failed(&self.shared.ejection, failure, count) {
            let seconds = ejected.until.saturating_duration_since(Instant::now()).as_secs();
            tracing::info!(
                socket = %self.socket,
                origin = %origin.handle().origin(),
                failures = ejected.failures,
                seconds,
                "an origin took no connection several times in a row, or not in time: it is left out for a while"
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
            health::tell_until(&self.shared.directory, origin, ejected.until);
        }
    }

    /// The origin was not reached for a client of another edge, for this reason.
    pub(crate) fn not_reached(&self, origin: &Arc<Origin>, reason: FailureReason) {
        match reason {
            FailureReason::Draining => {}
            FailureReason::TimedOut => self.failed(origin, ejection::Failure::Silent),
            _ => self.failed(origin, ejection::Failure::Connect),
        }
    }

    /// Whether tunnels of the group are up, and none of their origins takes anything: by their checks, or by their weights.
    pub(crate) fn is_unwell(&self, group: Group) -> bool {
        let origins = self.origins.read();
        let of_group = || origins.iter().filter(|origin| origin.health_state().group() == group);
        of_group().any(|origin| origin.is_up()) && !of_group().any(|origin| origin.is_usable())
    }

    /// A way that is up and by which the owner learns of flows, whether its origin takes anything or not.
    pub(crate) fn any_up(&self) -> Option<OriginTransport> {
        let origins = self.origins.read();
        let tells = |origin: &&Arc<Origin>| origin.is_up() && origin.handle().has_owner();
        origins.iter().find(tells).map(|origin| origin.handle().clone())
    }

    /// How many origins take new flows.
    pub(crate) fn healthy(&self) -> usize {
        let origins = self.origins.read();
        let well = origins.iter().filter(|origin| origin.is_usable() && !origin.health_state().is_ejected());
        // One that several edges hold is one origin.
        well.map(|origin| origin.handle().origin()).collect::<HashSet<_>>().len()
    }

    /// The socket's name, once it is known.
    pub(crate) fn name(&self) -> Option<String> {
        let rules = self.rules.read();
        rules.as_ref().map(|rules| rules.route().name.as_str().to_owned())
    }

    /// The socket.
    pub(crate) fn socket(&self) -> SocketId {
        self.socket
    }

    /// What all pools need to know.
    pub(crate) fn shared(&self) -> &PoolContext {
        &self.shared
    }

    /// What the socket may use.
    pub(crate) fn bounds(&self) -> &Arc<Bounds> {
        &self.bounds
    }

    /// A tunnel came to this edge.
    pub(crate) fn arrived(self: &Arc<Self>, transport: OriginTransport) {
        let presence = transport.tunnel().and_then(|tunnel| self.shared.directory.get(tunnel));
        let home = presence.and_then(|presence| presence.home);
        let region = home.or_else(|| self.shared.region.clone());
        self.arrived_at(transport, Place::local(region));
    }

    /// A tunnel came, to this edge or another one.
    pub(crate) fn arrived_at(self: &Arc<Self>, transport: OriginTransport, place: Place) {
        if let Some(route) = self.shared.routes.get(self.socket) {
            self.rules(&route);
        }
        let origin = Origin::new(transport, place);
        // Before anything is sent to it: what it is told later is what has changed since.
        if let Some(rules) = self.rules.read().as_ref() {
            origin.health_state().set_group(rules.group_of(origin.handle().origin()));
        }
        let mut origins = self.origins.write();
        origins.push(origin, self.shared.region.as_ref());
        drop(origins);
        self.tell_origins();
        self.arrival.notify_waiters();
    }

    /// Has the direct origins that this route says, and no others.
    fn keep_direct(&self, route: &SocketRoute, rules: &Rules) {
        let is_allowed = self.shared.dialer.is_allowed();
        if !is_allowed && !route.origins.is_empty() {
            tracing::warn!(
                socket = %route.id,
                "a socket has direct origins, and this edge may dial none: name networks with --direct-origins"
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
        self.went(&gone);
        self.arrival.notify_waiters();
    }

    /// The socket is gone, and with it its direct origins and its flows.
    fn mark_removed(&self) {
        self.calls.send_replace(());
        let is_direct = |origin: &Origin| matches!(origin.handle(), OriginTransport::Direct(_));
        let mut origins = self.origins.write();
        let gone = origins.take(is_direct, self.shared.region.as_ref());
        drop(origins);
        self.went(&gone);
    }

    /// These direct origins are not the socket's any more.
    fn went(&self, gone: &[Arc<Origin>]) {
        for origin in gone {
            origin.leave();
            self.shared.directory.checked(origin.handle().origin(), None);
        }
    }

    /// Drops the tunnel that this one holds up, when it is here. Returns whether it is still here by another one.
    fn left(&self, tunnel: TunnelId, holder: Holder) -> bool {
        let mut origins = self.origins.write();
        let is_it = |o: &Origin| o.handle().tunnel() == Some(tunnel) && o.handle().holder() == holder;
        if let Some(origin) = origins.take_one(is_it, self.shared.region.as_ref()) {
            origin.leave();
            self.note_loss(&origins, origin.health_state().group());
        }
        origins.iter().any(|origin| origin.place().is_local && origin.handle().tunnel() == Some(tunnel))
    }

    /// Drops the tunnel that another edge holds, as the one that was in this place.
    pub(crate) fn left_from(&self, tunnel: TunnelId, holder: Holder, place: &Place) {
        let mut origins = self.origins.write();
        let is_it =
            |o: &Origin| o.handle().tunnel() == Some(tunnel) && o.handle().holder() == holder && o.place() == place;
        if let Some(origin) = origins.take_one(is_it, self.shared.region.as_ref()) {
            origin.leave();
            self.note_loss(&origins, origin.health_state().group());
        }
    }

    /// The other edge that holds the tunnel finds its origin so.
    pub(crate) fn set_reported_health(&self, tunnel: TunnelId, holder: Holder, place: &Place, health: OriginHealth) {
        let is_it = |o: &&Arc<Origin>| {
            o.handle().tunnel() == Some(tunnel) && o.handle().holder() == holder && o.place() == place
        };
        if let Some(origin) = self.origins.read().iter().find(is_it) {
            origin.health_state().set_reported(health);
        }
        self.arrival.notify_waiters();
    }

    /// When the last one of a group has left is remembered.
    fn note_loss(&self, origins: &[Arc<Origin>], group: Group) {
        if !has_tunnels(origins, group) {
            let now = Instant::now();
            let mut lost = self.lost.lock();
            // As many as the socket has groups at most, and a moment later fewer.
            lost.retain(|(of, at)| *of != group && now.saturating_duration_since(*at) < MAX_ABSENCE);
            lost.push((group, now));
        }
    }

    /// The origin behind a tunnel that is held here.
    pub(crate) fn held(&self, tunnel: TunnelId) -> Option<Arc<Origin>> {
        let origins = self.origins.read();
        let is_it = |o: &&Arc<Origin>| o.place().is_local && o.handle().tunnel() == Some(tunnel) && o.is_up();
        origins.iter().rfind(is_it).cloned()
    }

    /// What names this origin in a cookie.
    pub(crate) fn code(&self, origin: &Origin) -> AffinityCode {
        let socket = self.socket.as_bytes();
        AffinityCode::new(self.shared.key.hash_key(), socket, &origin_id(origin.handle().origin()))
    }

    /// Of the nearest origins of the group that are usable the one that is wished for, else the one with the least to do for its weight, in
    /// turn where several have the same; and none of those already tried. It counts as tried, and as busy, from here on.
    pub(crate) fn choose(&self, group: Group, tried: &mut Attempts<u64>, hint: &AffinityHint) -> Option<InFlight> {
        let origins = self.origins.read();
        // The count goes up under the rotation's lock: requests that come at once see one another.
        let mut rotations = self.rotations.lock();
        let rotation = rotations.of(group);
        let own = self.shared.region.as_ref();
        let dialing = self.dialing();
        let dialed = dialing.as_ref().map(|rules| (&rules.route().settings, self.roll(hint)));
        let choice = Choice { origins: &origins, own, hint, code: |origin: &Origin| self.code(origin), dialed };
        let usable = |o: &Arc<Origin>| o.health_state().group() == group && o.is_usable() && tried.may_try(&o.number());
        // Rather one that has failed than none.
        let Chosen { origin, why } = choice
            .make(rotation, |o| usable(o) && !o.health_state().is_ejected() && !o.handle().is_doubtful())
            .or_else(|| choice.make(rotation, usable))?;
        tried.record(origin.number());
        if let Some(why) = why {
            self.shared.regions.went(origin.place().region.as_ref().or(own), why);
        }
        Some(InFlight::enter(origin))
    }

    /// The rules, where dials of regions decide: they have some, and this edge is in a region.
    fn dialing(&self) -> Option<Arc<Rules>> {
        if !self.has_dials.load(Ordering::Acquire) {
            return None;
        }
        self.rules.read().clone()
    }

    /// What decides where one flow of many goes: the same for a client that is to meet the same origin again.
    fn roll(&self, hint: &AffinityHint) -> u64 {
        match hint {
            AffinityHint::Address(_, hash) => dials::roll_of(*hash),
            AffinityHint::Any | AffinityHint::Cookie(..) => self.rolls.lock().roll(),
        }
    }

    /// Whether it has an origin for every path that is usable.
    pub(crate) fn is_reachable(&self) -> bool {
        self.has_usable(Group::ROOT, &Attempts::default())
    }

    fn has_usable(&self, group: Group, tried: &Attempts<u64>) -> bool {
        let origins = self.origins.read();
        let is_fit = |origin: &&Arc<Origin>| origin.health_state().group() == group && origin.is_usable();
        origins.iter().filter(is_fit).any(|origin| tried.may_try(&origin.number()))
    }

    fn lost_within(&self, absence: Duration, group: Group) -> bool {
        // A tunnel whose session goes away is unusable before it has left.
        has_tunnels(&self.origins.read(), group) || {
            let lost = self.lost.lock();
            lost.iter().any(|(of, at)| *of == group && at.elapsed() < absence)
        }
    }

    /// Every origin.
    pub(crate) fn origins(&self) -> Vec<Arc<Origin>> {
        self.origins.read().to_vec()
    }

    /// The socket's metrics, where it was used.
    pub(crate) fn counted(&self) -> Option<&Arc<SocketMetrics>> {
        self.metrics.get()
    }

    /// The socket's metrics; made at first use.
    pub(crate) fn metrics(&self, make: impl FnOnce() -> Arc<SocketMetrics>) -> Arc<SocketMetrics> {
        self.metrics.get_or_init(make).clone()
    }
}

/// Whether tunnels of the group are among them.
fn has_tunnels(origins: &[Arc<Origin>], group: Group) -> bool {
    origins.iter().any(|origin| origin.handle().tunnel().is_some() && origin.health_state().group() == group)
}
