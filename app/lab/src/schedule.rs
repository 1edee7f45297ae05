//! The schedule of faults, derived from a seed, so that a run can be repeated. Pure.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    chance::Chance,
    plan::{Kind, Plan, Role},
    topology::Link,
};

/// How long a fault lasts, in milliseconds: shorter than a lease, and longer.
const LASTS_MS: (u64, u64) = (2_000, 8_000);
/// How long a rest before a fault lasts, in milliseconds.
const REST_MS: (u64, u64) = (1_000, 2_500);
/// The last fault is not shorter than this.
const SHORTEST: Duration = Duration::from_secs(1);
/// The additional delay of a slowed part, one way, in milliseconds.
const DELAYS_MS: (u64, u64) = (20, 200);
/// The bandwidths of slowed parts, in bits a second.
const RATES_BITS: [Option<u64>; 3] = [None, Some(20_000_000), Some(50_000_000)];
/// The losses of slowed parts, in percent.
const LOSSES: [f64; 3] = [0.0, 0.5, 2.0];

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Pause,
    /// No packet passes.
    Partition,
    /// Delay, loss or low bandwidth.
    Slow,
}

/// The kind of target of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// An edge.
    Edge,
    /// A control.
    Control,
    /// A NATS server.
    Bus,
    /// The database.
    Database,
    /// A connector alone.
    Connector,
    /// A node with a service and its connector.
    Origin,
    /// A region: all its processes, or its border.
    Region,
    /// The link between two regions.
    Link,
}

impl Act {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Kill, Self::Pause, Self::Partition, Self::Slow];
}

impl Target {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Edge, Self::Control, Self::Bus, Self::Database, Self::Connector, Self::Origin, Self::Region, Self::Link];

    /// The possible faults: nodes and regions have wires, and a link has no process to kill.
    fn acts(self) -> &'static [Act] {
        match self {
            Self::Connector => &[Act::Kill, Act::Pause],
            Self::Link => &[Act::Partition],
            _ => &Act::ALL,
        }
    }

    /// Whether requests pass through it.
    fn is_on_the_way(self) -> bool {
        !matches!(self, Self::Control | Self::Bus | Self::Database)
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::Partition => "partition",
            Self::Slow => "slow",
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Edge => "edge",
            Self::Control => "control",
            Self::Bus => "bus",
            Self::Database => "database",
            Self::Connector => "connector",
            Self::Origin => "origin",
            Self::Region => "region",
            Self::Link => "link",
        })
    }
}

fn one_of<T: Copy + fmt::Display>(all: &[T], text: &str) -> Result<T, String> {
    let known = || all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    all.iter().copied().find(|one| one.to_string() == text).ok_or_else(|| format!("expected one of {}", known()))
}

impl FromStr for Act {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        one_of(&Self::ALL, text)
    }
}

impl FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        one_of(&Self::ALL, text)
    }
}

/// A scheduled fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// What is done.
    pub act: Act,
    /// To what kind of thing.
    pub target: Target,
    /// The name of the target.
    pub name: String,
    /// The other side of a partition; everything else if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The properties of a slowed part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// The rest before it, in milliseconds.
    pub rest_ms: u64,
    /// Its length, in milliseconds.
    pub lasts_ms: u64,
}

impl Fault {
    /// How many requests may fail by it; `None` if the target has no replacement.
    ///
    /// Each connection loses its running request when something on its path breaks. Later requests fail while the path
    /// is silent, one in each timeout. A target off the path costs no request.
    #[must_use]
    pub fn may_fail(&self, plan: &Plan, connections: u64, timeout: Duration) -> Option<u64> {
        if !self.target.is_on_the_way() {
            return Some(0);
        }
        let several = match self.target {
            Target::Edge => plan.nodes.iter().filter(|node| node.kind == Kind::Edge).count() > 1,
            // Without the link each region is complete.
            Target::Link => true,
            _ => plan.topology.regions.len() > 1,
        };
        let silent_ms = match self.act {
            Act::Kill => 0,
            Act::Pause | Act::Partition | Act::Slow => self.lasts_ms,
        };
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        several.then(|| connections * (1 + silent_ms.div_ceil(timeout_ms)))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.act, self.name)?;
        if let Some(from) = &self.from {
            write!(f, " from {from}")?;
        }
        if let Some(link) = &self.link {
            write!(f, " by {:?}, {} % lost", link.delay, link.loss_percent)?;
            if let Some(rate) = link.rate_bits {
                write!(f, ", {} Mbit/s", rate / 1_000_000)?;
            }
        }
        Ok(())
    }
}

/// The names of all targets of a kind; for links the first region.
fn names(plan: &Plan, target: Target) -> Vec<String> {
    let nodes = |kind: Kind| plan.nodes.iter().filter(move |node| node.kind == kind).map(|node| node.name.clone());
    let regions = || plan.topology.regions.iter().map(ToString::to_string);
    match target {
        Target::Edge => nodes(Kind::Edge).collect(),
        Target::Control => nodes(Kind::Control).collect(),
        Target::Bus => nodes(Kind::Bus).collect(),
        Target::Database => nodes(Kind::Database).collect(),
        Target::Origin => nodes(Kind::Origin).collect(),
        Target::Connector => {
            let connectors = plan.processes.iter().filter(|process| process.role == Role::Connector);
            connectors.map(|process| process.name.clone()).collect()
        }
        Target::Region => regions().collect(),
        // A link needs two regions.
        Target::Link => regions().collect::<Vec<_>>().split_last().map_or_else(Vec::new, |(_, rest)| rest.to_vec()),
    }
}

/// The faults of a seed, which take no longer than `time` with their rests. Only these kinds and targets occur, and
/// only existing targets.
#[must_use]
pub fn schedule(plan: &Plan, seed: u64, time: Duration, acts: &[Act], targets: &[Target]) -> Vec<Fault> {
    let mut chance = Chance::new(seed);
    let fits = |target: &Target| {
        target.acts().iter().any(|act| acts.contains(act))
            && !names(plan, *target).is_empty()
            && targets.contains(target)
    };
    // Edges break more often than each other target.
    let targets: Vec<Target> = std::iter::once(Target::Edge).chain(Target::ALL).filter(fits).collect();
    let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let shortest_ms = u64::try_from(SHORTEST.as_millis()).unwrap_or(u64::MAX);
    let (mut faults, mut at_ms) = (Vec::new(), 0_u64);
    while let Some(mut fault) = next(plan, &mut chance, acts, &targets) {
        let left_ms = time_ms.saturating_sub(at_ms + fault.rest_ms);
        if left_ms < shortest_ms {
            break;
        }
        fault.lasts_ms = fault.lasts_ms.min(left_ms);
        at_ms += fault.rest_ms + fault.lasts_ms;
        faults.push(fault);
    }
    faults
}

fn next(plan: &Plan, chance: &mut Chance, acts: &[Act], targets: &[Target]) -> Option<Fault> {
    let target = chance.of(targets)?;
    let name = chance.of(&names(plan, target))?;
    let fitting: Vec<Act> = target.acts().iter().copied().filter(|act| acts.contains(act)).collect();
    let act = chance.of(&fitting)?;
    let from = if target == Target::Link {
        let regions: Vec<String> = plan.topology.regions.iter().map(ToString::to_string).collect();
        let first = regions.iter().position(|region| *region == name)?;
        Some(chance.of(&regions[first + 1..])?)
    } else {
        None
    };
    let link = if act == Act::Slow {
        Some(Link {
            delay: Duration::from_millis(chance.within(DELAYS_MS)),
            loss_percent: chance.of(&LOSSES)?,
            rate_bits: chance.of(&RATES_BITS)?,
        })
    } else {
        None
    };
    let (rest_ms, lasts_ms) = (chance.within(REST_MS), chance.within(LASTS_MS));
    Some(Fault { act, target, name, from, link, rest_ms, lasts_ms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Database, Topology, TopologyOptions};

    fn plan(options: &TopologyOptions) -> Plan {
        Plan::new(Topology::new(options).unwrap())
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_seed_is_a_schedule_and_another_one_is_another() {
        let plan = plan(&TopologyOptions::default());
        let of = |seed: u64| schedule(&plan, seed, HOUR, &Act::ALL, &Target::ALL);
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        assert!(of(7).len() > 100, "one thing after the other: {}", of(7).len());
    }

    #[test]
    fn every_fault_and_target_is_scheduled_and_possible() {
        let plan = plan(&TopologyOptions { edges: 2, ..TopologyOptions::default() });
        let faults = schedule(&plan, 1, HOUR, &Act::ALL, &Target::ALL);
        for target in Target::ALL {
            for act in target.acts() {
                let is_it = |fault: &&Fault| fault.target == target && fault.act == *act;
                assert!(faults.iter().any(|fault| is_it(&fault)), "{act} {target}");
            }
        }
        for fault in &faults {
            match fault.act {
                Act::Kill | Act::Pause if fault.target == Target::Region => {}
                Act::Kill | Act::Pause => assert!(!plan.processes_of(&fault.name).is_empty(), "{fault}"),
                Act::Partition | Act::Slow => assert!(plan.part(&fault.name).is_some(), "{fault}"),
            }
            assert_eq!(fault.from.is_some(), fault.target == Target::Link, "{fault}");
            assert_ne!(fault.from.as_ref(), Some(&fault.name));
            assert_eq!(fault.link.is_some(), fault.act == Act::Slow);
            fault.link.unwrap_or(Link { delay: HOUR / 3_600, ..Link::default() }).check().unwrap();
        }
        let names: std::collections::BTreeSet<_> = faults.iter().map(|fault| &fault.name).collect();
        assert!(names.contains(&"us-2".to_owned()) && names.contains(&"nats-3".to_owned()), "{names:?}");
    }

    #[test]
    fn it_fits_its_time_and_holds_nothing_that_was_left_out() {
        let plan = plan(&TopologyOptions {
            regions: 1,
            controls: 1,
            database: Database::Sqlite,
            ..TopologyOptions::default()
        });
        for seconds in [0, 2, 5, 60, 600] {
            for seed in 0..50 {
                let time = Duration::from_secs(seconds);
                let faults = schedule(&plan, seed, time, &Act::ALL, &Target::ALL);
                let takes: u64 = faults.iter().map(|fault| fault.rest_ms + fault.lasts_ms).sum();
                assert!(takes <= seconds * 1_000, "{takes} ms of {seconds} s");
                assert!(faults.iter().all(|fault| fault.lasts_ms >= 1_000));
                assert!(faults.iter().all(|fault| ![Target::Database, Target::Link].contains(&fault.target)));
                assert!(!faults.is_empty() || seconds < 5, "{seconds} s are enough for one");
            }
        }
        let only = schedule(&plan, 3, HOUR, &[Act::Slow], &[Target::Connector, Target::Edge]);
        assert!(!only.is_empty() && only.iter().all(|fault| (fault.act, fault.target) == (Act::Slow, Target::Edge)));
        assert!(schedule(&plan, 3, HOUR, &[Act::Slow], &[Target::Connector]).is_empty(), "and does not go on for ever");
    }

    #[test]
    fn a_bound_is_what_may_be_under_way() {
        let plan = |regions: u8| plan(&TopologyOptions { regions, ..TopologyOptions::default() });
        let fault = |act: Act, target: Target| Fault {
            act,
            target,
            name: "x".into(),
            from: None,
            link: None,
            rest_ms: 0,
            lasts_ms: 5_000,
        };
        let may = |regions: u8, act: Act, target: Target, patience_s: u64| {
            fault(act, target).may_fail(&plan(regions), 8, Duration::from_secs(patience_s))
        };
        assert_eq!(may(3, Act::Kill, Target::Edge, 10), Some(8));
        assert_eq!(may(3, Act::Pause, Target::Edge, 10), Some(16));
        assert_eq!(may(3, Act::Partition, Target::Region, 2), Some(32));
        assert_eq!(may(3, Act::Kill, Target::Database, 10), Some(0));
        assert_eq!(may(1, Act::Pause, Target::Bus, 10), Some(0));
        assert_eq!(may(1, Act::Kill, Target::Edge, 10), None, "nothing takes its place");
        assert_eq!(may(1, Act::Kill, Target::Connector, 10), None);
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        assert!(Act::ALL.iter().all(|act| act.to_string().parse() == Ok(*act)));
        assert!(Target::ALL.iter().all(|target| target.to_string().parse() == Ok(*target)));
        assert_eq!("x".parse::<Act>(), Err("expected one of kill, pause, partition, slow".to_owned()));
    }
}
