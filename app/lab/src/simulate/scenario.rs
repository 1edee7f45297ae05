//! The scenarios: who is where, what comes in, and what happens.

use std::{fmt, str::FromStr, time::Duration};

use serde::Serialize;

use super::Arrivals;
use crate::chance::Chance;

/// The round trip across the plane on which edges and origins are, in milliseconds.
const PLANE_MS: f64 = 150.0;
/// The round trip within a place, in milliseconds.
const NEAR_MS: f64 = 4.0;
/// What an origin really serves, in percent of what its owner says that it can.
const REAL_PERCENT: f64 = 115.0;
/// When the change of most scenarios comes, in seconds.
const CHANGE_AT: u64 = 40;

/// A scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// Two origins, and demand that falls as latency grows.
    Article,
    /// A third of the edges gets 1.9 times as much.
    Flash,
    /// Demand goes up and down, region by region.
    Diurnal,
    /// An origin goes away and comes back.
    OriginLoss,
    /// A region goes away with its edges and origins, and comes back.
    RegionLoss,
    /// An origin of learned capacity serves half of what it did.
    SlowOrigin,
    /// All declared capacities fall below the demand for a while.
    BrownOut,
    /// Refused requests come back.
    Retries,
    /// Long connections, and origins with a bounded number of them.
    Connections,
}

/// No scenario has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no scenario is called {0:?}; there are {1}, and all")]
pub struct ScenarioError(String, String);

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Article,
        Self::Flash,
        Self::Diurnal,
        Self::OriginLoss,
        Self::RegionLoss,
        Self::SlowOrigin,
        Self::BrownOut,
        Self::Retries,
        Self::Connections,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Article => "article",
            Self::Flash => "flash",
            Self::Diurnal => "diurnal",
            Self::OriginLoss => "origin-loss",
            Self::RegionLoss => "region-loss",
            Self::SlowOrigin => "slow-origin",
            Self::BrownOut => "brown-out",
            Self::Retries => "retries",
            Self::Connections => "connections",
        }
    }

    /// What happens in it.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Article => "two origins of 200 requests per second, and demand that falls as latency grows",
            Self::Flash => "a third of the edges gets 1.9 times as many requests",
            Self::Diurnal => "demand goes up and down, region by region",
            Self::OriginLoss => "an origin goes away for 40 s",
            Self::RegionLoss => "a region goes away for 90 s, with its edges and origins",
            Self::SlowOrigin => "an origin whose capacity is learned serves half of what it did",
            Self::BrownOut => "all origins get a limit of 60 percent for 40 s, which is less than the demand",
            Self::Retries => "more comes in than all origins can serve, and refused requests come back up to 3 times",
            Self::Connections => "connections of 5 to 30 s to origins with a bounded number of them",
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Scenario {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let known = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|scenario| scenario.name() == text);
        found.ok_or_else(|| ScenarioError(text.chars().take(64).collect(), known()))
    }
}

/// What changes at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Change {
    /// The demand of the edges whose number modulo 3 is 0, as a factor.
    Demand(f64),
    /// An origin goes away, or comes back.
    Origin(usize, bool),
    /// The edges and origins of a region go away, or come back.
    Region(usize, bool),
    /// What an origin really serves, as a factor.
    Speed(usize, f64),
    /// The declared capacities of all origins, as a factor.
    Limits(f64),
}

/// An edge.
#[derive(Debug, Clone)]
pub(super) struct EdgeSetting {
    pub(super) region: usize,
    /// Requests per second.
    pub(super) demand: f64,
    /// The round trip to each origin, in milliseconds.
    pub(super) rtts: Vec<f64>,
    /// The edges that get its clients when it is away, nearest first.
    pub(super) neighbours: Vec<usize>,
}

/// An origin.
#[derive(Debug, Clone)]
pub(super) struct OriginSetting {
    pub(super) region: usize,
    /// What it can carry: requests per second, or connections.
    pub(super) capacity: f64,
    /// What it really serves, in requests per second.
    pub(super) speed: f64,
}

/// Everything about a scenario that its seed determines.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) edges: Vec<EdgeSetting>,
    pub(super) origins: Vec<OriginSetting>,
    /// The time without the start, in seconds.
    pub(super) seconds: u64,
    /// By which power of latency demand falls.
    pub(super) elasticity: f64,
    pub(super) max_retries: u32,
    /// How long a connection is open, in seconds; `None`: requests, which end with their answer.
    pub(super) hold: Option<(f64, f64)>,
    /// Whether demand goes up and down.
    pub(super) has_waves: bool,
    /// Whether capacities are learned.
    pub(super) is_learned: bool,
    /// Whether arrivals are random.
    pub(super) arrivals: Arrivals,
    pub(super) changes: Vec<(Duration, Change)>,
}

impl Setting {
    /// The setting of a scenario and a seed.
    pub(super) fn new(scenario: Scenario, seed: u64, arrivals: Arrivals) -> Self {
        let mut chance = Chance::of_purpose(seed, 1);
        let at = Duration::from_secs;
        let mut setting = match scenario {
            Scenario::Article => article(&mut chance),
            _ => plane(scenario, &mut chance),
        };
        setting.arrivals = arrivals;
        let origins = setting.origins.len();
        let victim = chance.below(origins);
        setting.changes = match scenario {
            Scenario::Article | Scenario::Flash | Scenario::Retries => vec![(at(CHANGE_AT), Change::Demand(1.9))],
            Scenario::Diurnal => Vec::new(),
            Scenario::OriginLoss => {
                vec![(at(CHANGE_AT), Change::Origin(victim, false)), (at(2 * CHANGE_AT), Change::Origin(victim, true))]
            }
            Scenario::RegionLoss => {
                let region = setting.smallest_region();
                vec![(at(CHANGE_AT), Change::Region(region, false)), (at(130), Change::Region(region, true))]
            }
            Scenario::SlowOrigin => vec![(at(CHANGE_AT), Change::Speed(victim, 0.5))],
            Scenario::BrownOut => {
                vec![(at(CHANGE_AT), Change::Limits(0.6)), (at(2 * CHANGE_AT), Change::Limits(1.0))]
            }
            Scenario::Connections => vec![(at(CHANGE_AT), Change::Demand(1.5))],
        };
        setting
    }

    /// Makes the time after each change at least this long, in seconds, so that loads can settle within the first half.
    pub(super) fn stretch(&mut self, least: u64) {
        let least = Duration::from_secs(least);
        for at in 0..self.changes.len() {
            let end = self.changes.get(at + 1).map_or(Duration::from_secs(self.seconds), |(next, _)| *next);
            let more = least.saturating_sub(end - self.changes[at].0);
            self.changes[at + 1..].iter_mut().for_each(|(next, _)| *next += more);
            self.seconds += more.as_secs();
        }
    }

    /// The region with the fewest edges, but at least one: most edges always remain.
    fn smallest_region(&self) -> usize {
        let count = |region: &usize| self.edges.iter().filter(|edge| edge.region == *region).count();
        (0..self.origins.len()).filter(|region| count(region) > 0).min_by_key(count).unwrap_or(0)
    }

    /// The largest demand that an edge can have by itself, in requests per second.
    pub(super) fn peak(&self, edge: usize) -> f64 {
        let factor = self.changes.iter().map(|(_, change)| if let Change::Demand(by) = change { *by } else { 1.0 });
        let factor = factor.fold(1.0, f64::max);
        self.edges[edge].demand * factor * if self.has_waves { 1.0 + WAVE } else { 1.0 }
    }
}

/// How much demand swings in [`Scenario::Diurnal`].
pub(super) const WAVE: f64 = 0.45;
/// How long a day lasts there, in seconds.
pub(super) const DAY: f64 = 120.0;

fn empty() -> Setting {
    Setting {
        edges: Vec::new(),
        origins: Vec::new(),
        seconds: 120,
        elasticity: 0.0,
        max_retries: 0,
        hold: None,
        has_waves: false,
        is_learned: false,
        arrivals: Arrivals::Random,
        changes: Vec::new(),
    }
}

/// Two regions, 84 ms apart, with an origin each. More comes to the first one.
fn article(chance: &mut Chance) -> Setting {
    let mut setting = empty();
    setting.elasticity = chance.between(0.3, 1.0);
    setting.seconds = 140;
    let edges = 2 + chance.below(3);
    for edge in 0..edges {
        let region = edge % 2;
        let near = chance.between(2.0, 12.0);
        let rtts = if region == 0 { vec![near, near + 84.0] } else { vec![near + 84.0, near] };
        let of_region = if region == 0 { edges.div_ceil(2) } else { edges / 2 };
        let demand = chance.between(0.95, 1.05) * if region == 0 { 185.0 } else { 60.0 } / of_region as f64;
        let neighbours = (0..edges).filter(|other| *other != edge).collect();
        setting.edges.push(EdgeSetting { region, demand, rtts, neighbours });
    }
    let speed = 200.0 * REAL_PERCENT / 100.0;
    setting.origins = (0..2).map(|region| OriginSetting { region, capacity: 200.0, speed }).collect();
    setting
}

/// Edges and origins on a plane, with a region around each origin. The load is a part of the capacity.
fn plane(scenario: Scenario, chance: &mut Chance) -> Setting {
    let mut setting = empty();
    let (edge_count, origin_count) = (9, 4);
    // After the change of the scenario this load is nearly 0.9 where all can be served.
    let load = match scenario {
        Scenario::Flash => 0.68,
        Scenario::Diurnal | Scenario::BrownOut => 0.75,
        Scenario::OriginLoss | Scenario::RegionLoss => 0.55,
        Scenario::SlowOrigin => 0.65,
        Scenario::Retries => 0.9,
        Scenario::Article | Scenario::Connections => 0.7,
    };
    let mut place = || (chance.fraction(), chance.fraction());
    let origins: Vec<_> = (0..origin_count).map(|_| place()).collect();
    let edges: Vec<_> = (0..edge_count).map(|_| place()).collect();
    let far = |one: &(f64, f64), other: &(f64, f64)| (one.0 - other.0).hypot(one.1 - other.1);
    let mut capacities: Vec<f64> = origins.iter().map(|_| chance.between(180.0, 320.0).round()).collect();
    let weights: Vec<f64> = edges.iter().map(|_| chance.between(0.5, 1.5)).collect();
    let total = capacities.iter().sum::<f64>() * load;
    let mut demands: Vec<f64> = weights.iter().map(|weight| total * weight / weights.iter().sum::<f64>()).collect();
    if scenario == Scenario::Connections {
        setting.hold = Some((5.0, 30.0));
        // As many connections as there were requests in a second.
        demands.iter_mut().for_each(|demand| *demand /= 17.5);
    }
    if scenario == Scenario::RegionLoss {
        // No region has more than a third of the capacity.
        let mean = capacities.iter().sum::<f64>() / origin_count as f64;
        capacities.iter_mut().for_each(|capacity| *capacity = mean.round());
    }
    for (at, edge) in edges.iter().enumerate() {
        let rtts: Vec<f64> = origins.iter().map(|origin| NEAR_MS + PLANE_MS * far(edge, origin)).collect();
        let region = (0..origin_count).min_by(|one, other| rtts[*one].total_cmp(&rtts[*other])).unwrap_or(0);
        let mut neighbours: Vec<usize> = (0..edge_count).filter(|other| *other != at).collect();
        neighbours.sort_by(|one, other| far(edge, &edges[*one]).total_cmp(&far(edge, &edges[*other])));
        setting.edges.push(EdgeSetting { region, demand: demands[at], rtts, neighbours });
    }
    setting.is_learned = scenario == Scenario::SlowOrigin;
    setting.has_waves = scenario == Scenario::Diurnal;
    setting.max_retries = if scenario == Scenario::Retries { 3 } else { 0 };
    setting.seconds = match scenario {
        Scenario::RegionLoss => 170,
        Scenario::Diurnal => 160,
        _ => 120,
    };
    let real = if setting.is_learned { 1.0 } else { REAL_PERCENT / 100.0 };
    let origin = |(region, capacity): (usize, f64)| OriginSetting { region, capacity, speed: capacity * real };
    setting.origins = capacities.into_iter().enumerate().map(origin).collect();
    setting
}
