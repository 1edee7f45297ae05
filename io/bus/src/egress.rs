//! The egress addresses, the leases of their slices, and what edges do with them.

use std::sync::Arc;

use parking_lot::RwLock;
use sallyport_ports::{EgressAddress, Lease, SliceUse};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{ConfigKey, Hints};

/// The egress addresses, and the leases of their slices, as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressConfig {
    /// The addresses with their tags.
    #[serde(default)]
    pub addresses: Vec<EgressAddress>,
    /// The leases.
    #[serde(default)]
    pub leases: Vec<Lease>,
}

/// The egress addresses and leases, as they were told last. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ServedEgress {
    config: Arc<RwLock<Arc<EgressConfig>>>,
    changed: Arc<watch::Sender<()>>,
    uses: Arc<watch::Sender<Vec<SliceUse>>>,
    hints: Hints,
}

impl ServedEgress {
    pub(crate) fn hinting(hints: Hints) -> Self {
        Self { hints, ..Self::default() }
    }

    /// Replaces the whole.
    pub fn put(&self, config: EgressConfig) {
        if **self.config.read() != config {
            *self.config.write() = Arc::new(config);
            self.changed.send_replace(());
        }
        self.hints.notify(ConfigKey::Egress);
    }

    /// The present state.
    #[must_use]
    pub fn get(&self) -> Arc<EgressConfig> {
        self.config.read().clone()
    }

    /// Changes after each change from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Sets what the edge of this machine does with its slices. Returns whether it did something else before.
    pub fn report(&self, uses: Vec<SliceUse>) -> bool {
        self.uses.send_if_modified(|known| {
            let is_new = *known != uses;
            *known = uses;
            is_new
        })
    }

    /// What the edge of this machine does with its slices.
    #[must_use]
    pub fn uses(&self) -> watch::Receiver<Vec<SliceUse>> {
        self.uses.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_is_seen_and_the_same_again_changes_nothing() {
        let served = ServedEgress::default();
        let changed = served.subscribe();
        served.put(EgressConfig::default());
        assert!(!changed.has_changed().unwrap());
        let config =
            EgressConfig { addresses: vec![EgressAddress::new("198.51.100.7".parse().unwrap())], leases: Vec::new() };
        served.put(config.clone());
        assert!(changed.has_changed().unwrap());
        assert_eq!(*served.get(), config);
    }
}
