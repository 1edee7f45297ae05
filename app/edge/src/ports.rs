//! The ports that sockets have for themselves: opened and closed as the routes change.
//!
//! A port's connections are accepted in a shard: every other one (with two shards) is served there too, and costs no
//! wake-up of another thread.

use std::{
    collections::HashMap,
    net::{self, IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use sallyport_bus::{RouteChange, RouteChanges};
use sallyport_model::{SocketId, SocketRoute, SocketType};
use sallyport_net::{ListenError, OwnPorts, ProxiedAddresses, ShardTcpStream, Shutdown, UdpPort};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::{
    Edge,
    doors::{self, Doors},
    flow::{self, Arrival},
    limits::ConnectionPlace,
    listener, udp,
};

/// How long after a port could not be opened it is tried again.
const RETRY_PERIOD: Duration = Duration::from_secs(5);
/// How long the first times: the port may be one that is just being closed here.
const QUICK_RETRY_PERIOD: Duration = Duration::from_millis(20);
/// How many times it is tried again so soon.
const MAX_QUICK_RETRIES: u32 = 5;

/// The open ports.
pub(crate) struct Ports {
    edge: Arc<Edge>,
    doors: Arc<Doors>,
    ip: IpAddr,
    own: OwnPorts,
    shutdown: Shutdown,
    open: HashMap<SocketId, OpenPort>,
}

/// A port that is open, or waits until it can be.
struct OpenPort {
    port: u16,
    socket_type: SocketType,
    task: JoinHandle<()>,
    /// The edge is shut down: the task ends by itself when it has done what is left to do.
    is_finishing: bool,
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        if !self.is_finishing {
            self.task.abort();
        }
    }
}

impl Ports {
    /// No port yet; they will be opened on this address, or are taken from those that a former process had open.
    pub(crate) fn new(edge: Arc<Edge>, doors: Arc<Doors>, ip: IpAddr, own: OwnPorts, shutdown: Shutdown) -> Self {
        Self { edge, doors, ip, own, shutdown, open: HashMap::new() }
    }

    /// Follows the routes until the shutdown; then every port is closed.
    pub(crate) async fn follow(mut self, mut changes: RouteChanges) {
        self.look_at_all();
        self.own.forget_inherited();
        let shutdown = self.shutdown.clone();
        loop {
            let change = tokio::select! {
                () = shutdown.wait() => {
                    self.open.values_mut().for_each(|open| open.is_finishing = true);
                    return;
                }
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
        let has_port = matches!(route.socket_type, SocketType::Tcp | SocketType::Tls | SocketType::Udp);
        let Some(port) = route.port.filter(|_| has_port) else {
            self.open.remove(&route.id);
            return;
        };
        let is_open =
            self.open.get(&route.id).is_some_and(|open| open.port == port && open.socket_type == route.socket_type);
        if is_open {
            return;
        }
        // The former one is closed first: it may be the same port.
        self.open.remove(&route.id);
        let place = Place {
            edge: self.edge.clone(),
            own: self.own.clone(),
            socket: route.id,
            address: SocketAddr::new(self.ip, port),
            shutdown: self.shutdown.clone(),
        };
        let task = match route.socket_type {
            SocketType::Udp => {
                sallyport_net::spawn_boxed(serve_udp(place, self.own.take_udp(SocketAddr::new(self.ip, port))))
            }
            _ => {
                let inherited = self.own.take_listener(SocketAddr::new(self.ip, port));
                sallyport_net::spawn_boxed(serve_tcp(place, self.doors.clone(), inherited))
            }
        };
        let open = OpenPort { port, socket_type: route.socket_type, task, is_finishing: false };
        self.open.insert(route.id, open);
    }
}

/// What it takes to open a port and to serve it.
struct Place {
    edge: Arc<Edge>,
    own: OwnPorts,
    socket: SocketId,
    address: SocketAddr,
    shutdown: Shutdown,
}

impl Place {
    /// Opens the port, as soon as that can be done.
    async fn open<T>(&self, open: impl Fn(SocketAddr, &'static str) -> Result<T, ListenError>) -> T {
        let mut tries = 0;
        loop {
            match open(self.address, "--port-range") {
                Ok(opened) => return opened,
                Err(_) if tries < MAX_QUICK_RETRIES => tokio::time::sleep(QUICK_RETRY_PERIOD).await,
                Err(error) => {
                    if tries == MAX_QUICK_RETRIES {
                        let socket = self.socket;
                        tracing::warn!(%socket, %error, "a socket's port cannot be opened; it is tried again every few seconds");
                    }
                    tokio::time::sleep(RETRY_PERIOD).await;
                }
            }
            tries = tries.saturating_add(1);
        }
    }

    fn say_open(&self) {
        tracing::info!(socket = %self.socket, port = self.address.port(), "a socket's port is open");
    }
}

/// Opens the port and takes its connections.
async fn serve_tcp(place: Place, doors: Arc<Doors>, inherited: Option<TcpListener>) {
    let listener = match inherited {
        Some(listener) => listener,
        None => place.open(sallyport_net::listen).await,
    };
    let _opened = place.own.opened(&listener);
    place.say_open();
    let Place { edge, socket, shutdown, .. } = place;
    let shards = edge.config.shards.clone();
    let take = move |stream, peer| take(&edge, &doors, socket, stream, peer);
    if let Err(error) = listener::accept_in_shard(&shards, listener, shutdown, take).await {
        tracing::error!(%socket, %error, "a socket's port takes no more connections");
    }
}

/// Opens the port and takes its datagrams.
async fn serve_udp(place: Place, inherited: Option<UdpPort>) {
    let port = match inherited {
        Some(port) => port,
        None => place.open(UdpPort::bind).await,
    };
    let opened = place.own.opened(&port);
    place.say_open();
    udp::serve(place.edge, place.socket, port, opened, place.shutdown).await;
}

/// A connection to a port of its own: the port says which socket is meant.
fn take(edge: &Arc<Edge>, doors: &Arc<Doors>, socket: SocketId, stream: net::TcpStream, peer: SocketAddr) {
    let Some(place) = edge.connections.enter(peer.ip()) else {
        edge.metrics.flow_ended("tcp", "too-many-connections");
        return;
    };
    let Some(route) = edge.routes.get(socket) else { return };
    let (edge, doors) = (edge.clone(), doors.clone());
    if !doors.is_trusted(peer.ip()) {
        // A connection that is gone has no address; nothing will come of the flow then.
        let destination = stream.local_addr().unwrap_or(peer);
        serve(edge, doors, route, stream, ProxiedAddresses { client: peer, destination }, place);
        return;
    }
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    tokio::spawn(async move {
        if let Some((stream, ends)) = doors.proxied(&edge, stream, peer).await
            && let Ok(stream) = stream.into_std()
        {
            serve(edge, doors, route, stream, ends, place);
        }
    });
}

/// Serves the connection in a task of its own, which holds nothing beside what it serves: connections idle for long.
fn serve(
    edge: Arc<Edge>,
    doors: Arc<Doors>,
    route: Arc<SocketRoute>,
    stream: net::TcpStream,
    ends: ProxiedAddresses,
    place: ConnectionPlace,
) {
    let shards = edge.config.shards.clone();
    if route.socket_type == SocketType::Tls {
        shards.spawn_unwatched(stream, async move |stream| {
            doors::serve_tls_port(edge, doors, route, stream, ends).await;
            drop(place);
        });
    } else {
        let held = (edge.running.enter(), place);
        shards.spawn_unwatched(stream, move |stream| {
            let arrival =
                Arrival { io: ShardTcpStream::new(stream), route, ends, server_name: String::new(), identity: None };
            flow::serve(edge, arrival, held)
        });
    }
}
