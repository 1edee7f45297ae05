use microlp::{ComparisonOp, LinearExpr, OptimizationDirection};
use proptest::prelude::*;

use super::*;

fn node(capacity: u64) -> Node {
    Node { capacity: Some(capacity), parent: None }
}

fn supply(amount: u64, costs: &[i64]) -> Supply {
    Supply { amount, costs: costs.iter().copied().enumerate().collect(), shed_cost: 10_000_000 }
}

#[test]
fn what_does_not_fit_goes_to_the_next_nearest_and_then_nowhere() {
    let problem = Problem {
        nodes: vec![node(200), node(200)],
        supplies: vec![supply(250, &[1_000, 84_000]), supply(100, &[84_000, 1_000])],
    };
    let solution = problem.solve().unwrap();
    assert_eq!(solution.flows, [[200, 50], [0, 100]]);
    assert_eq!((solution.loads, solution.shed), (vec![200, 150], vec![0, 0]));
    assert_eq!(solution.cost, solution.bound);
    let problem = Problem { supplies: vec![supply(300, &[1_000, 84_000]), supply(150, &[84_000, 1_000])], ..problem };
    let solution = problem.solve().unwrap();
    assert_eq!(solution.shed.iter().sum::<u64>(), 50);
    assert_eq!((solution.loads, solution.cost), (vec![200, 200], solution.bound));
}

#[test]
fn origins_that_share_a_capacity_get_no_more_together() {
    let shared = |capacity| Node { capacity: Some(capacity), parent: Some(2) };
    let problem = Problem {
        nodes: vec![shared(100), shared(100), node(120), node(500)],
        supplies: vec![supply(90, &[10, 20, 900, 30_000]), supply(90, &[20, 10, 900, 30_000])],
    };
    // A supply reaches origins alone.
    let without_pool =
        |supply: Supply| Supply { costs: supply.costs.into_iter().filter(|(node, _)| *node != 2).collect(), ..supply };
    let problem = Problem { supplies: problem.supplies.into_iter().map(without_pool).collect(), ..problem };
    let solution = problem.solve().unwrap();
    assert_eq!(solution.loads[2], 120);
    assert_eq!(solution.loads[3], 60);
    assert_eq!(solution.cost, solution.bound);
}

#[test]
fn two_equal_origins_share_what_is_above_the_free_part() {
    let problem = Problem { nodes: vec![node(1_000), node(1_000)], supplies: vec![supply(1_600, &[5, 5])] };
    let loads = problem.solve().unwrap().loads;
    assert!(loads[0].abs_diff(loads[1]) <= 50, "{loads:?}");
}

#[test]
fn a_malformed_problem_is_refused() {
    let good = Problem { nodes: vec![node(5)], supplies: vec![supply(1, &[1])] };
    let refused = |change: fn(&mut Problem)| {
        let mut problem = good.clone();
        change(&mut problem);
        problem.solve().unwrap_err()
    };
    assert_eq!(refused(|problem| problem.nodes[0].parent = Some(0)), ProblemError::Parent(0));
    assert_eq!(refused(|problem| problem.nodes = vec![node(1); MAX_NODES + 1]), ProblemError::TooManyNodes);
    assert_eq!(refused(|problem| problem.supplies[0].costs = vec![(1, 1)]), ProblemError::Costs(0));
    assert_eq!(refused(|problem| problem.supplies[0].costs = vec![(0, -1)]), ProblemError::Costs(0));
    assert_eq!(refused(|problem| problem.supplies[0].costs = vec![(0, 1), (0, 1)]), ProblemError::Costs(0));
    assert_eq!(refused(|problem| problem.supplies[0].amount = u64::MAX), ProblemError::Amount);
    assert_eq!(Problem::default().solve().unwrap().cost, 0);
}

/// Checks a solution by rules that do not depend on how it was found.
fn check(problem: &Problem, solution: &Solution) {
    let mut loads = vec![0; problem.nodes.len()];
    for ((supply, flows), shed) in problem.supplies.iter().zip(&solution.flows).zip(&solution.shed) {
        assert_eq!(flows.iter().sum::<u64>() + shed, supply.amount, "everything goes somewhere");
        for ((node, _), flow) in supply.costs.iter().zip(flows) {
            loads[*node] += flow;
        }
    }
    for (index, node) in problem.nodes.iter().enumerate() {
        if let Some(parent) = node.parent {
            loads[parent] += loads[index];
        }
        assert!(node.capacity.is_none_or(|capacity| loads[index] <= capacity), "no node has more than it can carry");
    }
    assert_eq!(loads, solution.loads);
    assert_eq!(solution.cost, solution.bound, "the solution is an optimum");
}

/// The cost of an optimum by a solver of another hand, from the linear program of the problem.
fn optimum_elsewhere(problem: &Problem) -> f64 {
    let mut program = microlp::Problem::new(OptimizationDirection::Minimize);
    let any = (0.0, f64::INFINITY);
    let loads: Vec<_> = problem.nodes.iter().map(|_| program.add_var(0.0, any)).collect();
    // What passes a node comes from supplies and from nodes within it.
    let mut passes: Vec<LinearExpr> = loads.iter().map(|_| LinearExpr::empty()).collect();
    for (node, load) in problem.nodes.iter().zip(&loads) {
        if let Some(parent) = node.parent {
            passes[parent].add(*load, -1.0);
        }
    }
    for supply in &problem.supplies {
        let mut all = LinearExpr::empty();
        all.add(program.add_var(supply.shed_cost as f64, any), 1.0);
        for (node, cost) in &supply.costs {
            let flow = program.add_var(*cost as f64, any);
            all.add(flow, 1.0);
            passes[*node].add(flow, -1.0);
        }
        program.add_constraint(all, ComparisonOp::Eq, supply.amount as f64);
    }
    for ((node, load), mut passes) in problem.nodes.iter().zip(&loads).zip(passes) {
        passes.add(*load, 1.0);
        program.add_constraint(passes, ComparisonOp::Eq, 0.0);
        let Some(capacity) = node.capacity else { continue };
        let (mut parts, mut start) = (LinearExpr::empty(), 0);
        parts.add(*load, -1.0);
        for Segment { end, slope } in segments(capacity) {
            parts.add(program.add_var(slope as f64, (0.0, (end - start) as f64)), 1.0);
            start = end;
        }
        program.add_constraint(parts, ComparisonOp::Eq, 0.0);
    }
    program.solve().unwrap().into_solution().unwrap().objective()
}

fn problems() -> impl Strategy<Value = Problem> {
    let leaf = (prop_oneof![3 => (0_u64..400).prop_map(Some), 1 => Just(None)], 0_usize..4);
    let pool = prop_oneof![3 => (0_u64..600).prop_map(Some), 1 => Just(None)];
    let supply = (0_u64..500, prop::collection::vec(prop::option::of(0_i64..200_000), 8), 100_000_i64..10_000_000);
    (prop::collection::vec(leaf, 1..8), prop::collection::vec(pool, 3), prop::collection::vec(supply, 0..12)).prop_map(
        |(leaves, pools, supplies)| {
            let first = leaves.len();
            let parent = |pool: usize| (pool < 3).then_some(first + pool);
            let mut nodes: Vec<_> =
                leaves.iter().map(|(capacity, pool)| Node { capacity: *capacity, parent: parent(*pool) }).collect();
            // The first shared capacity is within the last one.
            let outer = |index| (index == 0).then_some(first + 2);
            nodes
                .extend(pools.iter().enumerate().map(|(at, capacity)| Node { capacity: *capacity, parent: outer(at) }));
            let supplies = supplies.into_iter().map(|(amount, costs, shed_cost)| {
                let costs = costs.into_iter().take(first).enumerate();
                let costs = costs.filter_map(|(node, cost)| Some((node, cost?))).collect();
                Supply { amount, costs, shed_cost }
            });
            Problem { nodes, supplies: supplies.collect() }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_solution_is_whole_within_bounds_and_an_optimum(problem in problems()) {
        check(&problem, &problem.solve().unwrap());
    }

    #[test]
    fn the_order_of_supplies_does_not_change_the_cost(problem in problems()) {
        let mut turned = problem.clone();
        turned.supplies.reverse();
        prop_assert_eq!(problem.solve().unwrap().cost, turned.solve().unwrap().cost);
    }

    #[test]
    fn a_solver_of_another_hand_finds_the_same_cost(problem in problems()) {
        let (ours, other) = (problem.solve().unwrap().cost as f64, optimum_elsewhere(&problem));
        prop_assert!((ours - other).abs() <= 1e-9 * ours + 1e-3, "{ours} is not {other}");
    }
}
