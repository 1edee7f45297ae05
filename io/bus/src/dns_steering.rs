//! What steers the name server: the regions, and what was measured for the networks of clients.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;
use sallyport_model::{DnsSteeringPart, STEERING_PARTS};
use tokio::sync::watch;

use crate::{ConfigKey, Hints};

/// The parts of what steers the name server. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct DnsSteering {
    parts: Arc<RwLock<BTreeMap<u8, Arc<DnsSteeringPart>>>>,
    changed: Arc<watch::Sender<()>>,
    hints: Hints,
}

impl DnsSteering {
    pub(crate) fn hinting(hints: Hints) -> Self {
        Self { hints, ..Self::default() }
    }

    /// Adds a part, or replaces it. A part with a number beyond the last one is ignored.
    pub fn put(&self, part: DnsSteeringPart) {
        let number = part.part;
        let is_known = self.parts.read().get(&number).is_some_and(|known| **known == part);
        if is_known || number > STEERING_PARTS {
            return;
        }
        self.parts.write().insert(number, Arc::new(part));
        self.changed.send_replace(());
        self.hints.notify(ConfigKey::DnsSteering(number));
    }

    /// Removes a part.
    pub fn remove(&self, part: u8) {
        if self.parts.write().remove(&part).is_some() {
            self.changed.send_replace(());
            self.hints.notify(ConfigKey::DnsSteering(part));
        }
    }

    /// Replaces all parts. Those that stay as they are are not published again.
    pub fn set(&self, parts: Vec<DnsSteeringPart>) {
        let gone: Vec<u8> = {
            let known = self.parts.read();
            known.keys().filter(|number| parts.iter().all(|part| part.part != **number)).copied().collect()
        };
        gone.into_iter().for_each(|part| self.remove(part));
        parts.into_iter().for_each(|part| self.put(part));
    }

    /// A part.
    #[must_use]
    pub fn get(&self, part: u8) -> Option<Arc<DnsSteeringPart>> {
        self.parts.read().get(&part).cloned()
    }

    /// All parts, by their numbers.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<DnsSteeringPart>> {
        self.parts.read().values().cloned().collect()
    }

    /// Changes after each change from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_stay_are_not_published_again() {
        let bus = crate::Bus::default();
        let mut hints = bus.config_changes();
        let part = |number, at: [u8; 4]| DnsSteeringPart {
            part: number,
            global: vec![at.into()],
            ..DnsSteeringPart::default()
        };
        let one = [192, 0, 2, 1];
        bus.dns_steering.set(vec![part(0, one), part(1, one), part(2, one), part(200, one)]);
        let mut changed = bus.dns_steering.subscribe();
        let told = |hints: &mut tokio::sync::broadcast::Receiver<ConfigKey>| {
            std::iter::from_fn(|| hints.try_recv().ok()).map(|key| key.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(told(&mut hints), ["dns-steering.0", "dns-steering.1", "dns-steering.2"]);
        bus.dns_steering.set(vec![part(0, one), part(1, one), part(2, one)]);
        assert!(!changed.has_changed().unwrap() && told(&mut hints).is_empty());
        bus.dns_steering.set(vec![part(0, one), part(2, [192, 0, 2, 2])]);
        assert_eq!(told(&mut hints), ["dns-steering.1", "dns-steering.2"]);
        assert!(changed.has_changed().unwrap());
        changed.mark_unchanged();
        assert_eq!((bus.dns_steering.all().len(), bus.dns_steering.get(1)), (2, None));
    }
}
