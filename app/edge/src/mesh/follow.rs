//! The ways to tunnels at other edges, among the origins of sockets: they come and go with what edges say they hold, and with the
//! routes. A tunnel that is attached here has no such way.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use sallyport_bus::{EdgeCard, FleetNews, RouteChange, TunnelOnEdge};
use sallyport_model::{EdgeId, OriginHealth, SocketId, TunnelId};
use tokio::sync::broadcast::error::RecvError;

use super::{Mesh, remote::RemoteWay};
use crate::{
    Edge,
    place::Place,
    way::{Holder, Way},
};

/// A way to a tunnel.
struct WayBy {
    socket: SocketId,
    card: Arc<EdgeCard>,
    place: Place,
    health: OriginHealth,
}

impl WayBy {
    fn new(held: TunnelOnEdge) -> Self {
        // Where nobody says where the origin is, it counts as in the region of the edge.
        let region = held.presence.home.clone().unwrap_or_else(|| held.card.region.clone());
        let place = Place { region: Some(region), is_local: false };
        Self { socket: held.presence.socket, card: held.card, place, health: held.presence.health }
    }

    fn is(&self, other: &Self) -> bool {
        (self.socket, self.card.edge, &self.place) == (other.socket, other.card.edge, &other.place)
    }
}

/// The ways that are among the origins now.
#[derive(Default)]
struct Known {
    ways: HashMap<TunnelId, Vec<WayBy>>,
    by_socket: HashMap<SocketId, HashSet<TunnelId>>,
}

impl Known {
    fn of(&self, socket: SocketId) -> Vec<TunnelId> {
        self.by_socket.get(&socket).into_iter().flatten().copied().collect()
    }

    /// These are the ways from now on; gives the former ones.
    fn replace(&mut self, tunnel: TunnelId, ways: Vec<WayBy>) -> Vec<WayBy> {
        let sockets: Vec<_> = ways.iter().map(|way| way.socket).collect();
        let former = if ways.is_empty() { self.ways.remove(&tunnel) } else { self.ways.insert(tunnel, ways) };
        let former = former.unwrap_or_default();
        for socket in former.iter().map(|way| way.socket) {
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
    /// Follows what other edges hold, for as long as the edge serves.
    pub(super) async fn follow(&self, edge: &Edge) {
        let mut news = self.settings.fleet.news();
        let mut own = edge.directory.subscribe();
        let mut routes = edge.routes.subscribe();
        let mut orders = self.settings.orders.subscribe();
        let mut known = Known::default();
        self.sync_all(edge, &mut known);
        loop {
            tokio::select! {
                news = news.recv() => match news {
                    Ok(FleetNews::Tunnel(tunnel)) => self.sync(edge, &mut known, tunnel),
                    Ok(FleetNews::Edge(other)) => self.sees(other),
                    Err(RecvError::Lagged(_)) => self.sync_all(edge, &mut known),
                    Err(RecvError::Closed) => return,
                },
                tunnel = own.recv() => match tunnel {
                    Ok(tunnel) => self.sync(edge, &mut known, tunnel),
                    Err(RecvError::Lagged(_)) => self.sync_all(edge, &mut known),
                    Err(RecvError::Closed) => return,
                },
                Ok(()) = orders.changed() => self.sync_all(edge, &mut known),
                change = routes.next() => match change {
                    Some(RouteChange::Changed(route)) => {
                        let mut tunnels = known.of(route.id);
                        tunnels.extend(route.tunnels.iter().map(|tunnel| tunnel.id));
                        tunnels.into_iter().for_each(|tunnel| self.sync(edge, &mut known, tunnel));
                    }
                    Some(RouteChange::Removed(socket)) => {
                        known.of(socket).into_iter().for_each(|tunnel| self.sync(edge, &mut known, tunnel));
                    }
                    Some(RouteChange::Missed) => self.sync_all(edge, &mut known),
                    None => return,
                },
            }
        }
    }

    /// An edge came, left, or says something else of itself.
    fn sees(&self, edge: EdgeId) {
        if let Some(seen) = self.settings.fleet.edge(edge).filter(|_| edge != self.settings.own) {
            self.peer(&seen.card);
        }
    }

    fn sync_all(&self, edge: &Edge, known: &mut Known) {
        self.settings.fleet.edges().iter().for_each(|seen| self.sees(seen.card.edge));
        let mut tunnels: HashSet<_> = self.settings.fleet.all_tunnels().into_iter().collect();
        tunnels.extend(known.ways.keys());
        tunnels.into_iter().for_each(|tunnel| self.sync(edge, known, tunnel));
    }

    /// Brings the ways to the tunnel in line with who holds it.
    fn sync(&self, edge: &Edge, known: &mut Known, tunnel: TunnelId) {
        let wanted: Vec<_> = self.held_elsewhere(edge, tunnel).into_iter().map(WayBy::new).collect();
        let former = known.ways.get(&tunnel).map(Vec::as_slice).unwrap_or_default();
        for way in wanted.iter().filter(|way| !former.iter().any(|former| former.is(way))) {
            let to = RemoteWay::new(tunnel, way.socket, self.peer(&way.card), self.me.clone());
            edge.sockets.pool(way.socket).arrived_at(Way::Remote(to), way.place.clone());
        }
        let knows = |way: &WayBy| former.iter().any(|former| former.is(way) && former.health == way.health);
        for way in wanted.iter().filter(|way| !knows(way)) {
            edge.sockets.pool(way.socket).is_said(tunnel, Holder::Edge(way.card.edge), &way.place, way.health);
        }
        for way in former.iter().filter(|way| !wanted.iter().any(|wanted| wanted.is(way))) {
            // The pool of a socket that is gone is gone too.
            if edge.routes.get(way.socket).is_some() {
                edge.sockets.pool(way.socket).left_from(tunnel, Holder::Edge(way.card.edge), &way.place);
            }
        }
        drop(known.replace(tunnel, wanted));
    }

    /// How other edges of the installation hold the tunnel, when its socket has it and it is not attached here.
    fn held_elsewhere(&self, edge: &Edge, tunnel: TunnelId) -> Vec<TunnelOnEdge> {
        if edge.directory.get(tunnel).is_some() {
            return Vec::new();
        }
        let mut held = self.settings.fleet.held(tunnel);
        held.retain(|held| {
            let route = edge.routes.get(held.presence.socket);
            self.may_link(held.card.edge) && route.is_some_and(|route| route.tunnel(tunnel).is_some())
        });
        held
    }
}
