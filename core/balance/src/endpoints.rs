//! Selection among the endpoints of one origin, as a connector makes it for each stream.
//!
//! [`Endpoints`] gives ready endpoints in turn, or the same one to a client by a consistent hash. A failed endpoint
//! rests for a short time that doubles with each failure. Draining endpoints get streams only while no ready one does.

use std::time::{Duration, Instant};

use crate::{
    Attempts, HashKey, OriginId, Rotation, Weight,
    ejection::{EjectionConfig, EjectionState, Failure, PoolCount},
    maglev::{MAX_ORIGINS, Maglev},
};

/// The most endpoints of one origin.
pub const MAX_ENDPOINTS: usize = MAX_ORIGINS;
/// How long an endpoint rests after its first failure.
pub const FIRST_REST: Duration = Duration::from_secs(1);
/// The longest rest of an endpoint.
pub const MAX_REST: Duration = Duration::from_secs(30);

/// A failed endpoint rests at once, and all but the last may rest.
const RESTS: EjectionConfig = EjectionConfig {
    consecutive_failures: 1,
    gateway_failures: false,
    base_ejection: FIRST_REST,
    max_ejection: MAX_REST,
    max_ejected_percent: 100,
};

/// Too many endpoints for one origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a service has at most {MAX_ENDPOINTS} endpoints, not {count}")]
pub struct TooManyEndpoints {
    /// The number of given endpoints.
    pub count: usize,
}

/// Whether an endpoint takes new streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EndpointState {
    /// It does.
    #[default]
    Ready,
    /// It ends soon, and takes new streams only while no ready endpoint does.
    Draining,
}

/// The endpoints of one origin, with their failures.
#[derive(Debug, Clone, Default)]
pub struct Endpoints {
    /// Sorted by id.
    endpoints: Vec<Endpoint>,
    rotation: Rotation<OriginId>,
    affinity: Option<(HashKey, Maglev)>,
}

#[derive(Debug, Clone)]
struct Endpoint {
    id: OriginId,
    state: EndpointState,
    health: EjectionState,
}

/// Which endpoints a choice considers, the best first.
#[derive(Debug, Clone, Copy)]
enum Tier {
    Ready,
    Draining,
    /// All others fail too: an attempt is better than none.
    Resting(EndpointState),
}

impl Endpoints {
    /// These endpoints, in any order; a duplicate id counts once, with the first state. With `affinity`, a client keeps
    /// its endpoint by a hash with this key.
    ///
    /// # Errors
    /// There are more than [`MAX_ENDPOINTS`].
    pub fn new(endpoints: &[(OriginId, EndpointState)], affinity: Option<HashKey>) -> Result<Self, TooManyEndpoints> {
        if endpoints.len() > MAX_ENDPOINTS {
            return Err(TooManyEndpoints { count: endpoints.len() });
        }
        let mut sorted: Vec<_> = endpoints
            .iter()
            .map(|(id, state)| Endpoint { id: *id, state: *state, health: EjectionState::new() })
            .collect();
        sorted.sort_by_key(|endpoint| endpoint.id);
        sorted.dedup_by_key(|endpoint| endpoint.id);
        let affinity = match affinity {
            None => None,
            Some(key) => {
                let slots: Vec<_> = sorted.iter().map(|endpoint| (endpoint.id, Weight::ONE)).collect();
                let table = Maglev::new(&key, &slots).map_err(|error| TooManyEndpoints { count: error.count })?;
                Some((key, table))
            }
        };
        Ok(Self { endpoints: sorted, rotation: Rotation::new(), affinity })
    }

    /// Takes over the turn and the failures of former endpoints that are still there.
    #[must_use]
    pub fn following(mut self, former: &Self) -> Self {
        for endpoint in &mut self.endpoints {
            if let Some(known) = former.get(&endpoint.id) {
                endpoint.health = known.health.clone();
            }
        }
        self.rotation = former.rotation.clone();
        self
    }

    /// Number of endpoints.
    #[must_use]
    pub fn len(&self) -> usize {
        self.endpoints.len()
    }

    /// Whether there is no endpoint.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// Whether the endpoint rests after a failure.
    #[must_use]
    pub fn is_resting(&self, id: &OriginId, now: Instant) -> bool {
        self.get(id).is_some_and(|endpoint| endpoint.health.is_ejected(now))
    }

    /// The endpoint for one more attempt of a stream from this client; `None` if every endpoint was tried, or
    /// [`crate::MAX_ATTEMPTS`] were.
    ///
    /// The first of these that is not empty gives the endpoint: ready ones, draining ones, ready ones that rest,
    /// draining ones that rest.
    pub fn choose(&mut self, client: std::net::IpAddr, tried: &Attempts<OriginId>, now: Instant) -> Option<OriginId> {
        let tiers =
            [Tier::Ready, Tier::Draining, Tier::Resting(EndpointState::Ready), Tier::Resting(EndpointState::Draining)];
        tiers.into_iter().find_map(|tier| self.choose_from(tier, client, tried, now))
    }

    fn choose_from(
        &mut self,
        tier: Tier,
        client: std::net::IpAddr,
        tried: &Attempts<OriginId>,
        now: Instant,
    ) -> Option<OriginId> {
        let Self { endpoints, rotation, affinity } = self;
        let is_usable = |endpoint: &Endpoint| endpoint.is_in(tier, now) && tried.may_try(&endpoint.id);
        match affinity {
            Some((key, table)) => {
                let usable = |id: &OriginId| find(endpoints, id).is_some_and(is_usable);
                table.lookup_usable(key.client(client), usable).copied()
            }
            None => {
                let chosen = rotation.choose(endpoints, |endpoint| endpoint.id, |_| 0, is_usable)?;
                Some(endpoints[chosen].id)
            }
        }
    }

    /// Records that the endpoint accepted a connection.
    pub fn succeeded(&mut self, id: &OriginId) {
        if let Some(endpoint) = self.get_mut(id) {
            endpoint.health.succeeded();
        }
    }

    /// Records that the endpoint did not accept a connection. It rests, unless it is the last one that does not.
    pub fn failed(&mut self, id: &OriginId, now: Instant) {
        let resting = self.endpoints.iter().filter(|endpoint| endpoint.health.is_ejected(now)).count();
        let count = PoolCount { origins: self.endpoints.len(), ejected: resting };
        if let Some(endpoint) = self.get_mut(id) {
            endpoint.health.record_failure(&RESTS, Failure::Connect, count, now);
        }
    }

    fn get(&self, id: &OriginId) -> Option<&Endpoint> {
        find(&self.endpoints, id)
    }

    fn get_mut(&mut self, id: &OriginId) -> Option<&mut Endpoint> {
        let at = self.endpoints.binary_search_by_key(id, |endpoint| endpoint.id).ok()?;
        self.endpoints.get_mut(at)
    }
}

impl Endpoint {
    fn is_in(&self, tier: Tier, now: Instant) -> bool {
        let is_resting = || self.health.is_ejected(now);
        match tier {
            Tier::Ready => self.state == EndpointState::Ready && !is_resting(),
            Tier::Draining => self.state == EndpointState::Draining && !is_resting(),
            Tier::Resting(state) => self.state == state && is_resting(),
        }
    }
}

fn find<'a>(endpoints: &'a [Endpoint], id: &OriginId) -> Option<&'a Endpoint> {
    let at = endpoints.binary_search_by_key(id, |endpoint| endpoint.id).ok()?;
    endpoints.get(at)
}
