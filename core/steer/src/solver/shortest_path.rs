//! Shortest paths out of the residual network, by Dijkstra's algorithm with potentials.
//!
//! Potentials make all reduced costs non-negative (Ahuja, Magnanti and Orlin, Network Flows, section 9.7). A search ends
//! when the way out of the network is reached, and the nodes beyond it get the distance of the way out.

use super::{
    Supply,
    network::{NO_WAY, Network, Step},
};

/// A path of a supply.
pub(super) enum Path {
    /// Nothing is cheaper than not to be served.
    Shed,
    /// The nodes in order, each with the step out of it.
    Through(Vec<(usize, Step)>),
}

/// Potentials, and reused memory. The last vertex is the way out.
#[derive(Debug, Default)]
pub(super) struct Search {
    potentials: Vec<i64>,
    distances: Vec<i64>,
    /// The node before each vertex, with its step; `None`: the supply itself.
    before: Vec<Option<(usize, Step)>>,
    is_settled: Vec<bool>,
    reached: Vec<usize>,
}

impl Search {
    pub(super) fn new(nodes: usize) -> Self {
        let n = nodes + 1;
        Self {
            potentials: vec![0; n],
            distances: vec![NO_WAY; n],
            before: vec![None; n],
            is_settled: vec![false; n],
            reached: Vec::new(),
        }
    }

    /// For each node, the cost of one more unit from there on.
    pub(super) fn prices(&self) -> Vec<i64> {
        let Some((out, nodes)) = self.potentials.split_last() else { return Vec::new() };
        nodes.iter().map(|potential| out - potential).collect()
    }

    /// The cheapest path for one unit of the supply.
    pub(super) fn find(&mut self, network: &Network<'_>, supply: &Supply) -> Path {
        let out = network.len();
        self.begin(out, supply);
        let shed_is_cheapest = loop {
            // Dense: the nearest of the reached vertices.
            let nearest = (0..self.reached.len()).min_by_key(|at| self.distances[self.reached[*at]]);
            let Some(vertex) = nearest.map(|at| self.reached.swap_remove(at)) else { break true };
            self.is_settled[vertex] = true;
            if vertex == out {
                break self.before[out].is_none();
            }
            let (distance, potential) = (self.distances[vertex], self.potentials[vertex]);
            network.visit_ways(vertex, |cost, to, step| {
                let to = to.unwrap_or(out);
                let reduced = cost + potential - self.potentials[to];
                debug_assert!(reduced >= 0, "a reduced cost is not negative");
                if !self.is_settled[to] && distance + reduced < self.distances[to] {
                    self.reach(to, distance + reduced, Some((vertex, step)));
                }
            });
        };
        let end = self.distances[out];
        for (potential, distance) in self.potentials.iter_mut().zip(&self.distances) {
            *potential += (*distance).min(end);
        }
        if shed_is_cheapest { Path::Shed } else { Path::Through(self.path(out)) }
    }

    /// Reaches the nodes of the supply, and the way out.
    fn begin(&mut self, out: usize, supply: &Supply) {
        self.distances.fill(NO_WAY);
        self.is_settled.fill(false);
        self.before.fill(None);
        self.reached.clear();
        let gains = supply.costs.iter().map(|(node, cost)| self.potentials[*node] - cost);
        let start = gains.chain([self.potentials[out] - supply.shed_cost]).max().unwrap_or_default();
        for (node, cost) in &supply.costs {
            self.reach(*node, cost + start - self.potentials[*node], None);
        }
        self.reach(out, supply.shed_cost + start - self.potentials[out], None);
    }

    fn reach(&mut self, vertex: usize, distance: i64, before: Option<(usize, Step)>) {
        if self.distances[vertex] == NO_WAY {
            self.reached.push(vertex);
        }
        (self.distances[vertex], self.before[vertex]) = (distance, before);
    }

    fn path(&self, out: usize) -> Vec<(usize, Step)> {
        let (mut path, mut at) = (Vec::new(), self.before[out]);
        while let Some((node, step)) = at {
            path.push((node, step));
            at = self.before[node];
        }
        path.reverse();
        path
    }
}
