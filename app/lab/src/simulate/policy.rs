//! What a way of steering has to do in a world, and the baselines.

use std::time::Duration;

use sallyport_steer::solver::{Node, Problem, Supply};

use super::world::State;

/// The cost of a request that is refused, in microseconds.
const SHED_COST: i64 = 600_000_000;
/// What another region costs beside the round trip, in microseconds.
const OTHER_REGION_US: f64 = 5_000.0;
/// Thousandths of a request.
const PER_UNIT: f64 = sallyport_steer::PER_UNIT as f64;
/// How often weights are set.
const WEIGHTS_PERIOD: Duration = Duration::from_secs(15);
/// The most that a damped weight changes at a time, as a part of all.
const MAX_CHANGE: f64 = 0.02;
/// The step of the gradient, for each millisecond.
const GRADIENT_STEP: f64 = 0.003;
/// The least weight that a gradient leaves, so that latency is still measured.
const LEAST_WEIGHT: f64 = 0.001;
const SECOND: Duration = Duration::from_secs(1);

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// To this origin.
    Now(usize),
    /// Into the queue for this origin, to ask again at this time.
    Wait(usize, Duration),
    /// All connections are taken.
    Busy,
    /// Nowhere.
    Refuse,
}

/// A plan, in thousandths of a request per second.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    /// For each edge, the rate to each origin.
    pub(super) flows: Vec<Vec<u64>>,
    /// What each origin can carry, as far as the plan knows.
    pub(super) capacities: Vec<Option<u64>>,
}

/// A request that asks where to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asking {
    pub(super) edge: usize,
    /// Its own random number.
    pub(super) mark: u32,
    /// When it asked first.
    pub(super) since: Duration,
    /// The origin in whose queue it has waited.
    pub(super) waited: Option<usize>,
}

/// A way of steering. Edges and origins are numbers of the setting.
pub(super) trait Policy {
    /// Where a request goes.
    fn choose(&mut self, state: &State<'_>, asking: Asking) -> Choice;
    /// Whatever is due at this time.
    fn step(&mut self, state: &State<'_>);
    /// The rate for each origin that is in force at the edges, in requests per second.
    fn in_force(&self, state: &State<'_>) -> Vec<f64>;
    /// The plan; `None`: there is none that can be compared.
    fn planned(&self, state: &State<'_>) -> Option<Planned>;
    /// For each origin, the sum of what edges may send in requests per second, or of connections.
    fn leases(&self, _state: &State<'_>) -> Option<Vec<f64>> {
        None
    }
    fn handle_arrival(&mut self, _edge: usize) {}
    fn handle_refused(&mut self, _edge: usize) {}
    fn handle_sent(&mut self, _edge: usize, _origin: usize) {}
    fn handle_answer(&mut self, _edge: usize, _origin: usize, _latency: Duration, _is_failed: bool) {}
    fn handle_end(&mut self, _edge: usize, _origin: usize) {}
}

/// The problem of the solver for these demands in thousandths, with the costs in microseconds of each pair.
pub(super) fn problem(state: &State<'_>, demands: &[u64], cost: impl Fn(usize, usize) -> f64) -> Problem {
    let there = |origin: &usize| state.origins[*origin].is_there;
    let supply = |(edge, amount): (usize, &u64)| {
        let costs = (0..state.origins.len()).filter(there);
        let costs = costs.map(|origin| (origin, (cost(edge, origin).max(0.0) as i64).min(SHED_COST / 2)));
        Supply { amount: *amount, costs: costs.collect(), shed_cost: SHED_COST }
    };
    let node = |origin| Node { capacity: Some((state.rate(origin) * PER_UNIT) as u64), parent: None };
    Problem {
        nodes: (0..state.origins.len()).map(node).collect(),
        supplies: demands.iter().enumerate().map(supply).collect(),
    }
}

/// The round trip as a cost.
pub(super) fn rtt_us(state: &State<'_>, edge: usize, origin: usize) -> f64 {
    state.setting.edges[edge].rtts[origin] * 1_000.0
}

/// The round trip as the planner counts it: another region than the edge's own is a little farther.
pub(super) fn way_us(state: &State<'_>, edge: usize, origin: usize) -> f64 {
    let is_own = state.setting.edges[edge].region == state.setting.origins[origin].region;
    rtt_us(state, edge, origin) + if is_own { 0.0 } else { OTHER_REGION_US }
}

/// The parts of each edge's demand that go to each origin, by the solver. What it refuses goes nowhere.
fn solved(state: &State<'_>, demands: &[u64], cost: impl Fn(usize, usize) -> f64) -> Option<Vec<Vec<f64>>> {
    let problem = problem(state, demands, cost);
    let solution = problem.solve().ok()?;
    let parts = problem.supplies.iter().zip(&solution.flows).map(|(supply, flows)| {
        let mut parts = vec![0.0; state.origins.len()];
        for ((origin, _), flow) in supply.costs.iter().zip(flows) {
            parts[*origin] = *flow as f64 / supply.amount.max(1) as f64;
        }
        parts
    });
    Some(parts.collect())
}

/// A way of steering by the parts of each edge's requests that go to each origin.
pub(super) struct ByParts {
    rule: Rule,
    parts: Vec<Vec<f64>>,
    next: Duration,
    changes: usize,
    /// What came in since the last update.
    arrived: Vec<u64>,
    /// The number and the sum of latencies in microseconds since then, for each edge and origin.
    latencies: Vec<Vec<(u64, f64)>>,
}

/// How parts are set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rule {
    /// Everything goes to the nearest.
    Nearest,
    /// Every 15 s from measured latencies; the most that a part changes.
    Weights(f64),
    /// Every second a step along the gradient, at each edge.
    Gradient,
    /// By the solver, with perfect knowledge.
    Optimum,
}

impl Rule {
    /// Weights without and with damping.
    pub(super) const WEIGHTS: Self = Self::Weights(1.0);
    pub(super) const DAMPED: Self = Self::Weights(MAX_CHANGE);
}

impl ByParts {
    pub(super) fn new(rule: Rule, edges: usize, origins: usize) -> Self {
        Self {
            rule,
            parts: Vec::new(),
            next: Duration::ZERO,
            changes: 0,
            arrived: vec![0; edges],
            latencies: vec![vec![(0, 0.0); origins]; edges],
        }
    }

    fn nearest(state: &State<'_>) -> Vec<Vec<f64>> {
        let of_edge = |edge| {
            let mut parts = vec![0.0; state.origins.len()];
            if let Some(origin) = state.near(edge).first() {
                parts[*origin] = 1.0;
            }
            parts
        };
        (0..state.edges.len()).map(of_edge).collect()
    }

    /// The mean latency that was measured. What was not measured has its round trip, and the queue that others saw.
    fn latency_us(&self, state: &State<'_>, edge: usize, origin: usize) -> f64 {
        let (count, sum) = self.latencies[edge][origin];
        if count > 0 {
            return sum / count as f64;
        }
        let others = (0..state.edges.len()).map(|other| (self.latencies[other][origin], rtt_us(state, other, origin)));
        let queue = |((count, sum), rtt): ((u64, f64), f64)| (count, sum - rtt * count as f64);
        let (count, sum) = others.map(queue).fold((0, 0.0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        rtt_us(state, edge, origin) + if count > 0 { sum / count as f64 } else { 0.0 }
    }

    fn update_weights(&mut self, state: &State<'_>, most: f64) {
        let seconds = WEIGHTS_PERIOD.as_secs_f64();
        let demands: Vec<u64> =
            self.arrived.iter().map(|arrived| (*arrived as f64 / seconds * PER_UNIT) as u64).collect();
        let Some(wanted) = solved(state, &demands, |edge, origin| self.latency_us(state, edge, origin)) else { return };
        for (parts, wanted) in self.parts.iter_mut().zip(wanted) {
            let sum: f64 = wanted.iter().sum();
            if sum <= 0.0 {
                continue;
            }
            // Weights refuse nothing: what is too much goes where the rest goes.
            let steps: Vec<f64> = parts.iter().zip(&wanted).map(|(part, wanted)| wanted / sum - part).collect();
            let longest = steps.iter().fold(0.0, |longest: f64, step| longest.max(step.abs()));
            let scale = if longest > most { most / longest } else { 1.0 };
            let is_gone = |(origin, part): (usize, &f64)| *part > 0.0 && !state.origins[origin].is_there;
            let scale = if parts.iter().enumerate().any(is_gone) { 1.0 } else { scale };
            parts.iter_mut().zip(steps).for_each(|(part, step)| *part += scale * step);
        }
        self.forget();
    }

    fn update_gradient(&mut self, state: &State<'_>) {
        for edge in 0..state.edges.len() {
            let latencies: Vec<f64> =
                (0..state.origins.len()).map(|origin| self.latency_us(state, edge, origin) / 1_000.0).collect();
            let parts = &mut self.parts[edge];
            let mean: f64 = parts.iter().zip(&latencies).map(|(part, latency)| part * latency).sum();
            for (origin, part) in parts.iter_mut().enumerate() {
                let step = (-GRADIENT_STEP * (latencies[origin] - mean)).clamp(-1.0, 1.0).exp();
                *part = if state.origins[origin].is_there { (*part * step).max(LEAST_WEIGHT) } else { 0.0 };
            }
            let sum: f64 = parts.iter().sum();
            parts.iter_mut().for_each(|part| *part /= sum.max(f64::MIN_POSITIVE));
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.arrived.fill(0);
        self.latencies.iter_mut().for_each(|of_edge| of_edge.fill((0, 0.0)));
    }
}

impl Policy for ByParts {
    fn choose(&mut self, state: &State<'_>, Asking { edge, mark, .. }: Asking) -> Choice {
        let parts = &self.parts[edge];
        let there = |origin: &usize| state.origins[*origin].is_there;
        let sum: f64 = (0..parts.len()).filter(there).map(|origin| parts[origin]).sum();
        // Only the optimum may leave a part out, and refuses it.
        let whole = if self.rule == Rule::Optimum { sum.max(1.0) } else { sum };
        let mut left = f64::from(mark) / f64::from(u32::MAX) * whole;
        for origin in (0..parts.len()).filter(there) {
            left -= parts[origin];
            if left <= 0.0 && parts[origin] > 0.0 {
                return Choice::Now(origin);
            }
        }
        match self.rule {
            Rule::Optimum => Choice::Refuse,
            _ => state.near(edge).first().map_or(Choice::Refuse, |origin| Choice::Now(*origin)),
        }
    }

    fn step(&mut self, state: &State<'_>) {
        if self.parts.is_empty() {
            self.parts = Self::nearest(state);
        }
        let is_changed = std::mem::replace(&mut self.changes, state.changes) != state.changes;
        match self.rule {
            Rule::Nearest if is_changed => self.parts = Self::nearest(state),
            Rule::Optimum if is_changed || state.now >= self.next => {
                self.next = state.now + SECOND;
                let demands: Vec<u64> =
                    (0..state.edges.len()).map(|edge| (state.demand(edge) * PER_UNIT) as u64).collect();
                if let Some(parts) = solved(state, &demands, |edge, origin| way_us(state, edge, origin)) {
                    self.parts = parts;
                }
            }
            Rule::Weights(most) if state.now >= self.next + WEIGHTS_PERIOD => {
                self.next += WEIGHTS_PERIOD;
                self.update_weights(state, most);
            }
            Rule::Gradient if state.now >= self.next + SECOND => {
                self.next += SECOND;
                self.update_gradient(state);
            }
            _ => {}
        }
    }

    fn in_force(&self, state: &State<'_>) -> Vec<f64> {
        let of_origin = |origin: usize| {
            let parts = self.parts.iter().enumerate();
            parts.map(|(edge, parts)| parts[origin] * state.demand(edge)).sum()
        };
        (0..state.origins.len()).map(of_origin).collect()
    }

    fn planned(&self, state: &State<'_>) -> Option<Planned> {
        let amounts = |(edge, parts): (usize, &Vec<f64>)| {
            let demand = state.demand(edge) * PER_UNIT;
            parts.iter().map(|part| (part * demand) as u64).collect()
        };
        let capacities = (0..state.origins.len()).map(|origin| Some((state.rate(origin) * PER_UNIT) as u64));
        Some(Planned { flows: self.parts.iter().enumerate().map(amounts).collect(), capacities: capacities.collect() })
    }

    fn handle_arrival(&mut self, edge: usize) {
        self.arrived[edge] += 1;
    }

    fn handle_answer(&mut self, edge: usize, origin: usize, latency: Duration, _is_failed: bool) {
        let known = &mut self.latencies[edge][origin];
        *known = (known.0 + 1, known.1 + latency.as_micros() as f64);
    }
}
