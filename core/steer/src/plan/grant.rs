//! From a plan to quotas: what is to shrink shrinks at once, and what is to grow waits for it.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use sallyport_model::EdgeId;

use super::{
    Planner,
    edge::{EdgeState, UNBOUNDED},
    fair::split,
    problem::{Component, WhatIf, origins_of},
    topology::{Dimension, Leaf},
};
use crate::{
    Amount, PER_UNIT,
    report::{AssignedQuota, Quota, QuotaAssignment, STEER_SCHEMA},
    solver::Solution,
};

/// The gain that makes another plan worth a change, in percent.
const MIN_GAIN_PERCENT: i128 = 1;

/// What an edge is to have of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Share {
    /// The planned part.
    pub(super) planned: Amount,
    /// All of it.
    pub(super) all: Amount,
}

/// The plan of one dimension.
#[derive(Debug, Clone, Default)]
pub(super) struct Shares {
    pub(super) of: HashMap<(EdgeId, Leaf), Share>,
    /// The origins with a limit, and the amount of each that is planned.
    pub(super) limited: BTreeMap<Leaf, Amount>,
    /// What is planned to be refused, by edge and socket.
    pub(super) shed: HashMap<(EdgeId, sallyport_model::SocketId), Amount>,
    /// Whether the plan is an optimum, and how far it may be from one, in millionths of its cost.
    pub(super) gap_ppm: u64,
}

impl Planner {
    /// The plan of one dimension at this time.
    pub(super) fn shares(&mut self, dimension: Dimension, what_if: &WhatIf, now: Duration) -> Shares {
        let mut shares = Shares::default();
        let is_real = *what_if == WhatIf::default();
        let mut flows_of_rows = HashMap::new();
        for component in self.components(dimension, what_if, now) {
            let Ok(mut solution) = component.problem.solve() else {
                // Too many places for a plan: nobody gets anything, rather than too much.
                shares.limited.extend(origins_of(self, &component).map(|(_, _, leaf)| (leaf, 0)));
                continue;
            };
            let gap = u64::try_from((solution.cost - solution.bound) * 1_000_000 / solution.cost.max(1));
            shares.gap_ppm = shares.gap_ppm.max(gap.unwrap_or(u64::MAX));
            if is_real {
                self.keep_if_as_good(dimension, &component, &mut solution);
                for (row, flows) in component.rows.iter().zip(&solution.flows) {
                    flows_of_rows.insert((dimension, *row), flows.clone());
                }
            }
            self.share_out(&component, &solution, now, &mut shares);
        }
        if is_real {
            self.flows.retain(|(of, _), _| *of != dimension);
            self.flows.extend(flows_of_rows);
        }
        shares
    }

    /// Keeps the former distribution at the present demand, unless it does not fit or another one is better by more than
    /// [`MIN_GAIN_PERCENT`].
    fn keep_if_as_good(&self, dimension: Dimension, component: &Component, solution: &mut Solution) {
        let mut flows = Vec::with_capacity(component.rows.len());
        for (row, supply) in component.rows.iter().zip(&component.problem.supplies) {
            let former = self.flows.get(&(dimension, *row)).filter(|former| former.len() == supply.costs.len());
            let Some(former) = former else { return };
            if supply.amount > 0 && former.iter().all(|flow| *flow == 0) {
                return;
            }
            flows.push(split(supply.amount, former));
        }
        let Some(former) = component.problem.evaluate(flows) else { return };
        let is_as_good = (former.cost - solution.cost) * 100 <= solution.cost * MIN_GAIN_PERCENT;
        if is_as_good && solution.shed.iter().all(|shed| *shed == 0) {
            (solution.flows, solution.loads, solution.cost) = (former.flows, former.loads, former.cost);
            solution.shed.fill(0);
        }
    }

    /// Adds planned amounts, and spreads what is left over the edges.
    fn share_out(&self, component: &Component, solution: &Solution, now: Duration, shares: &mut Shares) {
        let mut demands = HashMap::<(EdgeId, sallyport_model::SocketId), Amount>::new();
        for ((row, supply), (flows, shed)) in
            component.rows.iter().zip(&component.problem.supplies).zip(solution.flows.iter().zip(&solution.shed))
        {
            *demands.entry((row.edge, row.socket)).or_default() += supply.amount;
            *shares.shed.entry((row.edge, row.socket)).or_default() += shed;
            for ((node, _), flow) in supply.costs.iter().zip(flows) {
                if let Some(leaf) = self.topology.leaf_of(component.places[*node]) {
                    let share = shares.of.entry((row.edge, leaf)).or_default();
                    share.planned += flow;
                    share.all += flow;
                }
            }
        }
        let spare = spare(component, solution);
        for (node, place, leaf) in origins_of(self, component) {
            let is_limited = self.topology.chain(place).any(|up| {
                component.places.binary_search(&up).is_ok_and(|at| component.problem.nodes[at].capacity.is_some())
            });
            if !is_limited {
                continue;
            }
            shares.limited.insert(leaf, solution.loads[node]);
            let edges: Vec<EdgeId> = self.reaching(leaf, now).collect();
            let planned: Vec<Amount> =
                edges.iter().map(|edge| shares.of.get(&(*edge, leaf)).map_or(0, |share| share.planned)).collect();
            let wanted: Vec<Amount> =
                edges.iter().map(|edge| demands.get(&(*edge, leaf.socket)).copied().unwrap_or_default()).collect();
            let weights = spare_weights(&planned, &wanted);
            for (edge, more) in edges.iter().zip(split(spare[node], &weights)) {
                shares.of.entry((*edge, leaf)).or_default().all += more;
            }
        }
    }

    /// The live edges that can send to the origin.
    fn reaching(&self, leaf: Leaf, now: Duration) -> impl Iterator<Item = EdgeId> {
        let live = self.edges.iter().filter(move |(_, edge)| self.is_live(edge, now));
        live.filter(move |(_, edge)| {
            let mut classes = edge.classes.iter().filter(|((socket, _), _)| *socket == leaf.socket);
            edge.loads.contains_key(&leaf)
                || classes.any(|(_, class)| class.candidates.iter().any(|(origin, _)| *origin == leaf.origin))
        })
        .map(|(id, _)| *id)
    }

    /// The assignments that bring all edges nearer to the plan. At no moment the quotas that edges may have are more
    /// than a place can carry, unless its capacity has just become less.
    pub(super) fn assign(&mut self, plan: &[Shares; 2], term: u64, now: Duration) -> Vec<QuotaAssignment> {
        // Origins without a limit are named too: edges take an origin that is not named for one without a quota.
        let limited: Vec<(usize, Leaf)> =
            (0..self.topology.nodes.len()).filter_map(|at| Some((at, self.topology.leaf_of(at)?))).collect();
        let mut quotas = HashMap::<(EdgeId, Leaf), Quota>::new();
        for dimension in Dimension::ALL {
            for ((edge, leaf), amount) in self.grants(&limited, &plan[dimension.index()], dimension, now) {
                let quota = quotas.entry((edge, leaf)).or_default();
                match dimension {
                    Dimension::Rate => quota.rate = (amount != UNBOUNDED).then_some(amount),
                    Dimension::Connections => {
                        let most = u32::try_from(amount / PER_UNIT).unwrap_or(u32::MAX);
                        quota.connections = (amount != UNBOUNDED).then_some(most);
                    }
                }
            }
        }
        let suspects = self.suspects(now);
        let edges = u32::try_from(self.edges.len() + self.unheard.len()).unwrap_or(u32::MAX);
        // The bus does not reach an edge without a lease, whose reports come through other edges.
        let live = self.edges.iter().filter(|(id, edge)| self.is_live(edge, now) && self.names.contains_key(id));
        let live: Vec<EdgeId> = live.map(|(id, _)| *id).collect();
        let mut assignments = Vec::new();
        for id in live {
            let Some(edge) = self.edges.get_mut(&id) else { continue };
            let of_edge = |(_, leaf): &(usize, Leaf)| Some((*leaf, *quotas.get(&(id, *leaf))?));
            let own: HashMap<Leaf, Quota> = limited.iter().filter_map(of_edge).collect();
            if edge.was_told(term, &own) {
                continue;
            }
            self.assignments += 1;
            let number = self.assignments;
            let mut assigned: Vec<_> = own
                .iter()
                // Where an edge never had a quota, requests wait for one. They do not wait where it has nothing.
                .filter(|(_, quota)| quota.rate != Some(0) && quota.connections != Some(0))
                .map(|(leaf, quota)| {
                    let share = plan[Dimension::Rate.index()].of.get(&(id, *leaf)).copied().unwrap_or_default();
                    let plan = share.planned.min(quota.rate.unwrap_or(UNBOUNDED));
                    AssignedQuota { socket: leaf.socket, origin: leaf.origin, plan, quota: *quota }
                })
                .collect();
            assigned.sort_by_key(|quota| (quota.socket, quota.origin));
            assignments.push(QuotaAssignment {
                schema: STEER_SCHEMA,
                edge: id,
                epoch: edge.epoch,
                term,
                number,
                answers: edge.number,
                base: edge.base,
                edges,
                suspects: suspects.iter().copied().filter(|suspect| *suspect != id).collect(),
                quotas: assigned,
            });
            edge.note_sent(term, number, own);
        }
        assignments
    }

    /// What each live edge may have of each limited origin.
    fn grants(
        &self,
        limited: &[(usize, Leaf)],
        shares: &Shares,
        dimension: Dimension,
        now: Duration,
    ) -> HashMap<(EdgeId, Leaf), Amount> {
        let mut rooms: Vec<Amount> =
            (0..self.topology.nodes.len()).map(|at| self.capacity(at, dimension).unwrap_or(UNBOUNDED)).collect();
        // Places whose capacity has become less than what edges may still use.
        let mut is_over = vec![false; rooms.len()];
        for (at, leaf) in limited {
            let used = self.edges.values().map(|edge| edge.outstanding(*leaf, dimension));
            let used = used.fold(0, Amount::saturating_add);
            for up in self.topology.chain(*at) {
                if rooms[up] != UNBOUNDED {
                    is_over[up] |= used > rooms[up];
                    rooms[up] = rooms[up].saturating_sub(used);
                }
            }
        }
        let may_grow = self.may_grow(now);
        let mut grants = HashMap::new();
        // What is planned is granted before what is spare.
        for is_planned in [true, false] {
            for (at, leaf) in limited {
                let edges: Vec<EdgeId> = self.reaching(*leaf, now).collect();
                if !shares.limited.contains_key(leaf) {
                    grants.extend(edges.iter().map(|edge| ((*edge, *leaf), UNBOUNDED)));
                    continue;
                }
                let share = |edge: &EdgeId| shares.of.get(&(*edge, *leaf)).copied().unwrap_or_default();
                let alls: Vec<Amount> = edges.iter().map(|edge| share(edge).all).collect();
                let alls = match dimension {
                    Dimension::Rate => alls,
                    Dimension::Connections => whole_units(alls.iter().copied().fold(0, Amount::saturating_add), &alls),
                };
                let target = |edge: &EdgeId| {
                    let planned = planned_least(&share(edge), dimension);
                    let all = edges.iter().position(|other| other == edge).map_or(0, |at| alls[at]);
                    if is_planned { planned } else { all }
                };
                let has = |edge: &EdgeId| match grants.get(&(*edge, *leaf)) {
                    Some(granted) => *granted,
                    None => self.edges.get(edge).map_or(0, |edge| edge.outstanding(*leaf, dimension)),
                };
                let wants: Vec<Amount> = edges.iter().map(|edge| target(edge).saturating_sub(has(edge))).collect();
                let total = wants.iter().fold(0, |sum: Amount, want| sum.saturating_add(*want));
                let room = self.topology.chain(*at).map(|up| rooms[up]).min().unwrap_or_default();
                let given = if may_grow { total.min(room) } else { 0 };
                let parts = match dimension {
                    Dimension::Rate => split(given, &wants),
                    Dimension::Connections => whole_units(given, &wants),
                };
                // Edges take over assignments of different moments, so none may grow back there.
                let may_return = !self.topology.chain(*at).any(|up| is_over[up]);
                let news: Vec<_> = edges
                    .iter()
                    .zip(parts)
                    .map(|(edge, more)| {
                        let has = has(edge);
                        let kept = if is_planned {
                            has
                        } else {
                            let kept = has.min(target(edge).max(planned_least(&share(edge), dimension)));
                            let edge = self.edges.get(edge);
                            let bound = |is_bound: bool, of: fn(&EdgeState, Leaf, Dimension) -> Amount| {
                                edge.filter(|_| is_bound).map_or(UNBOUNDED, |edge| of(edge, *leaf, dimension))
                            };
                            kept.min(bound(!may_return, EdgeState::last)).min(bound(!may_grow, EdgeState::reported))
                        };
                        (*edge, kept.saturating_add(more), more)
                    })
                    .collect();
                for (edge, granted, more) in news {
                    for up in self.topology.chain(*at) {
                        if rooms[up] != UNBOUNDED {
                            rooms[up] -= more;
                        }
                    }
                    grants.insert((edge, *leaf), granted);
                }
            }
        }
        grants
    }
}

/// Splits an amount by weights into whole units, of which none is lost between the parts.
fn whole_units(amount: Amount, weights: &[u64]) -> Vec<Amount> {
    split(amount / PER_UNIT, weights).into_iter().map(|units| units * PER_UNIT).collect()
}

/// The planned part in whole units of the dimension.
fn planned_least(share: &Share, dimension: Dimension) -> Amount {
    match dimension {
        Dimension::Rate => share.planned,
        Dimension::Connections => share.planned.div_ceil(PER_UNIT) * PER_UNIT,
    }
}

/// What is left at each node of a component, within what is left at the places that contain it.
fn spare(component: &Component, solution: &Solution) -> Vec<Amount> {
    let nodes = &component.problem.nodes;
    let own = |at: usize| nodes[at].capacity.map_or(UNBOUNDED, |capacity| capacity - solution.loads[at]);
    let mut spare = vec![0; nodes.len()];
    let mut children = vec![Vec::new(); nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        if let Some(parent) = node.parent {
            children[parent].push(at);
        }
    }
    let mut given = vec![None; nodes.len()];
    for at in (0..nodes.len()).rev() {
        spare[at] = own(at).min(given[at].unwrap_or(UNBOUNDED));
        let wants: Vec<u64> = children[at].iter().map(|child| own(*child).min(spare[at])).collect();
        let total = wants.iter().fold(0, |sum: u64, want| sum.saturating_add(*want));
        let parts = if total > spare[at] { split(spare[at], &wants) } else { wants };
        for (child, part) in children[at].iter().zip(parts) {
            given[*child] = Some(part);
        }
    }
    spare
}

/// Half of what is left goes to where it is used, a quarter to where demand is, and a quarter to every edge.
fn spare_weights(planned: &[Amount], wanted: &[Amount]) -> Vec<u64> {
    const WHOLE: u128 = 1 << 24;
    let part = |of: &[Amount], at: usize| {
        let total: u128 = of.iter().map(|amount| u128::from(*amount)).sum();
        (u128::from(of[at]) * WHOLE).checked_div(total).unwrap_or_default()
    };
    let equal = WHOLE / planned.len().max(1) as u128;
    let weight = |at| 2 * part(planned, at) + part(wanted, at) + equal;
    (0..planned.len()).map(|at| u64::try_from(weight(at)).unwrap_or(u64::MAX)).collect()
}
