//! The sockets with limits: their origins, regions and shared capacities, as nodes of the solver.

use std::collections::{BTreeMap, HashMap};

use sallyport_model::{AccountId, Capacity, CapacityName, MaxRps, OriginRef, RegionName, SocketId};

use crate::{Amount, PER_UNIT};

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dimension {
    /// New requests per second.
    Rate,
    /// Requests at once.
    Connections,
}

impl Dimension {
    /// Both, in the order of [`Dimension::index`].
    pub const ALL: [Self; 2] = [Self::Rate, Self::Connections];

    /// Its place in an array of both.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

/// A socket of which an origin or a region has a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteeredSocket {
    /// The socket.
    pub id: SocketId,
    /// Its organisation: capacities are shared within one.
    pub account: AccountId,
    /// Its origins.
    pub origins: BTreeMap<OriginRef, SteeredOrigin>,
    /// The regions with settings of their own.
    pub regions: BTreeMap<RegionName, SteeredRegion>,
}

/// An origin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SteeredOrigin {
    /// Its region; `None`: that of each edge.
    pub region: Option<RegionName>,
    /// Its weight in the region; 0: it gets nothing new.
    pub weight: u16,
    /// What it can carry.
    pub capacity: Capacity,
}

/// The origins of a socket in one region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteeredRegion {
    /// The percentage of what comes to the region that stays there.
    pub dial: u8,
    /// What its origins can carry together.
    pub capacity: Capacity,
}

impl SteeredSocket {
    /// Whether a limit applies to this origin.
    #[must_use]
    pub fn is_limited(&self, origin: OriginRef) -> bool {
        let Some(origin) = self.origins.get(&origin) else { return false };
        let region = origin.region.as_ref().and_then(|region| self.regions.get(region));
        !origin.capacity.is_empty() || region.is_some_and(|region| !region.capacity.is_empty())
    }
}

/// An origin of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Leaf {
    /// The socket.
    pub socket: SocketId,
    /// The origin.
    pub origin: OriginRef,
}

/// A place with a limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// An origin.
    Origin(Leaf),
    /// The origins of a socket in one region.
    Region(SocketId, RegionName),
    /// The origins of an organisation with this name.
    Shared(AccountId, CapacityName),
}

/// A place among all others.
#[derive(Debug, Clone)]
pub(super) struct PlaceNode {
    pub(super) place: Place,
    pub(super) parent: Option<usize>,
    /// The declared limits; `None`: none.
    pub(super) declared: [Option<Amount>; 2],
    /// Whether the rate is to be learned.
    pub(super) is_learned: bool,
    /// The origin's weight; 1 for other places.
    pub(super) weight: u16,
}

/// All sockets with limits, and their places: first the origins, then regions, then shared capacities.
#[derive(Debug, Clone, Default)]
pub(super) struct Topology {
    pub(super) sockets: BTreeMap<SocketId, SteeredSocket>,
    pub(super) nodes: Vec<PlaceNode>,
    by_place: HashMap<Place, usize>,
}

impl Topology {
    pub(super) fn new(sockets: Vec<SteeredSocket>) -> Self {
        let sockets: BTreeMap<_, _> = sockets.into_iter().map(|socket| (socket.id, socket)).collect();
        let mut topology = Self { sockets: BTreeMap::new(), ..Self::default() };
        for socket in sockets.values() {
            for (origin, known) in &socket.origins {
                topology.add(Place::Origin(Leaf { socket: socket.id, origin: *origin }), &known.capacity, known.weight);
            }
        }
        for socket in sockets.values() {
            for (name, region) in socket.regions.iter().filter(|(_, region)| !region.capacity.is_empty()) {
                topology.add(Place::Region(socket.id, name.clone()), &region.capacity, 1);
            }
        }
        for socket in sockets.values() {
            let regions = socket.regions.values().map(|region| &region.capacity);
            for capacity in socket.origins.values().map(|origin| &origin.capacity).chain(regions) {
                if let Some(name) = &capacity.shared {
                    topology.add(Place::Shared(socket.account, name.clone()), capacity, 1);
                }
            }
        }
        topology.sockets = sockets;
        topology.connect();
        topology
    }

    /// Adds a place. Of a place that is there already, the lowest limits count.
    fn add(&mut self, place: Place, capacity: &Capacity, weight: u16) {
        let rate = match capacity.max_rps {
            Some(MaxRps::Declared(rps)) => Some(Amount::from(rps) * PER_UNIT),
            Some(MaxRps::Learned) | None => None,
        };
        let connections = capacity.max_connections.map(|most| Amount::from(most) * PER_UNIT);
        let is_learned = capacity.max_rps == Some(MaxRps::Learned);
        if let Some(known) = self.by_place.get(&place).and_then(|at| self.nodes.get_mut(*at)) {
            for (known, more) in known.declared.iter_mut().zip([rate, connections]) {
                *known = (*known).into_iter().chain(more).min();
            }
            known.is_learned |= is_learned;
            return;
        }
        self.by_place.insert(place.clone(), self.nodes.len());
        self.nodes.push(PlaceNode { place, parent: None, declared: [rate, connections], is_learned, weight });
    }

    /// Sets the parents.
    fn connect(&mut self) {
        let mut taken = Vec::new();
        for at in 0..self.nodes.len() {
            let place = self.nodes[at].place.clone();
            let (region, shared) = match &place {
                Place::Origin(leaf) => {
                    let socket = &self.sockets[&leaf.socket];
                    let origin = &socket.origins[&leaf.origin];
                    let region = origin.region.clone().map(|region| Place::Region(leaf.socket, region));
                    let shared = origin.capacity.shared.clone().map(|name| Place::Shared(socket.account, name));
                    (region.filter(|region| self.by_place.contains_key(region)), shared)
                }
                Place::Region(socket, name) => {
                    let socket = &self.sockets[socket];
                    let shared = socket.regions[name].capacity.shared.clone();
                    (None, shared.map(|name| Place::Shared(socket.account, name)))
                }
                Place::Shared(..) => (None, None),
            };
            // An origin in two capacities that do not contain each other gets its part of the region's.
            if let (Some(region), Some(_)) = (&region, &shared) {
                let part = self.part_of_region(at, region);
                for (limit, part) in self.nodes[at].declared.iter_mut().zip(part) {
                    *limit = (*limit).into_iter().chain(part).min();
                }
                taken.push((self.by_place[region], part));
            }
            let parent = shared.or(region);
            self.nodes[at].parent = parent.and_then(|place| self.by_place.get(&place).copied());
        }
        for (region, parts) in taken {
            for (limit, part) in self.nodes[region].declared.iter_mut().zip(parts) {
                *limit = limit.map(|limit| limit.saturating_sub(part.unwrap_or_default()));
            }
        }
    }

    /// The part of an origin in the limits of its region, by weight.
    fn part_of_region(&self, at: usize, region: &Place) -> [Option<Amount>; 2] {
        let (Place::Origin(leaf), Place::Region(_, name)) = (&self.nodes[at].place, region) else { return [None; 2] };
        let origins = &self.sockets[&leaf.socket].origins;
        let there = origins.values().filter(|origin| origin.region.as_ref() == Some(name));
        let weights: u64 = there.map(|origin| u64::from(origin.weight)).sum();
        let weight = u64::from(self.nodes[at].weight);
        self.nodes[self.by_place[region]].declared.map(|limit| Some(limit? * weight / weights.max(1)))
    }

    pub(super) fn leaf(&self, leaf: Leaf) -> Option<usize> {
        self.by_place.get(&Place::Origin(leaf)).copied()
    }

    /// The place, and everything that contains it.
    pub(super) fn chain(&self, at: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(at), |at| self.nodes[*at].parent)
    }

    /// The origin, if the place is one.
    pub(super) fn leaf_of(&self, at: usize) -> Option<Leaf> {
        match self.nodes[at].place {
            Place::Origin(leaf) => Some(leaf),
            Place::Region(..) | Place::Shared(..) => None,
        }
    }

    /// The limited origins.
    pub(super) fn limited(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|at| {
            self.leaf_of(*at).is_some()
                && self.chain(*at).any(|at| self.nodes[at].is_learned || self.nodes[at].declared != [None; 2])
        })
    }
}
