//! The edges of an installation and the tunnels they hold, as known to this machine.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use parking_lot::{RwLock, RwLockReadGuard};
use sallyport_directory::{Change, EdgeCard};
use sallyport_model::{EdgeId, EdgeName, TunnelId, TunnelPresence};
use tokio::sync::{broadcast, watch};

use crate::{Directory, MAX_QUEUED_CHANGES, Orders};

/// Bound on the edges of which the last sign of life is remembered.
const MAX_SEEN_EDGES: usize = 4_096;

/// A live edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetEdge {
    /// The edge's description of itself.
    pub card: Arc<EdgeCard>,
    /// Number of tunnels that the edge holds.
    pub tunnels: usize,
}

#[derive(Debug)]
struct EdgeEntry {
    card: Arc<EdgeCard>,
    tunnels: HashMap<TunnelId, TunnelPresence>,
}

#[derive(Debug, Default)]
struct FleetMap {
    edges: BTreeMap<EdgeId, EdgeEntry>,
    /// The edges that hold a tunnel: one, and two for moments.
    holders: HashMap<TunnelId, Vec<EdgeId>>,
    stale_since: Option<Instant>,
    /// Time of the last sign of life of each edge, including edges that left.
    last_seen: HashMap<EdgeId, Instant>,
    /// When this edge sent the last beat that the bus has acknowledged.
    acknowledged: Option<Instant>,
}

/// A change of the fleet; [`Fleet`] has the new state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FleetNews {
    /// An edge came, left, or changed its card.
    Edge(EdgeId),
    /// Other edges hold the tunnel than before.
    Tunnel(TunnelId),
}

/// A tunnel at one edge that holds the tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelOnEdge {
    /// The edge.
    pub card: Arc<EdgeCard>,
    /// The edge's description of the tunnel.
    pub presence: TunnelPresence,
}

/// The live edges, and the tunnels they hold. Clones share the state. On one machine it is empty.
///
/// A removed edge may keep running and announcing itself and its tunnels. It is ignored, because no other machine
/// reaches it.
#[derive(Debug, Clone)]
pub struct Fleet {
    orders: Orders,
    map: Arc<RwLock<FleetMap>>,
    edges: Arc<watch::Sender<()>>,
    news: broadcast::Sender<FleetNews>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self::among(Orders::default())
    }
}

impl Fleet {
    /// A fleet that consists of the edges known to `orders`.
    pub(crate) fn among(orders: Orders) -> Self {
        Self { orders, map: Arc::default(), edges: Arc::default(), news: broadcast::Sender::new(MAX_QUEUED_CHANGES) }
    }

    fn read(&self) -> RwLockReadGuard<'_, FleetMap> {
        self.map.read()
    }

    /// The live edges, sorted by id.
    #[must_use]
    pub fn edges(&self) -> Vec<FleetEdge> {
        let seen = |seen: &EdgeEntry| FleetEdge { card: seen.card.clone(), tunnels: seen.tunnels.len() };
        self.read().edges.values().filter(|seen| self.orders.is_known(seen.card.edge)).map(seen).collect()
    }

    /// Changes whenever an edge comes, goes or changes its card.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.edges.subscribe()
    }

    /// The edge, if it is live; also a removed one.
    #[must_use]
    pub fn edge(&self, id: EdgeId) -> Option<FleetEdge> {
        let map = self.read();
        let seen = map.edges.get(&id)?;
        Some(FleetEdge { card: seen.card.clone(), tunnels: seen.tunnels.len() })
    }

    /// The edges with this IP address, and their ports.
    #[must_use]
    pub fn at(&self, ip: IpAddr) -> Vec<(EdgeName, u16)> {
        let ip = ip.to_canonical();
        let map = self.read();
        let addresses =
            map.edges.values().flat_map(|seen| seen.card.addresses.iter().map(|address| (&seen.card, address)));
        let there = addresses.filter(|(_, address)| address.ip().to_canonical() == ip);
        there.map(|(card, address)| (card.name.clone(), address.port())).collect()
    }

    /// The edges that hold the tunnel, the longest holder first.
    #[must_use]
    pub fn holders(&self, tunnel: TunnelId) -> Vec<Arc<EdgeCard>> {
        let map = self.read();
        self.holding(&map, tunnel).map(|seen| seen.card.clone()).collect()
    }

    /// The tunnel at each edge that holds the tunnel, the longest holder first.
    #[must_use]
    pub fn tunnel_on_edges(&self, tunnel: TunnelId) -> Vec<TunnelOnEdge> {
        let map = self.read();
        let on_edge = |seen: &EdgeEntry| {
            Some(TunnelOnEdge { card: seen.card.clone(), presence: seen.tunnels.get(&tunnel)?.clone() })
        };
        self.holding(&map, tunnel).filter_map(on_edge).collect()
    }

    /// The known edges that hold the tunnel.
    fn holding<'a>(&'a self, map: &'a FleetMap, tunnel: TunnelId) -> impl Iterator<Item = &'a EdgeEntry> {
        let holders = map.holders.get(&tunnel).map(Vec::as_slice).unwrap_or_default();
        holders.iter().filter(|edge| self.orders.is_known(**edge)).filter_map(|edge| map.edges.get(edge))
    }

    /// Every tunnel that any edge holds, in no order.
    #[must_use]
    pub fn all_tunnels(&self) -> Vec<TunnelId> {
        self.read().holders.keys().copied().collect()
    }

    /// Changes from now on. Subscribe first and read the state afterwards; a lagging receiver has to read all of the
    /// state.
    #[must_use]
    pub fn news(&self) -> broadcast::Receiver<FleetNews> {
        self.news.subscribe()
    }

    /// Time of the last sign of life of the edge, if any arrived at this machine.
    #[must_use]
    pub fn last_seen(&self, id: EdgeId) -> Option<Instant> {
        self.read().last_seen.get(&id).copied()
    }

    /// Records a sign of life of the edge.
    pub(crate) fn record_seen(&self, id: EdgeId, now: Instant) {
        let mut map = self.map.write();
        if map.last_seen.len() < MAX_SEEN_EDGES || map.last_seen.contains_key(&id) {
            map.last_seen.insert(id, now);
        }
    }

    /// When this edge sent the last beat that the bus has acknowledged. `None` at a control, and before the first one.
    #[must_use]
    pub fn acknowledged(&self) -> Option<Instant> {
        self.read().acknowledged
    }

    pub(crate) fn record_acknowledged(&self, sent: Instant) {
        let mut map = self.map.write();
        map.acknowledged = map.acknowledged.max(Some(sent));
    }

    /// Number of tunnels at all edges.
    #[must_use]
    pub fn tunnels(&self) -> usize {
        let map = self.read();
        map.holders.keys().filter(|tunnel| self.holding(&map, **tunnel).next().is_some()).count()
    }

    /// Since when there was no sign of life of any edge, if that is too long ago for the state to be current.
    #[must_use]
    pub fn stale_since(&self) -> Option<Instant> {
        self.read().stale_since
    }

    pub(crate) fn set_stale(&self, since: Option<Instant>) {
        self.map.write().stale_since = since;
    }

    /// Applies a change, also to `directory`, if there is a directory of all edges' tunnels.
    pub fn apply(&self, change: Change, directory: Option<&Directory>) {
        let news = match &change {
            Change::EdgeCame(card) => FleetNews::Edge(card.edge),
            Change::EdgeLeft(edge) => FleetNews::Edge(*edge),
            Change::TunnelCame(_, presence) => FleetNews::Tunnel(presence.tunnel),
            Change::TunnelLeft(_, tunnel) => FleetNews::Tunnel(*tunnel),
        };
        self.apply_to_map(change, directory);
        if matches!(news, FleetNews::Edge(_)) {
            self.edges.send_replace(());
        }
        // There may be no receiver.
        let _ = self.news.send(news);
    }

    fn apply_to_map(&self, change: Change, directory: Option<&Directory>) {
        let mut map = self.map.write();
        match change {
            Change::EdgeCame(card) => {
                let (edge, card) = (card.edge, Arc::new(card));
                let seen = EdgeEntry { card: card.clone(), tunnels: HashMap::new() };
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
                // Of several holders, the longest one describes the tunnel.
                let is_first = self.holding(&map, tunnel).next().is_some_and(|seen| seen.card.edge == edge);
                if let Some(directory) = directory.filter(|_| is_first) {
                    directory.arrived(presence);
                }
            }
            Change::TunnelLeft(edge, tunnel) => {
                if let Some(seen) = map.edges.get_mut(&edge) {
                    seen.tunnels.remove(&tunnel);
                }
                let Some(holders) = map.holders.get_mut(&tunnel) else { return };
                holders.retain(|holder| *holder != edge);
                if holders.is_empty() {
                    map.holders.remove(&tunnel);
                }
                if let Some(directory) = directory {
                    self.bring_in_line(&map, tunnel, directory);
                }
            }
        }
    }

    /// Updates the directory with the longest holder of the tunnel, or removes the tunnel.
    fn bring_in_line(&self, map: &FleetMap, tunnel: TunnelId, directory: &Directory) {
        match self.holding(map, tunnel).find_map(|seen| seen.tunnels.get(&tunnel)) {
            Some(presence) => directory.arrived(presence.clone()),
            None => directory.left(tunnel),
        }
    }

    /// Removes tunnels from the directory that only removed edges hold, and adds those of edges that have just joined.
    /// Runs until dropped.
    pub(crate) async fn follow_orders(&self, directory: &Directory) {
        let mut changes = self.orders.subscribe();
        while changes.changed().await.is_ok() {
            let map = self.map.write();
            for tunnel in map.holders.keys() {
                let is_there = directory.get(*tunnel).is_some();
                let is_all_known = map.holders[tunnel].iter().all(|edge| self.orders.is_known(*edge));
                if !is_there || !is_all_known {
                    self.bring_in_line(&map, *tunnel, directory);
                }
            }
        }
        std::future::pending::<()>().await;
    }
}
