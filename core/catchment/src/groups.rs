//! Landings together, by network, autonomous system, country or site.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use sallyport_model::RegionName;
use sallyport_policy::Country;

use crate::{Landing, Prefix, Source, losses};

/// How landings are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    /// By network.
    Prefix,
    /// By autonomous system.
    System,
    /// By country.
    Country,
    /// By site alone.
    Site,
}

/// The networks of a group that land at one site.
#[derive(Debug, Clone, PartialEq)]
pub struct LandingGroup {
    /// The network, of a group of one.
    pub prefix: Option<Prefix>,
    /// The autonomous system, if all are of one.
    pub system: Option<u32>,
    /// The country, if all are in one.
    pub country: Option<Country>,
    /// The site.
    pub site: RegionName,
    /// How many networks there are.
    pub networks: u64,
    /// Their requests.
    pub requests: u64,
    /// The mean round trip of requests, of networks of which it is known.
    pub round_trip: Option<Duration>,
    /// The site that is nearer for the most of what is lost.
    pub better: Option<RegionName>,
    /// The mean round trip to the nearest sites of what is lost, weighted by requests.
    pub better_round_trip: Option<Duration>,
    /// Requests times the excess of their round trip over that to another site, in milliseconds.
    pub lost_ms: f64,
    /// The source that tells where the networks land, if it is one.
    pub source: Option<Source>,
    /// When a request was last seen, in seconds since 1970.
    pub seen: i64,
}

type Key = (Option<Prefix>, Option<u32>, Option<Country>, RegionName);

#[derive(Debug)]
struct Sum {
    first: Landing,
    has_one_system: bool,
    has_one_country: bool,
    has_one_source: bool,
    networks: u64,
    requests: u64,
    timed: f64,
    time_ms: f64,
    seen: i64,
    lost_requests: f64,
    better_ms: f64,
    lost_ms: BTreeMap<RegionName, f64>,
}

/// The groups, those with the most requests first.
#[must_use]
pub fn groups(landings: &[Landing], by: GroupBy) -> Vec<LandingGroup> {
    let mut sums: BTreeMap<Key, Sum> = BTreeMap::new();
    for landing in landings {
        add(&mut sums, landing, by);
    }
    for loss in losses(landings.iter().cloned()) {
        let Some(sum) = sums.get_mut(&key_of(&loss.landing, by)) else { continue };
        let requests = loss.landing.requests as f64;
        sum.lost_requests += requests;
        sum.better_ms += requests * loss.better_round_trip.as_secs_f64() * 1e3;
        *sum.lost_ms.entry(loss.better).or_default() += loss.lost_ms;
    }
    let mut groups: Vec<_> = sums.into_iter().map(|(key, sum)| finished(key, sum, by)).collect();
    groups.sort_by_key(|group| Reverse(group.requests));
    groups
}

fn key_of(landing: &Landing, by: GroupBy) -> Key {
    let is = |wanted| by == wanted;
    (
        Some(landing.prefix).filter(|_| is(GroupBy::Prefix)),
        landing.system.filter(|_| is(GroupBy::System)),
        landing.country.filter(|_| is(GroupBy::Country)),
        landing.site.clone(),
    )
}

fn add(sums: &mut BTreeMap<Key, Sum>, landing: &Landing, by: GroupBy) {
    let sum = sums.entry(key_of(landing, by)).or_insert_with(|| Sum {
        first: landing.clone(),
        has_one_system: true,
        has_one_country: true,
        has_one_source: true,
        networks: 0,
        requests: 0,
        timed: 0.0,
        time_ms: 0.0,
        seen: landing.seen,
        lost_requests: 0.0,
        better_ms: 0.0,
        lost_ms: BTreeMap::new(),
    });
    sum.has_one_system &= sum.first.system == landing.system;
    sum.has_one_country &= sum.first.country == landing.country;
    sum.has_one_source &= sum.first.source == landing.source;
    sum.networks += 1;
    sum.requests = sum.requests.saturating_add(landing.requests);
    sum.seen = sum.seen.max(landing.seen);
    if let Some(time) = landing.round_trip() {
        sum.timed += landing.requests as f64;
        sum.time_ms += landing.requests as f64 * time.as_secs_f64() * 1e3;
    }
}

fn finished((prefix, _, _, site): Key, sum: Sum, by: GroupBy) -> LandingGroup {
    let mean = |ms: f64, of: f64| Duration::try_from_secs_f64(ms / of / 1e3).ok();
    let better = sum.lost_ms.iter().max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(site, _)| site.clone());
    let is_by_site = by == GroupBy::Site;
    LandingGroup {
        prefix,
        system: sum.first.system.filter(|_| sum.has_one_system && !is_by_site),
        country: sum.first.country.filter(|_| sum.has_one_country && !is_by_site),
        site,
        networks: sum.networks,
        requests: sum.requests,
        round_trip: mean(sum.time_ms, sum.timed),
        better,
        better_round_trip: mean(sum.better_ms, sum.lost_requests),
        // The sum of nothing is a negative zero.
        lost_ms: sum.lost_ms.values().sum::<f64>() + 0.0,
        source: Some(sum.first.source).filter(|_| sum.has_one_source),
        seen: sum.seen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Landings, Row};

    #[test]
    fn landings_are_summed_by_what_they_have_in_common() {
        let row = |third: u8, system, country: &str, site: &str, requests, ms| Row {
            requests,
            system: Some(system),
            country: country.parse().ok(),
            round_trip: Some(Duration::from_millis(ms)),
            ..Row::new(Prefix::of([192, 0, third, 1].into()), site.parse().unwrap(), Source::Clients, 9)
        };
        let landings: Landings = [
            row(1, 209, "GB", "us", 30, 90),
            row(1, 209, "GB", "eu", 0, 10),
            row(2, 209, "IE", "us", 10, 50),
            row(3, 7, "GB", "eu", 5, 20),
        ]
        .into_iter()
        .collect();
        let landings: Vec<_> = landings.landings().collect();
        let shown = |by| {
            let shown = |group: LandingGroup| {
                let country = group.country.map(|country| country.to_string());
                let (ms, lost) = (group.round_trip.unwrap().as_millis(), group.lost_ms.round() as u64);
                (group.system, country, group.site.to_string(), group.networks, group.requests, ms, lost)
            };
            groups(&landings, by).into_iter().map(shown).collect::<Vec<_>>()
        };
        let (us, eu, gb) = (|| "us".to_owned(), || "eu".to_owned(), || Some("GB".to_owned()));
        assert_eq!(
            shown(GroupBy::System),
            [(Some(209), None, us(), 2, 40, 80, 2_400), (Some(7), gb(), eu(), 1, 5, 20, 0)]
        );
        assert_eq!(shown(GroupBy::Country)[0], (Some(209), gb(), us(), 1, 30, 90, 2_400));
        assert_eq!(shown(GroupBy::Country).len(), 3);
        assert_eq!(shown(GroupBy::Site), [(None, None, us(), 2, 40, 80, 2_400), (None, None, eu(), 1, 5, 20, 0)]);
        let by_prefix = groups(&landings, GroupBy::Prefix);
        assert_eq!(by_prefix[0].prefix.unwrap().to_string(), "192.0.1.0/24");
        assert_eq!(by_prefix[0].better.as_ref().unwrap().as_str(), "eu");
        assert_eq!(by_prefix[0].better_round_trip, Some(Duration::from_millis(10)));
        assert!(groups(&[], GroupBy::Prefix).is_empty());
    }
}
