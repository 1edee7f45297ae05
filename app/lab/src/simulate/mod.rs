//! Steering in virtual time: the same planner, solver and quotas as in controls and edges, in scenarios, beside other
//! ways of steering. Pure: a seed determines everything.

mod dns;
mod draw;
mod instance;
mod measure;
mod ours;
mod policy;
mod scenario;
mod world;

use std::time::Duration;

use serde::Serialize;

pub use self::{
    dns::{DnsMove, DnsOptions, DnsRegionReport, DnsReport, DnsSimulationError, MAX_DNS_CLIENTS, simulate_dns},
    draw::draw,
    instance::{InstanceOptions, InstanceReport, MAX_INSTANCE_EDGES, MAX_INSTANCE_ORIGINS, instance, solve},
    measure::PolicyReport,
    scenario::{Scenario, ScenarioError},
};
use self::{
    measure::{Measure, START},
    ours::Ours,
    policy::{ByParts, Policy, Rule},
    scenario::{Change, Setting},
    world::World,
};
use crate::chance::Chance;

/// The longest delay of reports.
pub const MAX_REPORT_DELAY: Duration = Duration::from_secs(10);
/// The most messages that may be lost, in percent.
pub const MAX_LOSS_PERCENT: u8 = 50;
/// The name of our policy.
pub const OURS: &str = "sallyport";
/// The most that a plan of ours may cost above the optimum, in percent.
const MAX_GAP_PERCENT: f64 = 1.0;
/// Within how many seconds after a change a report on a whole second has come.
const REPORTED: usize = 2;
/// Within how many intervals after that ours settles.
const MAX_INTERVALS: usize = 3;
/// How long quotas of edges that fell silent stay reserved, in seconds.
const RESERVED: usize = 24;
/// How long demand itself may move on where it follows latency, in seconds.
const FEEDBACK: usize = 15;
/// How long after a change nothing grows when the leader falls silent, in seconds; and how much longer when edges fall
/// silent too, so that the next leader does not hear from them.
const AWAY: usize = 12;
const UNHEARD: usize = 10;
/// How long a learned capacity takes to follow.
const LEARNING: usize = 20;

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// At random.
    #[default]
    Random,
    /// Evenly.
    Even,
}

/// What goes wrong with messages, clocks and leaders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Impairments {
    /// How late reports are.
    pub delay: Duration,
    /// How many messages of a hundred are lost, up to [`MAX_LOSS_PERCENT`].
    pub loss_percent: u8,
    /// Messages overtake each other.
    pub has_reorder: bool,
    /// The clocks of edges are off, and some run 1 percent fast.
    pub has_skew: bool,
    /// The leader falls silent at the worst moment, another one takes over, and for a while both believe that they lead.
    pub has_failover: bool,
}

impl Impairments {
    /// What goes wrong with this seed where each seed has impairments of its own: with a quarter of all seeds nothing,
    /// with the others each of them in a third of the cases, so that many go wrong together.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut chance = Chance::of_purpose(seed, 4);
        let is_clean = chance.below(4) == 0;
        let mut draw = |most: u64| {
            let (is_drawn, amount) = (chance.below(3) == 0, chance.within((1, most)));
            if is_drawn && !is_clean { amount } else { 0 }
        };
        Self {
            delay: Duration::from_millis(draw(u64::try_from(MAX_REPORT_DELAY.as_millis()).unwrap_or(0))),
            loss_percent: u8::try_from(draw(u64::from(MAX_LOSS_PERCENT))).unwrap_or(MAX_LOSS_PERCENT),
            has_reorder: draw(1) > 0,
            has_skew: draw(1) > 0,
            has_failover: draw(1) > 0,
        }
    }
}

impl Scenario {
    /// The scenario of a seed where all of them take turns.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let count = Self::ALL.len() as u64;
        Self::ALL[usize::try_from(seed % count).unwrap_or(0)]
    }
}

impl Arrivals {
    /// How requests come with this seed where that differs from seed to seed: with every fourth evenly.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        if Chance::of_purpose(seed, 5).below(4) == 0 { Self::Even } else { Self::Random }
    }
}

/// Options of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SteeringOptions {
    /// What happens.
    pub scenario: Scenario,
    /// The seed of everything.
    pub seed: u64,
    /// How requests come.
    pub arrivals: Arrivals,
    /// What goes wrong.
    pub impairments: Impairments,
    /// Whether other ways of steering run too.
    pub has_baselines: bool,
}

/// The result of a simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SteeringReport {
    /// The scenario.
    pub scenario: Scenario,
    /// The seed.
    pub seed: u64,
    /// How requests came.
    pub arrivals: Arrivals,
    /// What went wrong.
    pub impairments: Impairments,
    /// The numbers of edges and origins.
    pub edges: usize,
    /// The number of origins.
    pub origins: usize,
    /// The figures, ours first.
    pub policies: Vec<PolicyReport>,
    /// What ours missed; empty: it is as it has to be.
    pub misses: Vec<String>,
    /// What was seen in each second, for the drawing.
    #[serde(skip)]
    pub series: Vec<Series>,
}

/// What a policy did over time: a value for each second.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The policy.
    pub policy: &'static str,
    /// The load of each origin, in percent of what it can carry.
    pub loads: Vec<Vec<f64>>,
    /// The share of each origin in all requests, in percent.
    pub shares: Vec<Vec<f64>>,
    /// The mean time to an answer, in milliseconds.
    pub latency_ms: Vec<f64>,
}

/// Runs a scenario with all policies.
#[must_use]
pub fn simulate(options: &SteeringOptions) -> SteeringReport {
    let mut setting = Setting::new(options.scenario, options.seed, options.arrivals);
    if let Some(settled) = Limits::new(&setting, options).settled {
        setting.stretch(2 * settled as u64);
    }
    let (edges, origins) = (setting.edges.len(), setting.origins.len());
    let mut ours = Ours::new(&setting, options.seed, options.impairments);
    let mut runs = vec![run(OURS, &mut ours, &setting, options)];
    let rules = [
        ("nearest", Rule::Nearest),
        ("weights", Rule::WEIGHTS),
        ("damped", Rule::DAMPED),
        ("gradient", Rule::Gradient),
        ("optimum", Rule::Optimum),
    ];
    for (name, rule) in rules.into_iter().filter(|_| options.has_baselines) {
        runs.push(run(name, &mut ByParts::new(rule, edges, origins), &setting, options));
    }
    let (policies, series): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
    let misses = policies.first().map(|report| misses(report, &setting, options)).unwrap_or_default();
    let SteeringOptions { scenario, seed, arrivals, impairments, .. } = *options;
    SteeringReport { scenario, seed, arrivals, impairments, edges, origins, policies, misses, series }
}

fn run(
    name: &'static str,
    policy: &mut dyn Policy,
    setting: &Setting,
    options: &SteeringOptions,
) -> (PolicyReport, Series) {
    let limits = Limits::new(setting, options);
    let mut measure = Measure::new(setting, limits.grace);
    World::new(setting, options.seed, policy, &mut measure).run();
    (measure.report(name, setting, limits.learning), measure.series(name))
}

/// What is asked of ours under these options.
struct Limits {
    /// For how long after a smaller capacity the former one may still be used, in seconds.
    grace: usize,
    /// How long a plan is unsettled after a change, beyond what always is.
    learning: usize,
    /// Within how many seconds after a change loads are settled; `None`: not asked.
    settled: Option<usize>,
    /// Whether loads are bounded and steady: what is learned from late and incomplete reports is not.
    is_steady: bool,
}

impl Limits {
    fn new(setting: &Setting, options: &SteeringOptions) -> Self {
        let Impairments { delay, loss_percent, has_reorder, has_failover, .. } = options.impairments;
        let delay = usize::try_from(delay.as_secs_f64().ceil() as u64).unwrap_or(0);
        let late = delay + if has_reorder { 3 } else { 0 };
        let has_loss = loss_percent > 0;
        let has_region_loss = setting.changes.iter().any(|(_, change)| matches!(change, Change::Region(..)));
        let away = match (has_failover, has_region_loss) {
            (false, _) => 0,
            (true, false) => AWAY,
            (true, true) => AWAY + UNHEARD,
        };
        // The report of the change and the acknowledgement may each be late, and so may the assignments.
        let turned = if has_reorder { 6 } else { 0 };
        let mut settled = REPORTED + MAX_INTERVALS + 2 * late + turned + away;
        if has_region_loss {
            settled += RESERVED;
        }
        if setting.elasticity > 0.0 {
            settled += FEEDBACK + late;
        }
        let is_asked = !has_loss
            && setting.hold.is_none()
            && !setting.has_waves
            && !setting.is_learned
            && setting.max_retries == 0;
        let learning = if setting.is_learned { LEARNING + 2 * late } else { 0 };
        let unsettled = if has_loss { settled + 20 } else { settled };
        Self {
            grace: if has_loss || has_failover { 14 + 2 * late + away } else { 3 + 2 * late },
            learning: learning.max(unsettled),
            settled: is_asked.then_some(settled),
            is_steady: !setting.is_learned || (late == 0 && !has_loss && !has_failover),
        }
    }
}

/// What ours missed.
fn misses(report: &PolicyReport, setting: &Setting, options: &SteeringOptions) -> Vec<String> {
    let limits = Limits::new(setting, options);
    let mut misses = Vec::new();
    if let Some(gap) = report.gap_percent.filter(|gap| *gap > MAX_GAP_PERCENT) {
        misses.push(format!("a plan cost {gap:.2} percent more than the optimum"));
    }
    if report.has_unfit_plan {
        misses.push("a plan did not fit".to_owned());
    }
    if let Some(most) = limits.settled {
        match report.settled_s {
            Some(settled) if settled <= most => {}
            Some(settled) => misses.push(format!("settled after {settled} s instead of {most}")),
            None => misses.push("never settled".to_owned()),
        }
    }
    if report.overload_seconds > 0 && limits.is_steady {
        let peak = report.peak_percent;
        misses
            .push(format!("an origin got too much in {} seconds, {peak:.0} percent at most", report.overload_seconds));
    }
    if report.reversals > 0 && limits.is_steady {
        misses.push(format!("{} reversals above 2 percent", report.reversals));
    }
    if let Some(leases) = report.leases_percent.filter(|leases| *leases > 100.0 + 1e-6) {
        misses.push(format!("leases were {leases:.2} percent of a capacity"));
    }
    if report.answered == 0 {
        misses.push("nothing was answered".to_owned());
    }
    misses
}

impl Measure {
    fn series(&self, policy: &'static str) -> Series {
        let seconds = &self.seconds[START.min(self.seconds.len())..];
        let origins = seconds.first().map_or(0, |second| second.got.len());
        let of = |value: &dyn Fn(&measure::Second, usize) -> f64| {
            (0..origins).map(|origin| seconds.iter().map(|second| value(second, origin)).collect()).collect()
        };
        Series {
            policy,
            loads: of(&|second, origin| second.got[origin] * 100.0 / second.capacity[origin].max(1.0)),
            shares: of(&|second, origin| second.got[origin] * 100.0 / second.got.iter().sum::<f64>().max(1.0)),
            latency_ms: seconds.iter().map(|second| second.latency_ms / second.answered.max(1) as f64).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
