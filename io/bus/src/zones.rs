//! The zones that edges answer for.

use std::{collections::HashMap, sync::Arc};

use parking_lot::RwLock;
use sallyport_model::{ServedZone, ZoneId};
use tokio::sync::watch;

use crate::{ConfigKey, Hints};

/// The zones of the name server. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ServedZones {
    by_id: Arc<RwLock<HashMap<ZoneId, Arc<ServedZone>>>>,
    changed: Arc<watch::Sender<()>>,
    hints: Hints,
}

impl ServedZones {
    pub(crate) fn hinting(hints: Hints) -> Self {
        Self { hints, ..Self::default() }
    }

    /// Adds a zone, or replaces its former version.
    pub fn put(&self, zone: ServedZone) {
        let id = zone.id;
        let is_known = self.by_id.read().get(&id).is_some_and(|known| **known == zone);
        if !is_known {
            self.by_id.write().insert(id, Arc::new(zone));
            self.changed.send_replace(());
        }
        self.hints.notify(ConfigKey::Zone(id));
    }

    /// Removes a zone.
    pub fn remove(&self, id: ZoneId) {
        self.by_id.write().remove(&id);
        self.changed.send_replace(());
        self.hints.notify(ConfigKey::Zone(id));
    }

    /// Every zone, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<ServedZone>> {
        self.by_id.read().values().cloned().collect()
    }

    /// Changes after each change of the zones from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
