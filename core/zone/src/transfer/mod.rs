//! Zones on their way to secondaries: whole (AXFR) or by changes (IXFR), signed for servers that do not sign, notices of
//! changes, and catalogs of zones.
//!
//! May use: `name`, `record`, `query`, `dnssec`, `data`, `tsig`.

mod catalog;
mod notify;
mod signed;

use std::{collections::VecDeque, fmt, sync::Arc};

pub use catalog::{CatalogError, catalog_zone};
pub use notify::{NotifyAnswer, notify_message, read_notify_answer};
use signed::Item;

use crate::{
    data::Zone,
    name::Name,
    query::{HEADER_BYTES, Header},
    record::{Record, RecordData, RecordType},
    tsig::TsigSession,
};

/// A message of a transfer is sent when it has this many bytes. Pointers to names reach that far.
const MESSAGE_BYTES: usize = 16_000;
/// The longest message over TCP, in bytes.
const MAX_TCP_BYTES: usize = 65_535;
/// A pointer to the question, whose name is the apex.
const POINTER_TO_APEX: [u8; 2] = [0xc0, 12];

/// A transfer that was allowed: the messages that answer the query, one by one.
pub struct Transfer {
    zone: Arc<Zone>,
    header: Header,
    rtype: RecordType,
    tsig: TsigSession,
    items: VecDeque<Item>,
    /// Records of an item that are not in a message yet.
    records: VecDeque<Record>,
    /// The time of all signatures of records.
    begun: u64,
}

impl Transfer {
    /// `known_serial`: what the secondary has, if it asked for changes.
    pub(crate) fn new(
        zone: Arc<Zone>,
        header: Header,
        rtype: RecordType,
        known_serial: Option<u32>,
        tsig: TsigSession,
        now: u64,
    ) -> Self {
        let items = match known_serial {
            Some(known) => changes(&zone, known).unwrap_or_else(|| signed::items(&zone, now)),
            None => signed::items(&zone, now),
        };
        Self { zone, header, rtype, tsig, items, records: VecDeque::new(), begun: now }
    }

    /// The zone.
    #[must_use]
    pub fn apex(&self) -> &Name {
        self.zone.apex()
    }

    /// Writes the next message; `false`: all are written. `now` is in seconds since 1970.
    pub fn next_message(&mut self, now: u64, out: &mut Vec<u8>) -> bool {
        out.clear();
        if self.items.is_empty() && self.records.is_empty() {
            return false;
        }
        out.extend(self.header.id.to_be_bytes());
        // QR, AA.
        out.extend([0x84 | self.header.repeated_flags(), 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(self.zone.apex().as_wire());
        out.extend(self.rtype.0.to_be_bytes());
        out.extend(1_u16.to_be_bytes());
        let mut count = 0_u16;
        while out.len() < MESSAGE_BYTES && count < u16::MAX {
            if self.records.is_empty() {
                let Some(item) = self.items.pop_front() else { break };
                self.records = item.records(&self.zone, self.begun).into();
            }
            let Some(record) = self.records.front() else { continue };
            // A long record begins a message of its own.
            let before = out.len();
            write_record(record, self.zone.apex(), out);
            if out.len() + self.tsig.record_len() > MAX_TCP_BYTES && count > 0 {
                out.truncate(before);
                break;
            }
            self.records.pop_front();
            count += 1;
        }
        out[HEADER_BYTES - 6..HEADER_BYTES - 4].copy_from_slice(&count.to_be_bytes());
        self.tsig.sign(out, now);
        true
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").field("zone", self.zone.apex()).field("rtype", &self.rtype).finish_non_exhaustive()
    }
}

fn write_record(record: &Record, apex: &Name, out: &mut Vec<u8>) {
    let RecordData::Plain(rtype, data) = &record.data else { return };
    let owner = record.owner.as_wire();
    // Every owner is within the zone.
    out.extend_from_slice(&owner[..owner.len().saturating_sub(apex.as_wire().len())]);
    out.extend(POINTER_TO_APEX);
    out.extend(rtype.0.to_be_bytes());
    out.extend(1_u16.to_be_bytes());
    out.extend(record.ttl.to_be_bytes());
    out.extend((data.len() as u16).to_be_bytes());
    out.extend_from_slice(data);
}

/// The records of an incremental transfer; `None`: the changes are not kept, or the zone is signed and every signature
/// changes.
//= RFC 1995 section 4
//# If incremental zone transfer is not available, the entire zone is returned.
fn changes(zone: &Zone, known: u32) -> Option<VecDeque<Item>> {
    let soa = zone.soa();
    let data = soa.data().next()?;
    let current = Record::plain(zone.apex().clone(), soa.ttl(), RecordType::SOA, data.to_vec());
    // Serial numbers are compared in a circle (RFC 1982).
    if zone.serial().wrapping_sub(known) as i32 <= 0 {
        return Some([Item::Plain(current)].into());
    }
    if zone.keys().is_some() {
        return None;
    }
    let mut items = VecDeque::from([Item::Plain(current.clone())]);
    for change in zone.changes_since(known)? {
        items.push_back(Item::Plain(change.former_soa.clone()));
        items.extend(change.removed.iter().cloned().map(Item::Plain));
        items.push_back(Item::Plain(change.soa.clone()));
        items.extend(change.added.iter().cloned().map(Item::Plain));
    }
    items.push_back(Item::Plain(current));
    Some(items)
}
