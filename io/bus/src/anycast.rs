//! The prefixes that edges announce, and questions about them.

use std::{ops::Deref, sync::Arc};

use parking_lot::RwLock;
use sallyport_anycast::model::AnycastConfig;
use sallyport_api::{AnycastEdge, AnycastEdgePreview, AnycastRoute};
use sallyport_model::AccountId;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{ConfigKey, Hints};

/// Which edges announce what to whom, as a whole, for the account that owns the installation. Passwords are encrypted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedAnycast {
    /// The account in whose audit log edges record what they announce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<AccountId>,
    /// What edges announce.
    pub config: AnycastConfig,
}

impl Deref for OwnedAnycast {
    type Target = AnycastConfig;
    fn deref(&self) -> &AnycastConfig {
        &self.config
    }
}

/// What edges announce, as they were told last. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ServedAnycast {
    config: Arc<RwLock<Arc<OwnedAnycast>>>,
    changed: Arc<watch::Sender<()>>,
    hints: Hints,
}

impl ServedAnycast {
    pub(crate) fn hinting(hints: Hints) -> Self {
        Self { hints, ..Self::default() }
    }

    /// Replaces the whole.
    pub fn put(&self, config: OwnedAnycast) {
        if **self.config.read() != config {
            *self.config.write() = Arc::new(config);
            self.changed.send_replace(());
        }
        self.hints.notify(ConfigKey::Anycast);
    }

    /// The present state.
    #[must_use]
    pub fn get(&self) -> Arc<OwnedAnycast> {
        self.config.read().clone()
    }

    /// Changes after each change from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

/// A question to an edge about anycast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnycastAsk {
    /// How its prefixes stand.
    Status,
    /// What it would change at its BIRD.
    Preview,
    /// The routes to own prefixes that its routers have sent.
    Routes,
}

/// The answer of an edge about anycast.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnycastAnswer {
    /// It has no `--bird`.
    Off,
    /// To [`AnycastAsk::Status`].
    Status(Box<AnycastEdge>),
    /// To [`AnycastAsk::Preview`].
    Preview(Box<AnycastEdgePreview>),
    /// To [`AnycastAsk::Routes`].
    Routes(AnycastRouteList),
}

/// Routes that an edge was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnycastRouteList {
    /// The routes, by prefix and router.
    pub routes: Vec<AnycastRoute>,
    /// Whether there are more.
    pub has_more: bool,
}

impl AnycastAnswer {
    /// Removes half of a list; `false` if nothing can be removed.
    pub(crate) fn halve(&mut self) -> bool {
        match self {
            Self::Routes(list) if list.routes.len() > 1 => {
                list.routes.truncate(list.routes.len() / 2);
                list.has_more = true;
                true
            }
            Self::Preview(preview) if !preview.next.is_empty() => {
                preview.next.clear();
                true
            }
            Self::Routes(_) | Self::Preview(_) | Self::Status(_) | Self::Off => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_is_seen_and_the_same_again_changes_nothing() {
        let served = ServedAnycast::default();
        let changed = served.subscribe();
        served.put(OwnedAnycast::default());
        assert!(!changed.has_changed().unwrap());
        let order = sallyport_anycast::model::Order {
            place: "everywhere".parse().unwrap(),
            kind: sallyport_anycast::model::OrderKind::Drain,
            since_ms: 1,
        };
        let mut config = OwnedAnycast::default();
        config.config.orders.push(order);
        served.put(config.clone());
        assert!(changed.has_changed().unwrap());
        assert_eq!(*served.get(), config);
    }
}
