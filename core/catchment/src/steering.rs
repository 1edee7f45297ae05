//! How far sites are from each network, for steering.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use sallyport_model::RegionName;

use crate::{Prefix, Row, Source};

/// Which rows count for steering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SteeringRules {
    /// The greatest age of a row, in seconds.
    pub max_age: i64,
    /// The fewest requests of clients with which their round trip counts. Measured round trips count always.
    pub min_requests: u64,
}

impl Default for SteeringRules {
    fn default() -> Self {
        Self { max_age: 24 * 3_600, min_requests: 5 }
    }
}

/// The measured sites of each network, the nearest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SteeringTable {
    by_prefix: BTreeMap<Prefix, Vec<(RegionName, Duration)>>,
}

impl SteeringTable {
    /// The table of these rows at this time, in seconds since 1970. The shortest round trip to a site counts.
    pub fn build<'a>(rows: impl IntoIterator<Item = &'a Row>, rules: SteeringRules, now: i64) -> Self {
        let mut by_prefix: BTreeMap<Prefix, Vec<(RegionName, Duration)>> = BTreeMap::new();
        for row in rows {
            let Some(round_trip) = row.round_trip else { continue };
            let has_enough = row.source != Source::Clients || row.requests >= rules.min_requests;
            if !has_enough || !row.is_fresh(now, rules.max_age) {
                continue;
            }
            let sites = by_prefix.entry(row.prefix).or_default();
            match sites.iter_mut().find(|(site, _)| *site == row.site) {
                Some((_, known)) => *known = round_trip.min(*known),
                None => sites.push((row.site.clone(), round_trip)),
            }
        }
        for sites in by_prefix.values_mut() {
            sites.sort_by(|(one, near), (other, far)| near.cmp(far).then_with(|| one.cmp(other)));
        }
        Self { by_prefix }
    }

    /// The measured sites of a network, the nearest first; empty if there is none.
    #[must_use]
    pub fn sites(&self, prefix: Prefix) -> &[(RegionName, Duration)] {
        self.by_prefix.get(&prefix).map_or(&[], Vec::as_slice)
    }

    /// The measured sites of the network of this address.
    #[must_use]
    pub fn sites_of(&self, address: IpAddr) -> &[(RegionName, Duration)] {
        self.sites(Prefix::of(address))
    }

    /// All networks with their sites, by network.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, &[(RegionName, Duration)])> {
        self.by_prefix.iter().map(|(prefix, sites)| (*prefix, sites.as_slice()))
    }

    /// How many networks there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_prefix.len()
    }

    /// Whether there is no network.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_prefix.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fresh_rows_with_enough_requests_count() {
        let row = |site: &str, source, requests, ms, seen| Row {
            requests,
            round_trip: Some(Duration::from_millis(ms)),
            ..Row::new(Prefix::of([192, 0, 2, 1].into()), site.parse().unwrap(), source, seen)
        };
        let rows = [
            row("eu", Source::Clients, 5, 30, 1_000),
            row("eu", Source::Ping, 0, 20, 1_000),
            row("us", Source::Ping, 1, 90, 1_000),
            row("few", Source::Clients, 4, 1, 1_000),
            row("old", Source::Ping, 1, 1, 899),
            Row { round_trip: None, ..row("silent", Source::Ping, 1, 1, 1_000) },
            row("ap", Source::Clients, 7, 20, 900),
        ];
        let table = SteeringTable::build(&rows, SteeringRules { max_age: 100, min_requests: 5 }, 1_000);
        let sites = table.sites_of([192, 0, 2, 200].into());
        let shown: Vec<_> = sites.iter().map(|(site, time)| (site.as_str(), time.as_millis())).collect();
        assert_eq!(shown, [("ap", 20), ("eu", 20), ("us", 90)]);
        assert_eq!((table.len(), table.iter().count()), (1, 1));
        assert!(table.sites_of([192, 0, 3, 1].into()).is_empty());
    }
}
