//! A random problem of the solver: edges and origins on a plane.

use sallyport_steer::solver::{Node, Problem, ProblemError, Supply};
use serde::Serialize;

use crate::chance::Chance;

/// The most edges of an instance.
pub const MAX_INSTANCE_EDGES: u32 = 10_000;
/// The most origins of an instance.
pub const MAX_INSTANCE_ORIGINS: u32 = 2_000;
/// The round trip across the plane, in microseconds.
const PLANE_US: f64 = 150_000.0;
/// The round trip within a place, in microseconds.
const NEAR_US: f64 = 1_000.0;
/// The cost of a request that is refused, in microseconds.
const SHED_COST: i64 = 600_000_000;

/// Options of an instance.
#[derive(Debug, Clone, Copy)]
pub struct InstanceOptions {
    /// The number of edges.
    pub edges: u32,
    /// The number of origins.
    pub origins: u32,
    /// The demand, in percent of what all origins can carry.
    pub load_percent: u32,
    /// The seed.
    pub seed: u64,
}

/// What the solver made of an instance, without the time that it took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InstanceReport {
    /// The seed.
    pub seed: u64,
    /// The number of edges.
    pub edges: u32,
    /// The number of origins.
    pub origins: u32,
    /// The demand, in percent of what all origins can carry.
    pub load_percent: u32,
    /// How many pairs of an edge and an origin have traffic.
    pub pairs: usize,
    /// The traffic that does not go to the nearest origin, in percent.
    pub moved_percent: f64,
    /// What is refused, in percent.
    pub shed_percent: f64,
    /// The mean round trip, in milliseconds.
    pub mean_ms: f64,
    /// How far the cost may be from the optimum by the dual bound, in percent.
    pub gap_percent: f64,
}

/// The problem of these options.
#[must_use]
pub fn instance(options: &InstanceOptions) -> Problem {
    let mut chance = Chance::new(options.seed);
    let mut place = || (chance.fraction(), chance.fraction());
    let edges: Vec<_> = (0..options.edges).map(|_| place()).collect();
    let origins: Vec<_> = (0..options.origins).map(|_| place()).collect();
    let capacities: Vec<u64> = origins.iter().map(|_| 1_000 * chance.within((100, 2_000))).collect();
    let weights: Vec<f64> = edges.iter().map(|_| chance.between(0.2, 2.0)).collect();
    let total = capacities.iter().sum::<u64>() as f64 * f64::from(options.load_percent) / 100.0;
    let sum: f64 = weights.iter().sum();
    let supply = |(edge, weight): (&(f64, f64), &f64)| {
        let cost = |(node, origin): (usize, &(f64, f64))| {
            let far = (edge.0 - origin.0).hypot(edge.1 - origin.1);
            (node, (NEAR_US + PLANE_US * far) as i64)
        };
        Supply {
            amount: (total * weight / sum) as u64,
            costs: origins.iter().enumerate().map(cost).collect(),
            shed_cost: SHED_COST,
        }
    };
    Problem {
        nodes: capacities.iter().map(|capacity| Node { capacity: Some(*capacity), parent: None }).collect(),
        supplies: edges.iter().zip(&weights).map(supply).collect(),
    }
}

/// Solves the problem of these options.
///
/// # Errors
/// The problem is not well formed.
pub fn solve(options: &InstanceOptions, problem: &Problem) -> Result<InstanceReport, ProblemError> {
    let solution = problem.solve()?;
    let (mut pairs, mut moved, mut way, mut served) = (0, 0, 0.0, 0);
    for (supply, flows) in problem.supplies.iter().zip(&solution.flows) {
        let nearest = supply.costs.iter().map(|(_, cost)| *cost).min().unwrap_or_default();
        for ((_, cost), flow) in supply.costs.iter().zip(flows).filter(|(_, flow)| **flow > 0) {
            pairs += 1;
            moved += if *cost > nearest { *flow } else { 0 };
            served += flow;
            way += *flow as f64 * *cost as f64;
        }
    }
    let shed: u64 = solution.shed.iter().sum();
    let all = (served + shed).max(1) as f64;
    Ok(InstanceReport {
        seed: options.seed,
        edges: options.edges,
        origins: options.origins,
        load_percent: options.load_percent,
        pairs,
        moved_percent: moved as f64 * 100.0 / all,
        shed_percent: shed as f64 * 100.0 / all,
        mean_ms: way / served.max(1) as f64 / 1_000.0,
        gap_percent: (solution.cost - solution.bound) as f64 * 100.0 / solution.cost.max(1) as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_solved_exactly_and_repeats() {
        let options = InstanceOptions { edges: 60, origins: 12, load_percent: 95, seed: 3 };
        let problem = instance(&options);
        let report = solve(&options, &problem).unwrap();
        assert!(report.gap_percent == 0.0 && report.shed_percent < 0.01, "{report:?}");
        assert!(report.moved_percent > 5.0 && report.pairs >= 60, "{report:?}");
        assert_eq!(solve(&options, &instance(&options)).unwrap(), report);
    }
}
