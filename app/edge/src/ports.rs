//! The ports that sockets have for themselves: opened and closed as the routes change.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use sallyport_bus::{RouteChange, RouteChanges};
use sallyport_model::{SocketId, SocketRoute, SocketType};
use sallyport_net::{Shutdown, set_keepalive, set_nodelay};
use tokio::{net::TcpStream, task::JoinHandle};

use crate::{
    Edge,
    doors::{self, Doors},
    flow::{self, Arrival},
    listener,
};

/// How long after a port could not be opened it is tried again.
const RETRY_PERIOD: Duration = Duration::from_secs(5);

/// The open ports.
pub(crate) struct Ports {
    edge: Arc<Edge>,
    doors: Arc<Doors>,
    ip: IpAddr,
    shutdown: Shutdown,
    open: HashMap<SocketId, OpenPort>,
}

/// A port that is open, or waits until it can be.
struct OpenPort {
    port: u16,
    socket_type: SocketType,
    task: JoinHandle<()>,
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Ports {
    /// No port yet; they will be opened on this address.
    pub(crate) fn new(edge: Arc<Edge>, doors: Arc<Doors>, ip: IpAddr, shutdown: Shutdown) -> Self {
        Self { edge, doors, ip, shutdown, open: HashMap::new() }
    }

    /// Follows the routes until the shutdown; then every port is closed.
    pub(crate) async fn follow(mut self, mut changes: RouteChanges) {
        self.look_at_all();
        let shutdown = self.shutdown.clone();
        loop {
            let change = tokio::select! {
                () = shutdown.wait() => return,
                change = changes.next() => change,
            };
            match change {
                None => return,
                Some(RouteChange::Changed(route)) => self.look_at(&route),
                Some(RouteChange::Removed(socket)) => drop(self.open.remove(&socket)),
                Some(RouteChange::Missed) => self.look_at_all(),
            }
        }
    }

    fn look_at_all(&mut self) {
        let routes = self.edge.routes.all();
        self.open.retain(|socket, _| routes.iter().any(|route| route.id == *socket));
        routes.iter().for_each(|route| self.look_at(route));
    }

    fn look_at(&mut self, route: &SocketRoute) {
        let wanted = route.port.filter(|_| matches!(route.socket_type, SocketType::Tcp | SocketType::Tls));
        let Some(port) = wanted else {
            self.open.remove(&route.id);
            return;
        };
        let is_open =
            self.open.get(&route.id).is_some_and(|open| open.port == port && open.socket_type == route.socket_type);
        if !is_open {
            // The former one is closed first: it may be the same port.
            self.open.remove(&route.id);
            let task = tokio::spawn(serve_port(
                self.edge.clone(),
                self.doors.clone(),
                route.id,
                SocketAddr::new(self.ip, port),
                self.shutdown.clone(),
            ));
            self.open.insert(route.id, OpenPort { port, socket_type: route.socket_type, task });
        }
    }
}

/// Opens the port, as soon as that can be done, and takes its connections.
async fn serve_port(edge: Arc<Edge>, doors: Arc<Doors>, socket: SocketId, address: SocketAddr, shutdown: Shutdown) {
    let mut told = false;
    let listener = loop {
        match sallyport_net::listen(address, "--port-range") {
            Ok(listener) => break listener,
            Err(error) => {
                if !told {
                    tracing::warn!(%socket, %error, "a socket's port cannot be opened; it is tried again every few seconds");
                }
                told = true;
                tokio::time::sleep(RETRY_PERIOD).await;
            }
        }
    };
    tracing::info!(%socket, port = address.port(), "a socket's port is open");
    listener::accept(listener, shutdown, |stream, peer| take(&edge, &doors, socket, stream, peer)).await;
}

/// A connection to a port of its own: the port says which socket is meant.
fn take(edge: &Arc<Edge>, doors: &Arc<Doors>, socket: SocketId, stream: TcpStream, peer: SocketAddr) {
    let Some(place) = edge.connections.enter(peer.ip()) else {
        edge.metrics.flow_ended("tcp", "too-many-connections");
        return;
    };
    let Some(route) = edge.routes.get(socket) else { return };
    let (edge, doors) = (edge.clone(), doors.clone());
    tokio::spawn(async move {
        let _place = place;
        if set_nodelay(&stream).and_then(|()| set_keepalive(&stream)).is_err() {
            return;
        }
        let Some((stream, ends)) = doors.proxied(&edge, stream, peer).await else { return };
        match route.socket_type {
            SocketType::Tls => Box::pin(doors::serve_tls_port(edge, doors, route, stream, ends)).await,
            _ => {
                let arrival = Arrival { io: stream, route, ends, server_name: String::new() };
                flow::serve(edge, arrival).await;
            }
        }
    });
}
