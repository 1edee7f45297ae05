//! The parts of a laboratory, before it is built.

use std::{fmt, str::FromStr, time::Duration};

use sallyport_model::RegionName;
use serde::{Deserialize, Serialize};

use crate::anycast::{AnycastError, AnycastOptions, AnycastTopology, CITIES};

/// The possible regions, in the order in which they are taken.
pub const REGIONS: [&str; 6] = ["eu", "us", "ap", "sa", "af", "oc"];
/// How many edges a region may have.
pub(crate) const MAX_EDGES: u8 = 8;
/// How many controls there may be.
pub(crate) const MAX_CONTROLS: u8 = 4;
/// The longest delay of a link, one way.
pub const MAX_DELAY: Duration = Duration::from_secs(5);
/// The lowest and the highest rate of a link, in bits a second.
pub(crate) const RATES_BITS: std::ops::RangeInclusive<u64> = 10_000..=100_000_000_000;

/// Round trips in milliseconds between two of [`REGIONS`], similar to those between data centres there.
const ROUND_TRIPS_MS: [(usize, usize, u16); 15] = [
    (0, 1, 80),
    (0, 2, 160),
    (0, 3, 190),
    (0, 4, 150),
    (0, 5, 270),
    (1, 2, 150),
    (1, 3, 120),
    (1, 4, 220),
    (1, 5, 200),
    (2, 3, 300),
    (2, 4, 240),
    (2, 5, 100),
    (3, 4, 330),
    (3, 5, 300),
    (4, 5, 280),
];

/// Why a topology is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// The name of the laboratory.
    #[error("{0:?} is no name of a laboratory: use 1 to 8 lower-case letters and digits, beginning with a letter")]
    Name(String),
    /// The number of regions.
    #[error("a laboratory has 1 to {most} regions, and not {wanted}", most = REGIONS.len())]
    Regions {
        /// What was asked for.
        wanted: u8,
    },
    /// The number of edges.
    #[error("a region has 1 to {MAX_EDGES} edges, and not {0}")]
    Edges(u8),
    /// The number of controls.
    #[error("a laboratory has 1 to {MAX_CONTROLS} controls, and not {0}")]
    Controls(u8),
    /// Several controls, each with a database of its own.
    #[error("{0} controls need a database that they share: leave --no-postgres out, or have one control")]
    NoDatabase(u8),
    /// A link.
    #[error("{0:?} is no {1}")]
    Link(String, &'static str),
    /// The internet of an anycast laboratory.
    #[error(transparent)]
    Anycast(#[from] AnycastError),
}

/// The name of a laboratory, the prefix of its namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabName(String);

impl LabName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for LabName {
    fn default() -> Self {
        Self("lab".to_owned())
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for LabName {
    type Err = TopologyError;
    fn from_str(text: &str) -> Result<Self, TopologyError> {
        let is_good = (1..=8).contains(&text.len())
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if is_good { Ok(Self(text.to_owned())) } else { Err(TopologyError::Name(text.chars().take(64).collect())) }
    }
}

impl TryFrom<String> for LabName {
    type Error = TopologyError;
    fn try_from(text: String) -> Result<Self, TopologyError> {
        text.parse()
    }
}

impl From<LabName> for String {
    fn from(name: LabName) -> String {
        name.0
    }
}

/// The properties of a link, in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Link {
    /// The delay of each packet, one way.
    pub delay: Duration,
    /// The lost packets, in percent.
    pub loss_percent: f64,
    /// The bandwidth in bits a second; `None` for that of the machine.
    pub rate_bits: Option<u64>,
}

/// Where the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Database {
    /// A PostgreSQL of the laboratory.
    Postgres,
    /// SQLite, in the data directory of the one control.
    Sqlite,
}

/// The options of a topology.
#[derive(Debug, Clone, PartialEq)]
pub struct TopologyOptions {
    /// The name.
    pub name: LabName,
    /// How many regions.
    pub regions: u8,
    /// How many edges each.
    pub edges: u8,
    /// How many controls.
    pub controls: u8,
    /// Where the store is.
    pub database: Database,
    /// The delay between any two regions, one way; by default that of their names.
    pub delay: Option<Duration>,
    /// The lost packets between regions, in percent.
    pub loss_percent: f64,
    /// The bandwidth between any two regions in bits a second, each way.
    pub rate_bits: Option<u64>,
}

impl Default for TopologyOptions {
    fn default() -> Self {
        Self {
            name: LabName::default(),
            regions: 3,
            edges: 1,
            controls: 2,
            database: Database::Postgres,
            delay: None,
            loss_percent: 0.0,
            rate_bits: None,
        }
    }
}

/// The topology of a laboratory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Topology {
    /// The name.
    pub name: LabName,
    /// The regions.
    pub regions: Vec<RegionName>,
    /// Edges in each region.
    pub edges: u8,
    /// Controls, spread over the regions.
    pub controls: u8,
    /// Where the store is.
    pub database: Database,
    /// Links between regions: `(from, to, link)` with `from < to`, the same both ways.
    pub links: Vec<(usize, usize, Link)>,
    /// The sites, if this is an anycast laboratory. A site is a region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anycast: Option<AnycastTopology>,
}

impl Topology {
    /// The topology for these options.
    ///
    /// # Errors
    /// The topology is not possible; the sentence has the reason.
    pub fn new(options: &TopologyOptions) -> Result<Self, TopologyError> {
        let count = usize::from(options.regions);
        if !(1..=REGIONS.len()).contains(&count) {
            return Err(TopologyError::Regions { wanted: options.regions });
        }
        if !(1..=MAX_EDGES).contains(&options.edges) {
            return Err(TopologyError::Edges(options.edges));
        }
        if !(1..=MAX_CONTROLS).contains(&options.controls) {
            return Err(TopologyError::Controls(options.controls));
        }
        if options.database == Database::Sqlite && options.controls > 1 {
            return Err(TopologyError::NoDatabase(options.controls));
        }
        let regions = REGIONS[..count]
            .iter()
            .map(|name| name.parse().map_err(|_| TopologyError::Link((*name).to_owned(), "name of a region")));
        let links = ROUND_TRIPS_MS.iter().filter(|(_, to, _)| *to < count).map(|(from, to, round_trip)| {
            let delay = options.delay.unwrap_or(Duration::from_millis(u64::from(*round_trip)) / 2);
            (*from, *to, Link { delay, loss_percent: options.loss_percent, rate_bits: options.rate_bits })
        });
        let links = links.collect::<Vec<_>>();
        links.iter().try_for_each(|(_, _, link)| link.check())?;
        Ok(Self {
            name: options.name.clone(),
            regions: regions.collect::<Result<_, _>>()?,
            edges: options.edges,
            controls: options.controls,
            database: options.database,
            links,
            anycast: None,
        })
    }

    /// The topology of an anycast laboratory.
    ///
    /// # Errors
    /// The topology is not possible; the sentence has the reason.
    pub fn anycast(name: LabName, options: AnycastOptions) -> Result<Self, TopologyError> {
        let anycast = AnycastTopology::new(options)?;
        let names = CITIES[..anycast.edges.len()].iter().map(|city| city.name);
        let regions =
            names.map(|name| name.parse().map_err(|_| TopologyError::Link(name.to_owned(), "name of a region")));
        Ok(Self {
            name,
            regions: regions.collect::<Result<_, _>>()?,
            edges: options.edges_per_site,
            controls: 1,
            database: Database::Sqlite,
            links: Vec::new(),
            anycast: Some(anycast),
        })
    }

    /// The link between two regions; within one, packets pass at once.
    #[must_use]
    pub fn link(&self, a: usize, b: usize) -> Link {
        let (from, to) = (a.min(b), a.max(b));
        let found = self.links.iter().find(|link| (link.0, link.1) == (from, to));
        found.map_or_else(Link::default, |(_, _, link)| *link)
    }
}

impl Link {
    /// Checks the link.
    ///
    /// # Errors
    /// A value is not possible; the sentence names the value.
    pub fn check(&self) -> Result<(), TopologyError> {
        if self.delay > MAX_DELAY {
            return Err(TopologyError::Link(format!("{:?}", self.delay), "delay of a link: 5s at most, one way"));
        }
        if !(0.0..=100.0).contains(&self.loss_percent) {
            return Err(TopologyError::Link(self.loss_percent.to_string(), "loss in per cent: 0 to 100"));
        }
        match self.rate_bits {
            Some(rate) if !RATES_BITS.contains(&rate) => {
                Err(TopologyError::Link(rate.to_string(), "rate in bits a second: 10k to 100G"))
            }
            _ => Ok(()),
        }
    }
}

/// Parses a bandwidth in bits a second: `10M`, `2.5G`, `300k`.
///
/// # Errors
/// A sentence with what was expected.
pub fn rate_bits(text: &str) -> Result<u64, String> {
    let wrong = || "expected bits a second such as 300k, 10M or 2.5G, from 10k to 100G".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
    let factor = match &text[digits..] {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err(wrong()),
    };
    let bits = (number * factor).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is looked at first")]
    if bits >= *RATES_BITS.start() as f64 && bits <= *RATES_BITS.end() as f64 { Ok(bits as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_regions_have_three_links_with_the_delays_of_their_names() {
        let topology = Topology::new(&TopologyOptions::default()).unwrap();
        let names: Vec<_> = topology.regions.iter().map(RegionName::as_str).collect();
        assert_eq!(names, ["eu", "us", "ap"]);
        assert_eq!(topology.links.len(), 3);
        assert_eq!(topology.link(1, 0).delay, Duration::from_millis(40));
        assert_eq!(topology.link(0, 2).delay, Duration::from_millis(80));
        assert_eq!(topology.link(1, 1), Link::default());
    }

    #[test]
    fn every_two_regions_have_a_link() {
        let topology = Topology::new(&TopologyOptions { regions: 6, ..TopologyOptions::default() }).unwrap();
        for a in 0..6 {
            for b in 0..6 {
                assert_eq!(topology.link(a, b) == Link::default(), a == b, "{a} {b}");
            }
        }
    }

    #[test]
    fn options_replace_the_defaults_of_links() {
        let link = Link { delay: Duration::from_millis(3), loss_percent: 1.5, rate_bits: Some(10_000_000) };
        let options = TopologyOptions {
            delay: Some(link.delay),
            loss_percent: 1.5,
            rate_bits: link.rate_bits,
            ..TopologyOptions::default()
        };
        let topology = Topology::new(&options).unwrap();
        assert!(topology.links.iter().all(|(_, _, found)| *found == link), "{topology:?}");
    }

    #[test]
    fn what_cannot_be_built_is_refused_in_a_sentence() {
        let refused = |options: TopologyOptions| Topology::new(&options).unwrap_err().to_string();
        assert!(
            refused(TopologyOptions { regions: 0, ..TopologyOptions::default() }).contains("1 to 6 regions, and not 0")
        );
        assert!(refused(TopologyOptions { regions: 7, ..TopologyOptions::default() }).contains("and not 7"));
        assert!(refused(TopologyOptions { edges: 9, ..TopologyOptions::default() }).contains("1 to 8 edges"));
        assert!(refused(TopologyOptions { controls: 0, ..TopologyOptions::default() }).contains("1 to 4 controls"));
        assert!(
            refused(TopologyOptions { database: Database::Sqlite, ..TopologyOptions::default() })
                .contains("a database that they share")
        );
        assert!(refused(TopologyOptions { loss_percent: f64::NAN, ..TopologyOptions::default() }).contains("0 to 100"));
        assert!(refused(TopologyOptions { loss_percent: 101.0, ..TopologyOptions::default() }).contains("0 to 100"));
        let slow = Some(Duration::from_secs(6));
        assert!(refused(TopologyOptions { delay: slow, ..TopologyOptions::default() }).contains("5s at most"));
        assert!(refused(TopologyOptions { rate_bits: Some(1), ..TopologyOptions::default() }).contains("10k to 100G"));
        for name in ["", "Lab", "1lab", "much-too-long", "a/b", "../x"] {
            assert!(name.parse::<LabName>().is_err(), "{name:?}");
        }
        assert_eq!("t42".parse::<LabName>().unwrap().as_str(), "t42");
    }

    #[test]
    fn rates_are_read_with_their_units() {
        assert_eq!(rate_bits("2.5G"), Ok(2_500_000_000));
        assert_eq!(rate_bits("10M"), Ok(10_000_000));
        assert_eq!(rate_bits("300k"), Ok(300_000));
        for wrong in ["", "M", "-1M", "10 M", "1e9", "1k", "9999G", "1.2.3M"] {
            assert!(rate_bits(wrong).is_err(), "{wrong}");
        }
    }
}
