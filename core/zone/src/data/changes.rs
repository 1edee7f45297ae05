//! What changed from one version of a zone to the next, for incremental transfers (RFC 1995).

use std::{collections::BTreeSet, sync::Arc};

use super::zone::Zone;
use crate::record::{Record, RecordData};

/// The most changes that a zone keeps.
pub const MAX_HISTORY: usize = 32;
/// The most records of all changes that a zone keeps. Past it secondaries get the whole zone.
pub const MAX_HISTORY_RECORDS: usize = 20_000;

/// A change of a zone. SOA records are not part of the lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneChange {
    /// The SOA record before.
    pub former_soa: Record,
    /// The serial number before.
    pub former_serial: u32,
    /// Records that are gone.
    pub removed: Vec<Record>,
    /// The SOA record after.
    pub soa: Record,
    /// Records that came.
    pub added: Vec<Record>,
}

impl Zone {
    /// Records what changed since the former version, so that secondaries get the changes alone. The serial number must
    /// be another one.
    #[must_use]
    pub fn with_history_of(mut self, former: &Zone) -> Self {
        if former.serial() == self.serial() || former.apex() != self.apex() {
            self.history.clone_from(&former.history);
            return self;
        }
        let key = |record: &Record| match &record.data {
            RecordData::Plain(rtype, data) => (record.owner.clone(), record.ttl, *rtype, data.clone()),
            // `Zone::records` has plain records alone.
            _ => (record.owner.clone(), record.ttl, crate::record::RecordType::ANY, Vec::new()),
        };
        let (before, after) = (former.records(), self.records());
        let (old, new): (BTreeSet<_>, BTreeSet<_>) =
            (before.iter().map(key).collect(), after.iter().map(key).collect());
        let (Some(former_soa), Some(soa)) = (before.first().cloned(), after.first().cloned()) else { return self };
        let change = ZoneChange {
            former_serial: former.serial(),
            removed: before.into_iter().skip(1).filter(|record| !new.contains(&key(record))).collect(),
            added: after.into_iter().skip(1).filter(|record| !old.contains(&key(record))).collect(),
            former_soa,
            soa,
        };
        let mut history = former.history.clone();
        history.push_back(Arc::new(change));
        let size = |change: &Arc<ZoneChange>| change.removed.len() + change.added.len() + 2;
        while history.len() > MAX_HISTORY || history.iter().map(size).sum::<usize>() > MAX_HISTORY_RECORDS {
            history.pop_front();
        }
        self.history = history;
        self
    }

    /// The changes from this serial number to the current one; `None` if they are not kept.
    pub(crate) fn changes_since(&self, serial: u32) -> Option<Vec<Arc<ZoneChange>>> {
        let at = self.history.iter().position(|change| change.former_serial == serial)?;
        Some(self.history.iter().skip(at).cloned().collect())
    }
}
