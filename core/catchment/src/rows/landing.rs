//! Where a network lands.

use std::{cmp::Ordering, collections::BTreeMap, time::Duration};

use sallyport_model::RegionName;
use sallyport_policy::Country;

use super::row::{HALF_LIFE_SECONDS, Row, Source};
use crate::Prefix;

/// Where a network lands, and how far other sites are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Landing {
    /// The network.
    pub prefix: Prefix,
    /// The autonomous system, if known.
    pub system: Option<u32>,
    /// The country, if known.
    pub country: Option<Country>,
    /// The site: the one with the most requests, of which old ones count less.
    pub site: RegionName,
    /// Requests of clients there; without any, the answers of other sources.
    pub requests: u64,
    /// The source that tells the site.
    pub source: Source,
    /// When a request was last seen there, in seconds since 1970.
    pub seen: i64,
    /// The shortest known round trip to each site.
    pub round_trips: BTreeMap<RegionName, Duration>,
}

impl Landing {
    /// Where the network of these rows lands; `None` if no row has a request.
    pub(super) fn of(rows: &[Row]) -> Option<Self> {
        let told = rows.iter().filter(|row| row.requests > 0).max_by(|one, other| by_weight(one, other))?;
        let there = || rows.iter().filter(|row| row.site == told.site);
        let sum = |is_counted: fn(&&Row) -> bool| {
            there().filter(is_counted).fold(0_u64, |sum, row| sum.saturating_add(row.requests))
        };
        let requests = match sum(|row| row.source == Source::Clients) {
            0 => sum(|_| true),
            of_clients => of_clients,
        };
        let mut newest: Vec<&Row> = rows.iter().collect();
        newest.sort_by_key(|row| std::cmp::Reverse(row.seen));
        let mut round_trips = BTreeMap::new();
        for (site, round_trip) in rows.iter().filter_map(|row| Some((&row.site, row.round_trip?))) {
            let known = round_trips.entry(site.clone()).or_insert(round_trip);
            *known = round_trip.min(*known);
        }
        Some(Self {
            prefix: told.prefix,
            system: newest.iter().find_map(|row| row.system),
            country: newest.iter().find_map(|row| row.country),
            site: told.site.clone(),
            requests,
            source: told.source,
            seen: there().filter(|row| row.requests > 0).map(|row| row.seen).max().unwrap_or(told.seen),
            round_trips,
        })
    }

    /// The round trip to where the network lands, if known.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trips.get(&self.site).copied()
    }

    /// The nearest other site, if one was measured.
    #[must_use]
    pub fn best_other(&self) -> Option<(&RegionName, Duration)> {
        let others = self.round_trips.iter().filter(|(site, _)| **site != self.site);
        others.map(|(site, time)| (site, *time)).min_by_key(|(_, time)| *time)
    }
}

/// Compares rows by their requests, of which old ones count less. The order is the same at every time.
fn by_weight(one: &Row, other: &Row) -> Ordering {
    // The logarithm of the requests that count at one fixed time.
    let newest = one.seen.max(other.seen);
    let weight = |row: &Row| {
        let later = newest.saturating_sub(row.seen) as f64;
        (row.requests as f64).log2() - later / HALF_LIFE_SECONDS as f64
    };
    let order = weight(one).total_cmp(&weight(other));
    order.then(one.seen.cmp(&other.seen)).then_with(|| other.site.cmp(&one.site)).then(other.source.cmp(&one.source))
}
