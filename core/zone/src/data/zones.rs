//! The zones of a server.

use std::{collections::HashMap, sync::Arc};

use super::zone::Zone;
use crate::{
    name::{Name, NameBuf},
    record::RecordType,
};

/// The most zones of a server.
pub const MAX_ZONES: usize = 100_000;

/// Why zones are not served together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZonesError {
    /// Too many.
    #[error("a server has at most {MAX_ZONES} zones")]
    TooMany,
    /// Two zones have one name.
    #[error("the zone {0} is there twice")]
    Twice(Name),
}

/// The zones that a server answers for.
#[derive(Debug, Default, Clone)]
pub struct Zones {
    by_apex: HashMap<Box<[u8]>, Arc<Zone>>,
    /// The most labels of an apex.
    most_labels: usize,
}

impl Zones {
    /// These zones.
    ///
    /// # Errors
    /// There are too many, or two have one name.
    pub fn new(zones: impl IntoIterator<Item = Arc<Zone>>) -> Result<Self, ZonesError> {
        let mut all = Self::default();
        for zone in zones {
            if all.by_apex.len() == MAX_ZONES {
                return Err(ZonesError::TooMany);
            }
            all.most_labels = all.most_labels.max(zone.apex().label_count());
            if let Some(former) = all.by_apex.insert(zone.apex().as_wire().into(), zone) {
                return Err(ZonesError::Twice(former.apex().clone()));
            }
        }
        Ok(all)
    }

    /// Number of zones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_apex.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_apex.is_empty()
    }

    /// The zone with exactly this name.
    #[must_use]
    pub fn get(&self, apex: &Name) -> Option<&Arc<Zone>> {
        self.by_apex.get(apex.as_wire())
    }

    /// The zones, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Zone>> {
        self.by_apex.values()
    }

    pub(crate) fn get_wire(&self, wire: &[u8]) -> Option<&Arc<Zone>> {
        self.by_apex.get(wire)
    }

    /// The zone that answers for a name: the nearest above it. The parent answers for a DS record.
    pub(crate) fn find(&self, name: &NameBuf, rtype: RecordType) -> Option<&Zone> {
        let mut apex_itself = None;
        for labels in (0..=name.label_count().min(self.most_labels)).rev() {
            let Some(zone) = self.by_apex.get(name.suffix(labels)) else { continue };
            if rtype == RecordType::DS && labels == name.label_count() {
                apex_itself = Some(zone);
                continue;
            }
            return Some(zone);
        }
        apex_itself.map(Arc::as_ref)
    }
}
