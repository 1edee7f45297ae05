//! From the counts of edges to rows: how many connections are new since the last time.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use sallyport_model::RegionName;
use sallyport_policy::Country;

use crate::{Gathering, Landings, Prefix, Row, Source};

/// The most counts that are remembered: of each edge and network. With more, the ones of networks that were not counted
/// this time are forgotten.
pub const MAX_COUNTED: usize = 400_000;

/// What an edge says of the clients of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The name of the edge.
    pub edge: String,
    /// The region of the edge.
    pub site: RegionName,
    /// The network.
    pub prefix: Prefix,
    /// The autonomous system, if known.
    pub system: Option<u32>,
    /// The country, if known.
    pub country: Option<Country>,
    /// How many connections the edge has counted since its start.
    pub connections: u64,
    /// The shortest round trip lately.
    pub round_trip: Option<Duration>,
    /// When the last connection was counted, in seconds since 1970.
    pub last_seen: i64,
}

/// The counts of edges as they were last.
#[derive(Debug, Default)]
pub struct Tally {
    counts: HashMap<(String, Prefix), u64>,
}

impl Tally {
    /// The rows that this changes, at this time in seconds since 1970. `known` has the rows of clients so far.
    ///
    /// A count that is less than before is of an edge that has started anew. The first count of an edge adds
    /// at most one connection to a row that is there already: another control may have counted the rest.
    pub fn gather(&mut self, known: &Landings, seen: &[Seen], now: i64) -> Vec<Row> {
        let mut changed: BTreeMap<(Prefix, &RegionName), (u64, Row)> = BTreeMap::new();
        let mut counted = HashSet::new();
        for one in seen {
            let row = known.row(one.prefix, &one.site, Source::Clients);
            let key = (one.edge.clone(), one.prefix);
            let more = match self.counts.insert(key.clone(), one.connections) {
                None if row.is_some_and(|row| row.seen >= one.last_seen) => 0,
                None if row.is_some() => one.connections.min(1),
                Some(former) if one.connections >= former => one.connections - former,
                None | Some(_) => one.connections,
            };
            counted.insert(key);
            let new = || Row::new(one.prefix, one.site.clone(), Source::Clients, now);
            let fresh = || (0, Row { round_trip: None, ..row.cloned().unwrap_or_else(new) });
            let (sum, row) = changed.entry((one.prefix, &one.site)).or_insert_with(fresh);
            *sum = sum.saturating_add(more);
            row.round_trip = [row.round_trip, one.round_trip].into_iter().flatten().min();
            row.system = one.system.or(row.system);
            row.country = one.country.or(row.country);
        }
        if self.counts.len() > MAX_COUNTED {
            self.counts.retain(|key, _| counted.contains(key));
        }
        let rows = changed.into_values().filter(|(more, _)| *more > 0).map(|(more, mut row)| {
            row.add_requests(more, now);
            row
        });
        rows.collect()
    }
}

impl Landings {
    /// Takes rows. Returns how many networks are new, and how many land elsewhere now.
    pub fn absorb(&mut self, rows: impl IntoIterator<Item = Row>) -> Gathering {
        let mut gathering = Gathering { known: self.prefixes(), ..Gathering::default() };
        for row in rows {
            let prefix = row.prefix;
            let before = self.landing(prefix).map(|landing| landing.site);
            self.merge(row);
            let after = self.landing(prefix).map(|landing| landing.site);
            gathering.new += usize::from(before.is_none() && after.is_some());
            gathering.moved += usize::from(before.is_some() && after.is_some() && before != after);
        }
        gathering
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn seen(edge: &str, site: &str, network: u32, connections: u64, ms: u64) -> Seen {
        Seen {
            edge: edge.to_owned(),
            site: site.parse().unwrap(),
            prefix: Prefix::of(Ipv4Addr::from_bits(network << 8).into()),
            system: None,
            country: None,
            connections,
            round_trip: Some(Duration::from_millis(ms)),
            last_seen: 1_001,
        }
    }

    fn shown(rows: &[Row]) -> Vec<(&str, u64, u128)> {
        rows.iter().map(|row| (row.site.as_str(), row.requests, row.round_trip.unwrap().as_millis())).collect()
    }

    #[test]
    fn only_new_connections_are_added() {
        let (mut tally, mut known) = (Tally::default(), Landings::default());
        let both = [seen("a", "eu", 1, 5, 30), seen("b", "eu", 1, 2, 20), seen("c", "us", 1, 1, 90)];
        let rows = tally.gather(&known, &both, 1_000);
        assert_eq!(shown(&rows), [("eu", 7, 20), ("us", 1, 90)]);
        assert_eq!(known.absorb(rows), Gathering { known: 0, new: 1, moved: 0 });
        assert_eq!(tally.gather(&known, &both, 1_001), [], "nothing has changed");
        // One has more, and the other one has started anew.
        let rows = tally.gather(&known, &[seen("a", "eu", 1, 6, 40), seen("b", "eu", 1, 1, 50)], 1_001);
        assert_eq!(shown(&rows), [("eu", 9, 40)]);
        known.absorb(rows);
        // Another control begins to count: it must not count all of it again.
        // Those of `eu` were counted at that time or later.
        let rows = Tally::default().gather(&known, &both, 1_002);
        assert_eq!(shown(&rows), [("us", 2, 90)]);
        let later = both.map(|seen| Seen { last_seen: 1_002, ..seen });
        assert_eq!(shown(&Tally::default().gather(&known, &later, 1_002)), [("eu", 11, 20), ("us", 2, 90)]);
        let rows = tally.gather(&known, &[seen("c", "us", 1, 200, 90)], 1_003);
        assert_eq!(known.absorb(rows), Gathering { known: 1, new: 0, moved: 1 });
    }

    #[test]
    fn every_network_with_five_connections_or_more_is_right() {
        let (mut tally, mut known) = (Tally::default(), Landings::default());
        let sites = ["eu", "us", "ap", "sa"];
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        // Each network lands at one site, where one of two edges gets its connections. Some go astray.
        let planted: Vec<usize> = (0..5_000).map(|_| next(4) as usize).collect();
        let mut counts: BTreeMap<(usize, u64, usize), u64> = BTreeMap::new();
        for (network, site) in planted.iter().enumerate() {
            for _ in 0..5 + next(20) {
                *counts.entry((*site, next(2), network)).or_default() += 1;
            }
            *counts.entry(((*site + 1) % 4, 0, network)).or_default() += next(3);
        }
        for step in 1..=3_u64 {
            let partly = counts.iter().filter(|(_, count)| **count > 0).map(|((site, edge, network), count)| {
                let so_far = if step == 3 { *count } else { count * step / 3 };
                seen(&format!("{site}-{edge}"), sites[*site], *network as u32, so_far, 10)
            });
            let partly: Vec<_> = partly.collect();
            let rows = tally.gather(&known, &partly, 1_000 + step as i64 * 30);
            known.absorb(rows);
        }
        for (network, site) in planted.iter().enumerate() {
            let landing = known.landing(seen("a", "eu", network as u32, 0, 0).prefix).unwrap();
            assert_eq!(landing.site.as_str(), sites[*site], "network {network}");
        }
    }
}
