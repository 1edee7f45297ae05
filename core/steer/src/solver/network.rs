//! The residual network of nodes: what a unit costs that moves from one node to another.
//!
//! Supplies are no vertices of their own. A supply that has a flow at one node and reaches another one is a way between
//! the two, at the difference of its costs. For each pair of nodes only the cheapest supply counts. So a shortest path
//! costs the square of the number of nodes, and does not depend on the number of supplies.

use super::{
    Node, Problem, Supply,
    congestion::{last_segment, next_segment},
    shortest_path::{Path, Search},
};

/// The cost of a way that does not exist.
pub(super) const NO_WAY: i64 = i64::MAX;

/// A way from one node to another.
#[derive(Debug, Clone, Copy)]
struct Way {
    cost: i64,
    /// The supply whose flow would move.
    supply: usize,
}

const NONE: Way = Way { cost: NO_WAY, supply: usize::MAX };

/// How a unit leaves a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Into the node through the flow of this supply.
    Moved(usize),
    /// Into the parent.
    Onward,
    /// Back from a node into one of its children, whose flow moves.
    Back,
    /// Out of the network: the flow of this supply is shed.
    Shed(usize),
}

pub(super) struct Network<'a> {
    nodes: &'a [Node],
    supplies: &'a [Supply],
    children: Vec<Vec<usize>>,
    flows: Vec<Vec<u64>>,
    shed: Vec<u64>,
    loads: Vec<u64>,
    /// For each node, the supplies with a flow to it.
    members: Vec<Vec<usize>>,
    /// The cheapest way from a node to each other one.
    ways: Vec<Way>,
    /// The cheapest way from a node to being shed.
    sheds: Vec<Way>,
    search: Search,
}

impl<'a> Network<'a> {
    pub(super) fn new(problem: &'a Problem) -> Self {
        let n = problem.nodes.len();
        let mut children = vec![Vec::new(); n];
        for (index, node) in problem.nodes.iter().enumerate() {
            if let Some(parent) = node.parent {
                children[parent].push(index);
            }
        }
        Self {
            nodes: &problem.nodes,
            supplies: &problem.supplies,
            children,
            flows: problem.supplies.iter().map(|supply| vec![0; supply.costs.len()]).collect(),
            shed: vec![0; problem.supplies.len()],
            loads: vec![0; n],
            members: vec![Vec::new(); n],
            ways: vec![NONE; n * n],
            sheds: vec![NONE; n],
            search: Search::new(n),
        }
    }

    /// Flows, shed amounts, loads and prices.
    pub(super) fn into_parts(self) -> (Vec<Vec<u64>>, Vec<u64>, Vec<u64>, Vec<i64>) {
        let prices = self.search.prices();
        (self.flows, self.shed, self.loads, prices)
    }

    /// Routes the whole amount of a supply.
    pub(super) fn route(&mut self, supply: usize) {
        let mut left = self.supplies[supply].amount;
        let mut search = std::mem::take(&mut self.search);
        while left > 0 {
            match search.find(self, &self.supplies[supply]) {
                Path::Shed => {
                    self.shed[supply] += left;
                    left = 0;
                }
                Path::Through(path) => left -= self.push(supply, &path, left),
            }
        }
        self.search = search;
    }

    /// The number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Calls `visit` with the cost and the target of each way out of the node; the target `None` leaves the network.
    pub(super) fn visit_ways(&self, node: usize, mut visit: impl FnMut(i64, Option<usize>, Step)) {
        let n = self.len();
        for (to, way) in self.ways[node * n..(node + 1) * n].iter().enumerate() {
            if way.cost != NO_WAY {
                visit(way.cost, Some(to), Step::Moved(way.supply));
            }
        }
        if let Some((slope, _)) = next_segment(self.nodes[node].capacity, self.loads[node]) {
            visit(slope, self.nodes[node].parent, Step::Onward);
        }
        for child in &self.children[node] {
            if let Some((slope, _)) = last_segment(self.nodes[*child].capacity, self.loads[*child]) {
                visit(-slope, Some(*child), Step::Back);
            }
        }
        if self.sheds[node].cost != NO_WAY {
            visit(self.sheds[node].cost, None, Step::Shed(self.sheds[node].supply));
        }
    }

    /// The most that can take this step from one node to the next.
    fn room(&self, from: usize, step: Step, to: Option<usize>) -> u64 {
        match step {
            Step::Moved(supply) | Step::Shed(supply) => self.flow(supply, from),
            Step::Onward => next_segment(self.nodes[from].capacity, self.loads[from]).map_or(0, |(_, room)| room),
            Step::Back => {
                let Some(child) = to else { return 0 };
                last_segment(self.nodes[child].capacity, self.loads[child]).map_or(0, |(_, used)| used)
            }
        }
    }

    /// Sends up to `most` along the path, and returns how much.
    fn push(&mut self, supply: usize, path: &[(usize, Step)], most: u64) -> u64 {
        let target = |at: usize| path.get(at + 1).map(|(node, _)| *node);
        let rooms = path.iter().enumerate().map(|(at, (node, step))| self.room(*node, *step, target(at)));
        let amount = rooms.min().unwrap_or(0).min(most);
        debug_assert!(amount > 0, "a path has room");
        if let Some((first, _)) = path.first() {
            self.change(supply, *first, amount, true);
        }
        for (at, (node, step)) in path.iter().enumerate() {
            match (*step, target(at)) {
                (Step::Moved(moved), Some(to)) => {
                    self.change(moved, *node, amount, false);
                    self.change(moved, to, amount, true);
                }
                (Step::Shed(moved), _) => {
                    self.change(moved, *node, amount, false);
                    self.shed[moved] += amount;
                }
                (Step::Onward, _) => self.loads[*node] += amount,
                (Step::Back, Some(child)) => self.loads[child] -= amount,
                (Step::Moved(_) | Step::Back, None) => {}
            }
        }
        amount
    }

    fn place(&self, supply: usize, node: usize) -> Option<usize> {
        self.supplies[supply].costs.binary_search_by_key(&node, |(node, _)| *node).ok()
    }

    fn flow(&self, supply: usize, node: usize) -> u64 {
        self.place(supply, node).map_or(0, |place| self.flows[supply][place])
    }

    /// Adds to, or takes from, the flow of a supply to a node. The loads of nodes follow by the steps of the path.
    fn change(&mut self, supply: usize, node: usize, amount: u64, is_more: bool) {
        let Some(place) = self.place(supply, node) else { return };
        let former = self.flows[supply][place];
        let flow = if is_more { former + amount } else { former - amount };
        self.flows[supply][place] = flow;
        if former == 0 && flow > 0 {
            self.members[node].push(supply);
            self.add_ways(supply, node);
        } else if former > 0 && flow == 0 {
            self.members[node].retain(|member| *member != supply);
            self.remove_ways(supply, node);
        }
    }

    /// The cost at which a unit of the supply moves between two of its nodes.
    fn move_cost(&self, supply: usize, from: usize, to: usize) -> Option<i64> {
        let costs = &self.supplies[supply].costs;
        Some(costs[self.place(supply, to)?].1 - costs[self.place(supply, from)?].1)
    }

    fn add_ways(&mut self, supply: usize, node: usize) {
        let n = self.len();
        let Some(place) = self.place(supply, node) else { return };
        let own = &self.supplies[supply];
        let here = own.costs[place].1;
        for (to, cost) in &own.costs {
            let way = &mut self.ways[node * n + to];
            if *to != node && cost - here < way.cost {
                *way = Way { cost: cost - here, supply };
            }
        }
        if own.shed_cost - here < self.sheds[node].cost {
            self.sheds[node] = Way { cost: own.shed_cost - here, supply };
        }
    }

    /// Replaces the ways that the supply was the cheapest for.
    fn remove_ways(&mut self, supply: usize, node: usize) {
        let n = self.len();
        for to in 0..n {
            if self.ways[node * n + to].supply == supply {
                let ways = self.members[node].iter().filter_map(|member| {
                    let cost = self.move_cost(*member, node, to)?;
                    Some(Way { cost, supply: *member })
                });
                self.ways[node * n + to] = ways.min_by_key(|way| way.cost).unwrap_or(NONE);
            }
        }
        if self.sheds[node].supply == supply {
            let ways = self.members[node].iter().filter_map(|member| {
                let own = &self.supplies[*member];
                Some(Way { cost: own.shed_cost - own.costs[self.place(*member, node)?].1, supply: *member })
            });
            self.sheds[node] = ways.min_by_key(|way| way.cost).unwrap_or(NONE);
        }
    }
}
