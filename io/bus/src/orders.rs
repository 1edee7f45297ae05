//! What control wants of edges: each looks at its own.

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

/// What is wanted of edges, beyond serving. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    by_edge: Arc<RwLock<HashMap<EdgeId, EdgeOrders>>>,
    /// Whether all edges of the installation are among them, be that none.
    is_whole: Arc<AtomicBool>,
    changed: Arc<watch::Sender<()>>,
    hints: Hints,
}

impl Orders {
    pub(crate) fn hinting(hints: Hints) -> Self {
        Self { hints, ..Self::default() }
    }

    /// This is wanted of the edge from now on.
    pub fn put(&self, orders: EdgeOrders) {
        let edge = orders.edge;
        self.by_edge.write().insert(edge, orders);
        self.tell(edge);
    }

    /// Nothing is wanted of the edge any more.
    pub fn remove(&self, edge: EdgeId) {
        self.by_edge.write().remove(&edge);
        self.tell(edge);
    }

    /// These are the edges of the installation, and no others, as the store has them: nobody needs to be told.
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

    fn tell(&self, edge: EdgeId) {
        self.changed.send_replace(());
        self.hints.tell(ConfigKey::Edge(edge));
    }

    /// What is wanted of the edge.
    #[must_use]
    pub fn get(&self, edge: EdgeId) -> Option<EdgeOrders> {
        self.by_edge.read().get(&edge).cloned()
    }

    /// Whether this is an edge of the installation, as far as control has said: one that has joined and was not removed. While
    /// nothing was said of any edge, all are; where the store has said which there are, those alone.
    #[must_use]
    pub fn is_known(&self, edge: EdgeId) -> bool {
        let by_edge = self.by_edge.read();
        (by_edge.is_empty() && !self.is_whole.load(Relaxed)) || by_edge.contains_key(&edge)
    }

    /// Sees a change after each change of anything from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
