//! Zones from records, with a sentence about each fault.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use super::zone::{AddressSource, Node, Zone};
use crate::{
    dnssec::ZoneKeys,
    name::{Name, NameBuf},
    record::{
        MAX_GROUP_NAME_BYTES, Record, RecordData, RecordSet, RecordType, SetError, is_group_name, parse_master_file,
    },
};

/// The most records of a zone.
pub const MAX_ZONE_RECORDS: usize = 2_000_000;
/// The most types at one name: an NSEC record lists them.
const MAX_TYPES_OF_A_NAME: usize = 48;

/// Why records make no zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// A record cannot be read.
    #[error("{0}")]
    Text(#[from] crate::record::RecordTextError),
    /// There is no SOA record.
    #[error("the zone {0} has no SOA record: add one")]
    NoSoa(Name),
    /// There is more than one SOA record.
    #[error("the zone {0} has more than one SOA record: keep one")]
    ManySoas(Name),
    /// An SOA record below the apex.
    #[error("{0} has an SOA record: only the apex {1} of the zone has one")]
    SoaBelow(Name, Name),
    /// There are no name servers.
    #[error("the zone {0} has no NS record: add one for each name server")]
    NoNs(Name),
    /// A record of another zone.
    #[error("{0} is not within the zone {1}")]
    OutOfZone(Name, Name),
    /// A CNAME record is not alone.
    #[error("{0} has a CNAME record and other records: a CNAME record is alone (RFC 1034 section 3.6.2)")]
    CnameAndOthers(Name),
    /// Two CNAME or DNAME records.
    #[error("{0} has more than one {1} record: keep one")]
    Several(Name, RecordType),
    /// A delegation that is redirected.
    #[error("{0} has a DNAME record and NS records: keep one of them (RFC 6672 section 2.3)")]
    DnameAtCut(Name),
    /// Records below a DNAME record.
    #[error("{0} is below {1}, which has a DNAME record (RFC 6672 section 2.4)")]
    BelowDname(Name, Name),
    /// A record that the server makes.
    #[error("{0} {1}: the server makes records of this type itself")]
    MadeByServer(Name, RecordType),
    /// A type of queries.
    #[error("{0} {1}: no record has this type")]
    MetaType(Name, RecordType),
    /// A wildcard that is delegated or redirected.
    #[error("{0} has a {1} record: a wildcard cannot have one (RFC 4592 section 4)")]
    WildcardCut(Name, RecordType),
    /// A DS record without a delegation.
    #[error("{0} has a DS record and no NS record: a DS record belongs to a delegation")]
    DsWithoutNs(Name),
    /// Addresses of the view, and others.
    #[error("{0} has addresses of edges or of another name, and {1} records too: keep one of them")]
    AddressesTwice(Name, RecordType),
    /// Addresses of the view at a delegation.
    #[error("{0} is delegated: addresses of edges or of another name belong to the delegated zone")]
    AddressesAtCut(Name),
    /// A name of a group.
    #[error(
        "{0}: {1:?} is no name of a group of edges: it has 1 to {MAX_GROUP_NAME_BYTES} letters, digits, dots or dashes"
    )]
    GroupName(Name, String),
    /// Too much.
    #[error("{0} {1}: {2}")]
    Set(Name, RecordType, SetError),
    /// Too many types.
    #[error("{0} has records of more than {MAX_TYPES_OF_A_NAME} types")]
    TooManyTypes(Name),
    /// Too many records.
    #[error("the zone {0} has more than {MAX_ZONE_RECORDS} records")]
    TooManyRecords(Name),
    /// The keys belong to another zone.
    #[error("the keys of {0} cannot sign the zone {1}")]
    KeysOfOther(Name, Name),
    /// The data do not have the form of their type.
    #[error("{0} {1}: the data are malformed")]
    Malformed(Name, RecordType),
}

/// The fields of an SOA record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Soa {
    /// The primary name server.
    pub primary: Name,
    /// The mailbox of who is responsible, with a dot for the at sign.
    pub mailbox: Name,
    /// The serial number. It grows with each change.
    pub serial: u32,
    /// When secondaries look again, in seconds.
    pub refresh: u32,
    /// When they try again after a failure, in seconds.
    pub retry: u32,
    /// How long they answer without the primary, in seconds.
    pub expire: u32,
    /// How long others keep what is not there, in seconds.
    pub minimum: u32,
}

impl Soa {
    /// The record.
    #[must_use]
    pub fn record(&self, apex: Name, ttl: u32) -> Record {
        let mut data = [self.primary.as_wire(), self.mailbox.as_wire()].concat();
        for number in [self.serial, self.refresh, self.retry, self.expire, self.minimum] {
            data.extend(number.to_be_bytes());
        }
        Record::plain(apex, ttl, RecordType::SOA, data)
    }
}

#[derive(Default)]
struct Draft {
    sets: BTreeMap<RecordType, (u32, Vec<Vec<u8>>)>,
    addresses: Option<(AddressSource, u32)>,
}

impl Zone {
    /// A zone from a master file.
    ///
    /// # Errors
    /// One sentence about the first fault.
    pub fn from_master_file(apex: Name, text: &str, keys: Option<Arc<ZoneKeys>>) -> Result<Self, ZoneError> {
        let records = parse_master_file(text, &apex)?;
        Self::build(apex, records, keys)
    }

    /// A zone from its records. Records of one name and type get the shortest of their TTLs.
    ///
    /// # Errors
    /// One sentence about the first fault.
    pub fn build(apex: Name, records: Vec<Record>, keys: Option<Arc<ZoneKeys>>) -> Result<Self, ZoneError> {
        if records.len() > MAX_ZONE_RECORDS {
            return Err(ZoneError::TooManyRecords(apex));
        }
        if let Some(other) = keys.as_ref().map(|keys| keys.apex()).filter(|other| **other != apex) {
            return Err(ZoneError::KeysOfOther(other.clone(), apex));
        }
        let mut drafts: BTreeMap<Name, Draft> = BTreeMap::new();
        for record in records {
            if !record.owner.is_within(&apex) {
                return Err(ZoneError::OutOfZone(record.owner, apex));
            }
            drafts.entry(record.owner.clone()).or_default().add(record)?;
        }
        check(&apex, &drafts)?;
        let nodes = nodes(&apex, drafts)?;
        let soa = nodes.get(apex.as_wire()).and_then(|node| node.set(RecordType::SOA).cloned());
        let soa = soa.ok_or_else(|| ZoneError::NoSoa(apex.clone()))?;
        let numbers = soa.data().next().and_then(soa_numbers);
        let [serial, .., minimum] = numbers.ok_or_else(|| ZoneError::Malformed(apex.clone(), RecordType::SOA))?;
        //= RFC 2308 section 3
        //# The TTL of this record is set from the minimum of the MINIMUM field of the SOA record and the TTL of
        //# the SOA itself
        let negative_soa = soa.with_ttl(minimum.min(soa.ttl()));
        let (transfer_keys, history) = (Vec::new(), VecDeque::new());
        let apex_labels = apex.label_count();
        Ok(Self { apex, apex_labels, serial, soa, negative_soa, nodes, keys, transfer_keys, history })
    }
}

impl Draft {
    fn add(&mut self, record: Record) -> Result<(), ZoneError> {
        let owner = record.owner;
        let source = match record.data {
            RecordData::Plain(rtype, _) if rtype.is_made_by_the_server() => {
                return Err(ZoneError::MadeByServer(owner, rtype));
            }
            RecordData::Plain(rtype, _) if rtype.is_meta() => return Err(ZoneError::MetaType(owner, rtype)),
            RecordData::Plain(rtype, data) => {
                if !is_well_formed(rtype, &data) {
                    return Err(ZoneError::Malformed(owner, rtype));
                }
                let (ttl, all) = self.sets.entry(rtype).or_insert((record.ttl, Vec::new()));
                *ttl = record.ttl.min(*ttl);
                all.push(data);
                return Ok(());
            }
            RecordData::Edges(group) => {
                if !is_group_name(&group) {
                    return Err(ZoneError::GroupName(owner, group));
                }
                AddressSource::Edges(group.into())
            }
            RecordData::Alias(target) => AddressSource::Alias(target),
        };
        if self.addresses.as_ref().is_some_and(|(known, _)| *known != source) {
            return Err(ZoneError::AddressesTwice(owner, RecordType::A));
        }
        self.addresses = Some((source, record.ttl));
        Ok(())
    }
}

/// Whether names and fixed fields in the data are there, for the types whose data the server reads.
fn is_well_formed(rtype: RecordType, data: &[u8]) -> bool {
    let name_ends = |at: usize| {
        let name = data.get(at..).and_then(NameBuf::read);
        name.is_some_and(|name| at + name.as_wire().len() == data.len())
    };
    match rtype {
        RecordType::A => data.len() == 4,
        RecordType::AAAA => data.len() == 16,
        RecordType::NS | RecordType::CNAME | RecordType::DNAME | RecordType::PTR => name_ends(0),
        RecordType::MX => name_ends(2),
        RecordType::SRV => name_ends(6),
        RecordType::SOA => soa_numbers(data).is_some(),
        RecordType::TXT => !data.is_empty() && strings_end(data),
        RecordType::CAA => {
            let tag = data.get(1).map(|len| data.get(2..2 + usize::from(*len)).unwrap_or_default());
            tag.is_some_and(|tag| !tag.is_empty() && tag.iter().all(u8::is_ascii_alphanumeric))
        }
        RecordType::SVCB | RecordType::HTTPS => is_service(data),
        _ => true,
    }
}

/// Whether the data are strings, each with its length before it.
fn strings_end(mut data: &[u8]) -> bool {
    while let Some((len, rest)) = data.split_first() {
        let Some(rest) = rest.get(usize::from(*len)..) else { return false };
        data = rest;
    }
    true
}

/// Whether the data are those of a SVCB or HTTPS record: a priority, a name, and parameters in ascending order. The
/// parameters that are mandatory are there, and an alias has none (RFC 9460 sections 2.4.2 and 8).
fn is_service(data: &[u8]) -> bool {
    let number = |at: &[u8]| Some(u16::from_be_bytes([*at.first()?, *at.get(1)?]));
    let Some(priority) = number(data) else { return false };
    let Some(name) = NameBuf::read(&data[2..]) else { return false };
    let mut rest = &data[2 + name.as_wire().len()..];
    let (mut keys, mut mandatory) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let Some((key, len)) = number(rest).zip(rest.get(2..).and_then(number)) else { return false };
        let Some(value) = rest.get(4..4 + usize::from(len)) else { return false };
        if keys.last().is_some_and(|last| *last >= key) {
            return false;
        }
        if key == 0 {
            mandatory = value.chunks(2).map(|pair| number(pair).unwrap_or_default()).collect();
        }
        keys.push(key);
        rest = &rest[4 + usize::from(len)..];
    }
    let are_there = mandatory.iter().all(|key| *key != 0 && keys.contains(key));
    are_there && (priority > 0 || keys.is_empty())
}

fn soa_numbers(data: &[u8]) -> Option<[u32; 5]> {
    let primary = NameBuf::read(data)?.as_wire().len();
    let mailbox = NameBuf::read(&data[primary..])?.as_wire().len();
    let numbers: &[u8; 20] = data[primary + mailbox..].try_into().ok()?;
    let number = |at: usize| u32::from_be_bytes([numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]]);
    Some([number(0), number(4), number(8), number(12), number(16)])
}

fn check(apex: &Name, drafts: &BTreeMap<Name, Draft>) -> Result<(), ZoneError> {
    let at_apex = drafts.get(apex).map(|draft| &draft.sets);
    match at_apex.and_then(|sets| sets.get(&RecordType::SOA)) {
        None => return Err(ZoneError::NoSoa(apex.clone())),
        Some((_, all)) if all.len() > 1 => return Err(ZoneError::ManySoas(apex.clone())),
        Some(_) => {}
    }
    if !at_apex.is_some_and(|sets| sets.contains_key(&RecordType::NS)) {
        return Err(ZoneError::NoNs(apex.clone()));
    }
    for (owner, draft) in drafts {
        check_name(apex, owner, draft)?;
    }
    for (owner, _) in drafts.iter().filter(|(_, draft)| draft.sets.contains_key(&RecordType::DNAME)) {
        // Names below follow in canonical order.
        let below = drafts.range(owner.clone()..).nth(1).map(|(below, _)| below);
        if let Some(below) = below.filter(|below| below.is_within(owner)) {
            return Err(ZoneError::BelowDname(below.clone(), owner.clone()));
        }
    }
    Ok(())
}

fn check_name(apex: &Name, owner: &Name, draft: &Draft) -> Result<(), ZoneError> {
    let has = |rtype| draft.sets.contains_key(&rtype);
    let is_cut = owner != apex && has(RecordType::NS);
    if owner != apex && has(RecordType::SOA) {
        return Err(ZoneError::SoaBelow(owner.clone(), apex.clone()));
    }
    if has(RecordType::CNAME) && (draft.sets.len() > 1 || draft.addresses.is_some()) {
        return Err(ZoneError::CnameAndOthers(owner.clone()));
    }
    for rtype in [RecordType::CNAME, RecordType::DNAME] {
        let mut all = draft.sets.get(&rtype).map(|(_, all)| all.clone()).unwrap_or_default();
        all.sort();
        all.dedup();
        if all.len() > 1 {
            return Err(ZoneError::Several(owner.clone(), rtype));
        }
    }
    for rtype in [RecordType::NS, RecordType::DNAME] {
        if owner.is_wildcard() && has(rtype) {
            return Err(ZoneError::WildcardCut(owner.clone(), rtype));
        }
    }
    if is_cut && has(RecordType::DNAME) {
        return Err(ZoneError::DnameAtCut(owner.clone()));
    }
    if has(RecordType::DS) && !is_cut {
        return Err(ZoneError::DsWithoutNs(owner.clone()));
    }
    if draft.addresses.is_some() {
        if is_cut {
            return Err(ZoneError::AddressesAtCut(owner.clone()));
        }
        for rtype in [RecordType::A, RecordType::AAAA] {
            if has(rtype) {
                return Err(ZoneError::AddressesTwice(owner.clone(), rtype));
            }
        }
    }
    if draft.sets.len() > MAX_TYPES_OF_A_NAME {
        return Err(ZoneError::TooManyTypes(owner.clone()));
    }
    Ok(())
}

fn nodes(apex: &Name, drafts: BTreeMap<Name, Draft>) -> Result<HashMap<Box<[u8]>, Node>, ZoneError> {
    let mut nodes: HashMap<Box<[u8]>, Node> = HashMap::with_capacity(drafts.len() + 1);
    let mut barrier: Option<Name> = None;
    for (owner, draft) in drafts {
        // Names below follow in canonical order.
        let is_hidden = barrier.as_ref().is_some_and(|barrier| owner != *barrier && owner.is_within(barrier));
        let is_cut = owner != *apex && draft.sets.contains_key(&RecordType::NS);
        let mut sets = Vec::with_capacity(draft.sets.len());
        for (rtype, (ttl, data)) in draft.sets {
            let set = RecordSet::new(rtype, ttl, data, Some(apex));
            sets.push(set.map_err(|source| ZoneError::Set(owner.clone(), rtype, source))?);
        }
        let node = nodes.entry(owner.as_wire().into()).or_default();
        (node.sets, node.addresses) = (sets.into(), draft.addresses);
        (node.is_cut, node.is_hidden) = (is_cut, is_hidden);
        if !is_hidden && (is_cut || node.set(RecordType::DNAME).is_some()) {
            barrier = Some(owner.clone());
        }
        // The names between this one and the apex exist too.
        let (mut below, mut is_wildcard) = (owner.clone(), owner.is_wildcard());
        while let Some(above) = below.parent().filter(|above| below != *apex && above.is_within(apex)) {
            let is_known = nodes.contains_key(above.as_wire());
            let node = nodes.entry(above.as_wire().into()).or_default();
            node.has_wildcard |= is_wildcard;
            node.is_hidden |= !is_known && is_hidden;
            // Its own ancestors came with it.
            if is_known {
                break;
            }
            is_wildcard = above.is_wildcard();
            below = above;
        }
    }
    Ok(nodes)
}
