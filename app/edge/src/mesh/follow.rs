//! Keeps tunnels at other edges among the origins of sockets, as edges report their tunnels and as routes change. A
//! tunnel that is attached here is not among them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use sallyport_bus::{EdgeCard, FleetNews, RouteChange, TunnelOnEdge};
use sallyport_model::{EdgeId, OriginHealth, SocketId, TunnelId, TunnelPresence};
use tokio::sync::broadcast::error::RecvError;

use super::Mesh;

use crate::origins::{
    locality::Place,
    transport::{Holder, OriginTransport, remote::RemoteTransport},
};

/// A tunnel at another edge, as an origin of a socket.
struct RemoteHolder {
    socket: SocketId,
    card: Arc<EdgeCard>,
    place: Place,
    spread: bool,
    health: OriginHealth,
}

impl RemoteHolder {
    fn new(tunnel: TunnelOnEdge) -> Self {
        // A tunnel without a region of its own counts as in the region of its edge.
        let region = tunnel.presence.home.clone().unwrap_or_else(|| tunnel.card.region.clone());
        let place = Place { region: Some(region), is_local: false };
        let TunnelPresence { socket, spread, health, .. } = tunnel.presence;
        Self { socket, card: tunnel.card, place, spread, health }
    }

    fn is(&self, other: &Self) -> bool {
        (self.socket, self.card.edge, &self.place) == (other.socket, other.card.edge, &other.place)
    }

    /// Whether the two are the same origin, which spreads streams otherwise.
    fn differs_in_spread(&self, other: &Self) -> bool {
        self.is(other) && self.spread != other.spread
    }

    fn is_same(&self, other: &Self) -> bool {
        self.is(other) && self.spread == other.spread
    }
}

/// The remote tunnels that are among the origins now.
#[derive(Default)]
struct KnownHolders {
    ways: HashMap<TunnelId, Vec<RemoteHolder>>,
    by_socket: HashMap<SocketId, HashSet<TunnelId>>,
}

impl KnownHolders {
    fn of(&self, socket: SocketId) -> Vec<TunnelId> {
        self.by_socket.get(&socket).into_iter().flatten().copied().collect()
    }

    /// Replaces the remote holders of a tunnel, and returns the former ones.
    fn replace(&mut self, tunnel: TunnelId, ways: Vec<RemoteHolder>) -> Vec<RemoteHolder> {
        let sockets: Vec<_> = ways.iter().map(|transport| transport.socket).collect();
        let former = if ways.is_empty() { self.ways.remove(&tunnel) } else { self.ways.insert(tunnel, ways) };
        let former = former.unwrap_or_default();
        for socket in former.iter().map(|transport| transport.socket) {
            if let Some(tunnels) = self.by_socket.get_mut(&socket) {
                tunnels.remove(&tunnel);
                if tunnels.is_empty() {
                    self.by_socket.remove(&socket);
                }
            }
        }
        for socket in sockets {
            self.by_socket.entry(socket).or_default().insert(tunnel);
        }
        former
    }
}

impl Mesh {
    /// Follows the reports of other edges for as long as the edge serves.
    pub(super) async fn follow(&self) {
        let mut news = self.settings.fleet.news();
        let mut own = self.state.directory.subscribe();
        let mut routes = self.state.routes.subscribe();
        let mut orders = self.settings.orders.subscribe();
        let mut known = KnownHolders::default();
        self.sync_all(&mut known);
        loop {
            tokio::select! {
                news = news.recv() => match news {
                    Ok(FleetNews::Tunnel(tunnel)) => self.sync(&mut known, tunnel),
                    Ok(FleetNews::Edge(other)) => self.sees(other),
                    Err(RecvError::Lagged(_)) => self.sync_all(&mut known),
                    Err(RecvError::Closed) => return,
                },
                tunnel = own.recv() => match tunnel {
                    Ok(tunnel) => self.sync(&mut known, tunnel),
                    Err(RecvError::Lagged(_)) => self.sync_all(&mut known),
                    Err(RecvError::Closed) => return,
                },
                Ok(()) = orders.changed() => self.sync_all(&mut known),
                change = routes.next() => match change {
                    Some(RouteChange::Changed(route)) => {
                        let mut tunnels = known.of(route.id);
                        tunnels.extend(route.tunnels.iter().map(|tunnel| tunnel.id));
                        tunnels.into_iter().for_each(|tunnel| self.sync(&mut known, tunnel));
                    }
                    Some(RouteChange::Removed(socket)) => {
                        known.of(socket).into_iter().for_each(|tunnel| self.sync(&mut known, tunnel));
                    }
                    Some(RouteChange::Missed) => self.sync_all(&mut known),
                    None => return,
                },
            }
        }
    }

    /// Handles an edge that came, left, or changed its card.
    fn sees(&self, edge: EdgeId) {
        if let Some(seen) = self.settings.fleet.edge(edge).filter(|_| edge != self.settings.own) {
            self.peer(&seen.card);
        }
    }

    fn sync_all(&self, known: &mut KnownHolders) {
        self.settings.fleet.edges().iter().for_each(|seen| self.sees(seen.card.edge));
        let mut tunnels: HashSet<_> = self.settings.fleet.all_tunnels().into_iter().collect();
        tunnels.extend(known.ways.keys());
        tunnels.into_iter().for_each(|tunnel| self.sync(known, tunnel));
    }

    /// Updates the origins for this tunnel from the reports of the edges that hold it.
    fn sync(&self, known: &mut KnownHolders, tunnel: TunnelId) {
        let wanted: Vec<_> = self.held_elsewhere(tunnel).into_iter().map(RemoteHolder::new).collect();
        let former = known.ways.get(&tunnel).map(Vec::as_slice).unwrap_or_default();
        // Such an origin leaves before it comes again, since both have the same place.
        for transport in former.iter().filter(|former| wanted.iter().any(|wanted| wanted.differs_in_spread(former))) {
            self.leaves(tunnel, transport);
        }
        for transport in wanted.iter().filter(|transport| !former.iter().any(|former| former.is_same(transport))) {
            let peer = self.peer(&transport.card);
            let to = RemoteTransport::new(tunnel, transport.socket, transport.spread, peer, self.me.clone());
            self.state.sockets.pool(transport.socket).arrived_at(OriginTransport::Remote(to), transport.place.clone());
        }
        let knows = |transport: &RemoteHolder| {
            former.iter().any(|former| former.is_same(transport) && former.health == transport.health)
        };
        for transport in wanted.iter().filter(|transport| !knows(transport)) {
            self.state.sockets.pool(transport.socket).set_reported_health(
                tunnel,
                Holder::Edge(transport.card.edge),
                &transport.place,
                transport.health,
            );
        }
        for transport in former.iter().filter(|transport| !wanted.iter().any(|wanted| wanted.is(transport))) {
            self.leaves(tunnel, transport);
        }
        drop(known.replace(tunnel, wanted));
    }

    /// Removes the tunnel at another edge from the origins of its socket.
    fn leaves(&self, tunnel: TunnelId, transport: &RemoteHolder) {
        // A deleted socket has lost its pool, and this origin with it.
        if self.state.routes.get(transport.socket).is_some() {
            let holder = Holder::Edge(transport.card.edge);
            self.state.sockets.pool(transport.socket).left_from(tunnel, holder, &transport.place);
        }
    }

    /// The other edges that hold this tunnel, if its socket lists the tunnel and the tunnel is not attached here.
    fn held_elsewhere(&self, tunnel: TunnelId) -> Vec<TunnelOnEdge> {
        if self.state.directory.get(tunnel).is_some() {
            return Vec::new();
        }
        let mut holders = self.settings.fleet.tunnel_on_edges(tunnel);
        holders.retain(|holder| {
            let route = self.state.routes.get(holder.presence.socket);
            self.may_link(holder.card.edge) && route.is_some_and(|route| route.tunnel(tunnel).is_some())
        });
        holders
    }
}
