//! A zone, ready to be asked.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::changes::ZoneChange;
use crate::{
    dnssec::ZoneKeys,
    name::Name,
    record::{Record, RecordSet, RecordType, TypeBitmap},
};

/// A zone: its records by name, and what answers need of them. It never changes; a changed zone is another one.
#[derive(Debug)]
pub struct Zone {
    pub(super) apex: Name,
    /// Number of labels of the apex.
    pub(super) apex_labels: usize,
    pub(super) serial: u32,
    pub(super) soa: RecordSet,
    /// The SOA record of answers that say what is not there. Its TTL is shorter (RFC 2308 section 3).
    pub(super) negative_soa: RecordSet,
    pub(super) nodes: HashMap<Box<[u8]>, Node>,
    pub(super) keys: Option<Arc<ZoneKeys>>,
    /// Names of the TSIG keys that may transfer the zone.
    pub(super) transfer_keys: Vec<Name>,
    pub(super) history: VecDeque<Arc<ZoneChange>>,
}

/// A name of a zone. A name without sets is there because a longer one is (an empty non-terminal).
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(super) sets: Box<[RecordSet]>,
    pub(super) addresses: Option<(AddressSource, u32)>,
    pub(super) is_cut: bool,
    /// A name above is delegated or redirected: this one is not the zone's to answer for.
    pub(super) is_hidden: bool,
    pub(super) has_wildcard: bool,
}

/// Where addresses come from that are not in the zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AddressSource {
    /// The group of edges with this name.
    Edges(Box<str>),
    /// The addresses of this name.
    Alias(Name),
}

impl Node {
    pub(crate) fn set(&self, rtype: RecordType) -> Option<&RecordSet> {
        self.sets.iter().find(|set| set.rtype() == rtype)
    }

    pub(crate) fn sets(&self) -> &[RecordSet] {
        &self.sets
    }

    pub(crate) fn addresses(&self) -> Option<&AddressSource> {
        self.addresses.as_ref().map(|(source, _)| source)
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether the zone answers for the name by its own records.
    pub(crate) fn is_own(&self) -> bool {
        !self.is_cut && !self.is_hidden
    }

    /// Adds the types of the sets.
    pub(crate) fn add_types(&self, types: &mut TypeBitmap) {
        self.sets.iter().for_each(|set| types.insert(set.rtype()));
    }
}

impl Zone {
    /// The name of the zone.
    #[must_use]
    pub fn apex(&self) -> &Name {
        &self.apex
    }

    /// The serial number of its SOA record.
    #[must_use]
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// The keys, if the zone is signed.
    #[must_use]
    pub fn keys(&self) -> Option<&Arc<ZoneKeys>> {
        self.keys.as_ref()
    }

    /// Whether every record is in the zone. Other zones have addresses from the view, and are not transferred.
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.nodes.values().all(|node| node.addresses.is_none())
    }

    /// Number of names, those without records included.
    #[must_use]
    pub fn name_count(&self) -> usize {
        self.nodes.len()
    }

    /// The longest TTL of its records, in seconds. Rollovers of keys wait for it.
    #[must_use]
    pub fn longest_ttl(&self) -> u32 {
        self.nodes.values().flat_map(|node| node.sets()).map(RecordSet::ttl).max().unwrap_or_default()
    }

    /// Lets these TSIG keys transfer the zone.
    #[must_use]
    pub fn with_transfer_keys(mut self, names: Vec<Name>) -> Self {
        self.transfer_keys = names;
        self
    }

    /// Names of the TSIG keys that may transfer the zone.
    #[must_use]
    pub fn transfer_keys(&self) -> &[Name] {
        &self.transfer_keys
    }

    /// The records of the zone, the SOA record first, then in canonical order of their names.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let mut names: Vec<(Name, &Node)> =
            self.nodes.iter().map(|(wire, node)| (Name::from_wire(wire), node)).collect();
        names.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut records = vec![];
        for (owner, node) in names {
            let mut sets: Vec<&RecordSet> = node.sets.iter().collect();
            sets.sort_by_key(|set| (set.rtype() != RecordType::SOA, set.rtype()));
            for set in sets {
                let record = |data: &[u8]| Record::plain(owner.clone(), set.ttl(), set.rtype(), data.to_vec());
                records.extend(set.data().map(record));
            }
        }
        records
    }

    pub(crate) fn apex_labels(&self) -> usize {
        self.apex_labels
    }

    pub(crate) fn soa(&self) -> &RecordSet {
        &self.soa
    }

    pub(crate) fn negative_soa(&self) -> &RecordSet {
        &self.negative_soa
    }

    pub(crate) fn node(&self, wire: &[u8]) -> Option<&Node> {
        self.nodes.get(wire)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (Name, &Node)> {
        self.nodes.iter().map(|(wire, node)| (Name::from_wire(wire), node))
    }
}
