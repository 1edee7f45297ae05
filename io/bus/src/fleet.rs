//! The edges of an installation and what they hold, as this machine knows it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::Instant,
};

use sallyport_directory::{Change, EdgeCard};
use sallyport_model::{EdgeId, TunnelId, TunnelPresence};

use crate::Directory;

/// An edge that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeSeen {
    /// What it says of itself.
    pub card: Arc<EdgeCard>,
    /// How many tunnels it holds.
    pub tunnels: usize,
}

#[derive(Debug)]
struct Seen {
    card: Arc<EdgeCard>,
    tunnels: HashMap<TunnelId, TunnelPresence>,
}

#[derive(Debug, Default)]
struct Map {
    edges: BTreeMap<EdgeId, Seen>,
    /// By which edges a tunnel is held: one, and for moments two.
    holders: HashMap<TunnelId, Vec<EdgeId>>,
    stale_since: Option<Instant>,
}

/// The edges that are there, and who holds which tunnel. Clones share it. On one machine it is empty.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    map: Arc<RwLock<Map>>,
}

impl Fleet {
    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The edges that are there, by their ids.
    #[must_use]
    pub fn edges(&self) -> Vec<EdgeSeen> {
        let seen = |seen: &Seen| EdgeSeen { card: seen.card.clone(), tunnels: seen.tunnels.len() };
        self.read().edges.values().map(seen).collect()
    }

    /// The edge, when it is there.
    #[must_use]
    pub fn edge(&self, id: EdgeId) -> Option<EdgeSeen> {
        let map = self.read();
        let seen = map.edges.get(&id)?;
        Some(EdgeSeen { card: seen.card.clone(), tunnels: seen.tunnels.len() })
    }

    /// The edges that hold the tunnel, the one that has it longest first.
    #[must_use]
    pub fn holders(&self, tunnel: TunnelId) -> Vec<Arc<EdgeCard>> {
        let map = self.read();
        let holders = map.holders.get(&tunnel).map(Vec::as_slice).unwrap_or_default();
        holders.iter().filter_map(|edge| map.edges.get(edge)).map(|seen| seen.card.clone()).collect()
    }

    /// How many tunnels all edges hold.
    #[must_use]
    pub fn tunnels(&self) -> usize {
        self.read().holders.len()
    }

    /// Since when nothing was heard of edges, when that is too long ago for what is known to be the present.
    #[must_use]
    pub fn stale_since(&self) -> Option<Instant> {
        self.read().stale_since
    }

    pub(crate) fn set_stale(&self, since: Option<Instant>) {
        self.map.write().unwrap_or_else(PoisonError::into_inner).stale_since = since;
    }

    /// Takes the change over; into the directory too, where there is one of all edges' tunnels.
    pub(crate) fn apply(&self, change: Change, directory: Option<&Directory>) {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        match change {
            Change::EdgeCame(card) => {
                let (edge, card) = (card.edge, Arc::new(card));
                let seen = Seen { card: card.clone(), tunnels: HashMap::new() };
                map.edges.entry(edge).or_insert(seen).card = card;
            }
            Change::EdgeLeft(edge) => {
                map.edges.remove(&edge);
            }
            Change::TunnelCame(edge, presence) => {
                let Some(seen) = map.edges.get_mut(&edge) else { return };
                let tunnel = presence.tunnel;
                seen.tunnels.insert(tunnel, presence.clone());
                let holders = map.holders.entry(tunnel).or_default();
                if !holders.contains(&edge) {
                    holders.push(edge);
                }
                if let Some(directory) = directory {
                    directory.arrived(presence);
                }
            }
            Change::TunnelLeft(edge, tunnel) => {
                if let Some(seen) = map.edges.get_mut(&edge) {
                    seen.tunnels.remove(&tunnel);
                }
                let Some(holders) = map.holders.get_mut(&tunnel) else { return };
                holders.retain(|holder| *holder != edge);
                let other = holders.first().copied();
                if other.is_none() {
                    map.holders.remove(&tunnel);
                }
                let Some(directory) = directory else { return };
                match other.and_then(|other| map.edges.get(&other)?.tunnels.get(&tunnel)) {
                    Some(presence) => directory.arrived(presence.clone()),
                    None => directory.left(tunnel),
                }
            }
        }
    }
}
