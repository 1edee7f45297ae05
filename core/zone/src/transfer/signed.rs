//! All records of a zone, with a chain of NSEC records and all signatures if it has keys: secondaries without keys serve
//! it as it is.

use std::collections::VecDeque;

use crate::{
    data::{Node, Zone},
    dnssec::{Signable, SignatureCache, write_signatures},
    name::Name,
    record::{Record, RecordSet, RecordType, TypeBitmap, write_bitmap},
};

/// Records that are made when it is their turn, because signatures take time.
pub(super) enum Item {
    /// One record.
    Plain(Record),
    /// The records of one name and type, and their signatures.
    Signed { owner: Name, rtype: RecordType, ttl: u32, data: Vec<Vec<u8>> },
}

impl Item {
    pub(super) fn records(self, zone: &Zone, now: u64) -> Vec<Record> {
        let (owner, rtype, ttl, data) = match self {
            Self::Plain(record) => return vec![record],
            Self::Signed { owner, rtype, ttl, data } => (owner, rtype, ttl, data),
        };
        let mut records: Vec<Record> = Vec::new();
        let mut written = Vec::new();
        if let Some(keys) = zone.keys() {
            let signable =
                Signable { owner: owner.as_wire(), rtype, ttl, sent_ttl: ttl, data: data.iter().map(Vec::as_slice) };
            // Each signature is made once: nothing is worth keeping.
            let mut cache = SignatureCache::new(0, [0; 16]);
            write_signatures(signable, 0, keys, now, &mut cache, &mut Vec::new(), &mut written);
        }
        records.extend(data.into_iter().map(|data| Record::plain(owner.clone(), ttl, rtype, data)));
        records.extend(
            signature_data(&written).map(|data| Record::plain(owner.clone(), ttl, RecordType::RRSIG, data.to_vec())),
        );
        records
    }
}

/// The data of records with a pointer as their name.
fn signature_data(mut written: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let fixed = written.first_chunk::<12>()?;
        let len = usize::from(u16::from_be_bytes([fixed[10], fixed[11]]));
        let (data, rest) = written[12..].split_at_checked(len)?;
        written = rest;
        Some(data)
    })
}

/// The records of a whole transfer: the SOA record is the first and the last (RFC 5936 section 2.2).
pub(super) fn items(zone: &Zone, now: u64) -> VecDeque<Item> {
    let mut nodes: Vec<(Name, &Node)> = zone.nodes().collect();
    nodes.sort_by(|(a, _), (b, _)| a.cmp(b));
    let is_signed = zone.keys().is_some();
    let plain = |owner: &Name, set: &RecordSet| -> Vec<Item> {
        let record = |data: &[u8]| Item::Plain(Record::plain(owner.clone(), set.ttl(), set.rtype(), data.to_vec()));
        set.data().map(record).collect()
    };
    let signed = |owner: &Name, set: &RecordSet| Item::Signed {
        owner: owner.clone(),
        rtype: set.rtype(),
        ttl: set.ttl(),
        data: set.data().map(<[u8]>::to_vec).collect(),
    };
    let mut items = VecDeque::new();
    let mut chain: Vec<(Name, TypeBitmap)> = Vec::new();
    let mut cut: Option<Name> = None;
    if is_signed {
        items.push_back(signed(zone.apex(), zone.soa()));
    } else {
        items.extend(plain(zone.apex(), zone.soa()));
    }
    for (owner, node) in nodes {
        let is_apex = owner == *zone.apex();
        let is_glue = cut.as_ref().is_some_and(|cut| owner.is_within(cut));
        let mut types = TypeBitmap::new();
        let keys = zone.keys().filter(|_| is_apex).map(|keys| keys.phase(now));
        let of_keys = keys.into_iter().flat_map(|phase| {
            [RecordType::DNSKEY, RecordType::CDS, RecordType::CDNSKEY].into_iter().filter_map(|rtype| phase.set(rtype))
        });
        for set in node.sets().iter().chain(of_keys) {
            let is_soa = set.rtype() == RecordType::SOA;
            let is_authoritative = !is_glue && (!node.is_cut() || set.rtype() == RecordType::DS);
            // Addresses at a delegation itself are glue.
            if is_authoritative || (node.is_cut() && set.rtype() == RecordType::NS) {
                types.insert(set.rtype());
            }
            match (is_soa, is_signed && is_authoritative) {
                (true, _) => {}
                (false, true) => items.push_back(signed(&owner, set)),
                (false, false) => items.extend(plain(&owner, set)),
            }
        }
        if is_signed && !is_glue && !node.sets().is_empty() {
            types.insert(RecordType::RRSIG);
            types.insert(RecordType::NSEC);
            chain.push((owner.clone(), types));
        }
        if node.is_cut() && !is_glue {
            cut = Some(owner);
        }
    }
    items.extend(nsec_chain(zone, &chain));
    items.extend(plain(zone.apex(), zone.soa()).into_iter().take(1));
    items
}

//= RFC 4034 section 4.1.1
//# The value of the Next Domain Name field in the last NSEC record in the zone is the name of the zone apex
fn nsec_chain(zone: &Zone, chain: &[(Name, TypeBitmap)]) -> Vec<Item> {
    let next = chain.iter().skip(1).map(|(name, _)| name).chain([zone.apex()]);
    let item = |((owner, types), next): (&(Name, TypeBitmap), &Name)| {
        let mut data = next.as_wire().to_vec();
        write_bitmap(types.types(), &mut data);
        let (rtype, ttl) = (RecordType::NSEC, zone.negative_soa().ttl());
        Item::Signed { owner: owner.clone(), rtype, ttl, data: vec![data] }
    };
    chain.iter().zip(next).map(item).collect()
}
