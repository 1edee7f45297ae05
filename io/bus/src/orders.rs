//! Orders of control to edges; each edge reads its own.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::RwLock;
use sallyport_model::{EdgeId, EdgeOrders};
use tokio::sync::watch;

use crate::{ConfigKey, Hints};

/// The orders for all edges. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    by_edge: Arc<RwLock<HashMap<EdgeId, EdgeOrders>>>,
    /// Whether the map contains all edges of the installation, possibly none.
    is_whole: Arc<AtomicBool>,
    changed: Arc<watch::Sender<()>>,
    hints: Hints,
}

impl Orders {
    pub(crate) fn hinting(hints: Hints) -> Self {
        Self { hints, ..Self::default() }
    }

    /// Sets the orders for an edge.
    pub fn put(&self, orders: EdgeOrders) {
        let edge = orders.edge;
        self.by_edge.write().insert(edge, orders);
        self.notify(edge);
    }

    /// Removes the orders for an edge.
    pub fn remove(&self, edge: EdgeId) {
        self.by_edge.write().remove(&edge);
        self.notify(edge);
    }

    /// Replaces all orders by those of the store: the edges of the installation, and no others. Subscribers are not
    /// notified.
    pub fn know(&self, all: impl IntoIterator<Item = EdgeOrders>) {
        let all: HashMap<_, _> = all.into_iter().map(|orders| (orders.edge, orders)).collect();
        let mut by_edge = self.by_edge.write();
        let was_whole = self.is_whole.swap(true, Relaxed);
        if was_whole && *by_edge == all {
            return;
        }
        *by_edge = all;
        drop(by_edge);
        self.changed.send_replace(());
    }

    fn notify(&self, edge: EdgeId) {
        self.changed.send_replace(());
        self.hints.notify(ConfigKey::Edge(edge));
    }

    /// The orders for the edge.
    #[must_use]
    pub fn get(&self, edge: EdgeId) -> Option<EdgeOrders> {
        self.by_edge.read().get(&edge).cloned()
    }

    /// Whether this is an edge of the installation: one that has joined and was not removed. While no edge is known,
    /// every edge is accepted; once the store's list is loaded, only listed ones are.
    #[must_use]
    pub fn is_known(&self, edge: EdgeId) -> bool {
        let by_edge = self.by_edge.read();
        (by_edge.is_empty() && !self.is_whole.load(Relaxed)) || by_edge.contains_key(&edge)
    }

    /// Changes after each change of any orders from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
