//! One change that an operator may make, with its predicted gain. Nothing is changed by itself.

use std::{collections::BTreeMap, fmt, time::Duration};

use sallyport_model::RegionName;
use sallyport_policy::Country;

use crate::{Landing, Prefix};

/// The least gain of a request on average, in milliseconds.
const MIN_GAIN_MS: f64 = 1.0;
/// The fewest networks of a system of which one says that the system as a whole lands somewhere.
const MIN_NETWORKS_OF_SYSTEM: usize = 2;

/// The networks that a change is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The networks of a country.
    Country(Country),
    /// The networks of an autonomous system.
    System(u32),
    /// One network.
    Prefix(Prefix),
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Country(country) => write!(f, "{country}"),
            Self::System(number) => write!(f, "AS{number}"),
            Self::Prefix(prefix) => write!(f, "{prefix}"),
        }
    }
}

/// One change: the networks of a group that land at one site are to land at another one.
#[derive(Debug, Clone, PartialEq)]
pub struct Suggestion {
    /// The networks.
    pub group: Group,
    /// Where they land.
    pub from: RegionName,
    /// Where they should land.
    pub to: RegionName,
    /// How many networks of the group land there and were measured from both sites.
    pub networks: usize,
    /// Networks of the group that land there and were not measured from both sites.
    pub unmeasured: usize,
    /// Requests of the measured networks.
    pub requests: u64,
    /// The mean round trip of their requests now.
    pub before: Duration,
    /// The mean round trip that is predicted.
    pub after: Duration,
    /// Requests times the predicted gain, in milliseconds. Networks for which the other site is farther count against.
    pub gain_ms: f64,
    /// Whether all networks of an autonomous system land there: the announcement can be changed too.
    pub is_whole_system: bool,
}

impl Suggestion {
    /// The change, as a sentence without its stop.
    #[must_use]
    pub fn action(&self) -> String {
        format!("steer {} from {} to {} by DNS", self.group, self.from, self.to)
    }

    /// Another way to the same, where there is one, as a sentence without its stop.
    #[must_use]
    pub fn alternative(&self) -> Option<String> {
        let Group::System(number) = self.group else { return None };
        let (from, to) = (&self.from, &self.to);
        self.is_whole_system.then(|| {
            format!("or announce the prefix to AS{number} at {to}, or limit the announcement to AS{number} at {from}")
        })
    }
}

#[derive(Debug, Default)]
struct Sum {
    networks: usize,
    unmeasured: usize,
    requests: u64,
    before_ms: f64,
    after_ms: f64,
}

/// The change with the greatest predicted gain. Of equal gains that of the widest group counts: a country before a
/// system, and a system before a network. `None` if no change gains.
#[must_use]
pub fn suggest(landings: &[Landing]) -> Option<Suggestion> {
    let mut sums: BTreeMap<(Group, &RegionName, &RegionName), Sum> = BTreeMap::new();
    // The networks of each system, by where they land.
    let mut of_system: BTreeMap<u32, BTreeMap<&RegionName, usize>> = BTreeMap::new();
    let mut targets: BTreeMap<&RegionName, Vec<&RegionName>> = BTreeMap::new();
    for landing in landings {
        if let Some(number) = landing.system {
            *of_system.entry(number).or_default().entry(&landing.site).or_default() += 1;
        }
        let known = targets.entry(&landing.site).or_default();
        known.extend(landing.best_other().map(|(site, _)| site).filter(|site| !known.contains(site)));
    }
    for landing in landings {
        let country = landing.country.map(Group::Country);
        let groups = [country, landing.system.map(Group::System), Some(Group::Prefix(landing.prefix))];
        for to in targets.get(&landing.site).into_iter().flatten().copied() {
            for group in groups.into_iter().flatten() {
                add(sums.entry((group, &landing.site, to)).or_default(), landing, to);
            }
        }
    }
    let (key, sum) = sums
        .iter()
        .filter(|(_, sum)| sum.requests > 0 && gain(sum) / sum.requests as f64 >= MIN_GAIN_MS)
        .max_by(|(one_key, one), (other_key, other)| gain(one).total_cmp(&gain(other)).then(other_key.cmp(one_key)))?;
    let (group, from, to) = *key;
    let is_whole_system = match group {
        Group::System(number) => of_system
            .get(&number)
            .is_some_and(|sites| sites.len() == 1 && sites.get(from).is_some_and(|at| *at >= MIN_NETWORKS_OF_SYSTEM)),
        Group::Country(_) | Group::Prefix(_) => false,
    };
    let mean = |ms: f64| Duration::from_secs_f64((ms / sum.requests as f64 / 1e3).max(0.0));
    Some(Suggestion {
        group,
        from: from.clone(),
        to: to.clone(),
        networks: sum.networks,
        unmeasured: sum.unmeasured,
        requests: sum.requests,
        before: mean(sum.before_ms),
        after: mean(sum.after_ms),
        gain_ms: gain(sum),
        is_whole_system,
    })
}

fn gain(sum: &Sum) -> f64 {
    sum.before_ms - sum.after_ms
}

fn add(sum: &mut Sum, landing: &Landing, to: &RegionName) {
    let (Some(before), Some(after)) = (landing.round_trip(), landing.round_trips.get(to)) else {
        sum.unmeasured += 1;
        return;
    };
    sum.networks += 1;
    sum.requests = sum.requests.saturating_add(landing.requests);
    sum.before_ms += landing.requests as f64 * before.as_secs_f64() * 1e3;
    sum.after_ms += landing.requests as f64 * after.as_secs_f64() * 1e3;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    fn landing(third: u8, of: (Option<u32>, &str), site: &str, requests: u64, times: &[(&str, u64)]) -> Landing {
        Landing {
            prefix: Prefix::of([192, 0, third, 1].into()),
            system: of.0,
            country: of.1.parse().ok(),
            site: site.parse().unwrap(),
            requests,
            source: Source::Clients,
            seen: 0,
            round_trips: times.iter().map(|(site, ms)| (site.parse().unwrap(), Duration::from_millis(*ms))).collect(),
        }
    }

    #[test]
    fn the_change_with_the_greatest_gain_is_suggested() {
        assert_eq!(suggest(&[]), None);
        let landings = [
            landing(1, (Some(209), "GB"), "us", 100, &[("us", 90), ("eu", 10)]),
            landing(2, (Some(209), "GB"), "us", 100, &[("us", 80), ("eu", 20)]),
            // The same country by another system lands well, and would be farther.
            landing(3, (Some(1), "GB"), "us", 50, &[("us", 10), ("eu", 70)]),
            landing(4, (Some(209), "GB"), "us", 7, &[("us", 80)]),
            landing(5, (Some(2), "US"), "us", 9_999, &[("us", 10), ("eu", 90)]),
        ];
        let found = suggest(&landings).unwrap();
        assert_eq!(found.action(), "steer AS209 from us to eu by DNS");
        assert_eq!((found.networks, found.unmeasured, found.requests), (2, 1, 200));
        assert_eq!((found.before, found.after), (Duration::from_millis(85), Duration::from_millis(15)));
        assert!((found.gain_ms - 14_000.0).abs() < 1e-6, "{found:?}");
        let alternative = "or announce the prefix to AS209 at eu, or limit the announcement to AS209 at us";
        assert_eq!(found.alternative().as_deref(), Some(alternative));
    }

    #[test]
    fn the_widest_group_of_equal_gain_counts_and_what_gains_nothing_is_not_suggested() {
        let lone = landing(1, (Some(209), "GB"), "us", 100, &[("us", 90), ("eu", 10)]);
        let found = suggest(std::slice::from_ref(&lone)).unwrap();
        assert_eq!((found.group.to_string(), found.alternative()), ("GB".to_owned(), None));
        let nowhere = Landing { system: None, country: None, ..lone.clone() };
        assert_eq!(suggest(&[nowhere]).unwrap().group.to_string(), "192.0.1.0/24");
        let well = landing(1, (Some(209), "GB"), "eu", 100, &[("us", 90), ("eu", 10)]);
        assert_eq!(suggest(&[well]), None);
        let alike = landing(1, (Some(209), "GB"), "eu", 100, &[("us", 90), ("eu", 90)]);
        assert_eq!(suggest(&[alike]), None);
        let idle = Landing { requests: 0, ..lone };
        assert_eq!(suggest(&[idle]), None);
    }
}
