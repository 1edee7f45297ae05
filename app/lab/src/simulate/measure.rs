//! What is counted while a policy runs, second by second, and the figures that follow from it.

use std::{ops::Range, time::Duration};

use sallyport_steer::solver::{Node, Problem, Supply};
use serde::Serialize;

use super::{
    Arrivals,
    policy::{Policy, way_us},
    scenario::Setting,
    world::State,
};

/// How long a run goes on before anything counts, in seconds.
pub(super) const START: usize = 12;
/// Over how many seconds shares are averaged: the interval of published systems.
const WINDOW: usize = 15;
/// How long after a change a turn of a share is no reversal, in seconds.
const AFTER_CHANGE: usize = 8;
/// From which turn of a share on it is a reversal, as a part of all requests.
const REVERSAL: f64 = 0.02;
/// From which distance to its final level on a load is not settled, as a part of the capacity.
const SETTLED: f64 = 0.05;
/// How long after a capacity was learned the queue of the origin may still be long, in seconds.
const LEARNED: usize = 8;
/// How many standard deviations random arrivals may add to both.
const DEVIATIONS: f64 = 4.0;
/// The deviation of an average that takes half of each new value, to that of the values: the root of 1/3.
const SMOOTHED: f64 = 0.58;
/// How much of its capacity an origin may get in a second, in percent.
pub(super) const OVERLOAD_PERCENT: f64 = 105.0;
/// The same without the one request of each edge that may come early.
const EARLY_PERCENT: f64 = 102.5;

/// The figures of a policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyReport {
    /// Its name.
    pub policy: &'static str,
    /// How many times the share of an origin turned by more than 2 percent, though the demand was constant.
    pub reversals: u32,
    /// Seconds in which an origin got more than 105 percent of what it can carry.
    pub overload_seconds: u32,
    /// The longest time from a change until loads stay at their new level; `None`: they never did.
    pub settled_s: Option<usize>,
    /// The highest load of an origin in a second, in percent of what it can carry.
    pub peak_percent: f64,
    /// The mean time to an answer, in milliseconds.
    pub mean_ms: f64,
    /// Requests that were answered.
    pub answered: u64,
    /// Requests that were refused or failed.
    pub refused: u64,
    /// Those that all origins together could have served in the same second.
    pub avoidable: u64,
    /// How far the cost of the plan was above the dual bound at most, in percent; `None`: no plan that fits.
    pub gap_percent: Option<f64>,
    /// Whether a plan was for more than an origin can carry.
    #[serde(skip)]
    pub(super) has_unfit_plan: bool,
    /// The highest sum of leases for an origin, in percent of what it can carry; `None`: there are none.
    pub leases_percent: Option<f64>,
}

/// One second.
#[derive(Debug, Clone, Default)]
pub(super) struct Second {
    /// Requests that each origin got, or its open connections.
    pub(super) got: Vec<f64>,
    /// What each origin can carry: the most in this second.
    pub(super) capacity: Vec<f64>,
    /// What was in force at the edges for each origin.
    in_force: Vec<f64>,
    /// What all origins can carry together.
    all: f64,
    arrived: u64,
    refused: u64,
    pub(super) answered: u64,
    pub(super) latency_ms: f64,
    /// Whether the policy knows what each origin can carry; empty: it does not matter.
    is_known: Vec<bool>,
    /// The gap in percent. `None`: not known.
    gap: Option<Result<f64, Unfit>>,
}

/// A plan is for more than an origin can carry.
#[derive(Debug, Clone, Copy)]
struct Unfit;

/// What is counted.
#[derive(Debug)]
pub(super) struct Measure {
    pub(super) seconds: Vec<Second>,
    /// For how long after a smaller capacity leases may still be those of the former one, in seconds.
    grace: usize,
    leases: Option<f64>,
    has_hold: bool,
}

impl Measure {
    pub(super) fn new(setting: &Setting, grace: usize) -> Self {
        let n = setting.origins.len();
        let second = Second { got: vec![0.0; n], capacity: vec![0.0; n], ..Second::default() };
        let seconds = vec![second; usize::try_from(setting.seconds).unwrap_or(0)];
        Self { seconds, grace, leases: None, has_hold: setting.hold.is_some() }
    }

    fn at(&mut self, at: Duration) -> Option<&mut Second> {
        self.seconds.get_mut(usize::try_from(at.as_secs()).unwrap_or(usize::MAX))
    }

    pub(super) fn arrived(&mut self, at: Duration) {
        if let Some(second) = self.at(at) {
            second.arrived += 1;
        }
    }

    pub(super) fn refused(&mut self, at: Duration) {
        if let Some(second) = self.at(at) {
            second.refused += 1;
        }
    }

    pub(super) fn reached(&mut self, origin: usize, at: Duration) {
        let has_hold = self.has_hold;
        if let Some(second) = self.at(at).filter(|_| !has_hold) {
            second.got[origin] += 1.0;
        }
    }

    pub(super) fn answered(&mut self, latency: Duration, at: Duration) {
        if let Some(second) = self.at(at) {
            second.answered += 1;
            second.latency_ms += latency.as_secs_f64() * 1_000.0;
        }
    }

    /// Looks at what holds at this time.
    pub(super) fn step(&mut self, state: &State<'_>, policy: &dyn Policy) {
        let number = usize::try_from(state.now.as_secs()).unwrap_or(usize::MAX);
        let Some(second) = self.seconds.get_mut(number) else { return };
        let is_first = second.in_force.is_empty();
        for (at, origin) in state.origins.iter().enumerate() {
            second.capacity[at] = second.capacity[at].max(origin.capacity);
            if self.has_hold {
                second.got[at] = second.got[at].max(f64::from(origin.open));
            }
        }
        if is_first {
            second.all = state.capacity();
            second.gap = gap(state, policy);
            if state.setting.is_learned {
                let known = policy.planned(state).map(|planned| planned.capacities);
                second.is_known = known.unwrap_or_default().iter().map(Option::is_some).collect();
            }
            second.in_force = if self.has_hold {
                state.origins.iter().map(|origin| f64::from(origin.open)).collect()
            } else {
                policy.in_force(state)
            };
        }
        if number >= START
            && !state.setting.is_learned
            && let Some(leases) = policy.leases(state)
        {
            for (at, sum) in leases.iter().enumerate() {
                let part = sum / self.allowed(at, number).max(f64::MIN_POSITIVE);
                self.leases = Some(self.leases.unwrap_or(0.0).max(part));
            }
        }
    }

    /// The most that the origin could carry within the grace before this second.
    fn allowed(&self, origin: usize, second: usize) -> f64 {
        let recent = &self.seconds[second.saturating_sub(self.grace)..=second];
        recent.iter().map(|second| second.capacity[origin]).fold(0.0, f64::max)
    }

    /// The figures. `learning`: for how many seconds after a change the load of an origin is not yet known.
    pub(super) fn report(&self, policy: &'static str, setting: &Setting, learning: usize) -> PolicyReport {
        let counted = &self.seconds[START.min(self.seconds.len())..];
        let answered: u64 = counted.iter().map(|second| second.answered).sum();
        let latency: f64 = counted.iter().map(|second| second.latency_ms).sum();
        let avoidable = |second: &Second| {
            let least = (second.arrived as f64 - second.all).max(0.0) as u64;
            second.refused.saturating_sub(least)
        };
        let spans = spans(setting);
        let settled: Vec<_> =
            spans.iter().filter(|span| span.start > 0).map(|span| self.settled(setting, span)).collect();
        let settled = settled.into_iter().try_fold(0, |longest, one| Some(longest.max(one?)));
        let (overload_seconds, peak) = self.overload(setting, &spans, learning);
        let gap = self.worst_gap(&spans, learning);
        PolicyReport {
            policy,
            reversals: if setting.has_waves || self.has_hold { 0 } else { self.reversals(setting, &spans, learning) },
            overload_seconds,
            settled_s: settled,
            peak_percent: peak * 100.0,
            mean_ms: latency / answered.max(1) as f64,
            answered,
            refused: counted.iter().map(|second| second.refused).sum(),
            avoidable: counted.iter().map(avoidable).sum(),
            gap_percent: gap.ok().flatten(),
            has_unfit_plan: gap.is_err(),
            leases_percent: self.leases.map(|part| part * 100.0),
        }
    }

    /// The seconds in which an origin got too much, and the highest part of its capacity that one got.
    fn overload(&self, setting: &Setting, spans: &[Range<usize>], learning: usize) -> (u32, f64) {
        let (mut overloaded, mut peak) = (0, 0.0_f64);
        for number in START..self.seconds.len() {
            let is_learning = spans.iter().any(|span| (span.start..span.start + learning).contains(&number));
            let mut is_over = false;
            for (origin, got) in self.seconds[number].got.iter().enumerate() {
                let capacity = self.allowed(origin, number);
                let early = capacity * EARLY_PERCENT / 100.0 + setting.edges.len() as f64;
                let most = (capacity * OVERLOAD_PERCENT / 100.0).max(if self.has_hold { 0.0 } else { early });
                is_over |= *got > most && !is_learning && self.is_known(origin, number);
                peak = peak.max(got / capacity.max(f64::MIN_POSITIVE));
            }
            overloaded += u32::from(is_over);
        }
        (overloaded, peak)
    }

    /// Whether the policy has known for a while what the origin can carry.
    fn is_known(&self, origin: usize, second: usize) -> bool {
        let recent = &self.seconds[second.saturating_sub(LEARNED)..=second];
        recent.iter().all(|second| second.is_known.get(origin).is_none_or(|is_known| *is_known))
    }

    /// The greatest gap in seconds that are settled; an error if a plan did not fit.
    fn worst_gap(&self, spans: &[Range<usize>], learning: usize) -> Result<Option<f64>, Unfit> {
        let settled = spans.iter().flat_map(|span| span.start + AFTER_CHANGE.max(learning)..span.end);
        let mut gaps = settled.filter(|second| *second >= START).filter_map(|second| self.seconds.get(second)?.gap);
        gaps.try_fold(None, |worst: Option<f64>, gap| Ok(Some(worst.unwrap_or(0.0).max(gap?))))
    }

    /// How long after the start of a span the loads stay at its final level.
    fn settled(&self, setting: &Setting, span: &Range<usize>) -> Option<usize> {
        let seconds = self.seconds.get(span.clone())?;
        let late = &seconds[seconds.len() / 2..];
        let count = late.len().max(1) as f64;
        let arrived = late.iter().map(|second| second.arrived).sum::<u64>() as f64 / count;
        let noise = match setting.arrivals {
            Arrivals::Random => DEVIATIONS * SMOOTHED * arrived.sqrt(),
            Arrivals::Even => 0.0,
        };
        let mut settled = 0;
        for origin in 0..setting.origins.len() {
            let level =
                late.iter().map(|second| second.in_force.get(origin).copied().unwrap_or(0.0)).sum::<f64>() / count;
            let most = SETTLED * setting.origins[origin].capacity + noise;
            let is_off = |second: &Second| second.in_force.get(origin).is_none_or(|load| (load - level).abs() > most);
            // A burst of random arrivals may put a load off for a second.
            let alone = match setting.arrivals {
                Arrivals::Random => 1,
                Arrivals::Even => 0,
            };
            let last = seconds.windows(alone + 1).rposition(|seconds| seconds.iter().all(is_off));
            settled = settled.max(last.map_or(0, |last| last + alone + 1));
        }
        (settled <= seconds.len() * 3 / 4).then_some(settled)
    }

    /// How many times shares turned while the demand was constant.
    fn reversals(&self, setting: &Setting, spans: &[Range<usize>], learning: usize) -> u32 {
        let mut count = 0;
        for span in spans {
            for origin in 0..setting.origins.len() {
                let first = span.start + AFTER_CHANGE.max(learning) + WINDOW;
                let shares = (first.max(START + WINDOW)..span.end).filter_map(|end| self.share(setting, origin, end));
                count += turns(shares);
            }
        }
        count
    }

    /// The share of an origin over the window that ends here, and from which difference on a turn counts.
    fn share(&self, setting: &Setting, origin: usize, end: usize) -> Option<(f64, f64)> {
        let window = self.seconds.get(end.checked_sub(WINDOW)?..end)?;
        let all: f64 = window.iter().flat_map(|second| &second.got).sum();
        let own: f64 = window.iter().map(|second| second.got[origin]).sum();
        let noise = match setting.arrivals {
            Arrivals::Random => DEVIATIONS / all.max(1.0).sqrt(),
            Arrivals::Even => 0.0,
        };
        Some((own / all.max(1.0), REVERSAL + noise))
    }
}

/// The spans between changes, in seconds.
fn spans(setting: &Setting) -> Vec<Range<usize>> {
    let mut starts = vec![0];
    starts.extend(setting.changes.iter().map(|(at, _)| usize::try_from(at.as_secs()).unwrap_or(0)));
    let ends = starts.iter().copied().skip(1).chain([usize::try_from(setting.seconds).unwrap_or(0)]);
    starts.iter().zip(ends).map(|(start, end)| *start..end).collect()
}

/// How many times the values turn by more than the difference that comes with each.
fn turns(values: impl Iterator<Item = (f64, f64)>) -> u32 {
    let (mut count, mut direction, mut extreme) = (0, 0_i8, None::<f64>);
    for (value, least) in values {
        let last = *extreme.get_or_insert(value);
        let step = value - last;
        let way = if step > 0.0 { 1 } else { -1 };
        if way == direction {
            extreme = Some(value);
        } else if step.abs() > least {
            count += u32::from(direction != 0);
            (direction, extreme) = (way, Some(value));
        }
    }
    count
}

/// How far the cost of the present plan is above the bound of the dual for the same demand, in percent.
fn gap(state: &State<'_>, policy: &dyn Policy) -> Option<Result<f64, Unfit>> {
    let planned = policy.planned(state)?;
    let supply = |(edge, flows): (usize, &Vec<u64>)| Supply {
        amount: flows.iter().sum(),
        costs: (0..flows.len()).map(|origin| (origin, way_us(state, edge, origin) as i64)).collect(),
        shed_cost: 3_600_000_000,
    };
    let capacity = |(at, known): (usize, &Option<u64>)| if state.origins[at].is_there { *known } else { Some(0) };
    let nodes = planned.capacities.iter().enumerate().map(capacity).map(|capacity| Node { capacity, parent: None });
    let problem = Problem { nodes: nodes.collect(), supplies: planned.flows.iter().enumerate().map(supply).collect() };
    let bound = problem.solve().ok()?.bound;
    let Some(evaluated) = problem.evaluate(planned.flows) else { return Some(Err(Unfit)) };
    Some(Ok((evaluated.cost - bound) as f64 * 100.0 / bound.max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_counts_from_the_difference_on() {
        let of = |values: &[f64]| turns(values.iter().map(|value| (*value, 0.02)));
        assert_eq!(of(&[0.5, 0.6, 0.7, 0.7]), 0, "one way is no turn");
        assert_eq!(of(&[0.5, 0.6, 0.5, 0.6]), 2);
        assert_eq!(of(&[0.5, 0.51, 0.49, 0.51, 0.5]), 0, "too small");
        assert_eq!(of(&[0.5, 0.6, 0.59, 0.61, 0.5]), 1);
    }
}
