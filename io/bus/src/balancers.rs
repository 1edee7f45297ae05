//! The balancers of sites, which edges behind them are told.

use std::sync::Arc;

use parking_lot::RwLock;
use sallyport_model::{RegionName, SiteBalancer};
use tokio::sync::watch;

use crate::{ConfigKey, Hints};

/// The balancers of sites, as edges were told last. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ServedBalancers {
    sites: Arc<RwLock<Arc<Vec<SiteBalancer>>>>,
    changed: Arc<watch::Sender<()>>,
    hints: Hints,
}

impl ServedBalancers {
    pub(crate) fn hinting(hints: Hints) -> Self {
        Self { hints, ..Self::default() }
    }

    /// Replaces the whole.
    pub fn put(&self, sites: Vec<SiteBalancer>) {
        if **self.sites.read() == sites {
            return;
        }
        *self.sites.write() = Arc::new(sites);
        self.changed.send_replace(());
        self.hints.notify(ConfigKey::Balancers);
    }

    /// Every site that has a balancer.
    #[must_use]
    pub fn all(&self) -> Arc<Vec<SiteBalancer>> {
        self.sites.read().clone()
    }

    /// The balancer of a site.
    #[must_use]
    pub fn of(&self, site: &RegionName) -> Option<SiteBalancer> {
        self.sites.read().iter().find(|one| one.site == *site).cloned()
    }

    /// Changes after each change from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use sallyport_model::Encapsulation;

    use super::*;
    use crate::ConfigValue;

    #[test]
    fn a_site_finds_its_balancer_and_the_same_again_changes_nothing() {
        let bus = crate::Bus::default();
        let mut changed = bus.balancers.subscribe();
        let eu = SiteBalancer {
            site: "eu".parse().unwrap(),
            addresses: vec!["198.51.100.1".parse().unwrap()],
            encapsulation: Encapsulation::Ipip,
            balancers: vec!["192.0.2.1".parse().unwrap()],
            weights: std::iter::once(("eu-1".parse().unwrap(), 7)).collect(),
        };
        let value = ConfigValue::Balancers(vec![eu.clone()]);
        let read = ConfigValue::from_bytes(value.key(), &value.to_bytes().unwrap()).unwrap();
        assert_eq!("balancers.all".parse(), Ok(value.key()));
        bus.apply_config(read);
        assert!(changed.has_changed().unwrap());
        changed.mark_unchanged();
        bus.apply_config(value);
        assert!(!changed.has_changed().unwrap());
        assert_eq!(bus.balancers.of(&eu.site), Some(eu));
        assert_eq!(bus.balancers.of(&"us".parse().unwrap()), None);
        bus.forget_config(ConfigKey::Balancers);
        assert!(changed.has_changed().unwrap() && bus.balancers.all().is_empty());
    }
}
