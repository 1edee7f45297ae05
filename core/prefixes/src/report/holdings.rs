//! What many sources hold together.

use serde::Serialize;

use super::{Price, units};
use crate::{
    read::{Counts, Source, SourceKind},
    set::{Address, AddressSet, Ranges},
};

/// A source with the name of its file.
#[derive(Debug, Clone)]
pub struct Named {
    /// The name.
    pub name: String,
    /// What the file has.
    pub source: Source,
}

/// How many prefixes of one length there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LengthCount {
    /// The length, in bits.
    pub length: u8,
    /// The number of prefixes.
    pub prefixes: u64,
}

/// A file of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceReport {
    /// The name of the file.
    pub file: String,
    /// What the file is.
    pub kind: SourceKind,
    /// When the file says it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// The blocks in the file.
    pub listed: u64,
    /// Those that the file names again.
    pub duplicates: u64,
    /// Those inside a larger block of the file.
    pub nested: u64,
    /// Different IPv4 addresses.
    pub ipv4_addresses: u64,
    /// Different IPv6 networks of 64 bits.
    pub ipv6_networks: u64,
}

/// What two files both hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Overlap {
    /// The names of the files.
    pub files: [String; 2],
    /// The IPv4 addresses in both.
    pub ipv4_addresses: u64,
    /// The IPv6 networks of 64 bits in both.
    pub ipv6_networks: u64,
}

/// A part of what is held, and the rest, in the unit of the family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Part {
    /// What is held and belongs to the part.
    pub inside: u64,
    /// What is held and does not.
    pub outside: u64,
    /// What would belong to the part, and is not held.
    pub foreign: u64,
}

/// One family of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FamilyReport {
    /// All that is held: IPv4 in addresses, IPv6 in networks of 64 bits.
    pub held: u64,
    /// The fewest prefixes that have exactly the same addresses.
    pub prefixes: u64,
    /// These prefixes by length.
    pub by_length: Vec<LengthCount>,
    /// What is in use, if a file tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<Part>,
    /// What is announced, if a file tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announced: Option<Part>,
}

/// What many sources hold together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The files.
    pub files: Vec<SourceReport>,
    /// Pairs of files that hold the same addresses.
    pub overlaps: Vec<Overlap>,
    /// The IPv4 addresses, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<FamilyReport>,
    /// The IPv6 addresses, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<FamilyReport>,
    /// The value of the IPv4 addresses, if a price is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

impl Report {
    /// Counts what the sources hold. `used` and `announced` are what is in use and what is announced, if that is known.
    #[must_use]
    pub fn new(
        sources: &[Named],
        used: Option<&AddressSet>,
        announced: Option<&AddressSet>,
        price: Option<Price>,
    ) -> Self {
        let held = sources.iter().fold(AddressSet::default(), |all, one| all.union(&one.source.set));
        let ipv4 = family(&held.v4, used.map(|set| &set.v4), announced.map(|set| &set.v4));
        let ipv6 = family(&held.v6, used.map(|set| &set.v6), announced.map(|set| &set.v6));
        let value = price.map(|price| price.of(ipv4.as_ref().map_or(0, |family| family.held)));
        Self { files: sources.iter().map(file).collect(), overlaps: overlaps(sources), ipv4, ipv6, value }
    }
}

fn file(Named { name, source }: &Named) -> SourceReport {
    let Source { kind, date, set, v4, v6 } = source;
    let both = |of: fn(&Counts) -> u64| of(v4) + of(v6);
    SourceReport {
        file: name.clone(),
        kind: *kind,
        date: date.clone(),
        listed: both(|counts| counts.listed),
        duplicates: both(|counts| counts.duplicates),
        nested: both(|counts| counts.nested),
        ipv4_addresses: units(&set.v4),
        ipv6_networks: units(&set.v6),
    }
}

fn overlaps(sources: &[Named]) -> Vec<Overlap> {
    let mut found = Vec::new();
    for (at, one) in sources.iter().enumerate() {
        for other in &sources[at + 1..] {
            let both = one.source.set.intersection(&other.source.set);
            if both != AddressSet::default() {
                let files = [one.name.clone(), other.name.clone()];
                found.push(Overlap { files, ipv4_addresses: units(&both.v4), ipv6_networks: units(&both.v6) });
            }
        }
    }
    found
}

fn family<A: Address>(
    held: &Ranges<A>,
    used: Option<&Ranges<A>>,
    announced: Option<&Ranges<A>>,
) -> Option<FamilyReport> {
    if held.is_empty() {
        return None;
    }
    let mut counts = vec![0; usize::from(A::BITS) + 1];
    held.prefixes().for_each(|(_, length)| counts[usize::from(length)] += 1);
    let by_length = (0..=A::BITS).zip(counts).filter(|(_, prefixes)| *prefixes > 0);
    let by_length: Vec<_> = by_length.map(|(length, prefixes)| LengthCount { length, prefixes }).collect();
    let part = |part: &Ranges<A>| Part {
        inside: units(&held.intersection(part)),
        outside: units(&held.difference(part)),
        foreign: units(&part.difference(held)),
    };
    Some(FamilyReport {
        held: units(held),
        prefixes: by_length.iter().map(|count| count.prefixes).sum(),
        by_length,
        used: used.map(part),
        announced: announced.map(part),
    })
}
