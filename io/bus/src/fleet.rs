//! The edges of an installation and what they hold, as this machine knows it.

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

/// Of how many edges it is kept in mind when they were heard of.
const MAX_HEARD_EDGES: usize = 4_096;

/// An edge that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetEdge {
    /// What it says of itself.
    pub card: Arc<EdgeCard>,
    /// How many tunnels it holds.
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
    /// By which edges a tunnel is held: one, and for moments two.
    holders: HashMap<TunnelId, Vec<EdgeId>>,
    stale_since: Option<Instant>,
    /// When edges were last heard of, those that are gone included.
    heard: HashMap<EdgeId, Instant>,
}

/// What is otherwise from now on; how it is then is for [`Fleet`] to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FleetNews {
    /// An edge came, left, or says something else of itself.
    Edge(EdgeId),
    /// A tunnel is held by other edges than before.
    Tunnel(TunnelId),
}

/// A tunnel as it is held by one edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelOnEdge {
    /// The edge.
    pub card: Arc<EdgeCard>,
    /// What it says of the tunnel.
    pub presence: TunnelPresence,
}

/// The edges that are there, and who holds which tunnel. Clones share it. On one machine it is empty.
///
/// An edge that was removed may run on, and say that it is there and what it holds: it counts no more, nor does what it holds,
/// since nobody else reaches it.
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
    /// Of the edges that are known there.
    pub(crate) fn among(orders: Orders) -> Self {
        Self { orders, map: Arc::default(), edges: Arc::default(), news: broadcast::Sender::new(MAX_QUEUED_CHANGES) }
    }

    fn read(&self) -> RwLockReadGuard<'_, FleetMap> {
        self.map.read()
    }

    /// The edges that are there, by their ids.
    #[must_use]
    pub fn edges(&self) -> Vec<FleetEdge> {
        let seen = |seen: &EdgeEntry| FleetEdge { card: seen.card.clone(), tunnels: seen.tunnels.len() };
        self.read().edges.values().filter(|seen| self.orders.is_known(seen.card.edge)).map(seen).collect()
    }

    /// Sees a change whenever an edge comes or goes, or says something else of itself.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.edges.subscribe()
    }

    /// The edge, when it is there; one that was removed too.
    #[must_use]
    pub fn edge(&self, id: EdgeId) -> Option<FleetEdge> {
        let map = self.read();
        let seen = map.edges.get(&id)?;
        Some(FleetEdge { card: seen.card.clone(), tunnels: seen.tunnels.len() })
    }

    /// The edges that are reached at this IP address, and by which ports.
    #[must_use]
    pub fn at(&self, ip: IpAddr) -> Vec<(EdgeName, u16)> {
        let ip = ip.to_canonical();
        let map = self.read();
        let addresses =
            map.edges.values().flat_map(|seen| seen.card.addresses.iter().map(|address| (&seen.card, address)));
        let there = addresses.filter(|(_, address)| address.ip().to_canonical() == ip);
        there.map(|(card, address)| (card.name.clone(), address.port())).collect()
    }

    /// The edges that hold the tunnel, the one that has it longest first.
    #[must_use]
    pub fn holders(&self, tunnel: TunnelId) -> Vec<Arc<EdgeCard>> {
        let map = self.read();
        self.holding(&map, tunnel).map(|seen| seen.card.clone()).collect()
    }

    /// How the tunnel is held by each edge that has it, the one that has it longest first.
    #[must_use]
    pub fn held(&self, tunnel: TunnelId) -> Vec<TunnelOnEdge> {
        let map = self.read();
        let held = |seen: &EdgeEntry| {
            Some(TunnelOnEdge { card: seen.card.clone(), presence: seen.tunnels.get(&tunnel)?.clone() })
        };
        self.holding(&map, tunnel).filter_map(held).collect()
    }

    /// The edges of the installation that hold the tunnel.
    fn holding<'a>(&'a self, map: &'a FleetMap, tunnel: TunnelId) -> impl Iterator<Item = &'a EdgeEntry> {
        let holders = map.holders.get(&tunnel).map(Vec::as_slice).unwrap_or_default();
        holders.iter().filter(|edge| self.orders.is_known(**edge)).filter_map(|edge| map.edges.get(edge))
    }

    /// Every tunnel that any edge holds, in no order.
    #[must_use]
    pub fn all_tunnels(&self) -> Vec<TunnelId> {
        self.read().holders.keys().copied().collect()
    }

    /// What is otherwise from now on. Subscribe first and look after, and nothing is missed; who lags has to look at all of it.
    #[must_use]
    pub fn news(&self) -> broadcast::Receiver<FleetNews> {
        self.news.subscribe()
    }

    /// When a sign of life of the edge came last, as far as this machine has heard any.
    #[must_use]
    pub fn heard(&self, id: EdgeId) -> Option<Instant> {
        self.read().heard.get(&id).copied()
    }

    /// A sign of life of the edge has come.
    pub(crate) fn record_heard(&self, id: EdgeId, now: Instant) {
        let mut map = self.map.write();
        if map.heard.len() < MAX_HEARD_EDGES || map.heard.contains_key(&id) {
            map.heard.insert(id, now);
        }
    }

    /// How many tunnels all edges hold.
    #[must_use]
    pub fn tunnels(&self) -> usize {
        let map = self.read();
        map.holders.keys().filter(|tunnel| self.holding(&map, **tunnel).next().is_some()).count()
    }

    /// Since when nothing was heard of edges, when that is too long ago for what is known to be the present.
    #[must_use]
    pub fn stale_since(&self) -> Option<Instant> {
        self.read().stale_since
    }

    pub(crate) fn set_stale(&self, since: Option<Instant>) {
        self.map.write().stale_since = since;
    }

    /// Takes the change over; into the directory too, where there is one of all edges' tunnels.
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
        // Nobody listens where there is nothing to do about it.
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
                // Of several that hold it, the one that has it longest says how it is.
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

    /// Says in the directory how the edge holds the tunnel that has it longest, or that it is gone.
    fn bring_in_line(&self, map: &FleetMap, tunnel: TunnelId, directory: &Directory) {
        match self.holding(map, tunnel).find_map(|seen| seen.tunnels.get(&tunnel)) {
            Some(presence) => directory.arrived(presence.clone()),
            None => directory.left(tunnel),
        }
    }

    /// Keeps out of the directory what none but removed edges hold, and takes in what edges hold that have just joined. Runs
    /// until it is dropped.
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
