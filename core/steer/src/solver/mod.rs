//! The transport problem of steering: which edge sends how much to which origin. May use nothing else of this crate.
//!
//! A [`Problem`] has supplies (what comes in at an edge), nodes (origins and the capacities that several origins
//! share), and a cost for each unit from a supply to an origin. [`Problem::solve`] finds the cheapest flow by
//! successive shortest paths. Amounts and costs are whole numbers, so the result is exact. The bound of the dual
//! problem comes with it: a solution whose cost equals the bound is an optimum, whoever computed it.

mod congestion;
mod dual;
mod network;
mod shortest_path;

pub use congestion::{SEGMENTS, Segment, segments};

use network::Network;

/// The most nodes of a problem: the work for each path grows with their square.
pub const MAX_NODES: usize = 2_048;
/// The highest cost of a unit: an hour, in microseconds.
pub const MAX_COST: i64 = 3_600_000_000;
/// The greatest amount of a supply or a capacity; sums of a million of them fit into 64 bits.
pub const MAX_AMOUNT: u64 = 1 << 40;

/// A place with a bounded capacity: an origin, or a capacity that several nodes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The most that may pass; `None`: no bound.
    pub capacity: Option<u64>,
    /// The node through which everything passes next.
    pub parent: Option<usize>,
}

/// An amount that comes in at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supply {
    /// The amount.
    pub amount: u64,
    /// The reachable nodes with the cost of a unit, sorted by node.
    pub costs: Vec<(usize, i64)>,
    /// The cost of a unit that goes nowhere.
    pub shed_cost: i64,
}

/// Supplies and nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problem {
    /// The nodes. A parent has a greater index than its children.
    pub nodes: Vec<Node>,
    /// The supplies.
    pub supplies: Vec<Supply>,
}

/// The cheapest flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Solution {
    /// For each supply, the amount to each of its nodes, in the order of [`Supply::costs`].
    pub flows: Vec<Vec<u64>>,
    /// For each supply, the amount that goes nowhere.
    pub shed: Vec<u64>,
    /// For each node, the amount that passes.
    pub loads: Vec<u64>,
    /// For each node, the cost of one more unit from there on, without the cost of the way to the node.
    pub prices: Vec<i64>,
    /// The cost of the flow.
    pub cost: i128,
    /// A lower bound of the cost of every flow, from the prices alone.
    pub bound: i128,
}

/// Flows with their loads and their cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluated {
    /// For each supply, the amount to each of its nodes.
    pub flows: Vec<Vec<u64>>,
    /// For each node, the amount that passes.
    pub loads: Vec<u64>,
    /// The cost.
    pub cost: i128,
}

/// The problem is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProblemError {
    /// Too many nodes.
    #[error("a plan has at most {MAX_NODES} origins and shared capacities")]
    TooManyNodes,
    /// A parent does not come after its children.
    #[error("node {0} has a parent that does not come after it")]
    Parent(usize),
    /// The costs of a supply are not sorted, name no node, or are out of range.
    #[error("the costs of supply {0} are not those of distinct nodes in order, from 0 to an hour")]
    Costs(usize),
    /// An amount is out of range.
    #[error("an amount or a capacity is above {MAX_AMOUNT}")]
    Amount,
}

impl Problem {
    /// Checks the form.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<(), ProblemError> {
        if self.nodes.len() > MAX_NODES {
            return Err(ProblemError::TooManyNodes);
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if node.parent.is_some_and(|parent| parent <= index || parent >= self.nodes.len()) {
                return Err(ProblemError::Parent(index));
            }
            if node.capacity.is_some_and(|capacity| capacity > MAX_AMOUNT) {
                return Err(ProblemError::Amount);
            }
        }
        for (index, supply) in self.supplies.iter().enumerate() {
            let is_sorted = supply.costs.windows(2).all(|pair| pair[0].0 < pair[1].0);
            let is_good = |cost: &i64| (0..=MAX_COST).contains(cost);
            let are_good = supply.costs.iter().all(|(node, cost)| *node < self.nodes.len() && is_good(cost));
            if !is_sorted || !are_good || !is_good(&supply.shed_cost) {
                return Err(ProblemError::Costs(index));
            }
            if supply.amount > MAX_AMOUNT {
                return Err(ProblemError::Amount);
            }
        }
        Ok(())
    }

    /// The cost and the loads of these flows, for each supply to its nodes; `None` if they do not fit. Nothing is shed.
    #[must_use]
    pub fn evaluate(&self, flows: Vec<Vec<u64>>) -> Option<Evaluated> {
        let mut loads = vec![0_u64; self.nodes.len()];
        for (supply, flows) in self.supplies.iter().zip(&flows) {
            supply.costs.iter().zip(flows).for_each(|((node, _), flow)| loads[*node] += flow);
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(parent) = node.parent {
                loads[parent] += loads[index];
            }
            if node.capacity.is_some_and(|capacity| loads[index] > capacity) {
                return None;
            }
        }
        let cost = dual::cost(self, &flows, &vec![0; flows.len()]);
        Some(Evaluated { flows, loads, cost })
    }

    /// The cheapest flow.
    ///
    /// # Errors
    /// The problem is malformed.
    pub fn solve(&self) -> Result<Solution, ProblemError> {
        self.check()?;
        let mut network = Network::new(self);
        for supply in 0..self.supplies.len() {
            network.route(supply);
        }
        let (flows, shed, loads, prices) = network.into_parts();
        let cost = dual::cost(self, &flows, &shed);
        let bound = dual::bound(self, &prices);
        Ok(Solution { flows, shed, loads, prices, cost, bound })
    }
}

#[cfg(test)]
mod tests;
