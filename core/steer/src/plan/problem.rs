//! From demand to the problem of the solver: one supply for each part of the demand of a class at an edge.
//!
//! - **Dials** split the demand of a class into parts, one for each region, as the regions keep it. A part prefers its
//!   own region, then farther ones. Regions that a dial has passed over cost [`PASSED_OVER_COST`] more: they serve only
//!   what no other region can.
//! - **Weights** split a part among the origins of its region in the same way, at [`OTHER_ORIGIN_COST`].
//! - **Fairness** splits a part into what its socket may get when all want more than there is, and the rest. The rest is
//!   shed first.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use sallyport_model::{EdgeId, RegionName, SocketId};

use super::{
    Planner,
    edge::UNBOUNDED,
    fair::{max_min, split},
    topology::{Dimension, Leaf, SteeredSocket},
};
use crate::{
    Amount,
    solver::{MAX_AMOUNT, Node, Problem, Supply},
};

/// What a region costs that a dial has passed over, in microseconds.
const PASSED_OVER_COST: i64 = 20_000_000;
/// What another origin of the same region costs than the one that the weights chose, in microseconds.
const OTHER_ORIGIN_COST: i64 = 20_000;
/// The cost of refusing a request within the fair share of its socket, in microseconds.
const SHED_COST: i64 = 600_000_000;
/// The cost of refusing a request beyond it.
const SHED_EXCESS_COST: i64 = 300_000_000;
/// What another region costs than the edge's own beside the round trip, in microseconds: where regions are near each
/// other, traffic stays in its own.
const OTHER_REGION_US: u64 = 5_000;
/// The round trip to an origin of the edge's own region, and to any other one, if it was not measured.
const NEAR_RTT_US: u64 = 1_000;
const FAR_RTT_US: u64 = 200_000;

/// Other numbers than the measured ones, for a plan that is only looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WhatIf {
    /// The demand at edges, by socket.
    pub demands: HashMap<(SocketId, EdgeId), Amount>,
    /// The capacities of origins; `None`: without a limit.
    pub capacities: HashMap<Leaf, Option<Amount>>,
}

/// The demand of a class at an edge, or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) edge: EdgeId,
    pub(super) socket: SocketId,
    pub(super) class: u64,
    /// The number of the part.
    pub(super) part: usize,
}

/// A problem of places that have to do with each other.
#[derive(Debug, Default)]
pub(super) struct Component {
    /// The places, in the order of the nodes.
    pub(super) places: Vec<usize>,
    pub(super) rows: Vec<Row>,
    pub(super) problem: Problem,
}

/// The most origins of equal weight in a region among which demand is split. More would make problems large.
const MAX_EVEN: usize = 8;

/// The demand of a class at an edge, with the origins that can serve it.
struct Want {
    edge: EdgeId,
    socket: SocketId,
    class: u64,
    /// What the edge may claim at most beside others.
    amount: Amount,
    /// What it claims.
    claimed: Amount,
    /// The place, the cost and the region of each origin.
    ways: Vec<(usize, i64, Option<RegionName>)>,
}

/// A part of a want: an amount, and the cost of each place.
type Part = (Amount, Vec<(usize, i64)>);

impl Planner {
    /// The problems of one dimension, at this time. Places without a limit in their surroundings are left out.
    pub(super) fn components(&self, dimension: Dimension, what_if: &WhatIf, now: Duration) -> Vec<Component> {
        let wants = self.wants(dimension, what_if, now);
        let capacities: Vec<_> =
            (0..self.topology.nodes.len()).map(|at| self.free_capacity(at, dimension, what_if, now)).collect();
        let mut groups = Groups::new(self.topology.nodes.len());
        for (at, node) in self.topology.nodes.iter().enumerate() {
            if let Some(parent) = node.parent {
                groups.join(at, parent);
            }
        }
        for want in &wants {
            let first = want.ways.first().map(|(at, ..)| *at);
            for (at, ..) in &want.ways {
                groups.join(*at, first.unwrap_or(*at));
            }
        }
        let mut components = BTreeMap::<usize, Component>::new();
        for at in 0..self.topology.nodes.len() {
            components.entry(groups.root(at)).or_default().places.push(at);
        }
        let mut of_component = BTreeMap::<usize, Vec<Want>>::new();
        for want in wants {
            if let Some((at, ..)) = want.ways.first() {
                of_component.entry(groups.root(*at)).or_default().push(want);
            }
        }
        components.retain(|_, component| component.places.iter().any(|at| capacities[*at].is_some()));
        for (root, component) in &mut components {
            let wants = of_component.remove(root).unwrap_or_default();
            self.fill(component, wants, &capacities);
        }
        components.into_values().collect()
    }

    /// The demand of all edges.
    fn wants(&self, dimension: Dimension, what_if: &WhatIf, now: Duration) -> Vec<Want> {
        let mut wants = Vec::new();
        let count = self.edges.values().filter(|edge| self.is_live(edge, now)).count().max(1) as u64;
        for (id, edge) in self.edges.iter().filter(|(_, edge)| self.is_live(edge, now)) {
            let own = self.names.get(id).map(|info| &info.region);
            for ((socket_id, class), known) in &edge.classes {
                let Some(socket) = self.topology.sockets.get(socket_id) else { continue };
                let mut ways = Vec::new();
                for (origin, is_usable) in &known.candidates {
                    let leaf = Leaf { socket: *socket_id, origin: *origin };
                    let (Some(at), Some(settings)) = (self.topology.leaf(leaf), socket.origins.get(origin)) else {
                        continue;
                    };
                    if !is_usable || settings.weight == 0 {
                        continue;
                    }
                    let region = settings.region.clone().or_else(|| own.cloned());
                    let unknown = if region.as_ref() == own { NEAR_RTT_US } else { FAR_RTT_US };
                    let other = if region.as_ref() == own { 0 } else { OTHER_REGION_US };
                    let rtt = edge.rtt_us(leaf, now).unwrap_or(unknown) + other;
                    ways.push((at, i64::try_from(rtt).unwrap_or(i64::MAX), region));
                }
                ways.sort_by_key(|(at, ..)| *at);
                ways.dedup_by_key(|(at, ..)| *at);
                let capacity = ways.iter().map(|(at, ..)| self.capacity(*at, dimension).unwrap_or(MAX_AMOUNT)).sum();
                let demand = &known.demand;
                let amounts = match dimension {
                    Dimension::Rate => {
                        let fair_share = Amount::min(capacity, MAX_AMOUNT) / count;
                        [demand.rate(fair_share), demand.measured()]
                    }
                    Dimension::Connections => [demand.connections(); 2],
                };
                let other = what_if.demands.get(&(*socket_id, *id)).copied();
                let [amount, claimed] = amounts.map(|amount| other.unwrap_or(amount).min(MAX_AMOUNT));
                wants.push(Want { edge: *id, socket: *socket_id, class: *class, amount, claimed, ways });
            }
        }
        wants.sort_by_key(|want| (want.socket, want.edge, want.class));
        wants
    }

    /// The capacity of a place without what silent edges may use of it.
    fn free_capacity(&self, at: usize, dimension: Dimension, what_if: &WhatIf, now: Duration) -> Option<Amount> {
        if let Some(leaf) = self.topology.leaf_of(at)
            && let Some(capacity) = what_if.capacities.get(&leaf)
        {
            return *capacity;
        }
        let capacity = self.capacity(at, dimension)?;
        let silent = self.edges.values().filter(|edge| !self.is_live(edge, now));
        let below =
            |leaf: &Leaf| self.topology.leaf(*leaf).is_some_and(|leaf| self.topology.chain(leaf).any(|up| up == at));
        let locked = silent
            .flat_map(|edge| {
                edge.loads.keys().filter(|leaf| below(leaf)).map(|leaf| edge.outstanding(*leaf, dimension))
            })
            .fold(0, Amount::saturating_add);
        Some(capacity.saturating_sub(locked).min(MAX_AMOUNT))
    }

    /// Makes nodes and supplies.
    fn fill(&self, component: &mut Component, mut wants: Vec<Want>, capacities: &[Option<Amount>]) {
        let index: HashMap<usize, usize> =
            component.places.iter().enumerate().map(|(at, place)| (*place, at)).collect();
        let nodes = component.places.iter().map(|place| Node {
            capacity: capacities[*place],
            parent: self.topology.nodes[*place].parent.and_then(|parent| index.get(&parent).copied()),
        });
        component.problem.nodes = nodes.collect();
        let roots: Vec<Vec<usize>> =
            wants.iter().map(|want| roots_of(want, &index, &component.problem.nodes)).collect();
        let capacity = |root: usize| component.problem.nodes[root].capacity.unwrap_or(UNBOUNDED);
        let claims: Vec<Amount> = wants.iter().map(|want| want.claimed).collect();
        for (want, has_enough) in wants.iter_mut().zip(have_enough(&roots, &claims, &capacity)) {
            // Where there is enough for all, nobody needs to be protected from an edge that claims much.
            if has_enough {
                want.amount = want.claimed;
            }
        }
        let fair = fair_amounts(&wants, &roots, &capacity);
        for (want, fair) in wants.iter().zip(fair) {
            let Some(socket) = self.topology.sockets.get(&want.socket) else { continue };
            let mut number = 0;
            for (amount, costs) in self.parts(socket, want) {
                let costs: Vec<_> = costs.into_iter().filter_map(|(at, cost)| Some((*index.get(&at)?, cost))).collect();
                let within = part_of(amount, fair, want.amount);
                for (amount, shed_cost) in [(within, SHED_COST), (amount - within, SHED_EXCESS_COST)] {
                    if amount > 0 || shed_cost == SHED_COST {
                        let row = Row { edge: want.edge, socket: want.socket, class: want.class, part: number };
                        component.rows.push(row);
                        component.problem.supplies.push(Supply { amount, costs: costs.clone(), shed_cost });
                    }
                    number += 1;
                }
            }
        }
    }

    /// The parts of a want by the dials of its socket's regions and the weights of their origins.
    fn parts(&self, socket: &SteeredSocket, want: &Want) -> Vec<Part> {
        let mut regions: Vec<(Option<&RegionName>, i64)> = Vec::new();
        for (_, cost, region) in &want.ways {
            match regions.iter_mut().find(|(known, _)| *known == region.as_ref()) {
                Some((_, least)) => *least = (*least).min(*cost),
                None => regions.push((region.as_ref(), *cost)),
            }
        }
        let own = self.names.get(&want.edge).map(|info| &info.region);
        regions.sort_by_key(|(region, cost)| (*region != own, *cost));
        let dial = |region: Option<&RegionName>| {
            region.and_then(|region| socket.regions.get(region)).map_or(100, |region| u64::from(region.dial))
        };
        let is_shut = |at: usize| dial(regions[at].0) == 0;
        let mut open: Vec<usize> = (0..regions.len()).filter(|at| !is_shut(*at)).collect();
        if open.is_empty() {
            open = (0..regions.len()).take(1).collect();
        }
        let mut parts = Vec::new();
        let (mut left, last) = (want.amount, open.last().copied());
        for at in open {
            let keeps = if Some(at) == last { 100 } else { dial(regions[at].0).max(1) };
            let kept = left * keeps / 100;
            left -= kept;
            if kept == 0 && !parts.is_empty() {
                continue;
            }
            let costs = want.ways.iter().map(|(place, cost, region)| {
                let rank = regions.iter().position(|(known, _)| *known == region.as_ref()).unwrap_or(at);
                let is_passed = rank != at && (rank < at || is_shut(rank));
                (*place, if is_passed { cost + PASSED_OVER_COST } else { *cost })
            });
            let costs: Vec<_> = costs.collect();
            parts.extend(self.by_weight(want, regions[at].0, kept, &costs));
            if left == 0 {
                break;
            }
        }
        parts
    }

    /// Splits a part among the origins of its region by their weights. Between many origins of equal weight, the way
    /// decides.
    fn by_weight(&self, want: &Want, home: Option<&RegionName>, amount: Amount, costs: &[(usize, i64)]) -> Vec<Part> {
        let is_home = |at: usize| want.ways.iter().any(|(place, _, region)| *place == at && region.as_ref() == home);
        let there: Vec<usize> = costs.iter().map(|(at, _)| *at).filter(|at| is_home(*at)).collect();
        let weights: Vec<u64> = there.iter().map(|at| u64::from(self.topology.nodes[*at].weight)).collect();
        let is_even = weights.windows(2).all(|pair| pair[0] == pair[1]);
        if there.len() < 2 || (is_even && there.len() > MAX_EVEN) {
            return vec![(amount, costs.to_vec())];
        }
        let preferring = |chosen: usize| {
            let cost = |(at, cost): &(usize, i64)| {
                let is_other = *at != chosen && there.contains(at);
                (*at, if is_other { cost + OTHER_ORIGIN_COST } else { *cost })
            };
            costs.iter().map(cost).collect()
        };
        let parts = there.iter().zip(split(amount, &weights));
        parts.map(|(chosen, amount)| (amount, preferring(*chosen))).collect()
    }
}

/// The outermost places in which a want can be served, as nodes of the problem.
fn roots_of(want: &Want, index: &HashMap<usize, usize>, nodes: &[Node]) -> Vec<usize> {
    let root = |at: usize| std::iter::successors(Some(at), |at| nodes[*at].parent).last().unwrap_or(at);
    let mut roots: Vec<usize> = want.ways.iter().filter_map(|(at, ..)| index.get(at)).map(|at| root(*at)).collect();
    roots.sort_unstable();
    roots.dedup();
    roots
}

/// Whether the places of each want have enough for all that claim a part of any of them.
fn have_enough(roots: &[Vec<usize>], claims: &[Amount], capacity: &impl Fn(usize) -> Amount) -> Vec<bool> {
    let mut by_roots = BTreeMap::<&Vec<usize>, Amount>::new();
    for (roots, claim) in roots.iter().zip(claims) {
        let sum = by_roots.entry(roots).or_default();
        *sum = sum.saturating_add(*claim);
    }
    let has_enough = |roots: &Vec<usize>| {
        let near = by_roots.iter().filter(|(other, _)| other.iter().any(|root| roots.contains(root)));
        let claimed = near.map(|(_, claim)| *claim).fold(0, Amount::saturating_add);
        claimed <= roots.iter().map(|root| capacity(*root)).fold(0, Amount::saturating_add)
    };
    let known: BTreeMap<&Vec<usize>, bool> = by_roots.keys().map(|roots| (*roots, has_enough(roots))).collect();
    roots.iter().map(|roots| known[roots]).collect()
}

/// The part of each want within its fair share of the places that can serve it: even among sockets, and among the edges
/// of a socket.
fn fair_amounts(wants: &[Want], roots: &[Vec<usize>], capacity: &impl Fn(usize) -> Amount) -> Vec<Amount> {
    let mut by_root = BTreeMap::<usize, BTreeMap<SocketId, Vec<usize>>>::new();
    for (at, (want, roots)) in wants.iter().zip(roots).enumerate() {
        for root in roots {
            by_root.entry(*root).or_default().entry(want.socket).or_default().push(at);
        }
    }
    let mut fair: Vec<Amount> = vec![0; wants.len()];
    for (root, by_socket) in by_root {
        let amount = |at: &usize| wants[*at].amount;
        let demands: Vec<Amount> =
            by_socket.values().map(|rows| rows.iter().map(amount).fold(0, Amount::saturating_add)).collect();
        for (rows, share) in by_socket.values().zip(max_min(capacity(root), &demands)) {
            let of_rows: Vec<Amount> = rows.iter().map(amount).collect();
            for (at, share) in rows.iter().zip(max_min(share, &of_rows)) {
                fair[*at] = fair[*at].saturating_add(share).min(wants[*at].amount);
            }
        }
    }
    fair
}

fn part_of(amount: Amount, part: Amount, whole: Amount) -> Amount {
    let part = u128::from(amount) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(part).unwrap_or(amount).min(amount)
}

/// Sets of places that have to do with each other.
struct Groups(Vec<usize>);

impl Groups {
    fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    fn root(&self, mut at: usize) -> usize {
        while self.0[at] != at {
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        let (low, high) = (one.min(other), one.max(other));
        self.0[high] = low;
    }
}

/// The origin of each place of a component, if it is one.
pub(super) fn origins_of<'a>(
    planner: &'a Planner,
    component: &'a Component,
) -> impl Iterator<Item = (usize, usize, Leaf)> + 'a {
    let leaf = |(at, place): (usize, &usize)| Some((at, *place, planner.topology.leaf_of(*place)?));
    component.places.iter().enumerate().filter_map(leaf)
}
