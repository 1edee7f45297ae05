//! Relays between edges: the client is at one edge, and its tunnel at another.
//!
//! The client's edge dials the edge that holds the tunnel. Between them runs the tunnel protocol: the dialing edge acts
//! as the edge of a session, and the dialed one as its connector. [`links`] makes these connections and keeps them
//! while they are used. [`follow`] puts tunnels at other edges among the origins of sockets. [`inbound`] serves links
//! of other edges, and only for tunnels that are attached here, so a request is relayed at most once. [`contact`] asks
//! whether other edges answer, for steering.
//!
//! May use `state`, `origins`, `client`, `lifecycle`, `util`.

mod busy;
mod contact;
mod follow;
pub(crate) mod inbound;
mod inbound_flows;
mod links;
mod metrics;
mod tls;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use sallyport_bus::{EdgeCard, Fleet, Orders, Steering};
use sallyport_model::EdgeId;
use sallyport_tunnel::EdgeTunnels;

pub use self::tls::{MeshTls, MeshTlsPair};
use self::{busy::BusyList, inbound::Inbound, metrics::MeshMetrics};

pub(crate) use crate::origins::transport::peer::Peer;
use crate::state::EdgeState;

/// How many links from other edges there may be.
const MAX_INBOUND_LINKS: usize = 2_048;
/// How many links from one edge: one in use, and further ones while that is replaced.
const MAX_INBOUND_LINKS_PER_EDGE: usize = 4;

/// How long to wait for the order of an edge that has just joined.
const MAX_HEARSAY: Duration = Duration::from_secs(2);

/// The settings of an edge's relays.
#[derive(Debug, Clone)]
pub struct MeshSettings {
    /// The edge's own id.
    pub own: EdgeId,
    /// Name and version of the program.
    pub agent: String,
    /// The other edges and their tunnels.
    pub fleet: Fleet,
    /// The edges of the installation.
    pub orders: Orders,
    /// Takes the reports of edges that the bus does not reach.
    pub steering: Steering,
    /// The certificates by which edges know each other.
    pub tls: MeshTls,
    /// The TLS configuration that verifies the ordinary port of another edge, for the legs that this edge opens.
    pub legs: Arc<rustls::ClientConfig>,
}

/// This edge's part in the mesh.
pub(crate) struct Mesh {
    settings: MeshSettings,
    state: Arc<EdgeState>,
    tunnels: EdgeTunnels,
    peers: Mutex<HashMap<EdgeId, Arc<Peer>>>,
    inbound: Arc<Inbound>,
    busy: BusyList,
    metrics: MeshMetrics,
    me: Weak<Mesh>,
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mesh").field("own", &self.settings.own).finish_non_exhaustive()
    }
}

impl Mesh {
    pub(crate) fn new(state: &Arc<EdgeState>, tunnels: &EdgeTunnels, settings: MeshSettings) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            settings,
            state: state.clone(),
            tunnels: tunnels.clone(),
            peers: Mutex::default(),
            inbound: Arc::default(),
            busy: BusyList::default(),
            metrics: MeshMetrics::default(),
            me: me.clone(),
        })
    }

    /// Runs the mesh for as long as the edge serves: follows other edges, tends links, and measures distances.
    pub(crate) async fn run(&self) {
        tokio::join!(self.follow(), self.tend(), self.measure(), self.busy.look());
    }

    /// The certificates by which edges know each other.
    pub(crate) fn tls(&self) -> &MeshTls {
        &self.settings.tls
    }

    /// Whether this edge is of the installation. Checked besides the certificate, which stays valid for days after a
    /// removal.
    pub(crate) fn may_link(&self, edge: EdgeId) -> bool {
        edge != self.settings.own && self.settings.orders.is_known(edge)
    }

    /// Like [`Mesh::may_link`], but waits [`MAX_HEARSAY`] for an edge that has just joined and is not known here yet.
    pub(crate) async fn may_link_soon(&self, edge: EdgeId) -> bool {
        let mut changes = self.settings.orders.subscribe();
        let known = async { while !self.may_link(edge) && changes.changed().await.is_ok() {} };
        edge != self.settings.own && tokio::time::timeout(MAX_HEARSAY, known).await.is_ok()
    }

    /// Resolves when the edge is removed from the installation.
    async fn removed(&self, edge: EdgeId) {
        let mut changes = self.settings.orders.subscribe();
        while self.may_link(edge) {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    pub(crate) fn metrics(&self) -> &MeshMetrics {
        &self.metrics
    }

    /// The state of the edge with this card.
    fn peer(&self, card: &Arc<EdgeCard>) -> Arc<Peer> {
        let mut peers = self.peers.lock();
        let peer = peers.entry(card.edge).or_insert_with(|| Arc::new(Peer::new(card.clone()))).clone();
        drop(peers);
        peer.set_card(card);
        peer
    }

    /// The other edges that are live, as far as is known.
    pub(crate) fn others(&self) -> Vec<Arc<EdgeCard>> {
        let edges = self.settings.fleet.edges().into_iter().map(|edge| edge.card);
        edges.filter(|card| card.edge != self.settings.own).collect()
    }

    /// The cards of these edges, as far as they are known: of those that left, the last ones.
    pub(crate) fn cards_of(&self, edges: &[EdgeId]) -> Vec<Arc<EdgeCard>> {
        let live = self.others();
        let known = |id: &EdgeId| {
            let of_fleet = live.iter().find(|card| card.edge == *id).cloned();
            of_fleet.or_else(|| self.peers.lock().get(id).map(|peer| peer.card()))
        };
        edges.iter().filter_map(known).collect()
    }

    /// The round trip of the link to this edge, if there is one.
    pub(crate) fn link_round_trip(&self, edge: EdgeId) -> Option<Duration> {
        let peer = self.peers.lock().get(&edge).cloned();
        peer.and_then(|peer| peer.link_round_trip())
    }

    fn peers(&self) -> Vec<Arc<Peer>> {
        self.peers.lock().values().cloned().collect()
    }

    /// Lines for `/healthz`: the edges that could not be reached lately.
    pub(crate) fn notes(&self) -> String {
        let unreached = self.peers().into_iter().filter_map(|peer| {
            let seconds = peer.unreached_for()?.as_secs();
            Some(format!("mesh: {} not reached, for {seconds} s\n", peer.name()))
        });
        unreached.collect()
    }

    pub(crate) fn register_metrics(self: &Arc<Self>, registry: &mut Registry) {
        self.metrics.register(self, registry);
    }
}
