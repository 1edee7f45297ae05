//! The ports of single sockets, opened and closed as the routes change.
//!
//! One shard accepts a port's connections. The shard serves its own share of them without a wake-up of another thread.

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
    edge::Edge,
    lifecycle::counts::ConnectionPlace,
    listener::{
        accept,
        handshake::{self, ConnectionRouter},
    },
    tcp::flow::{self, AcceptedFlow},
    udp,
};

/// How long to wait before a port that could not be opened is tried again.
const RETRY_PERIOD: Duration = Duration::from_secs(5);
/// The same for the first [`MAX_QUICK_RETRIES`] tries: the port may still be closing in this process.
const QUICK_RETRY_PERIOD: Duration = Duration::from_millis(20);
/// How many tries follow each other quickly.
const MAX_QUICK_RETRIES: u32 = 5;

/// The open ports.
pub(crate) struct Ports {
    edge: Arc<Edge>,
    router: Arc<ConnectionRouter>,
    ip: IpAddr,
    own: OwnPorts,
    shutdown: Shutdown,
    open: HashMap<SocketId, OpenPort>,
}

/// A port that is open, or is being tried until it opens.
struct OpenPort {
    port: u16,
    socket_type: SocketType,
    task: JoinHandle<()>,
    /// The edge shuts down: the task ends by itself once its flows have ended.
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
    /// No port yet. Ports are opened on this address, or inherited from the process that ran before.
    pub(crate) fn new(
        edge: Arc<Edge>,
        router: Arc<ConnectionRouter>,
        ip: IpAddr,
        own: OwnPorts,
        shutdown: Shutdown,
    ) -> Self {
        Self { edge, router, ip, own, shutdown, open: HashMap::new() }
    }

    /// Follows the routes until the shutdown, which closes every port.
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
        let routes = self.edge.state.routes.all();
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
        // The former port is closed first, because the new one may have the same number.
        self.open.remove(&route.id);
        let place = Place {
            edge: self.edge.clone(),
            own: self.own.clone(),
            socket: route.id,
            address: SocketAddr::new(self.ip, port),
            shutdown: self.shutdown.clone(),
        };
        let task = match route.socket_type {
            SocketType::Udp => tokio::spawn(serve_udp(place, self.own.take_udp(SocketAddr::new(self.ip, port)))),
            _ => {
                let inherited = self.own.take_listener(SocketAddr::new(self.ip, port));
                tokio::spawn(serve_tcp(place, self.router.clone(), inherited))
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
    /// Opens the port, and tries again until that succeeds.
    async fn open<T>(&self, open: impl Fn(SocketAddr, &'static str) -> Result<T, ListenError>) -> T {
        let mut tries = 0;
        loop {
            match open(self.address, "--port-range") {
                Ok(opened) => return opened,
                Err(_) if tries < MAX_QUICK_RETRIES => tokio::time::sleep(QUICK_RETRY_PERIOD).await,
                Err(error) => {
                    if tries == MAX_QUICK_RETRIES {
                        let socket = self.socket;
                        tracing::warn!(%socket, %error, "the port of a socket cannot be opened; retrying every few seconds");
                    }
                    tokio::time::sleep(RETRY_PERIOD).await;
                }
            }
            tries = tries.saturating_add(1);
        }
    }

    fn say_open(&self) {
        tracing::info!(socket = %self.socket, port = self.address.port(), "the port of a socket is open");
    }
}

/// Opens the port and serves its connections.
async fn serve_tcp(place: Place, router: Arc<ConnectionRouter>, inherited: Option<TcpListener>) {
    let listener = match inherited {
        Some(listener) => listener,
        None => place.open(sallyport_net::listen).await,
    };
    let _opened = place.own.opened(&listener);
    place.say_open();
    let Place { edge, socket, shutdown, .. } = place;
    let shards = edge.state.config.shards.clone();
    let take = move |stream, peer| take(&edge, &router, socket, stream, peer);
    if let Err(error) = accept::accept_in_shard(&shards, listener, shutdown, take).await {
        tracing::error!(%socket, %error, "the port of a socket accepts no more connections");
    }
}

/// Opens the port and serves its datagrams.
async fn serve_udp(place: Place, inherited: Option<UdpPort>) {
    let port = match inherited {
        Some(port) => port,
        None => place.open(UdpPort::bind).await,
    };
    let opened = place.own.opened(&port);
    place.edge.http.exposition.set_own_ports(opened.ports());
    place.say_open();
    udp::serve(place.edge.udp.clone(), place.socket, port, opened, place.shutdown).await;
}

/// Serves a connection to a socket's own port; the port determines the socket.
fn take(edge: &Arc<Edge>, router: &Arc<ConnectionRouter>, socket: SocketId, stream: net::TcpStream, peer: SocketAddr) {
    let Some(place) = edge.connections.enter(peer.ip()) else {
        edge.state.metrics.flow_ended("tcp", "too-many-connections");
        return;
    };
    let Some(route) = edge.state.routes.get(socket) else { return };
    let (edge, router) = (edge.clone(), router.clone());
    if !router.is_trusted(peer.ip()) {
        // A closed connection has no local address; its flow ends at once.
        let destination = stream.local_addr().unwrap_or(peer);
        serve(edge, router, route, stream, ProxiedAddresses { client: peer, destination }, place);
        return;
    }
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    tokio::spawn(async move {
        if let Some((stream, ends)) = router.proxied(&edge, stream, peer).await
            && let Ok(stream) = stream.into_std()
        {
            serve(edge, router, route, stream, ends, place);
        }
    });
}

/// Serves the connection in a task that captures only what it needs: many connections stay idle for long.
fn serve(
    edge: Arc<Edge>,
    router: Arc<ConnectionRouter>,
    route: Arc<SocketRoute>,
    stream: net::TcpStream,
    ends: ProxiedAddresses,
    place: ConnectionPlace,
) {
    let shards = edge.state.config.shards.clone();
    if route.socket_type == SocketType::Tls {
        shards.spawn_unwatched(stream, async move |stream| {
            handshake::serve_tls_port(edge, router, route, stream, ends).await;
            drop(place);
        });
    } else {
        let guards = (edge.state.running.enter(), place);
        shards.spawn_unwatched(stream, move |stream| {
            let accepted = AcceptedFlow {
                io: ShardTcpStream::new(stream),
                route,
                ends,
                server_name: String::new(),
                identity: None,
            };
            flow::serve(edge.access.clone(), accepted, guards)
        });
    }
}
