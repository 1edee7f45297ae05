//! The origins of each socket, and the choice among them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sallyport_balance::{
    Attempts, Rotation,
    affinity::AffinityCode,
    ejection::{EjectionConfig, PoolCount},
    health::HealthEvent,
};
use sallyport_bus::{Directory, Routes};
use sallyport_geo::Geo;
use sallyport_model::{SocketId, SocketRoute, TunnelId};
use tokio::sync::{Notify, Semaphore, watch};

use crate::{
    EdgeConfig,
    affinity::{AffinityKey, Wish, origin_id},
    bounds::Bounds,
    health::{self, Checks, MAX_CHECKS_AT_ONCE, Probe},
    metrics::SocketMetrics,
    origin::{InFlight, Origin},
    origin_metrics::OriginMetrics,
    rules::Rules,
    way::{Holder, Way},
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
    shared: Arc<Shared>,
    pools: RwLock<HashMap<SocketId, Arc<SocketPool>>>,
    started: Instant,
    held: Semaphore,
}

/// What all pools need to know.
#[derive(Debug)]
pub(crate) struct Shared {
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
    /// Turns for health checks.
    pub(crate) checks: Semaphore,
    /// What is counted of origins.
    pub(crate) metrics: OriginMetrics,
}

impl Shared {
    /// What an edge of this configuration says.
    pub(crate) fn new(config: &EdgeConfig, routes: Routes, directory: Directory) -> Self {
        Self {
            routes,
            directory,
            geo: config.geo.clone(),
            key: config.affinity_key.clone(),
            knows_identities: config.identity.is_some(),
            domain: config.domain.clone(),
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
    shared: Arc<Shared>,
    rules: RwLock<Option<Arc<Rules>>>,
    /// Held while origins are told the rules: what they are told last is what holds.
    telling: Mutex<()>,
    bounds: Arc<Bounds>,
    origins: RwLock<Vec<Arc<Origin>>>,
    rotation: Mutex<Rotation<u64>>,
    lost: Mutex<Option<Instant>>,
    arrival: Notify,
    /// Called when its flows are to be judged again.
    calls: watch::Sender<()>,
    /// Whether its rules judge anybody.
    judges: AtomicBool,
    metrics: OnceLock<Arc<SocketMetrics>>,
}

impl SocketPool {
    fn new(socket: SocketId, shared: Arc<Shared>) -> Self {
        Self {
            socket,
            shared,
            rules: RwLock::default(),
            telling: Mutex::default(),
            bounds: Arc::default(),
            origins: RwLock::default(),
            rotation: Mutex::new(Rotation::new()),
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
    pub(crate) fn new(shared: Shared) -> Self {
        let (started, held) = (Instant::now(), Semaphore::new(MAX_HELD_REQUESTS));
        Self { shared: Arc::new(shared), pools: RwLock::default(), started, held }
    }

    /// The pool of this socket. Only for sockets that exist, so that there are no more pools than routes.
    pub(crate) fn pool(&self, socket: SocketId) -> Arc<SocketPool> {
        if let Some(pool) = self.pools.read().unwrap_or_else(PoisonError::into_inner).get(&socket) {
            return pool.clone();
        }
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        pools.entry(socket).or_insert_with(|| Arc::new(SocketPool::new(socket, self.shared.clone()))).clone()
    }

    /// The socket's route has changed.
    pub(crate) fn changed(&self, route: &Arc<SocketRoute>) {
        let pool = self.pools.read().unwrap_or_else(PoisonError::into_inner).get(&route.id).cloned();
        if let Some(pool) = pool {
            pool.rules(route);
        }
    }

    /// What all pools need to know.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The socket is gone for good.
    pub(crate) fn forget(&self, socket: SocketId) {
        self.pools.write().unwrap_or_else(PoisonError::into_inner).remove(&socket);
    }

    /// Forgets every socket that is not wanted any more.
    pub(crate) fn retain(&self, is_wanted: impl Fn(SocketId) -> bool) {
        self.pools.write().unwrap_or_else(PoisonError::into_inner).retain(|socket, _| is_wanted(*socket));
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
        self.pools.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Whether a tunnel of the pool may be expected to come (back) in a moment.
    pub(crate) fn expects(&self, pool: &SocketPool) -> bool {
        self.started.elapsed() < MAX_ABSENCE || pool.lost_within(MAX_ABSENCE)
    }

    /// Waits a little for an origin of the pool that is usable and was not tried yet, where one may be expected: after
    /// a restart on either side. Returns whether one came.
    pub(crate) async fn hold(&self, pool: &SocketPool, tried: &Attempts<u64>, since: Instant) -> bool {
        if !self.expects(pool) || since.elapsed() >= MAX_HOLD {
            return false;
        }
        let Ok(_place) = self.held.try_acquire() else { return false };
        let wait = async {
            loop {
                let arrival = pool.arrival.notified();
                if pool.has_usable(tried) {
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
        let known = self.rules.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(rules) = known.filter(|rules| rules.are_of(route)) {
            return rules;
        }
        self.bounds.set(route.settings.limits);
        let rules = Arc::new(Rules::new(route.clone(), &self.shared));
        let former = self.rules.write().unwrap_or_else(PoisonError::into_inner).replace(rules.clone());
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
            let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
            rules.as_ref().is_some_and(|rules| rules.judge().is_some())
        };
        if self.calls.receiver_count() > 0 && is_judged() {
            self.calls.send_replace(());
        }
    }

    /// Tells the origins what the rules say of them.
    fn tell_origins(self: &Arc<Self>) {
        let _telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(rules) = self.rules.read().unwrap_or_else(PoisonError::into_inner).clone() else { return };
        for origin in self.origins() {
            if let Some(tunnel) = rules.route().tunnel(origin.handle().tunnel()) {
                origin.standing().weighs(tunnel.weight);
            }
            if origin.standing().is_checked(rules.probe(), |probe| Checks::start(self, &origin, probe)) {
                self.shared.directory.checked(origin.handle().tunnel(), None);
            }
        }
    }

    /// A check of this origin says something new.
    pub(crate) fn checked(&self, origin: &Origin, probe: &Arc<Probe>, event: HealthEvent) {
        let is_down = event != HealthEvent::Up;
        if origin.standing().is_judged(probe, is_down) {
            health::log(self, origin, event);
            self.shared.metrics.changed(is_down);
            self.shared.directory.checked(origin.handle().tunnel(), Some(!is_down));
            self.arrival.notify_waiters();
        }
    }

    /// The origin took no connection. When that happens too often it is left out for a while, unless it is the last.
    pub(crate) fn failed(&self, origin: &Origin) {
        let origins = self.origins();
        let usable = || origins.iter().filter(|origin| origin.is_usable());
        let ejected = usable().filter(|origin| origin.standing().is_ejected()).count();
        let count = PoolCount { origins: usable().count(), ejected };
        if let Some(ejected) = origin.standing().failed(&self.shared.ejection, count) {
            let seconds = ejected.until.saturating_duration_since(Instant::now()).as_secs();
            tracing::info!(
                socket = %self.socket,
                tunnel = %origin.handle().tunnel(),
                failures = ejected.failures,
                seconds,
                "an origin took no connection several times in a row: it is left out for a while"
            );
            self.shared.metrics.ejected();
        }
    }

    /// Whether tunnels are up, and none of their origins takes anything: by their checks, or by their weights.
    pub(crate) fn is_unwell(&self) -> bool {
        let origins = self.origins.read().unwrap_or_else(PoisonError::into_inner);
        origins.iter().any(|origin| origin.is_up()) && !origins.iter().any(|origin| origin.is_usable())
    }

    /// The way of an origin that is up, whether it takes anything or not.
    pub(crate) fn any_up(&self) -> Option<Way> {
        let origins = self.origins.read().unwrap_or_else(PoisonError::into_inner);
        origins.iter().find(|origin| origin.is_up()).map(|origin| origin.handle().clone())
    }

    /// How many origins take new flows.
    pub(crate) fn healthy(&self) -> usize {
        let origins = self.origins.read().unwrap_or_else(PoisonError::into_inner);
        origins.iter().filter(|origin| origin.is_usable() && !origin.standing().is_ejected()).count()
    }

    /// The socket's name, once it is known.
    pub(crate) fn name(&self) -> Option<String> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.as_ref().map(|rules| rules.route().name.as_str().to_owned())
    }

    /// The socket.
    pub(crate) fn socket(&self) -> SocketId {
        self.socket
    }

    /// What all pools need to know.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What the socket may use.
    pub(crate) fn bounds(&self) -> &Arc<Bounds> {
        &self.bounds
    }

    /// A tunnel came.
    pub(crate) fn arrived(self: &Arc<Self>, way: Way) {
        if let Some(route) = self.shared.routes.get(self.socket) {
            self.rules(&route);
        }
        let mut origins = self.origins.write().unwrap_or_else(PoisonError::into_inner);
        origins.push(Origin::new(way));
        drop(origins);
        self.tell_origins();
        self.arrival.notify_waiters();
    }

    /// Drops the tunnel that this one holds up, when it is here. Returns whether it is still here by another one.
    fn left(&self, tunnel: TunnelId, holder: Holder) -> bool {
        let mut origins = self.origins.write().unwrap_or_else(PoisonError::into_inner);
        let is_it = |o: &Arc<Origin>| o.handle().tunnel() == tunnel && o.handle().holder() == holder;
        if let Some(at) = origins.iter().position(is_it) {
            origins.remove(at).leave();
            if origins.is_empty() {
                *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            }
        }
        origins.iter().any(|origin| origin.handle().tunnel() == tunnel)
    }

    /// What names this origin in a cookie.
    pub(crate) fn code(&self, origin: &Origin) -> AffinityCode {
        let socket = self.socket.as_bytes();
        AffinityCode::new(self.shared.key.hash_key(), socket, &origin_id(origin.handle().tunnel()))
    }

    /// The usable origin that is wished for, else the one with the least to do for its weight, in turn where several have
    /// the same; and none of those already tried. It counts as tried, and as busy, from here on.
    pub(crate) fn choose(&self, tried: &mut Attempts<u64>, wish: &Wish) -> Option<InFlight> {
        let origins = self.origins.read().unwrap_or_else(PoisonError::into_inner);
        // The count goes up under the rotation's lock: requests that come at once see one another.
        let mut rotation = self.rotation.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pick = |fit: &dyn Fn(&Arc<Origin>) -> bool| {
            wish.find(&origins, |origin| self.code(origin), fit).or_else(|| {
                rotation.choose_weighted(&origins, |o| o.number(), |o| o.load(), |o| o.standing().weight(), fit)
            })
        };
        let usable = |o: &Arc<Origin>| o.is_usable() && tried.may_try(&o.number());
        // Rather one that has failed than none.
        let at = pick(&|o| usable(o) && !o.standing().is_ejected()).or_else(|| pick(&usable))?;
        let origin = origins.get(at)?;
        tried.record(origin.number());
        Some(InFlight::enter(origin.clone()))
    }

    /// Whether it has an origin that is usable.
    pub(crate) fn is_reachable(&self) -> bool {
        self.has_usable(&Attempts::default())
    }

    fn has_usable(&self, tried: &Attempts<u64>) -> bool {
        let origins = self.origins.read().unwrap_or_else(PoisonError::into_inner);
        origins.iter().any(|origin| origin.is_usable() && tried.may_try(&origin.number()))
    }

    fn lost_within(&self, absence: Duration) -> bool {
        // A tunnel whose session goes away is unusable before it has left.
        !self.origins.read().unwrap_or_else(PoisonError::into_inner).is_empty()
            || self.lost.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|at| at.elapsed() < absence)
    }

    /// Every origin.
    pub(crate) fn origins(&self) -> Vec<Arc<Origin>> {
        self.origins.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The socket's metrics; made at first use.
    pub(crate) fn metrics(&self, make: impl FnOnce() -> Arc<SocketMetrics>) -> Arc<SocketMetrics> {
        self.metrics.get_or_init(make).clone()
    }
}
