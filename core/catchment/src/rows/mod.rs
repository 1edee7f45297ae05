//! The one table of what is known of each network: rows, how they merge, and where a network lands.

mod landing;
mod row;

use std::collections::{BTreeMap, BTreeSet};

use sallyport_model::RegionName;

pub use landing::Landing;
pub use row::{HALF_LIFE_SECONDS, Row, Source, SourceError};

use crate::Prefix;

/// The most rows. Another one takes the place of the oldest.
pub const MAX_ROWS: usize = 100_000;

/// The rows of all networks: one for each network, site and source, the newest.
#[derive(Debug, Default)]
pub struct Landings {
    rows: BTreeMap<Prefix, Vec<Row>>,
    /// What each row is of, the oldest first.
    by_age: BTreeSet<(i64, Prefix, RegionName, Source)>,
}

impl FromIterator<Row> for Landings {
    fn from_iter<I: IntoIterator<Item = Row>>(rows: I) -> Self {
        let mut landings = Self::default();
        for row in rows {
            landings.merge(row);
        }
        landings
    }
}

impl Landings {
    /// Takes a row. Returns whether it is there now: a row that is older than the one of the same network, site and
    /// source is not taken, and neither is one that is older than all of a full table.
    pub fn merge(&mut self, mut row: Row) -> bool {
        let rows = self.rows.entry(row.prefix).or_default();
        if let Some(known) = rows.iter_mut().find(|known| known.site == row.site && known.source == row.source) {
            if row.seen < known.seen {
                return false;
            }
            row.system = row.system.or(known.system);
            row.country = row.country.or(known.country);
            self.by_age.remove(&age_of(known));
            self.by_age.insert(age_of(&row));
            *known = row;
            return true;
        }
        let age = age_of(&row);
        rows.push(row);
        self.by_age.insert(age.clone());
        if self.by_age.len() > MAX_ROWS {
            self.remove_oldest();
        }
        self.by_age.contains(&age)
    }

    fn remove_oldest(&mut self) {
        let Some((_, prefix, site, source)) = self.by_age.pop_first() else { return };
        let Some(rows) = self.rows.get_mut(&prefix) else { return };
        rows.retain(|row| row.site != site || row.source != source);
        if rows.is_empty() {
            self.rows.remove(&prefix);
        }
    }

    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_age.len()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    /// How many networks there are.
    #[must_use]
    pub fn prefixes(&self) -> usize {
        self.rows.len()
    }

    /// All rows, by network.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values().flatten()
    }

    /// The rows of a network.
    #[must_use]
    pub fn of(&self, prefix: Prefix) -> &[Row] {
        self.rows.get(&prefix).map_or(&[], Vec::as_slice)
    }

    /// The row of a network, a site and a source.
    #[must_use]
    pub fn row(&self, prefix: Prefix, site: &RegionName, source: Source) -> Option<&Row> {
        self.of(prefix).iter().find(|row| row.site == *site && row.source == source)
    }

    /// Where each network lands, of the networks of which that is known.
    pub fn landings(&self) -> impl Iterator<Item = Landing> {
        self.rows.values().filter_map(|rows| Landing::of(rows))
    }

    /// Where a network lands, if that is known.
    #[must_use]
    pub fn landing(&self, prefix: Prefix) -> Option<Landing> {
        Landing::of(self.of(prefix))
    }
}

fn age_of(row: &Row) -> (i64, Prefix, RegionName, Source) {
    (row.seen, row.prefix, row.site.clone(), row.source)
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, time::Duration};

    use super::*;

    pub(super) fn row(prefix: &str, site: &str, source: Source, requests: u64, ms: u64, seen: i64) -> Row {
        let prefix = Prefix::of(prefix.parse().unwrap());
        let round_trip = (ms > 0).then(|| Duration::from_millis(ms));
        Row { requests, round_trip, ..Row::new(prefix, site.parse().unwrap(), source, seen) }
    }

    fn site_of(landings: &Landings, prefix: &str) -> Option<String> {
        landings.landing(Prefix::of(prefix.parse().unwrap())).map(|landing| landing.site.to_string())
    }

    #[test]
    fn the_newest_row_of_a_network_a_site_and_a_source_counts() {
        let mut landings = Landings::default();
        let first = Row { system: Some(7), ..row("192.0.2.1", "eu", Source::Clients, 5, 20, 100) };
        assert!(landings.merge(first.clone()));
        assert!(!landings.merge(row("192.0.2.1", "eu", Source::Clients, 9, 1, 99)), "an older one is not taken");
        assert_eq!(landings.rows().collect::<Vec<_>>(), [&first]);
        assert!(landings.merge(row("192.0.2.9", "eu", Source::Clients, 6, 30, 100)));
        assert!(landings.merge(row("192.0.2.9", "eu", Source::Ping, 1, 31, 100)));
        assert!(landings.merge(row("192.0.2.9", "us", Source::Ping, 0, 90, 100)));
        assert_eq!(landings.len(), 3);
        let eu = landings.row(first.prefix, &first.site, Source::Clients).unwrap();
        assert_eq!((eu.requests, eu.system), (6, Some(7)), "what is known of the network stays");
    }

    #[test]
    fn a_network_lands_where_its_recent_requests_are() {
        let of = |rows: &[Row]| site_of(&rows.iter().cloned().collect(), "192.0.2.0");
        let p = "192.0.2.1";
        // A round trip alone tells of no landing.
        assert_eq!(of(&[row(p, "eu", Source::Ping, 0, 5, 9)]), None);
        // The newest of equal counts, and the most of one time.
        assert_eq!(of(&[row(p, "eu", Source::Ping, 1, 0, 9), row(p, "us", Source::Ping, 1, 0, 8)]).unwrap(), "eu");
        assert_eq!(of(&[row(p, "eu", Source::Ping, 1, 0, 9), row(p, "us", Source::Clients, 9, 0, 9)]).unwrap(), "us");
        // Old requests count less and less.
        let rows = |later| [row(p, "eu", Source::Clients, 64, 0, 0), row(p, "us", Source::Clients, 1, 0, later)];
        assert_eq!(of(&rows(5 * HALF_LIFE_SECONDS)).unwrap(), "eu");
        assert_eq!(of(&rows(7 * HALF_LIFE_SECONDS)).unwrap(), "us");
        assert_eq!(of(&rows(i64::MAX)).unwrap(), "us");
    }

    #[test]
    fn the_oldest_row_makes_room() {
        let mut landings = Landings::default();
        let numbered = |number: usize, seen: i64| Row {
            requests: 1,
            ..Row::new(
                Prefix::of(Ipv4Addr::from_bits(u32::try_from(number).unwrap() << 8).into()),
                "eu".parse().unwrap(),
                Source::Clients,
                seen,
            )
        };
        for number in 0..MAX_ROWS {
            assert!(landings.merge(numbered(number, 10 + number as i64)));
        }
        assert!(landings.merge(numbered(0, 1_000_000)), "a known one takes no room");
        assert!(landings.merge(numbered(MAX_ROWS, 1_000_001)));
        assert!(!landings.merge(numbered(MAX_ROWS + 1, 3)), "it is the oldest itself");
        assert_eq!((landings.len(), landings.rows().count()), (MAX_ROWS, MAX_ROWS));
        let has = |number: usize| !landings.of(numbered(number, 0).prefix).is_empty();
        assert!(has(0) && !has(1) && has(2) && has(MAX_ROWS) && !has(MAX_ROWS + 1));
    }
}
