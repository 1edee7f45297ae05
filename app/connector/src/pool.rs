//! A pool of origin addresses for one service, which can be replaced while the connector runs.

use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sallyport_balance::{
    Attempts, HashKey, MAX_ATTEMPTS, OriginId,
    endpoints::{EndpointState, Endpoints, TooManyEndpoints},
};
use sallyport_model::OriginAddr;
use sallyport_wire::{FailureReason, OpenFailure};

/// The sentence for clients of a pool without endpoints.
const EMPTY: &str = "the service has no endpoint: start one, or wait until one is ready";

/// Where a service is: at one address, or at those of a pool.
#[derive(Debug, Clone)]
pub enum ServiceOrigin {
    /// One address.
    One(OriginAddr),
    /// A pool, over whose addresses streams and flows are spread.
    Pool(OriginPool),
}

impl From<OriginAddr> for ServiceOrigin {
    fn from(address: OriginAddr) -> Self {
        Self::One(address)
    }
}

impl From<OriginPool> for ServiceOrigin {
    fn from(pool: OriginPool) -> Self {
        Self::Pool(pool)
    }
}

impl ServiceOrigin {
    /// Whether streams are spread over several addresses.
    pub(crate) fn is_pool(&self) -> bool {
        matches!(self, Self::Pool(_))
    }
}

/// One address of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: OriginAddr,
    /// Whether new streams go there.
    pub state: EndpointState,
}

impl Endpoint {
    /// An endpoint that takes new streams.
    #[must_use]
    pub fn ready(address: OriginAddr) -> Self {
        Self { address, state: EndpointState::Ready }
    }

    /// An endpoint that takes new streams only while no other one does.
    #[must_use]
    pub fn draining(address: OriginAddr) -> Self {
        Self { address, state: EndpointState::Draining }
    }
}

/// How clients are assigned to endpoints.
#[derive(Clone, Default)]
pub enum ClientAffinity {
    /// Endpoints take turns.
    #[default]
    None,
    /// A client's address selects its endpoint. Connectors with the same key and endpoints select the same one.
    Address {
        /// The secret key of the hash.
        key: [u8; 16],
    },
}

impl fmt::Debug for ClientAffinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Address { .. } => "Address",
        })
    }
}

impl ClientAffinity {
    fn key(&self) -> Option<HashKey> {
        match self {
            Self::None => None,
            Self::Address { key } => Some(HashKey::new(*key)),
        }
    }
}

/// The addresses of a service; clones share them. Replacing them leaves open streams and the tunnel alone.
#[derive(Clone)]
pub struct OriginPool {
    shared: Arc<PoolShared>,
}

struct PoolShared {
    state: Mutex<PoolState>,
    total: Counters,
}

#[derive(Default)]
struct PoolState {
    choice: Endpoints,
    by_id: HashMap<OriginId, (Arc<PoolEndpoint>, EndpointState)>,
}

struct PoolEndpoint {
    id: OriginId,
    address: OriginAddr,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    opened: AtomicU64,
    failed: AtomicU64,
    active: AtomicU64,
}

/// Counts of streams and flows. They only grow, except the active ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamCounts {
    /// Connections that were opened.
    pub opened: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Streams and flows that run.
    pub active: u64,
}

/// One address of a pool, with its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointStatus {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Whether it rests after a failure: it gets streams only while no other endpoint can take them.
    pub is_resting: bool,
    /// Its counts, from when it came into the pool.
    pub counts: StreamCounts,
}

/// The current state of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolStatus {
    /// The counts of all endpoints, those that have left included.
    pub total: StreamCounts,
    /// Each endpoint, by address.
    pub endpoints: Vec<EndpointStatus>,
}

impl OriginPool {
    /// A pool of these endpoints, at most [`crate::MAX_ENDPOINTS`]. An address that is named twice counts once. An
    /// empty pool fails each stream at once.
    ///
    /// # Errors
    /// There are too many endpoints.
    pub fn new(endpoints: Vec<Endpoint>, affinity: &ClientAffinity) -> Result<Self, TooManyEndpoints> {
        let shared = PoolShared { state: Mutex::default(), total: Counters::default() };
        let pool = Self { shared: Arc::new(shared) };
        pool.replace(endpoints, affinity)?;
        Ok(pool)
    }

    /// Replaces the endpoints. Those that stay keep their counts, failures and turn. Streams continue, also those of
    /// endpoints that leave.
    ///
    /// # Errors
    /// There are too many endpoints. Nothing has changed then.
    pub fn replace(&self, endpoints: Vec<Endpoint>, affinity: &ClientAffinity) -> Result<(), TooManyEndpoints> {
        let wanted: Vec<_> = endpoints.into_iter().map(|one| (id_of(&one.address), one)).collect();
        let states: Vec<_> = wanted.iter().map(|(id, one)| (*id, one.state)).collect();
        // A large table takes milliseconds, so the lock comes later.
        let choice = Endpoints::new(&states, affinity.key())?;
        let mut state = self.shared.state.lock();
        let mut by_id: HashMap<OriginId, (Arc<PoolEndpoint>, EndpointState)> = HashMap::with_capacity(wanted.len());
        for (id, Endpoint { address, state: is }) in wanted {
            let known = || state.by_id.get(&id).map(|(known, _)| known.clone());
            let new = || Arc::new(PoolEndpoint { id, address, counters: Counters::default() });
            by_id.entry(id).or_insert_with(|| (known().unwrap_or_else(new), is));
        }
        let choice = choice.following(&state.choice);
        *state = PoolState { choice, by_id };
        Ok(())
    }

    /// Number of endpoints.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.state.lock().by_id.len()
    }

    /// Whether there is no endpoint.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The endpoints with their counts.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        let now = Instant::now();
        let state = self.shared.state.lock();
        let mut endpoints: Vec<_> = state
            .by_id
            .values()
            .map(|(known, is)| EndpointStatus {
                endpoint: Endpoint { address: known.address.clone(), state: *is },
                is_resting: state.choice.is_resting(&known.id, now),
                counts: known.counters.get(),
            })
            .collect();
        drop(state);
        endpoints.sort_by(|one, other| {
            let key = |status: &EndpointStatus| (status.endpoint.address.host.clone(), status.endpoint.address.port);
            key(one).cmp(&key(other))
        });
        PoolStatus { total: self.shared.total.get(), endpoints }
    }

    /// The attempts of one stream of this client, which share this time.
    pub(crate) fn search(&self, client: IpAddr, time: Duration) -> Search {
        Search { pool: self.clone(), client, began: Instant::now(), time, tried: Attempts::new(), last: None }
    }

    /// The endpoint of one flow of datagrams, which the caller reports to.
    pub(crate) fn enter_for_flow(&self, client: IpAddr) -> Option<InUse> {
        let (endpoint, _) = self.choose(client, &mut Attempts::new(), Instant::now())?;
        Some(self.enter(endpoint))
    }

    /// The endpoint for the next attempt, and how many attempts there may still be, this one included.
    fn choose(&self, client: IpAddr, tried: &mut Attempts<OriginId>, now: Instant) -> Option<(Arc<PoolEndpoint>, u32)> {
        let mut state = self.shared.state.lock();
        let id = state.choice.choose(client, tried, now)?;
        let endpoint = state.by_id.get(&id).map(|(known, _)| known.clone())?;
        let most = state.by_id.len().min(MAX_ATTEMPTS);
        drop(state);
        let left = most.saturating_sub(tried.count()).max(1);
        tried.record(id);
        Some((endpoint, u32::try_from(left).unwrap_or(u32::MAX)))
    }

    fn enter(&self, endpoint: Arc<PoolEndpoint>) -> InUse {
        for counters in [&self.shared.total, &endpoint.counters] {
            counters.active.fetch_add(1, Ordering::Relaxed);
        }
        InUse { pool: self.clone(), endpoint }
    }
}

impl fmt::Debug for OriginPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OriginPool").field("endpoints", &self.len()).finish_non_exhaustive()
    }
}

/// The attempts of one stream.
pub(crate) struct Search {
    pool: OriginPool,
    client: IpAddr,
    began: Instant,
    time: Duration,
    tried: Attempts<OriginId>,
    last: Option<OpenFailure>,
}

impl Search {
    /// The endpoint for the next attempt, and the time for it: its share of the time that is left.
    pub(crate) fn next(&mut self) -> Option<(InUse, Duration)> {
        let now = Instant::now();
        let left = self.time.saturating_sub(now.saturating_duration_since(self.began));
        if left.is_zero() {
            return None;
        }
        let (endpoint, attempts_left) = self.pool.choose(self.client, &mut self.tried, now)?;
        Some((self.pool.enter(endpoint), left / attempts_left))
    }

    /// Records the outcome of an attempt. Returns the connection if there is one.
    pub(crate) fn record<S>(&mut self, in_use: InUse, outcome: Result<S, OpenFailure>) -> Option<(S, InUse)> {
        match outcome {
            Ok(connected) => {
                in_use.opened();
                Some((connected, in_use))
            }
            Err(failure) => {
                in_use.failed();
                self.last = Some(failure);
                None
            }
        }
    }

    /// Why the stream has no endpoint.
    pub(crate) fn failure(self) -> OpenFailure {
        self.last.unwrap_or_else(|| OpenFailure::new(FailureReason::Refused, EMPTY))
    }
}

/// The use of an endpoint by one stream or flow, counted until dropped.
pub(crate) struct InUse {
    pool: OriginPool,
    endpoint: Arc<PoolEndpoint>,
}

impl InUse {
    /// The endpoint's address.
    pub(crate) fn address(&self) -> &OriginAddr {
        &self.endpoint.address
    }

    /// Records that the endpoint accepted.
    pub(crate) fn opened(&self) {
        for counters in self.counters() {
            counters.opened.fetch_add(1, Ordering::Relaxed);
        }
        self.pool.shared.state.lock().choice.succeeded(&self.endpoint.id);
    }

    /// Records that the endpoint did not accept: it rests for a while.
    pub(crate) fn failed(&self) {
        for counters in self.counters() {
            counters.failed.fetch_add(1, Ordering::Relaxed);
        }
        self.pool.shared.state.lock().choice.failed(&self.endpoint.id, Instant::now());
    }

    fn counters(&self) -> [&Counters; 2] {
        [&self.pool.shared.total, &self.endpoint.counters]
    }
}

impl fmt::Debug for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InUse").field(self.address()).finish()
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        for counters in self.counters() {
            counters.active.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Counters {
    fn get(&self) -> StreamCounts {
        StreamCounts {
            opened: self.opened.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            active: self.active.load(Ordering::Relaxed),
        }
    }
}

fn id_of(address: &OriginAddr) -> OriginId {
    HashKey::origin_id(address.to_string().as_bytes())
}
