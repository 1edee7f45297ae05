//! [`EdgeSelector`]: decides with which edges a connector holds its tunnels, which to dial next, and which to release.
//!
//! [`EdgeSelector`] is a sans-IO state machine. The driver numbers its attempts and sessions (*slots*), and reports
//! their outcome by `handle_…`. After each report it follows [`EdgeSelector::dial`] and [`EdgeSelector::release`].

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use sallyport_model::{EdgeName, RegionName};

use crate::{Backoff, EdgePlace};

/// Default number of edges that hold the tunnels.
pub const DEFAULT_REDUNDANCY: usize = 2;
/// The greatest number of edges that hold the tunnels.
pub const MAX_REDUNDANCY: usize = 4;
/// Time that an edge may take to answer before another one is tried in parallel.
pub const PATIENCE: Duration = Duration::from_secs(3);
/// Time for which an edge that asked to be left is avoided.
pub const AVOIDED: Duration = Duration::from_secs(30);
/// Number of slots beyond the wanted ones: slow attempts, and the replacement of another slot.
const MAX_MORE_POSTS: usize = 3;
/// Bound on the edges of which addresses and attempts are remembered.
const MAX_REMEMBERED: usize = 256;

/// The target of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The configured address, whichever edge it leads to.
    Given,
    /// An edge that was announced by another one.
    Edge(EdgePlace),
}

impl Target {
    /// The edge, if known.
    #[must_use]
    pub fn edge(&self) -> Option<&EdgeName> {
        match self {
            Self::Given => None,
            Self::Edge(place) => Some(&place.name),
        }
    }
}

/// The action after a session was welcomed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Welcomed {
    /// Attach the tunnels.
    Stay,
    /// There is another session with the same edge: close this one, which is no longer a slot.
    Twice,
}

/// The history of attempts with an edge.
#[derive(Debug, Clone, Default)]
struct Attempts {
    backoff: Backoff,
    failures: u32,
    not_before: Option<Instant>,
}

impl Attempts {
    fn is_ready(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| now >= at)
    }

    fn failed(&mut self, now: Instant, random: u64) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + self.backoff.next(random));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Dialing {
        since: Instant,
    },
    /// The edge has answered, and the tunnels are being attached.
    Welcomed,
    /// All tunnels are attached.
    Holding,
}

#[derive(Debug)]
struct EdgeSlot {
    target: Target,
    stage: Stage,
    edge: Option<EdgeName>,
    region: Option<RegionName>,
    /// Whether the edge asked to be left.
    is_leaving: bool,
}

impl EdgeSlot {
    /// The edge, once known.
    fn edge(&self) -> Option<&EdgeName> {
        self.edge.as_ref().or(self.target.edge())
    }

    fn region(&self) -> Option<&RegionName> {
        match &self.target {
            Target::Edge(place) => self.region.as_ref().or(Some(&place.region)),
            Target::Given => self.region.as_ref(),
        }
    }

    fn is_good(&self) -> bool {
        self.stage == Stage::Holding && !self.is_leaving
    }

    /// Whether the slot holds the tunnels or may do so soon.
    fn is_promising(&self, now: Instant) -> bool {
        let is_late = matches!(self.stage, Stage::Dialing { since } if now >= since + PATIENCE);
        !self.is_leaving && !is_late
    }
}

/// The edges that a connector knows, and its slots.
#[derive(Debug)]
pub struct EdgeSelector {
    wanted: usize,
    /// Makes different connectors choose different edges among equals.
    seed: u64,
    /// The region of the origin: configured, or that of the first edge that answered.
    home: Option<RegionName>,
    known: BTreeMap<EdgeName, EdgePlace>,
    /// Edges of former lists, which may be back when no current edge is left.
    former: BTreeMap<EdgeName, EdgePlace>,
    attempts: BTreeMap<EdgeName, Attempts>,
    given: Attempts,
    slots: BTreeMap<u64, EdgeSlot>,
    /// Whether any edge has answered so far.
    was_welcomed: bool,
    /// Next target before all others: the successor of an edge that went away.
    next: Option<Target>,
}

impl EdgeSelector {
    /// Selects `wanted` edges, from 1 to [`MAX_REDUNDANCY`]. `known`: edges from the configuration. `seed`: random, and
    /// constant for one connector.
    #[must_use]
    pub fn new(wanted: usize, home: Option<RegionName>, known: Vec<EdgePlace>, seed: u64) -> Self {
        Self {
            wanted: wanted.clamp(1, MAX_REDUNDANCY),
            seed,
            home,
            known: known.into_iter().map(|place| (place.name.clone(), place)).collect(),
            former: BTreeMap::new(),
            attempts: BTreeMap::new(),
            given: Attempts::default(),
            slots: BTreeMap::new(),
            was_welcomed: false,
            next: None,
        }
    }

    /// The region of the origin, once known.
    #[must_use]
    pub fn home(&self) -> Option<&RegionName> {
        self.home.as_ref()
    }

    /// Whether edges besides those of the slots are known.
    #[must_use]
    pub fn has_others(&self) -> bool {
        self.known.keys().any(|name| !self.is_taken(name))
    }

    /// Whether any edge holds the tunnels.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.slots.values().any(|slot| slot.stage == Stage::Holding)
    }

    /// The target to dial now as slot `number`, if any. Call until it returns `None`.
    pub fn dial(&mut self, number: u64, now: Instant) -> Option<Target> {
        if self.slots.len() >= self.wanted + MAX_MORE_POSTS {
            return None;
        }
        let target = self.next.take().or_else(|| self.missing(now))?;
        let slot = EdgeSlot {
            target: target.clone(),
            stage: Stage::Dialing { since: now },
            edge: None,
            region: None,
            is_leaving: false,
        };
        self.slots.insert(number, slot);
        Some(target)
    }

    /// The target that is missing for the wanted number of edges, in as many regions as possible, including the
    /// origin's.
    fn missing(&self, now: Instant) -> Option<Target> {
        let promising: Vec<&EdgeSlot> = self.slots.values().filter(|slot| slot.is_promising(now)).collect();
        if promising.is_empty() {
            // The configured address is the first choice and the last resort.
            let given = || self.given.is_ready(now).then_some(Target::Given).filter(|_| !self.dials_given());
            let other = || self.best(&[], now).map(Target::Edge);
            let former = || self.best_of(&self.former, &[], now).map(Target::Edge);
            return match self.was_welcomed {
                true => other().or_else(given).or_else(former),
                false => given().or_else(other),
            };
        }
        // The edge behind the configured address is known once it has answered.
        if promising.iter().all(|slot| matches!(slot.stage, Stage::Dialing { .. })) {
            return None;
        }
        let covered: Vec<&RegionName> = promising.iter().filter_map(|slot| slot.region()).collect();
        let best = self.best(&covered, now)?;
        let is_better = || {
            let regions: BTreeSet<_> = covered.iter().collect();
            let has_home = self.home.as_ref().is_none_or(|home| covered.contains(&home));
            let is_new = !covered.contains(&&best.region);
            let is_of_home = Some(&best.region) == self.home.as_ref();
            promising.iter().all(|slot| slot.is_good())
                && (is_new && regions.len() < self.wanted || is_of_home && !has_home)
        };
        (promising.len() < self.wanted || promising.len() == self.wanted && self.wanted > 1 && is_better())
            .then_some(Target::Edge(best))
    }

    fn dials_given(&self) -> bool {
        let is_given = |slot: &EdgeSlot| slot.target == Target::Given && matches!(slot.stage, Stage::Dialing { .. });
        self.slots.values().any(is_given)
    }

    fn is_taken(&self, name: &EdgeName) -> bool {
        self.slots.values().any(|slot| slot.edge() == Some(name))
    }

    fn is_ready(&self, name: &EdgeName, now: Instant) -> bool {
        self.attempts.get(name).is_none_or(|attempts| attempts.is_ready(now))
    }

    /// The best of the known free edges. Preferred: the origin's region while it is not covered, then other regions
    /// that are not covered, then edges without a recent failure. Among equals each connector has its own order.
    fn best(&self, covered: &[&RegionName], now: Instant) -> Option<EdgePlace> {
        self.best_of(&self.known, covered, now)
    }

    fn best_of(
        &self,
        from: &BTreeMap<EdgeName, EdgePlace>,
        covered: &[&RegionName],
        now: Instant,
    ) -> Option<EdgePlace> {
        let free = from.values().filter(|place| !self.is_taken(&place.name) && self.is_ready(&place.name, now));
        let rank = |place: &&EdgePlace| {
            let is_covered = covered.contains(&&place.region);
            let is_home = Some(&place.region) == self.home.as_ref();
            let failures = self.attempts.get(&place.name).map_or(0, |attempts| attempts.failures);
            (is_covered, !is_home, failures, mixed(self.seed, place.name.as_str()))
        };
        free.min_by_key(rank).cloned()
    }

    /// Handles the answer of an edge. `name`: the edge's name, if it has one.
    pub fn handle_welcome(
        &mut self,
        number: u64,
        name: Option<EdgeName>,
        region: Option<RegionName>,
        now: Instant,
        random: u64,
    ) -> Welcomed {
        if name.is_some() && self.slots.iter().any(|(other, slot)| *other != number && slot.edge == name) {
            if let Some(slot) = self.slots.remove(&number) {
                self.failed(&slot.target, now, random);
            }
            return Welcomed::Twice;
        }
        self.was_welcomed = true;
        if self.home.is_none() {
            self.home.clone_from(&region);
        }
        if let Some(slot) = self.slots.get_mut(&number) {
            (slot.stage, slot.edge, slot.region) = (Stage::Welcomed, name, region);
        }
        Welcomed::Stay
    }

    /// Handles the list of other edges from the edge of this slot, and its request to be left.
    pub fn handle_edges(&mut self, number: u64, edges: Vec<EdgePlace>, leave: bool) {
        let teller = self.slots.get_mut(&number).and_then(|slot| {
            slot.is_leaving = leave;
            slot.edge.clone()
        });
        // An empty list may come from an edge that has just started; the known one is better than nothing.
        if edges.is_empty() {
            return;
        }
        let before = self.known.extract_if(.., |name, _| Some(name) != teller.as_ref());
        self.former.extend(before);
        self.known.extend(edges.into_iter().map(|place| (place.name.clone(), place)));
        for name in self.known.keys() {
            self.former.remove(name);
        }
        while self.former.len() > MAX_REMEMBERED {
            self.former.pop_first();
        }
        while self.attempts.len() > MAX_REMEMBERED {
            self.attempts.pop_first();
        }
    }

    /// Reports that all tunnels that the edge accepts are attached.
    pub fn handle_holding(&mut self, number: u64) {
        let Some(slot) = self.slots.get_mut(&number) else { return };
        slot.stage = Stage::Holding;
        if slot.target == Target::Given {
            self.given = Attempts::default();
        }
        if let Some(edge) = slot.edge().filter(|_| !slot.is_leaving) {
            self.attempts.remove(edge);
        }
    }

    /// Handles a failed attempt or a lost session: another edge is tried, and this one again later.
    pub fn handle_lost(&mut self, number: u64, now: Instant, random: u64) {
        let Some(slot) = self.slots.remove(&number) else { return };
        self.failed(&slot.target, now, random);
        if let Some(edge) = slot.edge.filter(|edge| slot.target.edge() != Some(edge)) {
            self.attempts.entry(edge).or_default().failed(now, random);
        }
    }

    fn failed(&mut self, target: &Target, now: Instant, random: u64) {
        match target {
            Target::Given => self.given.failed(now, random),
            Target::Edge(place) => self.attempts.entry(place.name.clone()).or_default().failed(now, random),
        }
    }

    /// Handles the announcement that the edge of this slot accepts nothing new on this session. If the session
    /// `was_good`, the edge's successor may be listening already and is tried at once.
    pub fn handle_gone_away(&mut self, number: u64, was_good: bool, now: Instant, random: u64) {
        if !was_good {
            return self.handle_lost(number, now, random);
        }
        if let Some(slot) = self.slots.remove(&number) {
            let known = slot.edge().and_then(|edge| self.known.get(edge)).cloned();
            self.next = Some(known.map_or(slot.target, Target::Edge));
        }
    }

    /// A session to release because its tunnels are held elsewhere; it is no longer a slot. Call until it returns
    /// `None`, after [`EdgeSelector::dial`].
    pub fn release(&mut self, now: Instant) -> Option<u64> {
        let good: Vec<(u64, &EdgeSlot)> =
            self.slots.iter().filter(|(_, slot)| slot.is_good()).map(|(number, slot)| (*number, slot)).collect();
        let is_settled = || self.slots.values().all(|slot| slot.is_leaving || slot.is_good());
        let may_leave = good.len() >= self.wanted
            || !good.is_empty() && is_settled() && self.best(&[], now).is_none() && self.next.is_none();
        let leaving = self.slots.iter().find(|(_, slot)| slot.is_leaving).map(|(number, _)| *number);
        let surplus = (good.len() > self.wanted).then(|| {
            let rank = |(number, slot): &(u64, &EdgeSlot)| {
                let alike = good.iter().filter(|(_, other)| other.region() == slot.region()).count();
                (alike, slot.region() != self.home.as_ref(), *number)
            };
            good.iter().max_by_key(|slot| rank(slot)).map(|(number, _)| *number)
        });
        let released = leaving.filter(|_| may_leave).or(surplus.flatten())?;
        let slot = self.slots.remove(&released)?;
        if slot.is_leaving
            && let Some(edge) = slot.edge()
        {
            self.attempts.entry(edge.clone()).or_default().not_before = Some(now + AVOIDED);
        }
        Some(released)
    }

    /// When [`EdgeSelector::dial`] may have a target without another report.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let late = self.slots.values().filter_map(|slot| match slot.stage {
            Stage::Dialing { since } => Some(since + PATIENCE),
            _ => None,
        });
        let is_alone = !self.slots.values().any(|slot| slot.is_promising(now));
        let former = self.former.keys().filter(|_| is_alone);
        let free = self.known.keys().chain(former).filter(|name| !self.is_taken(name));
        let again = free.filter_map(|name| self.attempts.get(name)?.not_before);
        let given = self.given.not_before.filter(|_| is_alone);
        late.chain(again).chain(given).filter(|at| *at > now).min()
    }
}

/// A hash of both (FNV-1a with a final mix).
fn mixed(seed: u64, name: &str) -> u64 {
    let hash = name
        .bytes()
        .fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}
