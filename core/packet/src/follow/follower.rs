//! Follows the kernel's routes.

use std::collections::{HashMap, HashSet};

use ipnet::IpNet;

use super::targets::{Leg, Object, Targets, Way};
use crate::route::{Cells, Fib, NextHop, RouteError, Storage};

/// Which of several routes to a prefix decides: the lowest table, then one for some packets alone, then the lowest metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// 0 for the table `local`, 1 for `main`.
    pub table: u8,
    /// Whether the route is for all packets to the prefix, and not for a type of service or a source.
    pub is_for_all: bool,
    /// The metric.
    pub metric: u32,
}

/// A route of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The prefix.
    pub prefix: IpNet,
    /// Its rank among the routes to this prefix.
    pub rank: Rank,
    /// Where it leads.
    pub way: Way,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    rank: Rank,
    /// The round of listing that has last seen the route.
    round: u32,
    way: Way,
}

/// The most next-hop objects, and the most neighbours that do not answer, which are kept.
pub const MAX_KEPT: usize = 1 << 20;

/// What found no room in the table. The kernel forwards its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Full {
    /// Prefixes without a block or a node.
    pub prefixes: usize,
    /// Routes in the table whose packets go to the kernel, for a longer prefix around them has found no room.
    pub covering: usize,
    /// Ways without a next hop or a group.
    pub ways: usize,
    /// Routes beyond the bound, which are not kept: the kernel is to forward all packets.
    pub routes: usize,
    /// Next-hop objects beyond the bound, which are not kept.
    pub objects: usize,
}

impl Full {
    /// Whether everything has its room.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Follows the kernel's routes, and keeps the forwarding table equal to them.
#[derive(Debug)]
pub struct Follower<C> {
    fib: Fib<C>,
    kernel: u32,
    targets: Targets,
    routes: HashMap<IpNet, Vec<Candidate>>,
    /// The routes that are kept: several of one prefix count each.
    kept: usize,
    /// The most routes that are kept.
    room: usize,
    /// Routes that are not kept.
    left_out: usize,
    round: u32,
    /// Prefixes with several routes of one rank, of which one is kept: only a listing says which decides.
    several: HashSet<IpNet>,
    /// Objects that this round of listing has seen.
    seen_objects: HashSet<u32>,
    /// Prefixes that found no room.
    refused: HashSet<IpNet>,
    /// Prefixes in the table that go to the kernel, because one below them is refused.
    punted: HashSet<IpNet>,
    is_unsettled: bool,
}

impl<C: Cells> Follower<C> {
    /// An empty table over arrays of zeros, with room for so many groups.
    ///
    /// # Errors
    /// There is no room for one next hop.
    pub fn new(storage: Storage<C>, groups: u32) -> Result<Self, RouteError> {
        let mut fib = Fib::new(storage);
        let kernel = fib.next_hops_mut().create(NextHop::Local)?;
        Ok(Self {
            fib,
            kernel,
            targets: Targets::new(kernel, groups),
            routes: HashMap::new(),
            kept: 0,
            room: usize::MAX,
            left_out: 0,
            round: 0,
            several: HashSet::new(),
            seen_objects: HashSet::new(),
            refused: HashSet::new(),
            punted: HashSet::new(),
            is_unsettled: false,
        })
    }

    /// The same follower, which keeps at most so many routes. Those beyond are counted.
    #[must_use]
    pub fn with_room(mut self, routes: usize) -> Self {
        self.room = routes;
        self
    }

    /// Whether routes were left out and room is there again: the caller then lists all routes anew.
    #[must_use]
    pub fn has_room_again(&self) -> bool {
        let is_worth_it = self.kept + self.left_out.min(self.room / 16) <= self.room;
        self.left_out > 0 && self.kept < self.room && is_worth_it
    }

    /// The table.
    #[must_use]
    pub fn fib(&self) -> &Fib<C> {
        &self.fib
    }

    /// Number of prefixes with a route.
    #[must_use]
    pub fn prefixes(&self) -> usize {
        self.routes.len()
    }

    /// What found no room.
    #[must_use]
    pub fn full(&self) -> Full {
        Full {
            prefixes: self.refused.len(),
            covering: self.punted.len(),
            ways: self.targets.full(),
            routes: self.left_out,
            objects: self.targets.left_out(),
        }
    }

    /// Begins a round of listing: all objects and routes follow, and then [`Follower::end`].
    pub fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.seen_objects.clear();
        self.several.clear();
        self.left_out = 0;
        self.targets.begin();
    }

    /// Ends a round of listing: what it has not seen is gone.
    pub fn end(&mut self) {
        let round = self.round;
        let is_old = |candidates: &Vec<Candidate>| candidates.iter().any(|candidate| candidate.round != round);
        let old: Vec<_> = self.routes.iter().filter(|(_, all)| is_old(all)).map(|(prefix, _)| *prefix).collect();
        for prefix in old {
            self.change(prefix, |candidates| candidates.retain(|candidate| candidate.round == round));
        }
        let gone: Vec<_> = self.targets.objects().filter(|id| !self.seen_objects.contains(id)).collect();
        for id in gone {
            self.targets.set_object(&mut self.fib, id, None);
        }
        self.targets.end();
    }

    /// The kernel says that a route is there; `replaces` if it took the place of another one. Returns false if routes of
    /// one rank are there, so that the kernel has not said which decides: the caller then lists all routes anew.
    #[must_use]
    pub fn add(&mut self, route: Route, replaces: bool) -> bool {
        if self.several.contains(&route.prefix) {
            return false;
        }
        let candidates = self.routes.get(&route.prefix).map(Vec::as_slice).unwrap_or_default();
        match candidates.iter().find(|candidate| candidate.rank == route.rank) {
            Some(candidate) if !replaces => {
                let decides = candidate.way == route.way;
                self.several.insert(route.prefix);
                decides
            }
            _ => {
                self.set(route);
                true
            }
        }
    }

    /// A route is there, or has changed.
    pub fn set(&mut self, route: Route) {
        let Route { prefix, rank, way } = route;
        let round = self.round;
        let is_kept = || self.routes.get(&prefix).is_some_and(|all| all.iter().any(|candidate| candidate.rank == rank));
        if self.kept >= self.room && !is_kept() {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        self.change(prefix, |candidates| {
            let candidate = Candidate { rank, round, way };
            match candidates.binary_search_by_key(&rank, |candidate| candidate.rank) {
                Ok(index) => candidates[index] = candidate,
                Err(index) => candidates.insert(index, candidate),
            }
        });
    }

    /// A route of this listing: of several with one rank, the first decides.
    pub fn list(&mut self, route: Route) {
        let round = self.round;
        let candidates = self.routes.get_mut(&route.prefix).map(Vec::as_mut_slice).unwrap_or_default();
        match candidates.iter_mut().find(|candidate| candidate.rank == route.rank) {
            Some(candidate) if candidate.round == round => {
                self.several.insert(route.prefix);
            }
            Some(candidate) if candidate.way == route.way => candidate.round = round,
            _ => self.set(route),
        }
    }

    /// A route is gone. Returns false if another one may have its rank: the caller then lists all routes anew.
    #[must_use]
    pub fn remove(&mut self, route: &Route) -> bool {
        if self.several.contains(&route.prefix) {
            return false;
        }
        let Some(candidates) = self.routes.get(&route.prefix) else { return true };
        match candidates.iter().find(|candidate| candidate.rank == route.rank) {
            None => true,
            Some(candidate) if candidate.way != route.way => false,
            Some(_) => {
                self.change(route.prefix, |candidates| candidates.retain(|other| other.rank != route.rank));
                true
            }
        }
    }

    /// A next-hop object is there, has changed, or is gone. All its routes go with it.
    pub fn set_object(&mut self, id: u32, object: Option<Object>) {
        if self.targets.set_object(&mut self.fib, id, object) {
            self.seen_objects.insert(id);
        }
    }

    /// A neighbour answers or does not. Groups leave out a member that does not, while another one answers.
    pub fn set_failed(&mut self, leg: Leg, is_failed: bool) {
        self.targets.set_failed(&mut self.fib, leg, is_failed);
    }

    /// An interface is up or not. The kernel gets the packets of routes by one that is not.
    pub fn set_up(&mut self, interface: u32, is_up: bool) {
        self.targets.set_up(&mut self.fib, interface, is_up);
    }

    /// After a batch of changes: tries again what found no room, and leaves packets to the kernel for which a route is
    /// missing.
    pub fn settle(&mut self) {
        if !self.is_unsettled || (self.refused.is_empty() && self.punted.is_empty()) {
            return;
        }
        self.is_unsettled = false;
        for prefix in self.refused.iter().copied().collect::<Vec<_>>() {
            let Some(best) = self.routes.get(&prefix).and_then(|all| all.first()) else { continue };
            let number = self.targets.number(&best.way);
            if self.fib.add(prefix, number).is_err() {
                break;
            }
            self.refused.remove(&prefix);
        }
        let covering = |prefix: &IpNet| {
            let table = if prefix.addr().is_ipv4() { self.fib.routes4() } else { self.fib.routes6() };
            let (length, _) = table.covering(*prefix)?;
            IpNet::new(prefix.addr(), length).ok().map(|net| net.trunc())
        };
        let wanted: HashSet<_> = self.refused.iter().filter_map(covering).collect();
        for prefix in self.punted.difference(&wanted).copied().collect::<Vec<_>>() {
            let best = self.routes.get(&prefix).and_then(|all| all.first());
            if let Some(number) = best.map(|best| self.targets.number(&best.way)) {
                let _ = self.fib.add(prefix, number);
            }
        }
        for prefix in &wanted {
            // The prefix is in the table, so this needs no room.
            let _ = self.fib.add(*prefix, self.kernel);
        }
        self.punted = wanted;
    }

    /// Lets what the table has left be used again, and tries ways again that found no room. The caller has waited until
    /// no reader can be there.
    pub fn reuse(&mut self) {
        self.fib.reuse();
        self.is_unsettled = true;
        let found = self.targets.reuse(&mut self.fib);
        if found.is_empty() {
            return;
        }
        let best = self.routes.iter().filter_map(|(prefix, all)| Some((*prefix, &all.first()?.way)));
        let best: Vec<_> =
            best.filter(|(_, way)| found.contains(way)).map(|(prefix, way)| (prefix, way.clone())).collect();
        for (prefix, way) in best {
            // A prefix without room is tried again later, and one that goes to the kernel stays there until then.
            if self.table_has(prefix) && !self.punted.contains(&prefix) {
                let _ = self.fib.add(prefix, self.targets.number(&way));
            }
        }
    }

    /// Changes the routes to a prefix, and then the table.
    fn change(&mut self, prefix: IpNet, change: impl FnOnce(&mut Vec<Candidate>)) {
        let candidates = self.routes.entry(prefix).or_default();
        let before = candidates.first().map(|candidate| candidate.way.clone());
        self.kept -= candidates.len();
        change(candidates);
        self.kept += candidates.len();
        let after = candidates.first().map(|candidate| candidate.way.clone());
        if after.is_none() {
            self.routes.remove(&prefix);
        }
        if before == after {
            return;
        }
        self.is_unsettled = true;
        match &after {
            Some(way) => {
                let number = self.targets.take(&mut self.fib, way);
                let is_in = self.table_has(prefix);
                if self.fib.add(prefix, number).is_ok() {
                    self.refused.remove(&prefix);
                } else {
                    if is_in {
                        let _ = self.fib.withdraw(prefix);
                    }
                    self.refused.insert(prefix);
                }
            }
            None => {
                self.refused.remove(&prefix);
                self.punted.remove(&prefix);
                if self.table_has(prefix) {
                    let _ = self.fib.withdraw(prefix);
                }
            }
        }
        if let Some(before) = before {
            self.targets.release(&mut self.fib, &before);
        }
    }

    fn table_has(&self, prefix: IpNet) -> bool {
        let table = if prefix.addr().is_ipv4() { self.fib.routes4() } else { self.fib.routes6() };
        table.get(prefix).is_some()
    }
}
