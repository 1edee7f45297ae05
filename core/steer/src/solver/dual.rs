//! The cost of a flow, and a bound of the cost of every flow.

use super::{
    Problem,
    congestion::{load_cost, segments},
};

/// The cost of these flows, with that of the load of each node.
pub(super) fn cost(problem: &Problem, flows: &[Vec<u64>], shed: &[u64]) -> i128 {
    let mut loads = vec![0_u64; problem.nodes.len()];
    let mut cost = 0;
    for ((supply, flows), shed) in problem.supplies.iter().zip(flows).zip(shed) {
        cost += i128::from(*shed) * i128::from(supply.shed_cost);
        for ((node, unit), flow) in supply.costs.iter().zip(flows) {
            loads[*node] += flow;
            cost += i128::from(*flow) * i128::from(*unit);
        }
    }
    for (index, node) in problem.nodes.iter().enumerate() {
        if let Some(parent) = node.parent {
            loads[parent] += loads[index];
        }
        cost += load_cost(node.capacity, loads[index]);
    }
    cost
}

/// The value of the dual problem at these prices. It is no more than the cost of any flow (weak duality), whatever the
/// prices are.
pub(super) fn bound(problem: &Problem, prices: &[i64]) -> i128 {
    let mut bound = 0;
    for supply in &problem.supplies {
        let ways = supply.costs.iter().map(|(node, cost)| cost + prices[*node]);
        let least = ways.chain([supply.shed_cost]).min().unwrap_or_default();
        bound += i128::from(supply.amount) * i128::from(least);
    }
    let total: u64 = problem.supplies.iter().map(|supply| supply.amount).sum();
    for (node, price) in problem.nodes.iter().zip(prices) {
        let onward = node.parent.map_or(0, |parent| prices[parent]);
        let Some(capacity) = node.capacity else {
            // No more than all supplies passes.
            bound += i128::from(total) * i128::from((onward - price).min(0));
            continue;
        };
        let mut start = 0;
        for segment in segments(capacity) {
            let gain = (segment.slope + onward - price).min(0);
            bound += i128::from(segment.end - start) * i128::from(gain);
            start = segment.end;
        }
    }
    bound
}
