//! A row of the table.

use std::{fmt, str::FromStr, time::Duration};

use sallyport_model::RegionName;
use sallyport_policy::Country;

use crate::Prefix;

/// The time after which a request counts half, in seconds.
pub const HALF_LIFE_SECONDS: i64 = 600;

/// Where a row comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Connections of real clients.
    Clients,
    /// Replies to pings from the anycast address, and pings from each site.
    Ping,
    /// Answers of the name server that say which server answered.
    Chaos,
    /// Results of RIPE Atlas.
    Atlas,
}

/// The text is no source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no source: use clients, ping, chaos or atlas")]
pub struct SourceError(String);

impl Source {
    /// All sources.
    pub const ALL: [Self; 4] = [Self::Clients, Self::Ping, Self::Chaos, Self::Atlas];

    /// The name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Ping => "ping",
            Self::Chaos => "chaos",
            Self::Atlas => "atlas",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let found = Self::ALL.into_iter().find(|source| source.as_str() == text);
        found.ok_or_else(|| SourceError(text.chars().take(32).collect()))
    }
}

/// What one source knows of a network and a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The network.
    pub prefix: Prefix,
    /// The autonomous system, if known.
    pub system: Option<u32>,
    /// The country, if known.
    pub country: Option<Country>,
    /// The site: a region of edges.
    pub site: RegionName,
    /// The shortest round trip between the site and the network, if measured.
    pub round_trip: Option<Duration>,
    /// How many requests landed at the site, as they count at [`Self::seen`]. With none, the row has only a round trip.
    pub requests: u64,
    /// The source.
    pub source: Source,
    /// When the row was last seen, in seconds since 1970.
    pub seen: i64,
}

impl Row {
    /// A row without requests and without a round trip.
    #[must_use]
    pub fn new(prefix: Prefix, site: RegionName, source: Source, seen: i64) -> Self {
        Self { prefix, system: None, country: None, site, round_trip: None, requests: 0, source, seen }
    }

    /// How many requests count at a later time: half after each [`HALF_LIFE_SECONDS`].
    #[must_use]
    pub fn requests_at(&self, now: i64) -> f64 {
        let later = now.saturating_sub(self.seen).max(0);
        self.requests as f64 * (-(later as f64) / HALF_LIFE_SECONDS as f64).exp2()
    }

    /// Adds requests that came until this time.
    pub fn add_requests(&mut self, more: u64, now: i64) {
        self.requests = (self.requests_at(now).round() as u64).saturating_add(more);
        self.seen = self.seen.max(now);
    }

    /// Whether the row is at most this old, in seconds.
    #[must_use]
    pub fn is_fresh(&self, now: i64, max_age: i64) -> bool {
        now.saturating_sub(self.seen) <= max_age
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_half_after_the_half_life() {
        let prefix = Prefix::of([192, 0, 2, 1].into());
        let mut row = Row::new(prefix, "eu".parse().unwrap(), Source::Clients, 1_000);
        row.add_requests(100, 1_000);
        assert_eq!(row.requests, 100);
        row.add_requests(1, 1_000 + HALF_LIFE_SECONDS);
        assert_eq!((row.requests, row.seen), (51, 1_000 + HALF_LIFE_SECONDS));
        row.add_requests(1, 0);
        assert_eq!((row.requests, row.seen), (52, 1_000 + HALF_LIFE_SECONDS), "a clock that goes back");
        row.add_requests(u64::MAX, i64::MAX);
        assert_eq!(row.requests, u64::MAX);
    }

    #[test]
    fn sources_are_read_as_they_are_written() {
        for source in Source::ALL {
            assert_eq!(source.to_string().parse::<Source>(), Ok(source));
        }
        assert!("Ping".parse::<Source>().unwrap_err().to_string().contains("is no source"));
    }
}
