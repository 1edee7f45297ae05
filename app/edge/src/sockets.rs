//! The origins of each socket, and the choice among them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
    time::{Duration, Instant},
};

use sallyport_balance::{Attempts, Rotation, affinity::AffinityCode};
use sallyport_bus::Routes;
use sallyport_geo::Geo;
use sallyport_model::{SocketId, SocketRoute, TunnelId};
use tokio::sync::{Notify, Semaphore};

use crate::{
    affinity::{AffinityKey, Wish, origin_id},
    bounds::Bounds,
    metrics::SocketMetrics,
    origin::{InFlight, Origin},
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
    /// Where addresses are.
    pub(crate) geo: Option<Arc<Geo>>,
    /// The secret behind which origin a client meets.
    pub(crate) key: AffinityKey,
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

    /// Waits a little for an origin of the pool that is usable and was not tried yet, where one may be expected: after
    /// a restart on either side. Returns whether one came.
    pub(crate) async fn hold(&self, pool: &SocketPool, tried: &Attempts<u64>, since: Instant) -> bool {
        let expected = self.started.elapsed() < MAX_ABSENCE || pool.lost_within(MAX_ABSENCE);
        if !expected || since.elapsed() >= MAX_HOLD {
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
        let rules = Arc::new(Rules::new(route.clone(), self.shared.geo.as_deref(), &self.shared.key));
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Some(rules.clone());
        self.tell_origins();
        rules
    }

    /// Tells the origins what the rules say of them.
    fn tell_origins(&self) {
        let _telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(rules) = self.rules.read().unwrap_or_else(PoisonError::into_inner).clone() else { return };
        for origin in self.origins() {
            if let Some(tunnel) = rules.route().tunnel(origin.handle().tunnel()) {
                origin.standing().weighs(tunnel.weight);
            }
        }
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

    /// The usable origin that is wished for; else the one with the least to do for its weight, in turn where several have
    /// the same; and none of those already tried. It counts as tried, and as busy, from here on.
    pub(crate) fn choose(&self, tried: &mut Attempts<u64>, wish: &Wish) -> Option<InFlight> {
        let origins = self.origins.read().unwrap_or_else(PoisonError::into_inner);
        // The count goes up under the rotation's lock: requests that come at once see one another.
        let mut rotation = self.rotation.lock().unwrap_or_else(PoisonError::into_inner);
        let fit = |o: &Arc<Origin>| o.is_usable() && tried.may_try(&o.number());
        let at = wish.find(&origins, |origin| self.code(origin), fit).or_else(|| {
            rotation.choose_weighted(&origins, |o| o.number(), |o| o.load(), |o| o.standing().weight(), fit)
        })?;
        let origin = origins.get(at)?;
        tried.record(origin.number());
        Some(InFlight::enter(origin.clone()))
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
